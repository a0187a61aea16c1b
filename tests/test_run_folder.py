"""Temporary files of a run are in memory where there is room, and gone after it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import run_folder
from tests.run_folder import in_memory


def test_files_go_there_and_are_gone_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "LEAST_FREE_GIB", 0)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("TMPDIR", raising=False)

    leave = in_memory(tmp_path)

    assert leave is not None
    with tempfile.NamedTemporaryFile(delete=False) as made:
        assert Path(made.name).is_relative_to(tmp_path)
    assert Path(os.environ["TMPDIR"]).is_relative_to(tmp_path)
    leave()
    assert list(tmp_path.iterdir()) == []
    assert "TMPDIR" not in os.environ


def test_a_place_that_was_chosen_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "LEAST_FREE_GIB", 0)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert in_memory(tmp_path) is None


@pytest.mark.parametrize("least_gib", [0, 2**40])
def test_without_room_or_without_such_a_place_they_stay_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least_gib: int
) -> None:
    monkeypatch.setattr(run_folder, "LEAST_FREE_GIB", least_gib)
    monkeypatch.delenv("TMPDIR", raising=False)
    assert in_memory(tmp_path / "none" if not least_gib else tmp_path) is None
    assert "TMPDIR" not in os.environ


def test_what_a_run_that_was_killed_left_is_removed_by_the_next_one_and_what_goes_on_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "LEAST_FREE_GIB", 0)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("TMPDIR", raising=False)
    make = (
        f"from pathlib import Path; from tests import run_folder; run_folder.LEAST_FREE_GIB = 0; "
        f"run_folder.in_memory(Path({str(tmp_path)!r})); print(flush=True); input()"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", make], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]
        )
        for _ in range(2)
    ]
    other = tmp_path / "ms-of-somebody-else"
    other.mkdir()
    try:
        for run in runs:
            assert run.stdout is not None
            run.stdout.readline()
        killed, goes_on = (next(tmp_path.glob(f"ms-{run.pid}-*")) for run in runs)
        (killed / "file").write_text("much")
        runs[0].kill()
        runs[0].wait()

        leave = in_memory(tmp_path)

        assert leave is not None
        assert not killed.exists()
        assert goes_on.exists()
        assert other.exists()
        leave()
    finally:
        for run in runs:
            run.kill()
            run.communicate()

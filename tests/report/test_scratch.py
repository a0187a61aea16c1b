"""Folders that outlive whoever was killed are removed by the next."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mainstay.report.scratch import scratch_folder

HOLDS = """
import signal, sys, tempfile
tempfile.tempdir = sys.argv[1]
from mainstay.report.scratch import scratch_folder
with scratch_folder("run-") as folder:
    print(folder, flush=True)
    signal.pause()
"""


def test_what_a_killed_process_left_goes_with_the_next_start_and_what_is_held_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "run-of-somebody-else").mkdir()
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        theirs = Path(holder.stdout.readline().strip())
        try:
            with scratch_folder("run-") as ours:
                assert theirs.is_dir()
                assert Path(ours).is_dir()
            assert not Path(ours).exists()
        finally:
            holder.kill()
        holder.wait()
    assert theirs.is_dir()

    with scratch_folder("run-"):
        assert not theirs.exists()

    assert [path.name for path in tmp_path.iterdir()] == ["run-of-somebody-else"]

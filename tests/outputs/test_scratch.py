"""What user code gets while a unit runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from pathlib import Path

import pytest

from mainstay.errors import InvalidInput, OutputMissing
from mainstay.outputs import Origin, OutputStore, Unit, scratch as writing
from mainstay.outputs.scratch import Scratch, sweep

OUTPUTS = {"result": "result.npy", "log": "log.txt"}


async def present(store: OutputStore, unit: Unit) -> bool:
    (seen,) = await store.look([unit], OUTPUTS, verify="content", fresh=True)
    return seen.whole


async def test_what_was_written_is_published_when_the_block_ends(store: OutputStore, unit: Unit) -> None:
    async with store.writing(unit, OUTPUTS, Origin(job="j", attempt=1)) as out:
        out["result"].write_bytes(b"0123456789")
        out.save("log", b"all fine")
        private = out["result"].parent
        assert (list(out), len(out), out["result"].name) == (["result", "log"], 2, "result.npy")
        assert not await present(store, unit)

    assert await present(store, unit)
    assert (await store.read(unit, "result.npy"), await store.read(unit, "log.txt")) == (b"0123456789", b"all fine")
    assert not private.parent.exists()


async def test_an_error_publishes_nothing_and_leaves_no_files(memory: OutputStore, unit: Unit) -> None:
    seen: list[Path] = []

    async def fails() -> None:
        async with memory.writing(unit, OUTPUTS) as out:
            seen.append(out["result"])
            out.save("result", b"1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()

    assert not await present(memory, unit)
    assert not seen[0].parent.exists()


async def test_an_output_that_was_not_written_is_named_and_nothing_is_published(
    memory: OutputStore, unit: Unit
) -> None:
    with pytest.raises(OutputMissing, match=r"has no output log \(it ended without writing it; .*log.txt\)"):
        async with memory.writing(unit, OUTPUTS) as out:
            out.save("result", b"1")

    assert await memory.blobs.tops() == []


async def test_only_declared_outputs_can_be_written(memory: OutputStore, unit: Unit) -> None:
    async with memory.writing(unit, OUTPUTS) as out:
        with pytest.raises(InvalidInput, match="did you mean 'result'"):
            out.save("resutl", b"")
        with pytest.raises(InvalidInput, match="it declares result, log"):
            _ = out["plot"]
        for name in out:
            out.save(name, b"1")
            out[name].with_name("plot.png").write_bytes(b"undeclared")

    entry = await memory.entry(unit)
    assert entry is not None
    assert sorted(entry.outputs) == ["log.txt", "result.npy"]


def test_folders_of_killed_owners_go_and_those_at_work_stay(tmp_path: Path) -> None:
    old = time.time() - 3600
    for name in ("dead", "alive", "young"):
        (tmp_path / name / "files").mkdir(parents=True)
        (tmp_path / name / ".owner").touch()
        if name != "young":
            os.utime(tmp_path / name, (old, old))

    with (tmp_path / "alive" / ".owner").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        sweep(tmp_path)

    assert sorted(os.listdir(tmp_path)) == ["alive", "young"]


def test_a_sweep_leaves_what_is_no_scratch_folder(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").touch()
    os.utime(tmp_path / "thesis", (0, 0))

    sweep(tmp_path)

    assert os.listdir(tmp_path / "thesis") == ["chapter.tex"]


@pytest.mark.parametrize("by", ["a link to it", "a file"])
def test_whoever_was_first_in_the_temporary_folder_leads_nobody_astray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    ours = tmp_path / "home"
    (ours / "old").mkdir(parents=True)
    (ours / "old" / ".owner").touch()
    os.utime(ours / "old", (0, 0))
    (tmp_path / "tmp").mkdir()
    taken = tmp_path / "tmp" / f"mainstay-outputs-{os.getuid()}"
    if by == "a file":
        taken.touch()
    else:
        taken.symlink_to(ours)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(writing, "_homes", {})

    with contextlib.closing(Scratch()) as scratch:
        assert scratch.folder.is_dir()
        assert ours not in scratch.folder.resolve().parents

    assert os.listdir(ours) == ["old"]

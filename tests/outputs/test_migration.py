"""Older layouts are read where they are, and moved."""

from __future__ import annotations

from itertools import count

import pytest

from mainstay.errors import OutputMissing
from mainstay.outputs import OutputMigration, OutputStore, Unit, migrate, unit_folder
from mainstay.outputs.layout import legacy_folder
from tests.outputs.legacy import write_legacy
from tests.outputs.test_interrupted import Stopped, Stopping

FILES = {"result": b"0123456789", "log": b"all fine"}


async def states(store: OutputStore, unit: Unit) -> list[str]:
    (seen,) = await store.look([unit], list(FILES), verify="content")
    return [finding.state for finding in seen.outputs.values()]


async def test_an_older_layout_is_read_where_it_is(store: OutputStore, unit: Unit) -> None:
    folder = await write_legacy(store, unit, result=b"0123456789")

    (seen,) = await store.look([unit], list(FILES), verify="content")

    assert seen.outputs["result"][:3] == ("present", "in layout v0, which has no checksums", folder)
    assert seen.outputs["log"].state == "missing"
    assert await store.read(unit, "result") == b"0123456789"
    with pytest.raises(OutputMissing):
        await store.read(unit, "log")


async def test_an_older_layout_is_moved_and_then_has_checksums(store: OutputStore, unit: Unit) -> None:
    other = Unit("seir", "1", {"n": 1}, None)
    for one in (unit, other):
        await write_legacy(store, one, **FILES)

    would = await migrate(store, dry_run=True)
    assert (would.moved, would.files, would.bytes, would.left) == (2, 4, 36, {})
    assert await store.entry(unit) is None

    told: list[int] = []
    done = await migrate(store, progress=lambda found: told.append(found.moved))

    assert (done.moved, done.left, told) == (2, {}, [1, 2])
    for one in (unit, other):
        (seen,) = await store.look([one], list(FILES), verify="content", fresh=True)
        assert [tuple(finding) for finding in seen.outputs.values()] == [("present", "", "", None)] * 2
        assert await store.blobs.find([legacy_folder(one)]) == [{}]
    assert await migrate(store) == OutputMigration(dry_run=False)


async def test_a_move_that_stops_after_any_step_loses_nothing_and_goes_on(memory: OutputStore, unit: Unit) -> None:
    blobs = memory.blobs
    for at in count():
        memory.blobs = blobs
        await memory.remove(unit)
        await write_legacy(memory, unit, **FILES)
        memory.blobs = Stopping(blobs, at)
        try:
            await migrate(memory)
        except Stopped:
            memory.blobs = blobs
            assert await states(memory, unit) == ["present", "present"], f"after {at} steps"
            assert (await migrate(memory)).left == {}
            assert await states(memory, unit) == ["present", "present"]
            assert await memory.blobs.find([legacy_folder(unit)]) == [{}]
        else:
            assert at >= 5
            break


async def test_what_cannot_be_moved_is_left_and_told(memory: OutputStore, unit: Unit) -> None:
    nobodys, other, recomputed, named = (Unit("sir", "1", {"n": n}, 1) for n in range(4))
    await write_legacy(memory, unit, **FILES)
    await write_legacy(memory, nobodys, **FILES)
    await memory.blobs.delete([f"{legacy_folder(nobodys)}/unit.json"])
    theirs = await write_legacy(memory, other, **FILES)
    await memory.blobs.write(f"{theirs}/unit.json", b'{"study": "sir", "code": "1", "params": {}, "seed": 1}')
    await write_legacy(memory, recomputed, **FILES)
    await memory.publish(recomputed, {"result": b"another", "log": b"log"})
    await write_legacy(memory, named, _odd=b"")

    done = await migrate(memory)

    assert done.moved == 1
    assert {folder: why.partition(" (")[0][:38] for folder, why in done.left.items()} == {
        legacy_folder(nobodys): "it has no unit.json: the unit of these",
        legacy_folder(other): "its unit.json is that of another unit",
        legacy_folder(recomputed): f"result differs from {unit_folder(recomputed)}"[:38],
        legacy_folder(named): "output: '_odd' begins with _, which is",
    }
    assert await memory.read(recomputed, "result") == b"another"


async def test_a_study_that_has_no_older_layout_costs_no_search(memory: OutputStore, unit: Unit) -> None:
    asked: list[str] = []
    blobs = memory.blobs

    class Watching(Stopping):
        async def find(self, folders: list[str]) -> object:
            asked.extend(folders)
            return await blobs.find(folders)

    memory.blobs = Watching(blobs, -1)
    await memory.look([unit], list(FILES))

    assert len(asked) == 1

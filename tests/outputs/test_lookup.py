"""Many units at once: in little time, and without reading again what was read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mainstay.outputs import Origin, OutputStore, Unit, output_path

UNITS = 5_000


class Counting:
    """Counts what is read."""

    def __init__(self, blobs: Any) -> None:
        self._blobs = blobs
        self.read_paths: list[str] = []
        self.digested: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    async def read(self, paths: Sequence[str]) -> Any:
        self.read_paths += paths
        return await self._blobs.read(paths)

    async def digests(self, paths: Sequence[str]) -> Any:
        self.digested += paths
        return await self._blobs.digests(paths)


def counting(store: OutputStore) -> Counting:
    counter = Counting(store.blobs)
    store.blobs = counter
    return counter


async def test_what_has_not_changed_is_not_read_again_unless_asked(store: OutputStore, unit: Unit) -> None:
    files: dict[str, Path | bytes] = {"result": b"0123456789"}
    path = output_path(unit, "result")
    await store.publish(unit, files)
    counter = counting(store)

    async def look(*, fresh: bool = False) -> tuple[bool, int]:
        """Whether it is whole, and how many files were read for that: its output and its entry, at most."""
        counter.digested.clear()
        counter.read_paths.clear()
        (seen,) = await store.look([unit], list(files), verify="content", fresh=fresh)
        return seen.whole, len(counter.digested) + (len(counter.read_paths) if seen.whole else 0)

    assert await look() == (True, 0)
    assert await look(fresh=True) == (True, 2)
    assert await look() == (True, 0)
    await store.blobs.write(path, b"9876543210")
    assert await look() == (False, 1)
    assert await look() == (False, 0)


async def test_by_size_no_entry_is_read_of_units_that_are_whole(folder: OutputStore) -> None:
    units = [Unit("sir", "1", {"n": n}, 1) for n in range(50)]
    await asyncio.gather(*(folder.publish(unit, {"a": b"1", "b": b"2"}) for unit in units))
    counter = counting(folder)

    assert all(seen.whole for seen in await folder.look(units, ["a"]))
    assert counter.digested == []
    assert all(seen.whole for seen in await folder.look(units, ["a", "b"], verify="content", fresh=True))
    assert (len(counter.digested), len(counter.read_paths)) == (100, 50), "by content two outputs and an entry of each"
    counter.read_paths.clear()

    await folder.blobs.delete([output_path(units[3], "a")])
    seen = await folder.look(units, ["a", "b"])
    assert [n for n, one in enumerate(seen) if not one.whole] == [3]
    assert len(counter.read_paths) == 1


@pytest.mark.slow
async def test_thousands_of_units_are_looked_up_with_exactly_what_is_wrong(folder: OutputStore) -> None:
    """Written as `publish` leaves them, by hand: publishing as many takes longer than all other tests."""
    units = [Unit("many", "1", {"n": n}, 0) for n in range(UNITS)]
    await asyncio.to_thread(plant, Path(folder.place.removeprefix("file://")), units)
    await folder.blobs.delete([output_path(units[n], "result") for n in (7, 8)])
    await folder.blobs.write(output_path(units[9], "result"), b"short")
    await folder.blobs.write(output_path(units[10], "result"), b"012345678X")

    quick = {
        n: one.outputs["result"].state for n, one in enumerate(await folder.look(units, ["result"])) if not one.whole
    }
    deep = await folder.look(units, ["result"], verify="content")

    assert quick == {7: "missing", 8: "missing", 9: "corrupt"}
    assert {n: one.outputs["result"].state for n, one in enumerate(deep) if not one.whole} == {**quick, 10: "corrupt"}


def plant(root: Path, units: list[Unit]) -> None:
    from mainstay.outputs import Origin, OutputFile, entry, unit_folder

    contents = {"result": OutputFile(10, "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882")}
    for unit in units:
        folder = unit_folder(unit)
        (root / folder).mkdir(parents=True)
        (root / folder / "result").write_bytes(b"0123456789")
        body = entry.body_of(unit, contents, Origin(), 0, kept={})
        (root / folder / entry.name_for(folder, body, contents)).write_bytes(body)


async def test_what_one_fresh_look_has_read_is_not_forgotten_by_the_next(memory: OutputStore) -> None:
    """A big study is looked at in pieces."""
    pieces = [[Unit("sir", "1", {}, seed)] for seed in range(2)]
    for (unit,) in pieces:
        await memory.publish(unit, {"result": b"done"})
    counter = counting(memory)
    for piece in pieces:
        await memory.look(piece, ["result"], verify="content", fresh=True)
    assert (len(counter.digested), len(counter.read_paths)) == (2, 2), "the output and the entry of each"

    for piece in pieces:
        assert all(seen.whole for seen in await memory.look(piece, ["result"], verify="content"))

    assert (len(counter.digested), len(counter.read_paths)) == (2, 2), "the output and the entry of each"


async def test_a_digest_of_what_is_there_differs_when_it_came_out_otherwise(store: OutputStore, unit: Unit) -> None:
    seen = []
    for content in (b"one", b"two", b"one"):
        await store.publish(unit, {"result": content})
        for verify in ("size", "content"):
            seen += await store.look([unit], ["result"], verify=verify)  # type: ignore[arg-type]

    told = [each.contents for each in seen]
    assert told[0] == told[1] == told[4] == told[5] != told[2] == told[3]
    assert all(told)


async def test_fields_of_ones_own_are_told_for_many_units_at_once(store: OutputStore) -> None:
    units = [Unit("sir", "1", {}, seed) for seed in range(3)]
    await store.publish(units[0], {"result": b""}, Origin(more={"made_of": "this"}))
    await store.publish(units[2], {"result": b""})

    assert await store.notes(units) == [{"made_of": "this"}, {}, {}]


async def test_the_source_that_made_a_unit_is_told_by_content(store: OutputStore, unit: Unit) -> None:
    await store.publish(unit, {"result": b"1"}, Origin(more={"source": "abc123"}))

    for fresh in (False, True):
        (seen,) = await store.look([unit], ["result"], verify="content", fresh=fresh)
        assert seen.source == "abc123"
    (seen,) = await store.look([unit], ["result"])
    assert seen.source == "", "by size no entry is read"

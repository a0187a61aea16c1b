"""Publishing, looking and reading, on every kind of storage."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from mainstay.errors import InvalidInput, OutputCorrupt, OutputMissing, TooManyConflicts
from mainstay.outputs import Origin, OutputStore, Unit, audit, entry, output_path, unit_folder
from tests.outputs.adapters import Adapter

OUTPUTS = {"result": "result.npy", "log": "log.txt"}
FILES: dict[str, Path | bytes] = {"result.npy": b"0123456789", "log.txt": b"all fine"}


async def states(store: OutputStore, unit: Unit, **how: object) -> dict[str, str]:
    (seen,) = await store.look([unit], OUTPUTS, **how)  # type: ignore[arg-type]  # of `look`, whatever they are
    return {name: finding.state for name, finding in seen.outputs.items()}


async def detail(store: OutputStore, unit: Unit, name: str = "result") -> str:
    (seen,) = await store.look([unit], OUTPUTS, verify="content")
    return seen.outputs[name].detail


def all_are(state: str) -> dict[str, str]:
    return dict.fromkeys(OUTPUTS, state)


async def entries(store: OutputStore, unit: Unit) -> list[str]:
    (files,) = await store.blobs.find([unit_folder(unit)])
    assert isinstance(files, dict)
    return [f"{unit_folder(unit)}/{name}" for name in files if name.startswith("_entry-")]


async def test_what_was_published_is_present_and_reads_back(store: OutputStore, unit: Unit, tmp_path: Path) -> None:
    assert await states(store, unit) == all_are("missing")

    (tmp_path / "log").write_bytes(b"all fine")
    await store.publish(unit, {"result.npy": b"0123456789", "log.txt": tmp_path / "log"})

    assert await states(store, unit) == all_are("present")
    assert await states(store, unit, verify="content", fresh=True) == all_are("present")
    assert await store.read(unit, "result.npy") == b"0123456789"
    assert (await store.save_to(unit, "log.txt", tmp_path / "copy")).read_bytes() == b"all fine"


async def test_the_entry_says_who_made_what_when(store: OutputStore, unit: Unit) -> None:
    await store.publish(unit, FILES, Origin(job="j-1", attempt=2, by="worker-1"))

    found = await store.entry(unit)

    assert found is not None
    assert (found.study, found.code, found.params, found.seed) == ("sir", "2024-10", {"beta": 0.3, "gamma": 0.1}, 7)
    assert (found.job, found.attempt, found.by, found.at_ms > 0) == ("j-1", 2, "worker-1", True)
    assert {name: file.size for name, file in found.outputs.items()} == {"log.txt": 8, "result.npy": 10}


async def test_a_file_that_is_gone_is_missing_and_the_others_are_not(store: OutputStore, unit: Unit) -> None:
    await store.publish(unit, FILES)
    await store.blobs.delete([output_path(unit, "result.npy")])

    assert await states(store, unit) == {"result": "missing", "log": "present"}
    assert await detail(store, unit) == "the file is gone"
    with pytest.raises(OutputMissing, match=r"unit beta=0.3_gamma=0.1-s7 of sir has no output result.npy .*v1/sir/"):
        await store.read(unit, "result.npy")


async def test_a_truncated_file_is_corrupt_by_its_size(store: OutputStore, unit: Unit, tmp_path: Path) -> None:
    await store.publish(unit, FILES)
    await store.blobs.write(output_path(unit, "result.npy"), b"01234")

    assert await states(store, unit) == {"result": "corrupt", "log": "present"}
    assert await detail(store, unit) == "it has 5 bytes, 10 were published"
    with pytest.raises(OutputCorrupt, match="counts as missing: run the unit again"):
        await store.save_to(unit, "result.npy", tmp_path / "copy")
    assert list(tmp_path.glob("*copy*")) == []


async def test_a_flipped_bit_is_found_by_its_content_only(store: OutputStore, unit: Unit, tmp_path: Path) -> None:
    await store.publish(unit, FILES)
    await store.blobs.write(output_path(unit, "result.npy"), b"0123456788")

    assert await states(store, unit) == all_are("present")
    assert await states(store, unit, verify="content") == {"result": "corrupt", "log": "present"}
    assert "its SHA-256 is" in await detail(store, unit)
    with pytest.raises(OutputCorrupt, match="its SHA-256 is"):
        await store.read(unit, "result.npy")
    with pytest.raises(OutputCorrupt):
        await store.save_to(unit, "result.npy", tmp_path / "copy")


async def test_files_that_were_swapped_are_corrupt(store: OutputStore, unit: Unit) -> None:
    other = Unit("sir", "2024-10", {"beta": 0.4, "gamma": 0.1}, 7)
    await store.publish(unit, FILES)
    await store.publish(other, {**FILES, "result.npy": b"9876543210"})
    await store.blobs.write(output_path(unit, "result.npy"), b"9876543210")
    await store.blobs.write(output_path(other, "result.npy"), b"0123456789")

    for swapped in (unit, other):
        assert await states(store, swapped, verify="content") == {"result": "corrupt", "log": "present"}


async def test_the_entry_of_another_unit_does_not_count(store: OutputStore, unit: Unit) -> None:
    other = Unit("sir", "2024-10", {"beta": 0.4, "gamma": 0.1}, 7)
    await store.publish(other, FILES)
    (theirs,) = await entries(store, other)
    (body,) = await store.blobs.read([theirs])
    assert isinstance(body, bytes)
    for name, content in {**FILES, theirs.rpartition("/")[2]: body}.items():
        await store.blobs.write(f"{unit_folder(unit)}/{name}", content)

    assert await states(store, unit) == all_are("corrupt")
    assert await detail(store, unit) == "its entry is that of another unit"


async def test_files_without_an_entry_were_not_published(store: OutputStore, unit: Unit) -> None:
    for name, content in FILES.items():
        await store.blobs.write(output_path(unit, name), content)

    assert await states(store, unit, verify="content") == all_are("missing")
    assert "was not published" in await detail(store, unit)


async def test_a_damaged_entry_vouches_for_nothing(store: OutputStore, unit: Unit) -> None:
    await store.publish(unit, FILES)
    (path,) = await entries(store, unit)
    await store.blobs.write(path, b'{"schema": 1, "addr')

    assert await states(store, unit) == all_are("corrupt")
    assert await detail(store, unit) == "its entry is damaged"


@pytest.mark.parametrize("earlier", [False, True], ids=["own-digest", "of-an-earlier-version"])
@pytest.mark.parametrize("field", [b'"sha256": "', b'"address": "', b'"beta": ', b'"seed": ', b'"schema": '])
async def test_one_flipped_bit_in_an_entry_is_found_and_mended_by_publishing_again(
    store: OutputStore, unit: Unit, field: bytes, earlier: bool
) -> None:
    await store.publish(unit, FILES)
    path = await _renamed_as_before(store, unit) if earlier else (await entries(store, unit))[0]
    assert await states(store, unit, verify="content") == all_are("present")
    await _flip(store, path, field)

    assert await states(store, unit, verify="content") == all_are("corrupt")
    (seen,) = await store.look([unit], OUTPUTS, verify="content")
    assert {finding.detail for finding in seen.outputs.values()} == {"its entry is damaged"}
    assert [(bad.state, bad.detail) for bad in (await audit(store)).bad] == [("corrupt", "its entry is damaged")]
    with pytest.raises(OutputCorrupt, match="its entry is damaged"):
        await store.read(unit, "log.txt")

    await store.publish(unit, FILES)

    assert await states(store, unit, verify="content", fresh=True) == all_are("present")
    assert len(await entries(store, unit)) == 1
    assert await store.read(unit, "log.txt") == FILES["log.txt"]


async def test_what_a_damaged_entry_notes_is_not_carried_on(store: OutputStore, unit: Unit) -> None:
    await store.publish(unit, FILES, Origin(more={"made_of": "0123456789"}))
    (path,) = await entries(store, unit)
    await _flip(store, path, b'"made_of": "')

    assert await store.notes([unit]) == [{}]
    await store.publish(unit, FILES)
    assert await store.notes([unit]) == [{}]


async def test_an_entry_of_an_earlier_version_is_read_as_it_is(store: OutputStore, unit: Unit) -> None:
    await store.publish(unit, FILES, Origin(job="then", more={"cpu_s": 12.5}))
    await _renamed_as_before(store, unit)

    assert await states(store, unit, verify="content", fresh=True) == all_are("present")
    assert await store.read(unit, "log.txt") == FILES["log.txt"]
    assert await store.notes([unit]) == [{"cpu_s": 12.5}]
    (before,) = await store.look([unit], OUTPUTS, verify="content")
    await store.publish(unit, FILES)
    (after,) = await store.look([unit], OUTPUTS, verify="content")
    assert before.contents == after.contents != "", "what was made of it is not outdated"


async def _renamed_as_before(store: OutputStore, unit: Unit) -> str:
    """Its entry's name as earlier versions wrote it, without a digest of the entry itself."""
    (path,) = await entries(store, unit)
    (body,) = await store.blobs.read([path])
    assert isinstance(body, bytes)
    parts = path.split("-")
    earlier = "-".join([*parts[:-2], parts[-1]])
    await store.blobs.delete([path])
    await store.blobs.write(earlier, body)
    return earlier


async def _flip(store: OutputStore, path: str, field: bytes) -> None:
    (body,) = await store.blobs.read([path])
    assert isinstance(body, bytes)
    at = body.index(field) + len(field)
    await store.blobs.write(path, body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])


async def test_an_entry_of_a_newer_mainstay_is_unreadable_and_not_missing(store: OutputStore, unit: Unit) -> None:
    await store.publish(unit, FILES)
    (path,) = await entries(store, unit)
    body = b'{"schema": 2, "outputs": []}'
    await store.blobs.delete([path])
    await store.blobs.write(f"{unit_folder(unit)}/{entry.name_for(unit_folder(unit), body, {})}", body)

    assert await states(store, unit) == all_are("unreadable")
    assert "upgrade" in await detail(store, unit)


async def test_an_output_that_was_not_part_of_it_is_missing(store: OutputStore, unit: Unit) -> None:
    await store.publish(unit, {"log.txt": b"all fine"})

    assert await states(store, unit) == {"result": "missing", "log": "present"}
    assert await detail(store, unit) == "the unit was published without it"


async def test_publishing_again_replaces_all_that_was_there(store: OutputStore, unit: Unit) -> None:
    await store.publish(unit, {**FILES, "more.txt": b"more"})
    await store.publish(unit, {"result.npy": b"another", "log.txt": b"log"})

    assert await states(store, unit, verify="content", fresh=True) == all_are("present")
    assert await store.read(unit, "result.npy") == b"another"
    (files,) = await store.blobs.find([unit_folder(unit)])
    assert isinstance(files, dict)
    assert sorted(name for name in files if not name.startswith("_")) == ["log.txt", "result.npy"]
    assert len(await entries(store, unit)) == 1


async def test_what_a_newer_version_noted_stays_when_the_same_is_published_again(
    store: OutputStore, unit: Unit
) -> None:
    await store.publish(unit, FILES, Origin(job="first", more={"cpu_s": 12.5}))
    await store.publish(unit, FILES, Origin(job="second"))

    (path,) = await entries(store, unit)
    (body,) = await store.blobs.read([path])
    assert isinstance(body, bytes)
    assert (json.loads(body)["job"], json.loads(body)["cpu_s"]) == ("second", 12.5)

    await store.publish(unit, {**FILES, "log.txt": b"different"})
    (path,) = await entries(store, unit)
    (body,) = await store.blobs.read([path])
    assert isinstance(body, bytes)
    assert "cpu_s" not in json.loads(body)


async def test_a_damaged_unit_is_whole_again_after_it_was_published_again(store: OutputStore, unit: Unit) -> None:
    await store.publish(unit, FILES)
    (path,) = await entries(store, unit)
    await store.blobs.write(path, b"")
    await store.blobs.write(output_path(unit, "result.npy"), b"")

    await store.publish(unit, FILES)

    assert await states(store, unit, verify="content", fresh=True) == all_are("present")
    assert len(await entries(store, unit)) == 1


async def test_removing_a_unit_leaves_nothing(store: OutputStore, unit: Unit) -> None:
    await store.publish(unit, FILES)

    assert await store.remove(unit) == 3
    assert await states(store, unit) == all_are("missing")
    assert await store.blobs.find([unit_folder(unit)]) == [{}]
    assert await store.remove(unit) == 0


@pytest.mark.parametrize("same", [True, False], ids=["with the same results", "with different results"])
async def test_several_may_publish_one_unit_at_a_time(
    adapter: Adapter, store: OutputStore, tmp_path: Path, unit: Unit, same: bool
) -> None:
    stores = [await adapter.open(tmp_path) if adapter.shared else store for _ in range(4)]
    bodies = [b"result" if same else f"result {n}".encode() for n in range(4)]
    told = await asyncio.gather(
        *(one.publish(unit, {"result.npy": body, "log.txt": body}) for one, body in zip(stores, bodies, strict=True)),
        return_exceptions=True,
    )

    assert [
        error for error in told if isinstance(error, BaseException) and not isinstance(error, TooManyConflicts)
    ] == []
    assert await states(store, unit, verify="content", fresh=True) == all_are("present")
    result = await store.read(unit, "result.npy")
    assert result in bodies
    assert await store.read(unit, "log.txt") == result
    for one in stores:
        await one.close()


async def test_units_are_looked_up_in_their_order(store: OutputStore) -> None:
    units = [Unit("sir", "1", {"n": n}, n % 3) for n in range(40)]
    await asyncio.gather(*(store.publish(unit, FILES) for unit in units[::2]))

    seen = await store.look(units, OUTPUTS, verify="content")

    assert [one.unit for one in seen] == units
    assert [one.whole for one in seen] == [n % 2 == 0 for n in range(40)]


async def test_the_units_of_a_study_can_be_listed(store: OutputStore, unit: Unit) -> None:
    other = Unit("sir2", "1", {}, 1)
    await store.publish(unit, FILES)
    await store.publish(other, FILES)

    assert [folder async for folder, _ in store.scan("sir")] == [unit_folder(unit)]
    assert [folder async for folder, _ in store.scan()] == [unit_folder(unit), unit_folder(other)]


async def test_what_cannot_be_published_is_refused(memory: OutputStore, unit: Unit, tmp_path: Path) -> None:
    for files, complaint in (
        ({}, "there is none"),
        ({"_entry": b""}, "reserved for Mainstay"),
        ({"a": "text"}, "neither bytes nor a path"),
        ({"a": tmp_path / "none"}, "cannot be read"),
    ):
        with pytest.raises(InvalidInput, match=complaint):
            await memory.publish(unit, files)  # type: ignore[arg-type]  # what a caller without types may give
    with pytest.raises(InvalidInput, match="neither 'size' nor 'content'"):
        await memory.look([unit], OUTPUTS, verify="bytes")  # type: ignore[arg-type]  # the same

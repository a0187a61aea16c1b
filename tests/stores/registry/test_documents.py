"""Programs of different versions share a registry."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainstay.errors import SchemaTooNew, StoreDamaged
from mainstay.model import QueueSettings
from mainstay.stores.registry import JobRegistry
from mainstay.stores.registry.files import packed, unpacked
from mainstay.stores.versioned import VersionedStore
from tests.stores.registry.conftest import Join

Line = dict[str, Any]


async def commit(below: VersionedStore, number: int, *lines: Line, schema: tuple[int, int] = (1, 1)) -> None:
    """What another program writes."""
    header = {"t": "commit", "schema": schema, "n": number, "id": f"newer-{number}", "by": "newer"}
    body = packed([msgspec.json.encode(line) for line in (header, *lines)])
    assert await below.create_if_absent(f"log/{number:012d}", body) is not None


async def snapshot_of(store: JobRegistry, below: VersionedStore) -> list[Line]:
    """Make one, and read what is in it."""
    seen = await store._base.log.head()
    assert seen is not None
    made = await store._base.home.run(lambda: store._base.snapshots.snapshot(seen))
    assert made is not None
    lines: list[Line] = []
    for key in await below.list_keys(made.head.snapshot):
        found = await below.get(key)
        assert found is not None
        lines += [line for _, line in unpacked(found.value, key)]
    return lines


async def test_what_a_newer_program_wrote_survives_a_rewrite_and_a_snapshot(join: Join, below: VersionedStore) -> None:
    world, _ = await join()
    job = await world.submit()
    options = [*msgspec.json.decode(msgspec.json.encode(job.options)), "a newer option"]
    await commit(
        below,
        2,
        {"t": "change", "id": job.id, "colour": "red", "options": options, "error": {**_error("first"), "hint": "x"}},
        {"t": "queue", "id": "default", "paused": False, "reason": None, "owner": "ann"},
        {"t": "budget", "id": "b1", "most": 7},
        {"t": "budget", "id": "b2", "most": 8},
    )
    await commit(below, 3, {"t": "budget", "id": "b2", "gone": True})

    await world.move(await world.row(job), "cancelled")
    await world.store.set_queue(QueueSettings(name="default", paused=True))

    assert isinstance(world.store, JobRegistry)
    lines = await snapshot_of(world.store, below)
    [row] = [line for line in lines if line["t"] == "job"]
    assert (row["status"], row["colour"], row["options"], row["error"]["hint"]) == ("cancelled", "red", options, "x")
    [queue] = [line for line in lines if line["t"] == "queue"]
    assert (queue["paused"], queue["owner"]) == (True, "ann")
    assert [line for line in lines if line["t"] == "budget"] == [{"t": "budget", "id": "b1", "most": 7}]

    again, _ = await join()
    assert isinstance(again.store, JobRegistry)
    assert [line for line in await _lines(again.store) if line["t"] == "job"] == [row]
    assert await world.store.check() == []


def _error(message: str) -> Line:
    return {"type": "ValueError", "message": message}


async def _lines(store: JobRegistry) -> list[Line]:
    return list(store._base.follower.replica.lines())


async def test_a_value_that_is_replaced_takes_what_was_unknown_in_it_along(join: Join, below: VersionedStore) -> None:
    world, _ = await join()
    job = await world.submit()
    await commit(below, 2, {"t": "change", "id": job.id, "error": {**_error("first"), "hint": "x"}})
    await commit(below, 3, {"t": "change", "id": job.id, "error": _error("second")})
    assert (await world.row(job)).error is not None
    assert isinstance(world.store, JobRegistry)
    [row] = [line for line in await _lines(world.store) if line["t"] == "job"]
    assert row["error"] == {**msgspec.to_builtins((await world.row(job)).error)}


async def test_a_row_of_an_older_program_has_the_first_value_of_a_newer_field(
    join: Join, below: VersionedStore
) -> None:
    world, _ = await join()
    job = await world.submit()
    assert isinstance(world.store, JobRegistry)
    [line] = [line for line in await _lines(world.store) if line["t"] == "job"]
    older = {name: value for name, value in line.items() if name != "losses"}
    await commit(below, 2, older)
    assert (await world.row(job)).losses == 0


@pytest.mark.parametrize("key", ["log/000000000002", "head"])
async def test_a_registry_of_a_newer_kind_is_refused_with_advice(join: Join, below: VersionedStore, key: str) -> None:
    world, _ = await join()
    await world.submit()
    if key == "head":
        found = await below.get("head")
        assert found is not None
        raw = msgspec.json.decode(found.value)
        await below.put("head", msgspec.json.encode({**raw, "schema": [2, 0]}), found.version)
        with pytest.raises(SchemaTooNew, match="head in memory: has schema 2.0.*upgrade Mainstay"):
            await join()
        return
    await commit(below, 2, schema=(2, 0))
    with pytest.raises(SchemaTooNew, match=f"{key} in memory: has schema 2.0"):
        await world.submit()


async def test_a_commit_that_cannot_be_read_is_named_and_nothing_is_built_on_it(
    join: Join, below: VersionedStore
) -> None:
    world, _ = await join()
    await world.submit()
    await below.create_if_absent("log/000000000002", b"\x28\xb5\x2f\xfd and then nothing")
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="log/000000000002 in memory: cannot be read"):
            await world.submit()
    assert await below.get("log/000000000003") is None
    with pytest.raises(StoreDamaged):
        await join()


async def test_a_commit_that_does_not_fit_what_was_before_is_named(join: Join, below: VersionedStore) -> None:
    world, _ = await join()
    await commit(below, 1, {"t": "change", "id": "nobody", "status": "succeeded"})
    with pytest.raises(StoreDamaged, match="log/000000000001"):
        await world.store.stats()

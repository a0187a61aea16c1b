"""Snapshots, chunks and what is removed: nothing is lost, wherever whoever rolls dies."""

from __future__ import annotations

import msgspec
import pytest
import zstandard

from mainstay.errors import StoreUnavailable
from mainstay.lifecycle import Event
from mainstay.stores.registry import JobRegistry
from mainstay.stores.registry.follower import BLOCK
from mainstay.stores.versioned import VersionedStore
from mainstay.stores.versioned.memory import MemoryVersioned
from mainstay.testing import VirtualClock
from tests.conformance.world import World
from tests.stores.registry.between import Between
from tests.stores.registry.conftest import Join

HOUR_S = 3600.0


class Killed(Exception):
    """Stands for SIGKILL: nothing that comes after it is done."""


async def commits(world: World, n: int) -> None:
    """So many commits, each with a job, and all that they lead to."""
    for _ in range(n):
        await world.store.insert([world.new()])
    await rolled(world)


async def rolled(world: World) -> None:
    """Wait for what is done in the background."""
    store = world.store
    assert isinstance(store, JobRegistry)
    await store._base.home.run(store._base.snapshots.settled)


async def roll(world: World) -> None:
    store = world.store
    assert isinstance(store, JobRegistry)
    await store._base.home.run(store._base.snapshots.roll)


async def count(world: World) -> int:
    return len(await world.store.audit(limit=10_000))


async def test_who_opens_a_registry_reads_the_snapshot_and_what_came_after(join: Join) -> None:
    world, _ = await join()
    await world.open("s1")
    waiting = await world.submit(after=[await world.submit()], delay_s=3)
    await world.running("s1")
    await commits(world, BLOCK + 5)

    again, way = await join()

    assert way.made("get", "snapshot/") == 1
    assert way.made("get", "log/") < 24
    assert await again.dump() == await world.dump()
    assert await again.store.awaited(waiting.id) == await world.store.awaited(waiting.id)
    await again.assert_sound()


async def test_the_events_of_a_block_are_kept_in_a_file_that_people_can_read(join: Join, below: VersionedStore) -> None:
    world, _ = await join()
    await world.open("s1")
    job = await world.running()
    await world.move(job, "succeeded", holder="s1")
    await commits(world, BLOCK)

    found = await below.get("events/000000000001-000000000064.ndjson.zst")
    assert found is not None
    lines = zstandard.decompress(found.value).splitlines()
    events = [msgspec.json.decode(line, type=Event) for line in lines]
    mine = [event for event in events if event.job_id == job.id]
    assert [event.to for event in mine] == ["pending", "running", "succeeded"]
    assert world.store.chain.first_break(await world.row(job), mine) is None
    assert len(events) == 3 + BLOCK - 3


async def test_commits_go_an_hour_after_a_snapshot_has_them_and_not_before(
    join: Join, below: VersionedStore, clock: VirtualClock
) -> None:
    world, _ = await join()
    await commits(world, BLOCK)
    clock.advance(HOUR_S - 1)
    await roll(world)
    assert len(await below.list_keys("log/")) == BLOCK
    clock.advance(1)
    await roll(world)
    assert await below.list_keys("log/") == []
    again, _ = await join()
    assert await count(again) == BLOCK
    await world.submit()
    assert await count(again) == BLOCK + 1
    await again.assert_sound()


async def test_an_old_snapshot_goes_when_a_newer_one_is_old(
    join: Join, below: VersionedStore, clock: VirtualClock
) -> None:
    world, _ = await join()
    await commits(world, BLOCK)
    [first] = await below.list_keys("snapshot/")
    await commits(world, BLOCK)
    assert first in await below.list_keys("snapshot/")
    clock.advance(HOUR_S)
    await roll(world)
    assert first not in await below.list_keys("snapshot/")
    await world.assert_sound()


async def test_who_was_away_while_commits_were_removed_begins_at_the_snapshot(join: Join, clock: VirtualClock) -> None:
    slow, _ = await join()
    await slow.submit()
    world, _ = await join()
    await commits(world, BLOCK)
    clock.advance(HOUR_S)
    await roll(world)
    await commits(world, 3)
    assert await slow.dump() == await world.dump()
    await slow.submit()
    assert await count(world) == BLOCK + 5
    await world.assert_sound()


async def test_a_commit_of_a_number_that_was_removed_meanwhile_does_not_count(join: Join, clock: VirtualClock) -> None:
    world, _ = await join()
    slow, way = await join()

    async def stand_still(call: str, key: str) -> None:
        if call == "create" and key == "log/000000000001":
            way.before = None
            await commits(world, BLOCK)
            clock.advance(HOUR_S)
            await roll(world)

    way.before = stand_still
    job = await slow.submit()
    assert await count(world) == BLOCK + 1
    assert (await world.row(job)).status == "pending"
    assert way.made("create", "log/000000000001") == 1, "it was made, and taken back"
    assert (await slow.dump())["events"] == (await world.dump())["events"]
    await world.assert_sound()


async def test_a_snapshot_in_many_parts_is_one(join: Join, below: VersionedStore) -> None:
    world, _ = await join(part_bytes=4096)
    await commits(world, BLOCK)
    assert len(await below.list_keys("snapshot/")) > 5
    again, _ = await join()
    assert await again.dump() == await world.dump()


@pytest.mark.slow
@pytest.mark.parametrize("reached", [True, False], ids=["after it reached the store", "before"])
async def test_whoever_rolls_may_die_at_any_call(
    join: Join, below: VersionedStore, clock: VirtualClock, reached: bool
) -> None:
    """A roll that has everything to do: chunks, a snapshot in parts, the head, and what is to be removed. Each of its
    calls in turn is the last that a process makes; then another opens the registry, goes on and rolls."""
    assert isinstance(below, MemoryVersioned)
    first, way = await join()
    await commits(first, BLOCK)
    clock.advance(26 * HOUR_S)
    way.before = _no_roll
    await commits(first, BLOCK + BLOCK // 2)
    begun = dict(below._values)
    expected = (await first.dump())["rows"]

    total = await _calls_of_a_roll(join, below)
    # of the removals, which are many and alike, some
    for last in [*range(9), *range(9, total - 9, 29), *range(total - 9, total)]:
        below._values = dict(begun)
        dying, way = await join(part_bytes=16_384)
        await _die_at(dying, way, last, reached=reached)
        after, _ = await join()
        assert (await after.dump())["rows"] == expected
        await after.assert_sound()
        await roll(after)
        await after.submit()
        await after.assert_sound()
        await after.store.close()


async def _no_roll(call: str, key: str) -> None:
    if key.startswith(("events/", "snapshot/")):
        raise StoreUnavailable("not now")


async def _calls_of_a_roll(join: Join, below: VersionedStore) -> int:
    assert isinstance(below, MemoryVersioned)
    kept = dict(below._values)
    world, way = await join(part_bytes=16_384)
    way.calls.clear()
    await roll(world)
    below._values = kept
    assert {call for call, _ in way.calls} == {"get", "create", "put", "delete", "list"}
    return len(way.calls)


async def _die_at(world: World, way: Between, last: int, *, reached: bool) -> None:
    made = len(way.calls)

    async def die(call: str, key: str) -> None:
        if len(way.calls) - made > last:
            raise Killed(call, key)

    way.after, way.before = (die, None) if reached else (None, die)
    with pytest.raises(Killed):
        await roll(world)
    way.away = True


async def test_a_block_whose_maker_died_gets_its_chunk_from_the_next(join: Join, below: VersionedStore) -> None:
    dying, way = await join()

    async def die(call: str, key: str) -> None:
        if key.startswith("events/"):
            raise Killed(key)

    for _ in range(BLOCK - 1):
        await dying.submit()
    way.before = die
    await dying.submit()
    store = dying.store
    assert isinstance(store, JobRegistry)
    with pytest.raises(Killed):
        await roll(dying)
    assert await below.list_keys("events/") == []

    other, _ = await join()
    await commits(other, 8)
    assert await below.list_keys("events/") == ["events/000000000001-000000000064.ndjson.zst"]

"""What one call may ask of the server, which is one thread: never all there is at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from mainstay.control.check import watching
from mainstay.errors import StoreReadOnly
from mainstay.model import Job, Options
from mainstay.stores import Query, TrimPolicy, open_store
from mainstay.testing import VirtualClock
from servers import Redis
from tests.conformance.world import World
from tests.stores.redis.conftest import Plain


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    found = Redis(tmp_path_factory.mktemp("redis"))
    yield found
    found.stop()


@pytest.fixture
def plain(server: Redis) -> Iterator[Plain]:
    found = Plain(f"{server.url()}?prefix=mainstay")
    yield found
    found.client.flushall()


@pytest.fixture
async def world(server: Redis, plain: Plain) -> AsyncIterator[World]:
    clock = VirtualClock()
    found = World(await open_store(f"{server.url()}?retries=3", clock=clock), clock)
    await found.open("s1", lease_s=1000)
    yield found
    await found.store.close()


class Calls:
    """How often the server was asked, by command, since this was made."""

    def __init__(self, plain: Plain) -> None:
        self._client = plain.client
        self._client.config_resetstat()

    def of(self, command: str) -> int:
        stats: Any = self._client.info("commandstats")
        return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))


async def test_the_leaders_timer_does_not_walk_over_the_whole_server(world: World, plain: Plain) -> None:
    await world.store.insert([world.new() for _ in range(300)])
    calls = Calls(plain)

    assert (await watching(world.store)(None)).clean

    assert calls.of("scan") == 0
    assert calls.of("evalsha") > 300 // 200


async def test_the_leaders_timer_finds_a_row_that_would_never_be_claimed(world: World, plain: Plain) -> None:
    job = await world.submit()
    plain("ZREM", "ready:default", job.id)
    plain("HINCRBY", "tallies", "default\0pending", 5)
    found = (await watching(world.store)(None)).violations
    assert {each.code for each in found} == {"index_damaged", "tally_wrong"}


async def ended(world: World, jobs: list[Job]) -> None:
    for first in range(0, len(jobs), 500):
        part = jobs[first : first + 500]
        answers = await world.store.apply([world.change(job, "succeeded", holder="s1") for job in part])
        assert {answer.outcome for answer in answers} == {"applied"}


async def with_units(world: World, n: int) -> Job:
    """A settled job with so many settled units."""
    parent = await world.running(queue="parents")
    await world.store.insert([world.new(parent=parent.id, queue="units") for _ in range(n)])
    await ended(world, await world.claim(n=n, queues=("units",)))
    await ended(world, [parent])
    world.clock.advance(10)
    return parent


async def test_a_job_with_many_units_is_trimmed_in_steps(world: World, plain: Plain) -> None:
    await with_units(world, 1200)
    calls = Calls(plain)

    trimmed = await world.store.trim(TrimPolicy(settled_before_ms={"succeeded": world.clock.now_ms()}))

    assert trimmed.jobs == 1
    assert calls.of("evalsha") > 1200 // 250
    assert plain("ZCARD", "all") == 0
    await world.assert_sound()


async def test_a_job_with_many_units_is_deleted_in_steps(world: World, plain: Plain) -> None:
    parent = await with_units(world, 1200)
    calls = Calls(plain)

    assert await world.store.delete([parent.id], actor="ann", reason="old") == ["deleted"]

    assert calls.of("evalsha") > 1200 // 250
    assert plain("ZCARD", "all") == 0
    await world.assert_sound()


async def test_units_that_keep_their_own_time_do_not_stand_in_the_way_of_jobs(world: World) -> None:
    keeps = Options(keep_s=60)
    parent = await world.running(queue="parents")
    await world.store.insert([world.new(parent=parent.id, queue="units", options=keeps) for _ in range(2100)])
    await ended(world, await world.claim(n=2100, queues=("units",)))
    await world.store.insert([world.new(options=keeps) for _ in range(20)])
    await ended(world, await world.claim(n=20))
    world.clock.advance(3600)

    assert (await world.store.trim(TrimPolicy())).jobs == 20

    await world.assert_sound()


async def test_jobs_that_keep_their_own_time_are_not_walked_over_by_every_trim(world: World, plain: Plain) -> None:
    await world.store.insert([world.new(options=Options(keep_s=10_000)) for _ in range(4100)])
    await ended(world, await world.claim(n=4100))
    world.clock.advance(60)
    policy = TrimPolicy(settled_before_ms={"succeeded": world.clock.now_ms()})
    assert (await world.store.trim(policy)).jobs == 0
    await ended(world, [await world.running()])
    world.clock.advance(60)
    plain.client.config_resetstat()

    assert (await world.store.trim(TrimPolicy(settled_before_ms={"succeeded": world.clock.now_ms()}))).jobs == 1

    stats: Any = plain.client.info("stats")
    assert stats["keyspace_hits"] < 1000


async def test_one_queue_among_many_jobs_is_listed_without_reading_the_others(world: World, plain: Plain) -> None:
    wanted = await world.submit(queue="rare")
    await world.store.insert([world.new() for _ in range(2000)])
    plain.client.config_resetstat()

    page = await world.store.find(Query(queue="rare"))

    assert [job.id for job in page.jobs] == [wanted.id]
    stats: Any = plain.client.info("stats")
    assert stats["total_net_output_bytes"] < 300_000


async def test_the_wakes_of_a_queue_that_nobody_uses_any_more_are_forgotten(world: World, plain: Plain) -> None:
    await ended(world, [await world.running(queue="once")])
    await world.submit(queue="used")
    assert plain("HEXISTS", "ticks", "once") == 1

    await world.store.trim(TrimPolicy())

    assert plain("HKEYS", "ticks") == [b"used"]


async def test_a_count_of_wakes_that_was_forgotten_does_not_begin_where_it_began(world: World, plain: Plain) -> None:
    async with world.store.wake(["queue:q"]) as wake:
        await world.store.due(["q"])
        await world.submit(queue="q")
        assert await wake.wait(60) is True
        plain("HDEL", "ticks", "q")  # as if the queue had been empty for a while
        await world.submit(queue="q")
        assert await wake.wait(60) is True


async def test_while_a_server_is_a_replica_it_is_read_and_nothing_is_written(world: World, plain: Plain) -> None:
    job = await world.submit()
    plain.client.replicaof("127.0.0.1", "1")
    try:
        assert [found.id for found in (await world.store.find(Query())).jobs] == [job.id]
        assert [event.to for event in await world.store.events(job.id)] == ["pending"]
        with pytest.raises(StoreReadOnly):
            await world.store.insert([world.new()])
    finally:
        plain.client.replicaof("NO", "ONE")
    await world.assert_sound()

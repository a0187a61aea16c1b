"""A server whose memory is full: it takes no new jobs, says so, and lets those that are there come to an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from mainstay.errors import StoreFull
from mainstay.model import Schedule
from mainstay.stores import Query, TrimPolicy, open_store
from mainstay.testing import VirtualClock
from servers import Redis
from tests.conformance.world import World
from tests.stores.redis.conftest import Plain

LONG_S = 60.0


class Full:
    """A server with some jobs on it, whose memory was set to less than it takes."""

    def __init__(self, server: Redis) -> None:
        self.url = f"{server.url()}?prefix=mainstay"
        self.plain = Plain(self.url)
        self.clock = VirtualClock()

    async def world(self) -> World:
        return World(await open_store(self.url, clock=self.clock), self.clock)

    def fill(self) -> None:
        self.plain.client.config_set("maxmemory", 512 * 1024)

    def give_room(self) -> None:
        self.plain.client.config_set("maxmemory", 0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    found = Redis(tmp_path_factory.mktemp("redis"), maxmemory_policy="noeviction")
    yield found
    found.stop()


@pytest.fixture
async def full(server: Redis) -> AsyncIterator[Full]:
    found = Full(server)
    yield found
    found.give_room()
    found.plain.client.flushall()


@pytest.fixture
async def world(full: Full) -> AsyncIterator[World]:
    """Its session holds a job of each queue `one`, `two`, `three`; then the memory is full."""
    found = await full.world()
    await found.open("s1", lease_s=1000)
    for queue in ("one", "two", "three"):
        await found.running(queue=queue)
    full.fill()
    yield found
    await found.store.close()


async def held(world: World, queue: str = "one") -> str:
    page = await world.store.find(Query(queue=queue))
    return page.jobs[0].id


async def test_a_full_server_refuses_new_jobs_and_lets_the_others_end(world: World, full: Full) -> None:
    with pytest.raises(StoreFull, match="no memory left"):
        await world.submit()
    assert [pulse.known for pulse in await world.store.beat(["s1"])] == [True]
    job = await world.row(await held(world))
    assert (await world.move(job, "succeeded", holder="s1")).outcome == "applied"
    full.clock.advance(10)
    trimmed = await world.store.trim(TrimPolicy(settled_before_ms={"succeeded": full.clock.now_ms()}))
    assert trimmed.jobs == 1
    await world.assert_sound()
    full.give_room()
    await world.submit()


async def test_a_store_is_opened_and_read_on_a_full_server(world: World, full: Full) -> None:
    again = await full.world()
    assert len((await again.store.find(Query())).jobs) == 3
    assert [event.to for event in await again.store.events(await held(again))] == ["pending", "running"]
    await again.assert_sound()
    assert sum((await again.store.stats()).queues["one"].counts.values()) == 1
    await again.store.close()


async def test_a_completion_that_is_sent_again_to_a_full_server_is_known(world: World) -> None:
    change = world.change(await world.row(await held(world)), "succeeded", holder="s1")
    outcomes = [(await world.store.apply([change]))[0].outcome for _ in range(2)]
    assert outcomes == ["applied", "already_applied"]


async def test_whoever_sleeps_on_a_full_server_is_woken(world: World, full: Full) -> None:
    other = await full.world()
    async with other.store.wake(["queue:one"]) as wake:
        waiting = asyncio.create_task(wake.wait(LONG_S))
        while full.plain("SCARD", "l:queue:one") != 1:
            await asyncio.sleep(0.001)
        await world.move(await world.row(await held(world)), "pending", holder="s1")
        assert await waiting is True
    await other.store.close()


async def test_a_full_server_deletes(world: World) -> None:
    job = await world.row(await held(world))
    await world.move(job, "pending", holder="s1")
    assert await world.store.delete([job.id], actor="ann", reason="room") == ["deleted"]


async def test_a_tick_with_jobs_is_refused_and_comes_when_there_is_room(world: World, full: Full) -> None:
    await world.store.put_schedule(Schedule(name="nightly", spec=b"{}"))
    with pytest.raises(StoreFull):
        await world.store.tick("nightly", 1000, [world.new()])
    assert [schedule.last_tick_ms for schedule in await world.store.schedules()] == [None]
    full.give_room()
    made = await world.store.tick("nightly", 1000, [world.new()])
    assert made is not None
    assert made[0].created


async def test_a_completion_that_brings_jobs_is_not_lost(world: World) -> None:
    job = await world.row(await held(world))
    assert (await world.move(job, "succeeded", holder="s1", spawn=[world.new(queue="next")])).outcome == "applied"
    assert len((await world.store.find(Query(queue="next"))).jobs) == 1


async def test_a_namespace_that_is_not_there_yet_can_be_opened_though_nothing_fits(full: Full) -> None:
    full.fill()
    world = await full.world()
    assert (await world.store.find(Query())).jobs == []
    await world.store.close()

"""Decisions about many jobs: they are made though others change some of these jobs all the time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from mainstay.errors import NotLeader
from mainstay.lifecycle import Move
from mainstay.model import IdSource, Options
from mainstay.stores import TrimPolicy, open_store
from mainstay.stores.redis import RedisStore
from mainstay.stores.redis.scripts import Scripts
from tests.conformance.world import World
from tests.stores.redis.conftest import Plain

N = 60


@pytest.fixture
async def other(world: World, redis_url: str) -> AsyncIterator[World]:
    """A second process, so to speak."""
    found = World(await open_store(redis_url, clock=world.clock), world.clock)
    found.ids = IdSource(random.Random(8))
    yield found
    await found.store.close()


class Contender:
    """Gets in before every commit of a store, unless it has to stand back from it."""

    def __init__(self, world: World, interfere: Callable[[], Awaitable[object]]) -> None:
        assert isinstance(world.store, RedisStore)
        self._store = world.store
        self._scripts: Scripts = world.store._base.scripts
        self._run = self._scripts.run
        self._interfere = interfere
        self.commits = 0
        self.waiting: list[asyncio.Future[object]] = []

    def begin(self) -> None:
        self._scripts.run = self.run  # type: ignore[method-assign]

    async def run(self, name: str, args: Any, **more: Any) -> list[Any]:
        if name == "commit":
            self.commits += 1
            task = asyncio.ensure_future(self._interfere())
            _, left = await asyncio.wait([task], timeout=0.5)
            self.waiting += left
        return await self._run(name, args, **more)

    async def end(self) -> None:
        self._scripts.run = self._run  # type: ignore[method-assign]
        await self._store._home.run(self._wait)

    async def _wait(self) -> None:
        await asyncio.gather(*self.waiting)


async def test_a_job_settles_though_dependants_of_it_are_submitted_all_the_time(world: World, other: World) -> None:
    await world.open("s1")
    first = await world.running()
    waiting = [world.new(queue="then", after=[first]) for _ in range(N)]
    await world.store.insert([*waiting, *[world.new(queue="then", after=[new.job]) for new in waiting]])
    late: list[str] = []

    async def interfere() -> None:
        [made] = await other.store.insert([other.new(queue="then", after=[first])])
        late.append(made.id)

    contender = Contender(world, interfere)
    contender.begin()
    answer = await world.move(first, "failed", holder="s1")
    await contender.end()

    assert answer.outcome == "applied"
    assert 1 < contender.commits < 10
    rows = await world.store.get([*[new.job.id for new in waiting], *late])
    assert {row.status for row in rows if row is not None} == {"skipped"}
    await world.assert_sound()


async def test_a_job_is_deleted_though_its_units_are_changed_all_the_time(world: World, other: World) -> None:
    parent = await world.submit(queue="parents")
    units = [world.new(queue="units", parent=parent.id, unit=str(at)) for at in range(N)]
    await world.store.insert(units)

    async def interfere() -> None:
        [row] = await other.store.get([units[0].job.id])
        if row is not None:
            await other.move(row, Move(to=row.status, flag="note", reason="still here"))

    contender = Contender(world, interfere)
    contender.begin()
    answer = await world.store.delete([parent.id], actor="ann", reason="tidy")
    await contender.end()

    assert answer == ["deleted"]
    assert 1 < contender.commits < 10
    await world.assert_sound()


async def test_who_stands_back_goes_on_when_the_one_with_the_turn_has_died(world: World, plain: Plain) -> None:
    job = await world.submit()
    plain("SADD", "turn:ids", job.id)
    plain("SET", "turn", "somebody who died", "PX", 50)
    assert (await world.move(job, "cancelled")).outcome == "applied"


async def test_who_has_nothing_to_do_with_the_jobs_of_a_turn_does_not_wait_for_it(world: World, plain: Plain) -> None:
    await world.open("s1")
    taken, free = await world.submit(), await world.running()
    plain("SADD", "turn:ids", taken.id)
    plain("SET", "turn", "somebody", "PX", 60_000)
    assert (await world.move(free, "succeeded", holder="s1")).outcome == "applied"
    assert await world.submit(after=[free])  # type: ignore[truthy-bool]


async def test_a_turn_is_over_when_its_decision_is_written(world: World, other: World, plain: Plain) -> None:
    await world.open("s1")
    first = await world.running()
    contender = Contender(world, lambda: other.store.insert([other.new(after=[first])]))
    contender.begin()
    await world.move(first, "failed", holder="s1")
    await contender.end()
    assert plain("EXISTS", "turn") == plain("EXISTS", "turn:ids") == 0


async def test_a_level_of_waiting_jobs_costs_one_round_trip_however_many_there_are(world: World) -> None:
    assert isinstance(world.store, RedisStore)
    await world.open("s1")
    scripts: Scripts = world.store._base.scripts
    costs = []
    for n in (1, 30):
        first = await world.running()
        level = [first]
        for _ in range(3):
            news = [world.new(queue="then", after=[job]) for job in level[:1] for _ in range(n)]
            await world.store.insert(news)
            level = [new.job for new in news]
        calls: list[str] = []
        run = scripts.run

        async def counted(name: str, args: Any, calls: list[str] = calls, run: Any = run, **more: Any) -> list[Any]:
            calls.append(name)
            return list(await run(name, args, **more))

        scripts.run = counted  # type: ignore[method-assign]
        await world.move(first, "failed", holder="s1")
        scripts.run = run  # type: ignore[method-assign]
        costs.append(calls)
    assert costs[0] == costs[1] == ["apply", "look", "look", "look", "look", "commit"]


async def test_a_mixed_batch_of_a_deposed_leader_writes_nothing_at_all(world: World) -> None:
    assert isinstance(world.store, RedisStore)
    await world.open("s1")
    lead = await world.store.lead("sweep", "s1", 30)
    plain, spawns = await world.running(queue="a"), await world.running(queue="b")
    scripts: Scripts = world.store._base.scripts
    run = scripts.run

    async def resigning(name: str, args: Any, **more: Any) -> list[Any]:
        if name == "commit":
            await run("directory", ["resign", "sweep", "s1", lead.epoch])
        return await run(name, args, **more)

    scripts.run = resigning  # type: ignore[method-assign]
    changes = [world.change(plain, "succeeded"), world.change(spawns, "succeeded", spawn=(world.new(),))]
    with pytest.raises(NotLeader, match="nothing was written"):
        await world.store.apply(changes, lead=lead)
    assert [await world.row(plain), await world.row(spawns)] == [plain, spawns]


async def test_jobs_that_wait_for_any_end_are_counted_down_without_a_decision(world: World) -> None:
    """Two hundred that fail at once must not fight for the one that waits for all of them."""
    assert isinstance(world.store, RedisStore)
    await world.open("s1")
    await world.store.insert([world.new() for _ in range(20)])
    jobs = await world.claim(n=20)
    any_end = Options(after_when="settled", after_failed="skip")
    then = await world.submit(queue="then", after=jobs, options=any_end)
    scripts: Scripts = world.store._base.scripts
    run, calls = scripts.run, []

    async def counted(name: str, args: Any, **more: Any) -> list[Any]:
        calls.append(name)
        return await run(name, args, **more)

    scripts.run = counted  # type: ignore[method-assign]
    for at, job in enumerate(jobs):
        await world.move(job, ("failed", "succeeded")[at % 2], holder="s1")

    assert calls[:19] == ["apply"] * 19
    assert await world.story(then) == ["scheduled", "pending"]
    await world.assert_sound()


async def test_a_trim_that_stood_back_has_trimmed_nothing(world: World, plain: Plain) -> None:
    await world.open("s1")
    job = await world.running()
    await world.move(job, "succeeded", holder="s1")
    plain("SADD", "turn:ids", job.id)
    plain("SET", "turn", "somebody", "PX", 100)
    trimming = asyncio.ensure_future(world.store.trim(TrimPolicy(keep_events=1)))
    while plain("EXISTS", "turn"):
        assert plain("LLEN", f"e:{job.id}") == 3 or not plain("EXISTS", "turn")
        await asyncio.sleep(0)
    assert (await trimming).events == 2
    await world.assert_sound()

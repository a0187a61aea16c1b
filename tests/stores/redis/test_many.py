"""Eight thousand and one of whatever a script takes: Lua's stack holds 8000, and one command's arguments are fewer.

Nothing may be left half written, so each ends with a clean check.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainstay.model import Job, Options, Progress
from mainstay.stores import ClaimReport, Query, TrimPolicy, open_store
from mainstay.stores.redis import RedisStore
from mainstay.testing import VirtualClock
from tests.conformance.world import World

N = 8_001
ANY_END = Options(after_when="settled", after_failed="skip")

pytestmark = pytest.mark.slow


@pytest.fixture
async def unchecked(redis_url: str) -> AsyncIterator[World]:
    clock = VirtualClock()
    found = World(await open_store(redis_url, clock=clock), clock)
    await found.open("s1", lease_s=10_000)
    yield found
    await found.store.close()


@pytest.fixture
async def world(unchecked: World) -> AsyncIterator[World]:
    yield unchecked
    assert await unchecked.store.check() == []


async def count(world: World, status: str) -> int:
    return sum(queue.counts.get(status, 0) for queue in (await world.store.stats()).queues.values())


@pytest.mark.parametrize("end", ["succeeded", "failed"])
async def test_a_job_with_that_many_dependants_ends(world: World, end: str) -> None:
    first = await world.running()
    await world.store.insert([world.new(queue="then", after=[first]) for _ in range(N)])

    assert (await world.move(first, end, holder="s1")).outcome == "applied"

    assert await world.story(first) == ["pending", "running", end]
    assert await count(world, "pending" if end == "succeeded" else "skipped") == N


async def test_a_job_that_waits_for_that_many_goes_on_with_the_last(world: World) -> None:
    news = [world.new() for _ in range(N)]
    then = world.new(queue="then", after=[new.job for new in news])
    await world.store.insert([*news, then])
    jobs = await world.claim(n=N)
    assert len(jobs) == N
    reports = [
        ClaimReport(job_id=job.id, session="s1", token=1, started_ms=1, progress=Progress(done=1)) for job in jobs
    ]
    assert await world.store.report(reports) == [True] * N

    jobs = [job for job in await world.store.get([job.id for job in jobs]) if job is not None]
    answers = await world.store.apply([world.change(job, "succeeded", holder="s1") for job in jobs])

    assert {answer.outcome for answer in answers} == {"applied"}
    assert await world.story(then.job) == ["scheduled", "pending"]
    assert len(await world.store.awaited(then.job.id)) == N


async def test_that_many_changes_that_must_be_judged_are_one_commit(world: World) -> None:
    await world.store.insert([world.new() for _ in range(N)])
    jobs = await world.claim(n=N)
    await world.move(jobs[-1], "pending", actor="sweeper")

    answers = await world.store.apply([world.change(job, "succeeded", holder="s1") for job in jobs])

    assert [answer.outcome for answer in answers] == ["applied"] * (N - 1) + ["stale"]


async def test_a_job_with_that_many_units_and_dependants_is_deleted_whole(world: World) -> None:
    parent = await world.submit(queue="parents")
    await world.store.insert([world.new(queue="units", parent=parent.id, unit=str(at)) for at in range(N)])
    await world.store.insert([world.new(queue="then", after=[parent], options=ANY_END) for _ in range(N)])

    assert await world.store.delete([parent.id], actor="ann", reason="tidy") == ["deleted"]

    assert (await world.store.find(Query(parent=parent.id))).jobs == []
    assert await count(world, "pending") == N


async def test_a_job_with_that_many_units_is_trimmed_whole(world: World) -> None:
    parent = await world.submit(queue="parents")
    await world.store.insert([world.new(queue="units", parent=parent.id, unit=str(at)) for at in range(N)])
    units = await world.claim(n=N, queues=["units"])
    await world.store.apply([world.change(unit, "succeeded", holder="s1") for unit in units])
    await world.move(parent, "cancelled")
    world.clock.advance(10)
    policy = TrimPolicy(settled_before_ms={"cancelled": world.clock.now_ms()}, batch=N)
    while (await world.store.trim(policy)).more:
        pass
    assert await world.store.get([parent.id, units[0].id]) == [None, None]


async def test_that_many_histories_are_trimmed(world: World) -> None:
    await world.store.insert([world.new() for _ in range(N)])
    jobs = await world.claim(n=N)
    for status in ("pending", "cancelled"):
        jobs = [job for job in await world.store.get([job.id for job in jobs]) if job is not None]
        await world.store.apply([world.change(job, status) for job in jobs])
    trimmed = await world.store.trim(TrimPolicy(keep_events=1, batch=N))
    assert (trimmed.jobs, trimmed.events) == (0, 3 * N)


async def test_that_many_queues_tags_keys_and_unique_keys_are_as_good_as_one(unchecked: World) -> None:
    world = unchecked  # the check walks every list, and here each job has five
    many = [str(at) for at in range(N)]
    tagged = Options(tags=tuple(many))
    news = [world.new(queue=f"q{at}", key=at, unique_key=at, group=world.ids.take(0, 1)[0]) for at in many]
    await world.store.insert([*news, world.new(queue="q0", options=tagged)])
    again = await world.store.insert([world.new(queue=f"q{at}", key=at, unique_key=at) for at in many])
    assert not any(made.created for made in again)

    jobs = await world.claim(n=N + 1, queues=[f"q{at}" for at in many])
    assert len(jobs) == N + 1
    assert await world.store.due([f"q{at}" for at in many]) is None
    answers = await world.store.apply([world.change(job, "succeeded", holder="s1") for job in jobs])
    assert {answer.outcome for answer in answers} == {"applied"}


async def test_that_many_due_late_and_blocked_rows_are_passed_in_short_steps(world: World) -> None:
    await world.store.set_limit("k", 1)
    soon = Options(start_by_ms=world.clock.now_ms() + 1000)
    await world.store.insert([world.new(options=soon) for _ in range(N)])
    await world.store.insert([world.new(delay_s=5) for _ in range(N)])
    await world.store.insert([world.new(concurrency_key="k", delay_s=7) for _ in range(N)])
    world.clock.advance(10)
    taken: list[Job] = []
    for _ in range(N):
        if len(taken) == N + 1:
            break
        taken += await world.claim(n=N)
    assert len(taken) == N + 1
    while late := [found.job for found in await world.store.overdue(limit=N)]:
        await world.store.apply([world.change(job, "timed_out", actor="sweeper") for job in late])
    await world.store.set_limit("k", None)
    [held] = [job for job in taken if job.concurrency_key]
    while True:
        await world.move(held, "succeeded", holder="s1")
        more = await world.claim(n=N)
        if not more:
            break
        taken += more
        held = more[0]
    assert len(taken) == 2 * N


async def test_that_many_sessions_beat_hold_and_die(world: World) -> None:
    names = [f"w{at}" for at in range(N)]
    store = world.store
    assert isinstance(store, RedisStore)
    await world.open("w0", "w1")
    await store.insert([world.new() for _ in range(N)])
    jobs = await world.claim("w0", n=N)
    reports = [ClaimReport(job_id=job.id, session="w0", token=1, started_ms=1, checkpoint=b"\xff") for job in jobs]
    pulses = await store.beat(names, reports)
    assert [pulse.known for pulse in pulses] == [True, True, *[False] * (N - 2)]
    held = [job for job in await store.get([job.id for job in jobs]) if job is not None]
    await store.apply([world.change(job, "cancelling") for job in held])
    [pulse] = await store.beat(["w0"])
    assert len(pulse.cancelling) == N
    await store.close_session("w0")
    assert len(await store.overdue(limit=N)) == N

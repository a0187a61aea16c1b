"""The wire is cut at each step, before the server hears of it and after: nothing is lost, nothing is doubled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from mainstay.errors import StoreUnavailable
from mainstay.lifecycle import Move
from mainstay.model import Options, Progress, QueueSettings, Schedule
from mainstay.stores import ClaimReport, JobStore, Query, TrimPolicy, open_store
from mainstay.testing import VirtualClock
from servers import Proxy
from tests.conformance.world import World


@pytest.fixture
def proxy(redis_url: str) -> Any:
    with Proxy.before(redis_url) as made:
        yield made


@pytest.fixture
async def world(proxy: Proxy) -> AsyncIterator[World]:
    clock = VirtualClock()
    store = await open_store(proxy.url, clock=clock)
    yield World(store, clock)
    await store.close()


async def _insert(world: World) -> object:
    made = await world.store.insert([world.new() for _ in range(3)])
    assert [each.created for each in made] == [True] * 3
    return [job.id for job in (await world.store.find(Query(oldest_first=True))).jobs] == [each.id for each in made]


async def _insert_keyed(world: World) -> object:
    [made] = await world.store.insert([world.new(key="once", unique_key="u")])
    return (made.created, len((await world.store.find(Query())).jobs)) == (True, 1)


async def _claim(world: World) -> object:
    await world.open("s1")
    await world.store.insert([world.new() for _ in range(5)])
    taken = [job.id for job in await world.claim(n=3)]
    held = [job.id for job in (await world.store.find(Query(session="s1", oldest_first=True))).jobs]
    return len(taken) == 3 and sorted(taken) == held


async def _complete(world: World) -> object:
    await world.open("s1")
    jobs = [await world.running() for _ in range(3)]
    answers = await world.store.apply([world.change(job, "succeeded", holder="s1") for job in jobs])
    assert {each.outcome for each in answers} <= {"applied", "already_applied"}
    return [await world.story(job) for job in jobs] == [["pending", "running", "succeeded"]] * 3


async def _complete_with_waiter(world: World) -> object:
    await world.open("s1")
    first = await world.running()
    waiting = await world.submit(after=[first])
    answer = await world.move(first, "succeeded", holder="s1", spawn=(world.new(queue="more"),))
    assert answer.outcome in ("applied", "already_applied")
    spawned = (await world.store.find(Query(queue="more"))).jobs
    return ((await world.row(waiting)).status, len(spawned)) == ("pending", 1)


async def _beat(world: World) -> object:
    await world.open("s1")
    job = await world.running()
    report = ClaimReport(job_id=job.id, session="s1", token=1, started_ms=5, progress=Progress(done=1))
    [pulse] = await world.store.beat(["s1"], [report])
    row = await world.row(job)
    return (pulse.known, row.starts, row.progress) == (True, 1, Progress(done=1))


async def _reap(world: World) -> object:
    await world.open("s1")
    job = await world.running(options=Options())
    world.clock.advance(60)
    await world.reap()
    return await world.story(job) == ["pending", "running", "timed_out", "pending"]


async def _delete(world: World) -> object:
    job = await world.submit()
    answers = await world.store.delete([job.id], actor="ann", reason="tidy")
    [stone] = await world.store.events(job.id)
    return (answers, stone.flag) == (["deleted"], "tombstone")


async def _tick(world: World) -> object:
    await world.store.put_schedule(Schedule(name="s", spec=b"x"))
    await world.store.tick("s", 1000, [world.new()])
    assert await world.store.tick("s", 1000, [world.new()]) is None
    return len((await world.store.find(Query())).jobs) == 1


async def _settle_and_trim(world: World) -> object:
    job = await world.submit()
    await world.move(job, "cancelled")
    world.clock.advance(10)
    await world.store.trim(TrimPolicy(settled_before_ms={"cancelled": world.clock.now_ms()}))
    return await world.store.get([job.id]) == [None]


async def _settings(world: World) -> object:
    await world.store.set_queue(QueueSettings(name="q", paused=True, reason="x"))
    await world.store.set_limit("k", 2)
    lead = await world.store.lead("boss", "s1", 10)
    again = await world.store.lead("boss", "s1", 10)
    return (lead.epoch, again.epoch, await world.store.limits()) == (1, 1, {"k": 2})


STEPS: dict[str, Callable[[World], Awaitable[object]]] = {
    "insert": _insert,
    "insert with keys": _insert_keyed,
    "claim": _claim,
    "complete": _complete,
    "complete what others wait for": _complete_with_waiter,
    "beat": _beat,
    "reap": _reap,
    "delete": _delete,
    "tick": _tick,
    "trim": _settle_and_trim,
    "settings": _settings,
}


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_cut_at_any_call_of_a_step_changes_nothing(
    world: World, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, step: str, way: str
) -> None:
    """Every single message of the step is lost once, one run for each."""
    server = world.store._base.server  # type: ignore[attr-defined]
    call = server.call
    calls = 0

    async def counted(work: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == cut_at:
            proxy.cut_after(**{way: 0})
        return await call(work)

    monkeypatch.setattr(server, "call", counted)
    cut_at = 0
    while True:
        cut_at, calls, struck = cut_at + 1, 0, proxy.cut_by_bytes
        assert await STEPS[step](world)
        if calls < cut_at:
            break
        assert proxy.cut_by_bytes == struck + 1
        await world.assert_sound()
        await _emptied(world.store, world)
    assert cut_at > 1


async def _emptied(store: JobStore, world: World) -> None:
    """As if nothing had been done: what one run leaves must not be met by the next."""
    world.clock.advance(1_000_000)
    await world.store.overdue()
    await world.reap(to=("timed_out", "quarantined"))
    for job in (await store.find(Query(), limit=1000)).jobs:
        if job.settled_ms is None:
            await world.move(job, "cancelled")
    await store.delete([job.id for job in (await store.find(Query(), limit=1000)).jobs], actor="test", reason="next")
    await store.close_session("s1")
    await store.drop_schedule("s")
    await store.trim(TrimPolicy())
    held = await store.lead("boss", "s1", 0.001)
    await store.resign(held)
    world.clock.advance(1)


async def test_a_server_out_of_reach_is_named_after_the_last_try(redis_url: str) -> None:
    with Proxy.before(redis_url) as proxy:
        store = await open_store(f"{proxy.url}&retries=1")
        proxy.refuse()
        proxy.cut()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await store.stats()
        proxy.accept()
        assert (await store.stats()).queues == {}
        await store.close()


async def test_a_cancelled_call_leaves_the_connections_in_order(world: World, proxy: Proxy) -> None:
    """An answer that nobody waited for must not be taken for the answer to the next call."""
    job = await world.submit()
    proxy.delay(down=0.05)
    for _ in range(20):
        asking = asyncio.create_task(world.store.stats())
        await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.wait([asking])
    proxy.delay()
    assert [found.id for found in (await world.store.find(Query())).jobs] == [job.id]
    await world.assert_sound()


async def test_a_cut_in_the_middle_of_an_answer_is_a_cut(world: World, proxy: Proxy) -> None:
    await world.store.insert([world.new(payload=bytes(1000)) for _ in range(50)])
    proxy.cut_after(down=20_000)
    assert len((await world.store.find(Query(), limit=50)).jobs) == 50
    assert proxy.cut_by_bytes == 1


async def test_a_forced_move_is_not_made_twice(world: World, proxy: Proxy) -> None:
    job = await world.submit()
    proxy.cut_after(down=0)
    await world.move(job, Move(to="quarantined", reason="look", flag="forced"))
    assert await world.story(job) == ["pending", "quarantined"]

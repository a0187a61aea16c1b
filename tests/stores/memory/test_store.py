"""What the memory store promises beyond the port."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from mainstay.clock import SystemClock
from mainstay.errors import InvalidInput
from mainstay.lifecycle import Move, apply
from mainstay.model import IdSource, Job, Lane, Session
from mainstay.stores import SealedChange, open_store
from mainstay.stores.memory import MemoryStore
from mainstay.testing import VirtualClock, new_job


def test_a_store_needs_no_arguments() -> None:
    store = MemoryStore()
    assert isinstance(store.clock, SystemClock)
    assert store.url == "memory:"
    assert "gone" in store.durability


async def test_each_memory_url_opens_an_empty_store() -> None:
    first, second = await open_store("memory:"), await open_store("memory:")
    [made] = await first.insert([new_job(first.clock, IdSource(random.Random(1)))])
    assert await second.get([made.id]) == [None]


async def test_options_are_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="busy_timeout"):
        await open_store("memory:?busy_timeout=5s")


async def test_an_audit_key_seals_the_events_the_store_writes() -> None:
    clock = VirtualClock()
    store = await open_store("memory:", clock=clock, audit_key=b"secret")
    await store.open_session(Session(id="s1"))
    await store.insert([new_job(clock, IdSource(random.Random(1)), chain=store.chain)])
    await store.claim(["default"], "s1", 1)
    [found] = await store.audit()
    assert store.chain.first_break(found.job, found.events) is None
    assert MemoryStore().chain.first_break(found.job, found.events) is not None


def test_threads_that_share_a_store_claim_and_complete_every_job_once() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    ids = IdSource(random.Random(1))
    asyncio.run(store.set_limit("k", 3))
    jobs = [new_job(clock, ids, concurrency_key="k" if n % 2 else None) for n in range(400)]
    asyncio.run(store.insert(jobs))

    async def work(session: str) -> list[str]:
        await store.open_session(Session(id=session))
        done = []
        while True:
            claimed = await store.claim(["default"], session, 7)
            if not claimed:
                left = await store.stats()
                if left.queues["default"].counts.keys() <= {"succeeded"}:
                    return done
                continue
            answers = await store.apply([_completion(job, session) for job in claimed])
            done += [answer.job.id for answer in answers if answer.outcome == "applied" and answer.job]

    def _completion(job: Job, session: str) -> SealedChange:
        moved = apply(job, Move(to="succeeded"), now_ms=clock.now_ms(), actor=session, chain=store.chain)
        return SealedChange.of(job, moved, holder=session)

    with ThreadPoolExecutor(4) as pool:
        done = [job_id for part in pool.map(lambda n: asyncio.run(work(f"s{n}")), range(4)) for job_id in part]

    assert sorted(done) == [new.job.id for new in jobs]
    assert asyncio.run(store.check()) == []


def test_a_wake_crosses_threads() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    wake = store.wake(["queue:default"])

    async def wait() -> bool:
        woken = asyncio.create_task(wake.wait(30))
        await asyncio.sleep(0)
        assert wake.waiting
        await asyncio.to_thread(asyncio.run, store.insert([new_job(clock, IdSource(random.Random(1)))]))
        return await woken

    assert asyncio.run(wait()) is True


async def test_a_subscriber_that_leaves_without_looking_passes_its_wake_on() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    first, second = store.wake(["queue:default"]), store.wake(["queue:default"])
    await store.insert([new_job(clock, IdSource(random.Random(1)))])
    await first.close()
    assert await second.wait(60) is True


async def test_those_who_wait_are_woken_before_those_who_are_busy() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    _busy, idle = store.wake(["queue:default"]), store.wake(["queue:default"])
    waiting = asyncio.create_task(idle.wait(30))
    await asyncio.sleep(0)
    await store.insert([new_job(clock, IdSource(random.Random(1)))])
    assert await waiting is True


async def test_a_row_that_cannot_be_claimed_is_set_aside_and_the_rest_goes_on() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    ids = IdSource(random.Random(1))
    strange, due, good = [new_job(clock, ids), new_job(clock, ids, delay_s=1), new_job(clock, ids)]
    unknown = [msgspec.structs.replace(new, job=_from_the_future(new.job)) for new in (strange, due)]
    await store.insert([*unknown, good])
    await store.open_session(Session(id="s1"))
    clock.advance(2)

    assert [job.id for job in await store.claim(["default"], "s1", 5)] == [good.job.id]

    assert [row.lane for row in await store.get([strange.job.id, due.job.id]) if row] == [Lane.ASIDE] * 2
    assert (await store.stats()).aside == 2


def _from_the_future(job: Job) -> Job:
    return msgspec.structs.replace(job, status="teleporting")

"""Retention: what goes, and what never does."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay.control import Completion, Control, Failure, JobRequest
from mainstay.errors import InvalidInput
from mainstay.model import ErrorInfo, Settings

from .conftest import Bench

BOOM = ErrorInfo(type="ValueError", message="boom")
WEEK_S = 7 * 86_400


async def test_succeeded_jobs_go_after_a_week_and_everything_else_stays(bench: Bench) -> None:
    done, poison = await bench.claimed(), await bench.claimed(retries=0)
    await bench.worker.attempts.complete([Completion(done)])
    await bench.worker.attempts.fail([Failure(poison, BOOM)])
    waiting = await bench.control.jobs.submit("t")
    bench.clock.advance(WEEK_S - 1)
    assert (await bench.control.retain()).jobs == 0
    bench.clock.advance(2)

    trimmed = await bench.control.retain()

    assert (trimmed.jobs, trimmed.more) == (1, False)
    assert {job.id for job in await bench.everything()} == {poison.id, waiting.id}


async def test_a_jobs_own_retention_wins(bench: Bench) -> None:
    short, long = await bench.claimed(keep="1h"), await bench.claimed(keep="30d")
    await bench.worker.attempts.complete([Completion(short), Completion(long)])
    bench.clock.advance(3601)
    await bench.control.retain()
    assert {job.id for job in await bench.everything()} == {long.id}

    bench.clock.advance(WEEK_S)
    await bench.control.retain()

    assert {job.id for job in await bench.everything()} == {long.id}


async def test_a_job_that_is_kept_for_ever_stays(bench: Bench) -> None:
    kept, plain = await bench.claimed(keep="off"), await bench.claimed()
    await bench.worker.attempts.complete([Completion(kept), Completion(plain)])
    bench.clock.advance(50 * 365 * 86_400)

    await bench.control.retain()

    assert {job.id for job in await bench.everything()} == {kept.id}


async def test_batches_follow_each_other_until_all_is_gone(bench: Bench) -> None:
    await bench.control.jobs.submit_many(JobRequest("t", n) for n in range(25))
    session = await bench.session()
    jobs = await bench.worker.claims.claim(["default"], session.id, 25)
    await bench.worker.attempts.complete([Completion(job) for job in jobs])
    bench.clock.advance(WEEK_S + 1)

    assert (await bench.control.retain(batch=10)).jobs == 25


async def test_retention_by_count_keeps_the_newest(bench: Bench) -> None:
    done = []
    for _ in range(3):
        job = await bench.claimed()
        await bench.worker.attempts.complete([Completion(job)])
        done.append(job.id)
        bench.clock.advance(1)

    await bench.control.retain(keep_count={"succeeded": 1})

    assert [job.id for job in await bench.everything()] == done[2:]


async def test_old_events_are_trimmed_and_the_chain_still_verifies(bench: Bench) -> None:
    few = Control(bench.store, settings=Settings(keep_events=10))
    submitted = await bench.control.jobs.submit("t")
    for priority in range(1, 21):
        await bench.control.operations.set_priority(submitted.id, priority, actor="ann")

    trimmed = await few.retain()

    assert trimmed.events > 0
    assert len(await bench.control.jobs.events(submitted.id)) == 10


@pytest.mark.parametrize("counts", [{"running": 5}, {"succeeded": -1}, {"nonsense": 1}])
async def test_a_senseless_count_is_refused(bench: Bench, counts: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match="^keep_count"):
        await bench.control.retain(keep_count=counts)


async def test_statistics_tell_counts_per_queue_and_state(bench: Bench) -> None:
    await bench.control.jobs.submit("t", queue="mail")
    await bench.control.jobs.submit("t", queue="mail", delay="1h")

    stats = await bench.control.store.stats()

    assert {name: count for name, count in stats.queues["mail"].counts.items() if count} == {
        "pending": 1,
        "scheduled": 1,
    }
    assert stats.queues["mail"].oldest_ready_ms == bench.clock.now_ms()


@pytest.mark.parametrize("batch", [0, -1, 1.5, "9", True, 2**70])
async def test_a_batch_that_is_no_number_of_jobs_is_refused(bench: Bench, batch: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        await bench.control.retain(batch=batch)
    assert refused.value.field == "batch"


@pytest.mark.parametrize("count", ["5", -1, 1.5, None, 2**70])
async def test_a_count_to_keep_that_is_none_is_refused(bench: Bench, count: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        await bench.control.retain(keep_count={"failed": count})
    assert refused.value.field == "keep_count.failed"

"""Withdrawing: cancel what waits, and only that."""

from __future__ import annotations

from mainstay.control import Completion

from .conftest import Bench


async def test_what_waits_is_cancelled_and_what_somebody_took_goes_on(bench: Bench) -> None:
    taken = await bench.running()
    done = await bench.running(queue="other")
    await bench.worker.attempts.complete([Completion(done)])
    ready = await bench.control.jobs.submit("t")
    later = await bench.control.jobs.submit("t", delay="1h")
    ids = [taken.id, done.id, ready.id, later.id]

    outcomes = await bench.control.operations.withdraw_many(ids, actor="ann", reason="purged")

    assert [outcome.outcome for outcome in outcomes] == ["invalid", "invalid", "applied", "applied"]
    assert [(await bench.control.jobs.get(job_id)).status for job_id in ids] == [
        "running",
        "succeeded",
        "cancelled",
        "cancelled",
    ]
    assert "it no longer waits" in str(outcomes[0].error)


async def test_withdrawing_twice_is_withdrawing_once(bench: Bench) -> None:
    ready = await bench.control.jobs.submit("t")
    await bench.control.operations.withdraw_many([ready.id], actor="ann", reason="purged")

    [again] = await bench.control.operations.withdraw_many([ready.id], actor="ann", reason="purged")

    assert again.outcome == "already_applied"

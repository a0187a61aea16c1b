"""Jobs that are left to their units."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mainstay.control import Completion, Failure, JobRequest
from mainstay.control.drivers import driver_id
from mainstay.control.rules.blame import ALONE_LOSSES
from mainstay.errors import InvalidTransition, StaleClaim
from mainstay.lifecycle import Move
from mainstay.model import Job
from tests.control.conftest import Bench


def driver(job: Job) -> JobRequest:
    plan = {"parent": job.id, "unit": "driver", "kind": "batch", "priority": 1, "retries": 0}
    return JobRequest("study:driver", None, plan, id=driver_id(job))


def unit(job: Job, name: str) -> JobRequest:
    return JobRequest("study:unit", None, {"parent": job.id, "unit": name, "kind": "batch", "retries": 0})


async def left(bench: Bench, **options: object) -> Job:
    """A job that was handed over to its driver."""
    job = await bench.running("study", kind="batch", retries=0, **options)
    return await bench.worker.drivers.hand_over(job, driver(job), reason="left to its units")


async def drives(bench: Bench, job: Job) -> Job:
    """The driver, claimed."""
    session = await bench.session()
    (claimed,) = await bench.worker.claims.claim(["default"], session.id, 1)
    assert claimed.id == driver_id(job)
    return claimed


async def test_a_job_that_was_handed_over_runs_on_without_a_holder(bench: Bench) -> None:
    job = await left(bench)
    assert (job.status, job.session) == ("running", None)
    assert await bench.control.jobs.unit_counts(job.id) == {}, "its driver is not counted"
    assert await bench.control.jobs.has_open_units(job.id)
    assert (await bench.control.sweeper.sweep()).total == 0
    assert (await bench.control.jobs.get(job.id)).status == "running"
    await bench.assert_sound()


async def test_a_handed_over_job_still_has_its_run_timeout(bench: Bench) -> None:
    job = await left(bench, timeout="1h", grace="10s")
    bench.clock.advance(3600 + 1)
    await bench.control.sweeper.sweep()
    found = await bench.control.jobs.get(job.id)
    assert (found.status, found.error and found.error.code) == ("timed_out", "run_timeout")


async def test_a_claim_that_was_lost_hands_nothing_over_and_makes_nothing(bench: Bench) -> None:
    job = await bench.running("study", kind="batch")
    await bench.control.operations.force(job.id, "pending", actor="ann", reason="to see")
    with pytest.raises(StaleClaim):
        await bench.worker.drivers.hand_over(job, driver(job), reason="left to its units")
    assert await bench.control.jobs.unit_counts(job.id) == {}


async def test_a_driver_makes_units_only_while_it_holds_its_claim(bench: Bench) -> None:
    job = await left(bench)
    driving = await drives(bench, job)
    now = await bench.worker.drivers.spawn(driving, [unit(job, str(n)) for n in range(3)], reason="3 units")
    assert now.version == driving.version + 1
    assert await bench.control.jobs.unit_counts(job.id) == {"pending": 3}
    await bench.control.operations.force(driving.id, "pending", actor="ann", reason="to see")
    with pytest.raises(StaleClaim):
        await bench.worker.drivers.spawn(now, [unit(job, "4")], reason="1 unit")
    assert await bench.control.jobs.unit_counts(job.id) == {"pending": 3}


async def test_a_driver_that_is_put_off_comes_before_the_units_it_made(bench: Bench) -> None:
    job = await left(bench)
    driving = await drives(bench, job)
    bench.clock.advance(60)
    driving = await bench.worker.drivers.spawn(driving, [unit(job, str(n)) for n in range(3)], reason="3 units")
    await bench.worker.drivers.put_off(driving, timedelta(seconds=5), reason="3 units are not done")
    session = await bench.session()
    (first,) = await bench.worker.claims.claim(["default"], session.id, 1)
    assert first.name == "study:unit", "it is not due yet"
    bench.clock.advance(6)
    (second,) = await bench.worker.claims.claim(["default"], session.id, 1)
    assert second.id == driving.id
    await bench.assert_sound()


async def test_a_driver_that_has_waited_often_is_not_taken_for_one_that_nobody_can_run(bench: Bench) -> None:
    """What was released often is put off for long by a worker that does not know it."""
    job = await left(bench)
    for _ in range(3):
        waits = await bench.worker.drivers.put_off(await drives(bench, job), timedelta(seconds=1), reason="waits")
        bench.clock.advance(2)
    assert (waits.token, waits.releases) == (3, 0)
    await bench.assert_sound()


async def test_neither_a_job_that_is_left_to_its_units_nor_its_driver_is_deleted(bench: Bench) -> None:
    job = await left(bench)
    driver = await bench.worker.drivers.put_off(await drives(bench, job), timedelta(seconds=1), reason="waits")
    plain = await bench.control.jobs.submit("plain")

    answers = await bench.control.operations.delete_many([driver.id, plain.id, job.id], actor="ann", reason="tidy")

    assert answers == ["held", "deleted", "held"]
    assert await bench.control.jobs.get(driver.id) == driver


async def test_a_job_that_is_left_to_its_units_right_before_it_is_deleted_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = await bench.control.jobs.submit("study", kind="batch", retries=0)
    session = await bench.session()
    delete = bench.store.delete

    async def hand_over_first(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        (job,) = await bench.worker.claims.claim(["default"], session.id, 1)
        await bench.worker.drivers.hand_over(job, driver(job), reason="left to its units")
        return await delete(*args, **options)

    monkeypatch.setattr(bench.store, "delete", hand_over_first)
    assert await bench.control.operations.delete_many([pending.id], actor="ann", reason="tidy") == ["held"]
    assert (await bench.control.jobs.get(pending.id)).status == "running"


async def test_a_nudged_driver_looks_at_once(bench: Bench) -> None:
    job = await left(bench)
    await bench.worker.drivers.put_off(await drives(bench, job), timedelta(hours=1), reason="waits")
    await bench.control.drivers.nudge(job)
    assert (await drives(bench, job)).token == 2


async def test_cancelling_a_job_that_is_left_to_its_units_wakes_its_driver(bench: Bench) -> None:
    job = await left(bench)
    await bench.worker.drivers.put_off(await drives(bench, job), timedelta(hours=1), reason="waits")
    assert (await bench.control.operations.cancel(job.id, actor="ann")).status == "cancelling"
    assert (await drives(bench, job)).id == driver_id(job)


async def test_nudging_what_has_no_driver_does_nothing(bench: Bench) -> None:
    job = await bench.running("plain")
    await bench.control.drivers.nudge(job)
    await bench.control.drivers.nudge(await bench.control.jobs.get((await bench.control.jobs.submit("waits")).id))


async def test_the_loss_of_the_last_unit_is_told_by_a_job_that_nobody_moved_on(bench: Bench) -> None:
    job = await left(bench)
    (outcome,) = await bench.worker.attempts.fail([Failure(await drives(bench, job), ValueError("broken"))])
    assert outcome.last
    found = await bench.control.jobs.get(job.id)
    assert (found.status, found.error and found.error.code) == ("failed", "driver_lost")
    await bench.assert_sound()


async def test_a_driver_that_dies_for_good_is_told_too(bench: Bench) -> None:
    job = await left(bench)
    driving = await drives(bench, job)
    await bench.worker.claims.start([driving])
    for _ in range(ALONE_LOSSES + 3):  # lost in company, and then its crash budget
        bench.clock.advance(60)
        await bench.control.sweeper.sweep()
        found = await bench.control.jobs.get(job.id)
        if found.status == "failed":
            break
        session = await bench.session()
        (again,) = await bench.worker.claims.claim(["default"], session.id, 1)
        await bench.worker.claims.start([again])
    assert (found.status, found.error and found.error.code) == ("failed", "driver_lost")


async def test_a_job_that_was_moved_on_keeps_what_it_came_to(bench: Bench) -> None:
    job = await left(bench)
    driving = await drives(bench, job)

    def done(row: Job, _: int) -> tuple[Move, ...]:
        return (Move(to="finalizing"), Move(to="validating"), Move(to="partial", reason="3 of 4 outputs are there"))

    moved = await bench.worker.drivers.act(job.id, done, actor="driver")
    await bench.worker.attempts.complete([Completion(driving)])
    found = await bench.control.jobs.get(job.id)
    assert (found.status, found.reason, found.version) == ("partial", "3 of 4 outputs are there", moved.version)


async def test_the_end_of_an_old_driver_does_not_end_a_job_that_waits_to_run_again(bench: Bench) -> None:
    job = await left(bench)
    driving = await drives(bench, job)
    await bench.control.operations.force(job.id, "partial", actor="ann", reason="enough")
    await bench.control.operations.retry(job.id, actor="ann")
    await bench.worker.attempts.complete([Completion(driving)])
    assert (await bench.control.jobs.get(job.id)).status == "pending"


async def test_what_the_rules_forbid_is_refused_with_the_story(bench: Bench) -> None:
    job = await left(bench)
    with pytest.raises(InvalidTransition, match="left to its units"):
        await bench.worker.drivers.act(job.id, lambda *_: (Move(to="partial"),), actor="driver")

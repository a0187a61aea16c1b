"""Sweeping: dead sessions, deadlines, stalls; and what must be left alone."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from mainstay.control import Completion, Control, JobRequest
from mainstay.control.rules.blame import ALONE_LOSSES
from mainstay.errors import Conflict, StoreLocked
from mainstay.lifecycle import Move, apply
from mainstay.model import Job
from mainstay.stores import SealedChange

from .conftest import Bench


async def _into(bench: Bench, job: Job, to: str) -> Job:
    """Move a held job into another phase, as its kind would."""
    now_ms = bench.clock.now_ms()
    moved = apply(job, Move(to=to), now_ms=now_ms, actor=str(job.session), chain=bench.store.chain)
    [answer] = await bench.store.apply([SealedChange.of(job, moved, holder=job.session)])
    assert answer.outcome == "applied"
    return moved.job


async def test_a_dead_sessions_started_job_runs_again_at_once_and_counts_as_a_loss(bench: Bench) -> None:
    job = await bench.running()
    bench.clock.advance(9)

    swept = await bench.control.sweeper.sweep()

    row = await bench.control.jobs.get(job.id)
    assert swept.moved == {"pending": 1}
    assert await bench.path(job.id) == ["pending", "running", "timed_out", "pending"]
    assert (row.crashes, row.failures, row.starts, row.session) == (0, 0, 1, None)
    assert (row.releases, row.losses) == (1, 1)
    assert row.due_ms <= bench.clock.now_ms()


async def test_a_claim_that_had_not_started_is_only_released(bench: Bench) -> None:
    job = await bench.claimed()
    bench.clock.advance(9)

    await bench.control.sweeper.sweep()

    row = await bench.control.jobs.get(job.id)
    assert (row.status, row.releases, row.losses, row.crashes, row.starts) == ("pending", 1, 1, 0, 0)


async def test_a_live_session_is_never_reaped_however_long_its_job_runs(bench: Bench) -> None:
    job = await bench.running(timeout="off")
    for _ in range(1000):
        bench.clock.advance(4)
        await bench.worker.claims.beat([str(job.session)])

    assert (await bench.control.sweeper.sweep()).total == 0
    assert (await bench.control.jobs.get(job.id)).status == "running"


async def test_a_spent_crash_budget_ends_in_quarantine(bench: Bench) -> None:
    """Once it runs alone in its engine: the losses before that, in company, are not held against it."""
    submitted = await bench.control.jobs.submit("poison", crash_budget=3)
    for _ in range(ALONE_LOSSES + 3):
        session = await bench.session()
        jobs = await bench.worker.claims.claim(["default"], session.id, 1)
        await bench.worker.claims.start(jobs)
        bench.clock.advance(9)
        await bench.control.sweeper.sweep()

    row = await bench.control.jobs.get(submitted.id)
    assert (row.status, row.crashes, row.losses) == ("quarantined", 3, ALONE_LOSSES)
    assert "crash budget 3" in str(row.reason)


async def test_a_job_with_a_crash_budget_of_one_is_not_run_again_once_it_has_begun(bench: Bench) -> None:
    job = await bench.running(crash_budget=1)
    bench.clock.advance(9)

    await bench.control.sweeper.sweep()

    row = await bench.control.jobs.get(job.id)
    assert (row.status, row.crashes, row.losses) == ("quarantined", 1, 0)


async def test_a_job_being_cancelled_is_cancelled_when_its_worker_dies(bench: Bench) -> None:
    job = await bench.running()
    await bench.control.operations.cancel(job.id, actor="ann", reason="enough")
    bench.clock.advance(9)

    await bench.control.sweeper.sweep()

    row = await bench.control.jobs.get(job.id)
    assert (row.status, row.crashes) == ("cancelled", 0)
    assert str(row.reason).startswith("enough")


async def test_a_job_that_does_not_stop_is_cancelled_after_its_grace_and_its_holder_is_fenced(bench: Bench) -> None:
    job = await bench.running(grace="5s")
    await bench.control.operations.cancel(job.id, actor="ann")
    bench.clock.advance(4)
    await bench.worker.claims.beat([str(job.session)])
    assert (await bench.control.sweeper.sweep()).total == 0
    bench.clock.advance(1)

    await bench.control.sweeper.sweep()

    assert (await bench.control.jobs.get(job.id)).status == "cancelled"
    [late] = await bench.worker.attempts.complete([Completion(job)])
    assert late.outcome == "stale"


async def test_a_missed_queue_deadline_times_out_and_settles(bench: Bench) -> None:
    submitted = await bench.control.jobs.submit("t", delay="1m", queue_deadline="5m")
    bench.clock.advance(359)
    assert (await bench.control.sweeper.sweep()).total == 0
    bench.clock.advance(1)

    await bench.control.sweeper.sweep()

    row = await bench.control.jobs.get(submitted.id)
    assert (row.status, row.failures) == ("timed_out", 0)
    assert row.error is not None
    assert row.error.code == "queue_deadline"


async def test_a_job_past_its_queue_deadline_is_not_handed_out_even_before_a_sweep(bench: Bench) -> None:
    late = await bench.control.jobs.submit("late", queue_deadline="5m")
    good = await bench.control.jobs.submit("good")
    bench.clock.advance(300)
    session = await bench.session()

    claimed = await bench.worker.claims.claim(["default"], session.id, 10)

    assert [job.id for job in claimed] == [good.id]
    assert (await bench.control.jobs.get(late.id)).status == "pending"
    await bench.control.sweeper.sweep()
    assert (await bench.control.jobs.get(late.id)).status == "timed_out"


async def test_a_late_job_costs_the_others_of_its_claim_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.control.jobs.submit("late", queue_deadline="5m")
    good = [(await bench.control.jobs.submit("good")).id for _ in range(3)]
    bench.clock.advance(300)
    session = await bench.session()

    async def locked(*_: object, **__: object) -> None:
        raise StoreLocked("the database is locked")

    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "apply", locked)
        claimed = await bench.worker.claims.claim(["default"], session.id, 10)

    assert [job.id for job in claimed] == good


async def _beaten(bench: Bench, job: Job, seconds: int) -> None:
    """Let time pass while the session lives."""
    for _ in range(seconds):
        bench.clock.advance(1)
        await bench.worker.claims.beat([str(job.session)])


async def test_an_overrun_counts_as_a_failure_and_follows_the_policy(bench: Bench) -> None:
    job = await bench.running(timeout="30s", grace="10s", jitter=False)
    await _beaten(bench, job, 39)
    assert (await bench.control.sweeper.sweep()).total == 0
    await _beaten(bench, job, 1)

    await bench.control.sweeper.sweep()

    row = await bench.control.jobs.get(job.id)
    assert await bench.path(job.id) == ["pending", "running", "timed_out", "scheduled"]
    assert (row.failures, row.crashes) == (1, 0)
    assert row.error is not None
    assert row.error.code == "run_timeout"


async def test_an_overrun_without_retries_left_is_quarantined(bench: Bench) -> None:
    job = await bench.running(timeout="1s", grace="0s", retries=0)
    await _beaten(bench, job, 1)

    await bench.control.sweeper.sweep()

    assert (await bench.control.jobs.get(job.id)).status == "quarantined"


async def test_beats_do_not_feed_the_stall_clock_but_progress_does(bench: Bench) -> None:
    job = await bench.running(stall_timeout="20s", grace="0s", timeout="off")
    await _beaten(bench, job, 15)
    await bench.worker.claims.beat([str(job.session)], [bench.worker.claims.progress(job, 1)])
    await _beaten(bench, job, 15)
    assert (await bench.control.sweeper.sweep()).total == 0
    await _beaten(bench, job, 5)

    await bench.control.sweeper.sweep()

    row = await bench.control.jobs.get(job.id)
    assert row.status == "scheduled"
    assert row.error is not None
    assert row.error.code == "stalled"


async def test_a_stall_can_be_held_for_a_person(bench: Bench) -> None:
    job = await bench.running(stall_timeout="5s", grace="0s", on_stall="hold")
    await _beaten(bench, job, 5)

    await bench.control.sweeper.sweep()

    row = await bench.control.jobs.get(job.id)
    assert (row.status, row.reason) == ("quarantined", "stalled; kept for an operator")
    assert await bench.path(job.id) == ["pending", "running", "timed_out", "quarantined"]


@pytest.mark.parametrize("cause", ["run", "stall"])
async def test_a_worker_that_enforces_a_limit_itself_tells_the_same_story(bench: Bench, cause: str) -> None:
    job = await bench.running(timeout="30s", stall_timeout="10s", jitter=False)

    [outcome] = await bench.worker.attempts.time_out([job], cause=cause)  # type: ignore[arg-type]

    assert outcome.outcome == "applied"
    assert await bench.path(job.id) == ["pending", "running", "timed_out", "scheduled"]


async def test_a_completed_job_is_never_touched_by_a_sweep(bench: Bench) -> None:
    job = await bench.running()
    await bench.worker.attempts.complete([Completion(job)])
    before = await bench.control.jobs.get(job.id)
    bench.clock.advance(100_000)

    assert (await bench.control.sweeper.sweep()).total == 0
    assert await bench.control.jobs.get(job.id) == before


async def test_two_sweepers_write_one_story(bench: Bench) -> None:
    job = await bench.running()
    bench.clock.advance(9)
    other = Control(bench.store, rng=random.Random(3))

    await bench.control.sweeper.sweep()
    await other.sweeper.sweep()

    assert await bench.path(job.id) == ["pending", "running", "timed_out", "pending"]


@pytest.mark.parametrize("phase", ["finalizing", "validating"])
async def test_a_phase_whose_owner_died_is_taken_over_in_place_under_a_new_token(bench: Bench, phase: str) -> None:
    job = await _into(bench, await bench.running(), phase)
    bench.clock.advance(9)
    await bench.control.sweeper.sweep()
    orphan = await bench.control.jobs.get(job.id)
    assert (orphan.status, orphan.session, orphan.crashes, orphan.losses) == (phase, None, 0, 1)

    heir = await bench.session()
    taken = await bench.worker.claims.take_over(orphan, heir.id)

    assert (taken.status, taken.session, taken.token) == (phase, heir.id, job.token + 1)
    with pytest.raises(Conflict, match="cannot be taken over"):
        await bench.worker.claims.take_over(orphan, "another")
    assert (await bench.worker.attempts.complete([Completion(job)]))[0].outcome == "stale"
    assert (await bench.worker.attempts.complete([Completion(taken)]))[0].outcome == "applied"


async def test_a_unit_follows_its_own_table(bench: Bench) -> None:
    parent = await bench.control.jobs.submit("parent", queue="parents")
    unit = await bench.control.jobs.submit("unit", parent=parent.id, unit="u1", crash_budget=2)
    for _ in range(ALONE_LOSSES + 2):
        session = await bench.session()
        jobs = await bench.worker.claims.claim(["default"], session.id, 1)
        await bench.worker.claims.start(jobs)
        bench.clock.advance(9)
        await bench.control.sweeper.sweep()

    path = await bench.path(unit.id)
    assert path == ["pending", "running", "timed_out"] * (ALONE_LOSSES + 2)


async def test_a_sweeper_that_missed_its_own_beat_waits_one_lease(bench: Bench) -> None:
    """As after a suspend: everybody looks dead, and nobody is."""
    job = await bench.running()
    own = await bench.control.claims.open_session()
    bench.clock.advance(60)

    assert (await bench.control.sweeper.sweep()).waiting
    await bench.worker.claims.beat([str(job.session)])
    await bench.control.claims.beat([own.id])
    for _ in range(4):
        bench.clock.advance(2)
        await bench.worker.claims.beat([str(job.session)])
        await bench.control.claims.beat([own.id])

    swept = await bench.control.sweeper.sweep()
    assert (swept.waiting, swept.total) == (False, 0)
    assert (await bench.control.jobs.get(job.id)).status == "running"


async def _judges_nobody(bench: Bench) -> None:
    with contextlib.suppress(StoreLocked):
        assert (await bench.control.sweeper.sweep()).waiting


@pytest.mark.parametrize("beats", [True, False])
async def test_a_sweep_that_had_to_wait_for_the_store_judges_nobody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, beats: bool
) -> None:
    """As when a server stands still, and answers when it goes on: whoever is silent waited as well."""
    job = await bench.running()
    own = await bench.control.claims.open_session() if beats else None
    beat = bench.store.beat

    async def late(*given: Any) -> Any:
        bench.clock.advance(20)
        return await beat(*given)

    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "beat", late)
        assert (await bench.control.sweeper.sweep()).waiting
    await bench.worker.claims.beat([str(job.session)])
    bench.clock.advance(1)
    assert (await bench.control.sweeper.sweep()).waiting is beats, "whoever beats gives the others a lease to be heard"
    for _ in range(4):
        bench.clock.advance(2)
        await bench.worker.claims.beat([str(job.session)])
        if own is not None:
            await bench.control.claims.beat([own.id])

    swept = await bench.control.sweeper.sweep()
    assert (swept.waiting, swept.total) == (False, 0)
    assert (await bench.control.jobs.get(job.id)).status == "running"


@pytest.mark.parametrize("slept_s", [0, 60])
async def test_a_sweeper_whose_own_beats_do_not_get_through_judges_nobody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, slept_s: int
) -> None:
    """As when the store was locked for long: everybody is silent, and nobody is dead."""
    job = await bench.running()
    own = await bench.control.claims.open_session()
    bench.clock.advance(slept_s)
    if slept_s:
        assert (await bench.control.sweeper.sweep()).waiting

    async def locked(*_: object) -> None:
        raise StoreLocked("the database is locked")

    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "beat", locked)
        for _ in range(60):
            bench.clock.advance(1)
            with pytest.raises(StoreLocked):
                await bench.control.claims.beat([own.id])
            await _judges_nobody(bench)
    await bench.control.claims.beat([own.id])
    for _ in range(4):
        assert (await bench.control.sweeper.sweep()).waiting
        bench.clock.advance(2)
        await bench.worker.claims.beat([str(job.session)])
        await bench.control.claims.beat([own.id])

    swept = await bench.control.sweeper.sweep()
    assert (swept.waiting, swept.total) == (False, 0)
    assert (await bench.control.jobs.get(job.id)).status == "running"


@pytest.mark.parametrize("keeps", ["another", "nobody"])
async def test_a_sweeper_whose_first_beat_does_not_get_through_judges_nobody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, keeps: str
) -> None:
    """As when the store is locked the moment a worker is up, before or after its engines have opened their sessions."""
    job = await bench.running()
    kept = [str(job.session)] if keeps == "another" else []

    async def locked(*_: object) -> None:
        raise StoreLocked("the database is locked")

    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "beat", locked)
        for _ in range(12):
            with pytest.raises(StoreLocked):
                await bench.control.claims.beat(kept)
            await _judges_nobody(bench)
            bench.clock.advance(1)
    await bench.control.claims.beat(kept)
    assert (await bench.control.sweeper.sweep()).waiting

    assert (await bench.control.jobs.get(job.id)).status == "running"


async def test_a_sweeper_whose_sessions_were_given_up_goes_on_sweeping(bench: Bench) -> None:
    job = await bench.running()
    own = await bench.control.claims.open_session()
    bench.clock.advance(60)
    await Control(bench.store).sweeper.sweep()

    assert [pulse.known for pulse in await bench.control.claims.beat([own.id])] == [False]
    waited = [(await bench.control.sweeper.sweep()).waiting]
    for _ in range(8):
        bench.clock.advance(1)
        waited.append((await bench.control.sweeper.sweep()).waiting)

    assert waited == [True] * 8 + [False]
    assert (await bench.control.jobs.get(job.id)).losses == 1


async def test_one_bad_row_does_not_stop_the_sweep(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from mainstay.control.rules import overdue

    await bench.control.jobs.submit_many(JobRequest("t", n) for n in range(250))
    session = await bench.session()
    jobs = await bench.worker.claims.claim(["default"], session.id, 250)
    bad = {job.id for job in jobs[:120]}
    bench.clock.advance(9)
    good_rule = overdue.lost

    def rule(job: Job, *, now_ms: int) -> object:
        if job.id in bad:
            raise ZeroDivisionError("a row that no rule foresaw")
        return good_rule(job, now_ms=now_ms)

    monkeypatch.setattr(overdue, "lost", rule)

    swept = await bench.control.sweeper.sweep()

    assert swept.moved == {"pending": 130}
    assert set(swept.failed) == bad


async def test_a_sweep_that_ends_the_last_unit_names_its_parent(bench: Bench) -> None:
    parents = [await bench.running(queue="parents") for _ in range(2)]
    doomed = await bench.session()
    for parent, units in zip(parents, ("a", "bc"), strict=True):
        for unit in units:
            await bench.control.jobs.submit("unit", parent=parent.id, unit=unit, queue="units", crash_budget=1)
    await bench.worker.claims.start(await bench.worker.claims.claim(["units"], doomed.id, 2))
    bench.clock.advance(5)
    await bench.worker.claims.beat([str(parent.session) for parent in parents])
    bench.clock.advance(5)
    await bench.worker.claims.beat([str(parent.session) for parent in parents])

    swept = await bench.control.sweeper.sweep()

    assert swept.moved == {"timed_out": 2}
    assert swept.closed == (parents[0].id,), "the other one still has a unit to do"
    assert [await bench.control.jobs.has_open_units(parent.id) for parent in parents] == [False, True]
    assert (await bench.control.jobs.get(parents[0].id)).status == "running", "its holder decides what follows"


async def test_cancelling_the_last_unit_is_said_in_its_outcome(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="mainstay.control")
    parent = await bench.running(queue="parents")
    units = [(await bench.control.jobs.submit("unit", parent=parent.id, unit=name)).id for name in "abc"]

    outcomes = await bench.control.operations.cancel_many(units[:2], actor="ann")
    assert [outcome.last for outcome in outcomes] == [False, False]
    await bench.control.operations.cancel(units[2], actor="ann")

    assert f"last unit settled job_id={units[2]} parent={parent.id}" in caplog.text
    assert not await bench.control.jobs.has_open_units(parent.id)


async def test_a_deleted_unit_is_not_waited_for(bench: Bench) -> None:
    parent = await bench.running(queue="parents")
    unit = await bench.control.jobs.submit("unit", parent=parent.id, unit="a")
    assert await bench.control.jobs.has_open_units(parent.id)
    await bench.control.operations.delete(unit.id, actor="ann", reason="a mistake")
    assert not await bench.control.jobs.has_open_units(parent.id)


async def test_a_session_closed_beside_others_leaves_the_sweeper_as_careful_as_before(bench: Bench) -> None:
    job = await bench.running()
    own, other = await bench.control.claims.open_session(), await bench.control.claims.open_session()
    await bench.control.claims.close_session(other.id)

    bench.clock.advance(60)
    assert (await bench.control.sweeper.sweep()).waiting, "it slept, so it must not judge others yet"

    await bench.control.claims.close_session(own.id)
    assert not (await bench.control.sweeper.sweep()).waiting
    assert (await bench.control.jobs.get(job.id)).status == "pending"


async def test_every_loss_before_the_start_is_counted(bench: Bench) -> None:
    """So that a job which kills its workers before they can say so does not go round unseen."""
    await bench.control.jobs.submit("demo")
    for n in range(1, 4):
        session = await bench.session()
        [job] = await bench.worker.claims.claim(["default"], session.id, 1)
        bench.clock.advance(9)
        await bench.control.sweeper.sweep()
        row = await bench.control.jobs.get(job.id)
        assert (row.status, row.releases, row.losses, row.starts, row.crashes) == ("pending", n, n, 0, 0)


async def test_what_is_put_off_drained_or_stopped_is_no_loss(bench: Bench) -> None:
    drained, parked, snoozed, stopped = [await bench.claimed() for _ in range(4)]
    await bench.control.operations.cancel(stopped.id, actor="me")

    await bench.worker.attempts.release([drained], reason="draining")
    await bench.worker.attempts.park([parked], wait="30s", reason="no such task")
    await bench.worker.attempts.snooze(snoozed, "30s")
    bench.clock.advance(9)
    await bench.control.sweeper.sweep()

    rows = await bench.control.jobs.get_many([drained.id, parked.id, snoozed.id, stopped.id])
    assert [(row.releases, row.losses) for row in rows] == [(1, 0), (1, 0), (1, 0), (0, 0)]


async def test_the_unique_key_of_a_job_that_a_sweep_gives_up_is_free(bench: Bench) -> None:
    lost = await bench.running(unique="nightly", crash_budget=2)
    bench.clock.advance(9)
    await bench.control.sweeper.sweep()
    again = await bench.control.jobs.submit("demo.task", {"n": 2}, unique="nightly")
    for _ in range(ALONE_LOSSES + 1):
        session = await bench.session()
        await bench.worker.claims.start(await bench.worker.claims.claim(["default"], session.id, 1))
        bench.clock.advance(9)
        await bench.control.sweeper.sweep()

    fresh = await bench.control.jobs.submit("demo.task", {"n": 3}, unique="nightly")

    assert (again.id, again.created) == (lost.id, False), "it waits to be run again, and holds its key"
    assert (await bench.control.jobs.get(lost.id)).status == "quarantined"
    assert fresh.created


async def test_a_job_that_a_sweep_gives_up_is_an_error_in_the_log_with_its_id(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "mainstay")
    lost, given_up = await bench.running(), await bench.running(crash_budget=1)
    bench.clock.advance(9)

    await bench.control.sweeper.sweep()

    errors = [one for one in caplog.records if one.levelname == "ERROR"]
    assert [vars(one)["job_id"] for one in errors] == [given_up.id]
    assert errors[0].getMessage().startswith("quarantined: WorkerLost: session")
    assert any(lost.id in one.getMessage() for one in caplog.records), "what runs again is told, too"

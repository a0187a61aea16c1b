"""How attempts end: success, failure and its policy, crash, release, snooze, skip."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from mainstay.control import Completion, Control, Failure, JobRequest, Quarantine, Stop, Wait, decoded, error_info
from mainstay.errors import InvalidInput, MainstayError, PayloadTooLarge
from mainstay.lifecycle import Move
from mainstay.model import ErrorInfo, Job, Settings

from .conftest import Bench

BOOM = ErrorInfo(type="ValueError", message="boom")


async def test_a_completion_settles_the_job_with_its_result_and_counts_the_start(bench: Bench) -> None:
    job = await bench.claimed()

    [outcome] = await bench.worker.attempts.complete([Completion(job, result={"sent": 1})])

    done = await bench.control.jobs.get(job.id)
    assert outcome.outcome == "applied"
    assert (done.status, done.starts, done.failures, done.session) == ("succeeded", 1, 0, None)
    assert done.result is not None
    assert decoded(done.result) == {"sent": 1}


async def test_a_start_committed_after_the_claim_is_counted_once(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.worker.claims.start([job])

    [outcome] = await bench.worker.attempts.complete([Completion(job)])

    assert outcome.outcome == "applied"
    assert (await bench.control.jobs.get(job.id)).starts == 1


async def test_a_lost_acknowledgement_is_answered_as_already_applied(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.worker.attempts.complete([Completion(job, 1)])
    bench.clock.advance(1)

    [again] = await bench.worker.attempts.complete([Completion(job, 1)])

    assert again.outcome == "already_applied"
    assert await bench.path(job.id) == ["pending", "running", "succeeded"]


async def test_a_ghosts_completion_is_stale_and_told_in_the_story(bench: Bench) -> None:
    ghost = await bench.running()
    bench.clock.advance(9)
    await bench.control.sweeper.sweep()
    session = await bench.session()
    [job] = await bench.worker.claims.claim(["default"], session.id, 1)

    [refused] = await bench.worker.attempts.complete([Completion(ghost, "ghost")])
    [accepted] = await bench.worker.attempts.complete([Completion(job, "good")])

    assert (refused.outcome, accepted.outcome) == ("stale", "applied")
    done = await bench.control.jobs.get(job.id)
    assert done.result is not None
    assert decoded(done.result) == "good"
    assert any("refused succeeded" in line for line in await bench.control.jobs.story(job.id))


async def test_each_completion_of_a_batch_stands_on_its_own(bench: Bench) -> None:
    good, gone, unclaimed = await bench.claimed(), await bench.claimed(), await bench.control.jobs.submit("other")
    await bench.worker.attempts.release([gone], reason="drain")
    await bench.control.operations.delete(gone.id, actor="ann", reason="test")
    row = await bench.control.jobs.get(unclaimed.id)

    outcomes = await bench.worker.attempts.complete([Completion(row), Completion(gone), Completion(good)])

    assert [one.outcome for one in outcomes] == ["invalid", "missing", "applied"]
    assert isinstance(outcomes[0].error, InvalidInput)


async def test_a_result_too_large_leaves_the_job_running_and_says_why(bench: Bench) -> None:
    job = await bench.claimed()
    small = Control(bench.store, settings=Settings(payload_limit=10))

    [outcome] = await small.attempts.complete([Completion(job, "x" * 100)])

    assert outcome.outcome == "invalid"
    assert isinstance(outcome.error, PayloadTooLarge)
    assert (await bench.control.jobs.get(job.id)).status == "running"


async def test_follow_up_jobs_are_there_if_and_only_if_the_completion_was_accepted(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.worker.attempts.complete([Completion(job, spawn=(JobRequest("next", 1),))])
    await bench.worker.attempts.complete([Completion(job, spawn=(JobRequest("next", 2),))])

    assert sorted(found.name for found in await bench.everything()) == ["demo.task", "next"]


async def test_a_follow_up_that_clashes_refuses_the_completion_and_names_the_cause(bench: Bench) -> None:
    await bench.control.jobs.submit("next", 1, key="k", queue="other")
    job = await bench.claimed()

    [outcome] = await bench.worker.attempts.complete([Completion(job, spawn=(JobRequest("next", 2, {"key": "k"}),))])

    assert outcome.outcome == "invalid"
    assert "clashes" in str(outcome.error)
    assert (await bench.control.jobs.get(job.id)).status == "running"


async def test_a_failure_is_retried_after_the_backoff_in_one_transaction_with_two_events(bench: Bench) -> None:
    job = await bench.claimed(jitter=False)

    await bench.worker.attempts.fail([Failure(job, BOOM)])

    row = await bench.control.jobs.get(job.id)
    assert await bench.path(job.id) == ["pending", "running", "failed", "scheduled"]
    assert (row.failures, row.starts, row.reason) == (1, 1, "retry 1 of 3 in 2s")
    assert row.due_ms == bench.clock.now_ms() + 2000
    assert row.error == BOOM


async def test_retries_double_their_wait_and_end_in_quarantine(bench: Bench) -> None:
    submitted = await bench.control.jobs.submit("t", retries=3, jitter=False)
    waits = []
    for _ in range(4):
        session = await bench.session()
        [job] = await bench.worker.claims.claim(["default"], session.id, 1)
        await bench.worker.attempts.fail([Failure(job, BOOM)])
        row = await bench.control.jobs.get(submitted.id)
        waits.append((row.due_ms - bench.clock.now_ms()) / 1000)
        bench.clock.advance(max(waits[-1], 0))

    assert waits[:3] == [2.0, 4.0, 8.0]
    row = await bench.control.jobs.get(submitted.id)
    assert (row.status, row.failures, row.starts) == ("quarantined", 4, 4)
    assert row.reason == "gave up after 4 failed attempts"


async def test_an_exception_will_do_for_the_error_of_a_failure(bench: Bench) -> None:
    job = await bench.claimed()

    [outcome] = await bench.worker.attempts.fail([Failure(job, RuntimeError("boom"))])

    assert outcome.outcome == "applied"
    error = (await bench.control.jobs.get(job.id)).error
    assert error is not None
    assert (error.type, error.message) == ("RuntimeError", "boom")


async def test_a_failure_without_an_error_is_refused_and_the_others_are_written(bench: Bench) -> None:
    good, bad = await bench.claimed(), await bench.claimed()
    wrong: Any = "boom"

    outcomes = await bench.worker.attempts.fail([Failure(bad, wrong), Failure(good, BOOM)])

    assert [outcome.outcome for outcome in outcomes] == ["invalid", "applied"]
    assert str(outcomes[0].error) == "error: 'boom' is not an error; wrap an exception with error_info()"
    assert (await bench.control.jobs.get(bad.id)).status == "running"


@pytest.mark.parametrize(("cause", "code"), [("run", "run_timeout"), ("stall", "stalled")])
async def test_a_policy_of_ones_own_is_asked_about_a_time_out(
    bench: Bench, cause: Literal["run", "stall"], code: str
) -> None:
    own, plain = await bench.running(), await bench.running()
    asked: list[tuple[int, str, str]] = []

    def policy(attempt: int, job: Job, error: ErrorInfo) -> Stop:
        asked.append((attempt, job.id, error.code))
        return Stop("never again")

    await bench.worker.attempts.time_out([own, plain], cause=cause, decide=[policy, None])

    assert asked == [(1, own.id, code)]
    stopped, again = await bench.control.jobs.get_many([own.id, plain.id])
    assert (stopped.status, stopped.failures, stopped.settled_ms) == ("timed_out", 1, bench.clock.now_ms())
    assert (again.status, again.failures) == ("scheduled", 1)


async def test_a_stall_that_is_to_be_held_is_held_whatever_a_policy_says(bench: Bench) -> None:
    job = await bench.running(stall_timeout="5s", on_stall="hold")

    await bench.worker.attempts.time_out([job], cause="stall", decide=[lambda *_: Wait(1)])

    assert (await bench.control.jobs.get(job.id)).status == "quarantined"


async def test_policies_that_do_not_match_the_jobs_are_refused(bench: Bench) -> None:
    job = await bench.running()

    with pytest.raises(InvalidInput, match="decide: 2 policies for 1 jobs"):
        await bench.worker.attempts.time_out([job], cause="run", decide=[None, None])

    assert (await bench.control.jobs.get(job.id)).status == "running"


async def test_an_unknown_cause_of_a_time_out_is_refused(bench: Bench) -> None:
    job = await bench.running()
    cause: Any = "xx"

    with pytest.raises(InvalidInput, match="^cause: 'xx' is not one of run, stall"):
        await bench.worker.attempts.time_out([job], cause=cause)
    assert (await bench.control.jobs.get(job.id)).status == "running"


@pytest.mark.parametrize(
    ("cause", "options", "message"),
    [
        ("run", {"timeout": "1m"}, "still running after 1m5s (run timeout 1m)"),
        ("run", {"timeout": "off"}, "still running after 1m5s (run timeout)"),
        ("stall", {"stall_timeout": "20s"}, "no progress for 1m5s (stall timeout 20s)"),
    ],
)
@pytest.mark.parametrize("started", [True, False])
async def test_a_time_out_tells_how_long_it_really_took(
    bench: Bench, cause: Any, options: dict[str, str], message: str, started: bool
) -> None:
    job = await (bench.running(**options) if started else bench.claimed(**options))
    bench.clock.advance(65)

    await bench.worker.attempts.time_out([job], cause=cause)

    error = (await bench.control.jobs.get(job.id)).error
    assert error is not None
    assert error.message == message


async def test_a_stall_is_counted_from_the_last_progress(bench: Bench) -> None:
    job = await bench.running(stall_timeout="20s")
    bench.clock.advance(40)
    await bench.worker.claims.report([bench.worker.claims.progress(job, 1)])
    bench.clock.advance(25)

    await bench.worker.attempts.time_out([await bench.control.jobs.get(job.id)], cause="stall")

    error = (await bench.control.jobs.get(job.id)).error
    assert error is not None
    assert error.message == "no progress for 25s (stall timeout 20s)"


async def test_a_permanent_error_stays_failed(bench: Bench) -> None:
    job = await bench.claimed()

    await bench.worker.attempts.fail([Failure(job, msgspec.structs.replace(BOOM, retryable=False))])

    assert (await bench.control.jobs.get(job.id)).status == "failed"


async def test_a_wait_of_zero_goes_straight_to_pending(bench: Bench) -> None:
    job = await bench.claimed(backoff="fixed", backoff_base="0s")

    await bench.worker.attempts.fail([Failure(job, BOOM)])

    assert await bench.path(job.id) == ["pending", "running", "failed", "pending"]


@pytest.mark.parametrize(
    ("verdict", "status"),
    [(Wait(5), "scheduled"), (Wait(0), "pending"), (Stop(), "failed"), (Quarantine("odd"), "quarantined")],
)
async def test_an_own_retry_function_has_the_whole_say(bench: Bench, verdict: object, status: str) -> None:
    job = await bench.claimed(retries=0)
    asked = []

    def decide(attempt: int, row: object, error: ErrorInfo) -> object:
        asked.append((attempt, error))
        return verdict

    await bench.worker.attempts.fail([Failure(job, BOOM, decide)])  # type: ignore[arg-type]

    assert (await bench.control.jobs.get(job.id)).status == status
    assert asked == [(1, BOOM)]


@pytest.mark.parametrize("answer", [ZeroDivisionError("oops"), None, Wait(-1), Wait(float("nan")), Wait(1e300)])
async def test_a_broken_retry_function_quarantines_and_loses_nothing(bench: Bench, answer: object) -> None:
    job = await bench.claimed()

    def decide(*_: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    await bench.worker.attempts.fail([Failure(job, BOOM, decide)])  # type: ignore[arg-type]

    row = await bench.control.jobs.get(job.id)
    assert row.status == "quarantined"
    assert "its retry function" in str(row.reason)


async def test_a_dead_child_is_a_crash_tried_again_at_once_until_the_budget_is_spent(bench: Bench) -> None:
    submitted = await bench.control.jobs.submit("t", crash_budget=2)
    for _ in range(2):
        session = await bench.session()
        [job] = await bench.worker.claims.claim(["default"], session.id, 1)
        await bench.worker.attempts.fail([Failure(job, BOOM, crashed=True)])

    row = await bench.control.jobs.get(submitted.id)
    assert (row.status, row.crashes, row.failures) == ("quarantined", 2, 0)
    assert await bench.path(submitted.id) == [
        "pending", "running", "failed", "pending", "running", "failed", "quarantined",
    ]  # fmt: skip


async def test_a_release_counts_no_failure_and_keeps_the_place_in_the_queue(bench: Bench) -> None:
    job = await bench.claimed()
    bench.clock.advance(1)
    await bench.control.jobs.submit("later")

    await bench.worker.attempts.release([job], reason="draining")

    row = await bench.control.jobs.get(job.id)
    assert (row.status, row.releases, row.failures, row.starts) == ("pending", 1, 0, 0)
    session = await bench.session()
    assert [found.id for found in await bench.worker.claims.claim(["default"], session.id, 1)] == [job.id]


async def test_a_release_for_a_dead_session_counts_a_loss(bench: Bench) -> None:
    job = await bench.claimed()

    await bench.worker.attempts.release([job], reason="its worker died before the work began", lost=True)

    row = await bench.control.jobs.get(job.id)
    assert (row.status, row.releases, row.losses, row.crashes) == ("pending", 1, 1, 0)


async def test_a_parked_job_waits_without_a_failure_or_a_start(bench: Bench) -> None:
    job = await bench.claimed()

    [outcome] = await bench.worker.attempts.park([job], wait="30s", reason="no task demo.task in worker w")

    row = await bench.control.jobs.get(job.id)
    assert outcome.outcome == "applied"
    assert (row.status, row.reason) == ("scheduled", "no task demo.task in worker w")
    assert (row.failures, row.crashes, row.starts, row.releases) == (0, 0, 0, 1)
    assert row.due_ms == bench.clock.now_ms() + 30_000
    assert await bench.path(job.id) == ["pending", "running", "pending", "scheduled"]
    bench.clock.advance(31)
    session = await bench.session()
    [again] = await bench.worker.claims.claim(["default"], session.id, 1)
    assert (again.id, again.token) == (job.id, 2)


async def test_parking_a_job_that_is_being_cancelled_ends_the_cancel(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.control.operations.cancel(job.id, actor="ann", reason="enough")
    await bench.worker.attempts.park([job], wait="30s", reason="no such task")
    assert (await bench.control.jobs.get(job.id)).status == "cancelled"


async def test_a_parked_unit_waits_in_its_claimable_state(bench: Bench) -> None:
    parent = await bench.control.jobs.submit("parent", queue="p")
    unit = await bench.claimed("unit", parent=parent.id, unit="1")
    await bench.worker.attempts.park([unit], wait="30s", reason="no such task")
    row = await bench.control.jobs.get(unit.id)
    assert (row.status, row.starts, row.releases, row.due_ms) == ("pending", 0, 1, bench.clock.now_ms() + 30_000)


async def test_parking_under_a_lost_claim_is_refused_and_recorded(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.control.operations.force(job.id, "pending", actor="ann", reason="by hand")
    [outcome] = await bench.worker.attempts.park([job], wait="30s", reason="no such task")
    assert outcome.outcome == "stale"
    assert [refusal.token for refusal in await bench.control.jobs.refusals(job.id)] == [job.token]


@pytest.mark.parametrize("wait", ["0s", "5", 5])
async def test_parking_needs_a_wait(bench: Bench, wait: Any) -> None:
    job = await bench.claimed()
    with pytest.raises(InvalidInput, match="wait"):
        await bench.worker.attempts.park([job], wait=wait, reason="no such task")


async def test_a_result_that_is_encoded_already_is_stored_as_it_is(bench: Bench) -> None:
    job = await bench.claimed()
    data = msgspec.msgpack.encode({"b": 1, "a": 2})
    [outcome] = await bench.worker.attempts.complete([Completion(job, result=msgspec.Raw(data))])
    assert outcome.ok
    assert (await bench.control.jobs.get(job.id)).result == data


async def test_an_encoded_result_that_is_too_large_is_refused(bench: Bench) -> None:
    job = await bench.claimed()
    small = Control(bench.store, settings=Settings(payload_limit=10))
    [outcome] = await small.attempts.complete([Completion(job, result=msgspec.Raw(msgspec.msgpack.encode("x" * 20)))])
    assert outcome.outcome == "invalid"
    assert "limit of 10" in str(outcome.error)
    assert (await bench.control.jobs.get(job.id)).status == "running"


async def test_a_snooze_puts_off_without_a_failure(bench: Bench) -> None:
    job = await bench.claimed()

    await bench.worker.attempts.snooze(job, "10m")

    row = await bench.control.jobs.get(job.id)
    assert (row.status, row.failures, row.due_ms) == ("scheduled", 0, bench.clock.now_ms() + 600_000)


async def test_a_job_can_skip_itself_for_good(bench: Bench) -> None:
    job = await bench.claimed()

    await bench.worker.attempts.skip(job, reason="nothing to send")

    row = await bench.control.jobs.get(job.id)
    assert (row.status, row.reason) == ("skipped", "nothing to send")


def test_error_info_keeps_the_ends_of_a_long_traceback_and_bounds_the_message() -> None:
    def deep(n: int) -> None:
        if n:
            deep(n - 1)
        raise ValueError("x" * 10_000 + "\ud800")

    try:
        exec("def f(n):\n  return g(n)\ndef g(n):\n  return f(n-1) if n else 1/0\nf(200)", {})
    except ZeroDivisionError as error:
        long = error_info(error)
    try:
        deep(1)
    except ValueError as error:
        big = error_info(error)

    assert long.traceback is not None
    assert len(long.traceback) <= 8_000
    assert long.traceback.startswith("Traceback")
    assert "ZeroDivisionError" in long.traceback
    assert len(big.message) <= 2_000
    big.message.encode()


def test_an_exception_may_say_itself_that_a_retry_is_useless() -> None:
    class NoSuchUser(Exception):
        retryable = False
        code = "no_such_user"

    info = error_info(NoSuchUser("42"))

    assert (info.retryable, info.code, info.message) == (False, "no_such_user", "42")


@pytest.mark.parametrize("wait", [float("nan"), float("inf"), -1.0, 1e30, pytest.param(10**400, id="huge"), "5"])
async def test_a_wait_that_is_none_quarantines_its_job_and_no_other(bench: Bench, wait: Any) -> None:
    good, bad = await bench.claimed(jitter=False), await bench.claimed()

    outcomes = await bench.worker.attempts.fail([Failure(good, BOOM), Failure(bad, BOOM, after_s=wait)])

    assert [outcome.outcome for outcome in outcomes] == ["applied", "applied"]
    assert (await bench.control.jobs.get(good.id)).status == "scheduled"
    row = await bench.control.jobs.get(bad.id)
    assert row.status == "quarantined"
    assert "asked to wait" in str(row.reason)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Wait(5, "bad \udcff"), "scheduled"),
        (Wait(5, 7), "scheduled"),  # type: ignore[arg-type]
        (Quarantine("bad \udcff" * 1000), "quarantined"),
        (ValueError("bad \udcff"), "quarantined"),
        (Unprintable(), "quarantined"),
        ([Unprintable()], "quarantined"),
    ],
)
async def test_whatever_a_retry_function_says_is_made_fit_to_be_stored(bench: Bench, answer: Any, status: str) -> None:
    good, bad = await bench.claimed(), await bench.claimed()

    def decide(*_: object) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    outcomes = await bench.worker.attempts.fail([Failure(good, BOOM), Failure(bad, BOOM, decide)])

    assert [outcome.outcome for outcome in outcomes] == ["applied", "applied"]
    row = await bench.control.jobs.get(bad.id)
    assert row.status == status
    assert len(str(row.reason)) <= 400


async def test_a_reason_that_cannot_be_stored_is_refused_by_name(bench: Bench) -> None:
    job = await bench.claimed()
    for refused in (
        bench.worker.attempts.confirm_cancelled([job], reason="x\udcff"),
        bench.worker.attempts.snooze(job, "5s", reason="x\udcff"),
        bench.worker.operations.pause("q", reason="x\udcff"),
    ):
        with pytest.raises(InvalidInput, match="^reason: "):
            await refused


async def test_a_decision_that_breaks_is_that_jobs_outcome_and_the_others_are_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mainstay.control.rules import attempts

    good, bad = await bench.claimed(), await bench.claimed()
    rule = attempts.release

    def broken(job: Job, reason: str, **more: bool) -> object:
        return rule(job, reason, **more) if job.id == good.id else 1 / 0

    monkeypatch.setattr(attempts, "release", broken)

    released, refused = await bench.worker.attempts.release([good, bad], reason="drain")

    assert (released.outcome, refused.outcome) == ("applied", "invalid")
    assert type(refused.error) is MainstayError
    assert bad.id in str(refused.error)
    assert "ZeroDivisionError" in str(refused.error)
    assert (await bench.control.jobs.get(bad.id)).status == "running"


async def test_a_failure_sent_again_after_the_job_was_claimed_again_is_no_ghost(bench: Bench) -> None:
    job = await bench.claimed()
    assert (await bench.worker.attempts.fail([Failure(job, BOOM, after_s=1)]))[0].outcome == "applied"
    bench.clock.advance(2)
    session = await bench.session()
    [taken] = await bench.worker.claims.claim(["default"], session.id, 1)

    [again] = await bench.worker.attempts.fail([Failure(job, BOOM)])

    assert (again.outcome, again.job) == ("already_applied", taken)
    assert await bench.store.refusals(job.id) == []


async def test_a_completion_sent_again_is_recognised_behind_a_remark(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.control.operations.set_priority(job.id, 5, actor="ann")
    assert (await bench.worker.attempts.complete([Completion(job)]))[0].outcome == "applied"
    bench.clock.advance(1)

    assert (await bench.worker.attempts.complete([Completion(job)]))[0].outcome == "already_applied"
    assert await bench.store.refusals(job.id) == []


async def test_a_success_by_force_does_not_swallow_the_workers_own(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.control.operations.force(job.id, "succeeded", actor="ann", reason="seen it with my own eyes")

    [late] = await bench.worker.attempts.complete([Completion(job, result="R")])

    assert late.outcome == "stale"
    assert [line.token for line in await bench.store.refusals(job.id)] == [job.token]


@pytest.mark.parametrize(
    "odd",
    [
        ErrorInfo(type=5, message="m"),  # type: ignore[arg-type]
        ErrorInfo(type="E", message=["m"]),  # type: ignore[arg-type]
        ErrorInfo(type="E", message="m", code=None, traceback=7),  # type: ignore[arg-type]
        ErrorInfo(type="E", message="m", retryable=1),  # type: ignore[arg-type]
    ],
)
async def test_an_error_of_odd_parts_is_stored_as_text_and_can_be_read_back(bench: Bench, odd: ErrorInfo) -> None:
    good, bad = await bench.claimed(), await bench.claimed()

    outcomes = await bench.worker.attempts.fail([Failure(good, BOOM), Failure(bad, odd, after_s=0)])

    assert [outcome.outcome for outcome in outcomes] == ["applied", "applied"]
    error = (await bench.control.jobs.get(bad.id)).error
    assert error is not None
    assert msgspec.convert(msgspec.to_builtins(error), ErrorInfo) == error
    assert bad.id in {job.id for job in await bench.worker.claims.claim(["default"], str(bad.session), 5)}


async def test_a_move_of_the_parent_that_cannot_be_stored_refuses_its_unit_and_no_other(bench: Bench) -> None:
    parent = await bench.running(queue="parents")
    good, bad = [await bench.claimed(parent=parent.id, unit=name) for name in "ab"]

    done = [Completion(good), Completion(bad, on_last=Move(to="finalizing", reason="bad \udcff"))]
    outcomes = await bench.worker.attempts.complete(done)

    assert [outcome.outcome for outcome in outcomes] == ["applied", "invalid"]
    assert bad.id in str(outcomes[1].error)

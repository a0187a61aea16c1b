"""What is said of a job, as a table: a row, its events and the facts around it in, sentences out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainstay.control.explain import Awaited, Explanation, Facts, explain
from mainstay.lifecycle import JOB, UNIT, Event
from mainstay.model import (
    AWAITS_MS,
    ErrorInfo,
    Job,
    Lane,
    Offer,
    Options,
    Progress,
    QueueSettings,
    RetryPolicy,
    Session,
)
from mainstay.stores import RefusedWrite
from mainstay.testing import a_job
from mainstay.words import moment

NOW = 1_700_000_000_000
ID = a_job().id
OTHER = "018bcfe5-6800-7000-8000-00000000000b"
THIRD = "018bcfe5-6800-7000-8000-00000000000c"
CHANCE = "0123456789abcdef0123456789abcdef"
W1 = Session(id=f"w1.{CHANCE}", worker="w1", host="box", pid=12, beat_ms=NOW - 1_000)
SILENT = Session(id=f"w2.{CHANCE}", worker="w2", beat_ms=NOW - 20_000)
DEAD = Session(id=f"w3.{CHANCE}", worker="w3", beat_ms=NOW - 1_000, dead=True)


def facts(*sessions: Session, **more: Any) -> Facts:
    return Facts(now_ms=NOW, lease_ms=NOW, sessions=sessions, **more)


def waiting(**fields: Any) -> Job:
    given = {"queue": "mail", "lane": Lane.READY, "created_ms": NOW - 90_000, "due_ms": NOW - 90_000, **fields}
    return a_job(given.pop("status", "pending"), **given)


def running(**fields: Any) -> Job:
    given = {"session": W1.id, "token": 1, "claimed_ms": NOW - 5_000, "created_ms": NOW - 90_000, **fields}
    return a_job(given.pop("status", "running"), **given)


def settled(status: str, **fields: Any) -> Job:
    return a_job(status, created_ms=NOW - 90_000, **{"settled_ms": NOW - 60_000, **fields})


def event(seq: int, source: str | None, to: str, **fields: Any) -> Event:
    given = {"at_ms": NOW - 60_000, "actor": W1.id, "reason": None, "token": 1, "flag": "", "details": None, **fields}
    return Event(job_id=ID, seq=seq, source=source, to=to, digest=b"", **given)


def section(told: Explanation, title: str) -> str:
    return " ".join(sentence for part in told.sections if part.title == title for sentence in part.sentences)


def commands(told: Explanation) -> list[str]:
    return [advice.command for advice in told.advice]


def serving(worker: str, *, tasks: tuple[str, ...], queues: tuple[str, ...] = ("mail",), **more: Any) -> Session:
    offer = Offer(queues=queues, tasks={task: {} for task in tasks})
    return Session(id=f"{worker}.{CHANCE}", worker=worker, beat_ms=NOW, offer=offer, **more)


def held_here(**fields: Any) -> Job:
    given = {"id": OTHER, "name": "report.render", "queue": "mail", "session": W1.id, **fields}
    return a_job("running", **given)


# -- why it waits ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "world", "said", "command"),
    [
        pytest.param(
            waiting(),
            facts(),
            "No worker is alive on this store: no session is open.",
            "mainstay worker MODULE:APP --queues mail",
            id="no session",
        ),
        pytest.param(
            waiting(queue="night mail"),
            facts(SILENT),
            "No worker is alive on this store: w2, the last one seen, has been silent for 20s.",
            "mainstay worker MODULE:APP --queues 'night mail'",
            id="only silent ones",
        ),
        pytest.param(
            waiting(),
            facts(DEAD),
            "No worker is alive on this store: w3, the last one seen, has been silent for 1s.",
            "mainstay worker MODULE:APP --queues mail",
            id="only dead ones",
        ),
        pytest.param(
            waiting(),
            facts(W1),
            "1 session is at work, but it holds no job of queue mail now.",
            "mainstay workers list",
            id="nobody seems to listen",
        ),
        pytest.param(
            waiting(),
            facts(msgspec.structs.replace(SILENT, standing=True)),
            "1 session is at work, but it holds no job of queue mail now.",
            "mainstay workers list",
            id="a standing session is at work, silent or not",
        ),
        pytest.param(
            waiting(),
            facts(W1, Session(id="w4", beat_ms=NOW), SILENT, held=(held_here(session=SILENT.id),)),
            "2 sessions are at work, but none of them holds a job of queue mail now.",
            "mainstay workers list",
            id="only a silent one works on it",
        ),
        pytest.param(
            waiting(),
            facts(serving("day", queues=("sums", "default"), tasks=("a",))),
            "No live worker listens on queue mail. The live workers listen on default, sums.",
            "mainstay worker MODULE:APP --queues mail",
            id="no one listens",
        ),
        pytest.param(
            waiting(name="mail.send"),
            facts(serving("day", tasks=("a",)), serving("night", queues=("night",), tasks=("mail.send",))),
            "No live worker of queue mail knows mail.send (day). Workers that know it do not listen on the queue: "
            "night.",
            "mainstay worker MODULE:APP --queues mail",
            id="no one that listens knows it",
        ),
        pytest.param(
            waiting(name="mail.send", kind="batch"),
            facts(serving("day", tasks=("mail.send",))),
            "No live worker of queue mail knows batch mail.send (day).",
            "mainstay worker MODULE:APP --queues mail",
            id="known as another kind",
        ),
        pytest.param(
            waiting(name="a", lane=Lane.ROUTED),
            facts(serving("day", tasks=("a",), draining_ms=NOW), serving("new", tasks=("b",))),
            "No live worker of queue mail knows a (new).",
            "mainstay worker MODULE:APP --queues mail",
            id="the one that knows it drains",
        ),
        pytest.param(
            waiting(),
            facts(W1, held=(held_here(),), ahead=1),
            "1 ready job of queue mail goes before it: due earlier, or of higher priority than its 0.",
            f"mainstay jobs watch {ID}",
            id="one goes first",
        ),
        pytest.param(
            waiting(priority=-5),
            facts(W1, held=(held_here(),), ahead=5_000, ahead_counted=False),
            "At least 5,000 ready jobs of queue mail go before it: due earlier, or of higher priority than its -5.",
            f"mainstay jobs watch {ID}",
            id="many go first",
        ),
        pytest.param(
            waiting(),
            facts(W1, queue=QueueSettings(name="mail", paused=True, reason="not by day")),
            "Queue mail is paused: not by day. Its jobs are not handed out until it is resumed.",
            "mainstay queues resume mail",
            id="paused",
        ),
        pytest.param(
            waiting(),
            facts(W1, queue=QueueSettings(name="mail", paused=True, reason="r", set_by="ann", set_ms=NOW - 60_000)),
            f"Queue mail has been paused by ann since {moment(NOW - 60_000)}: r. Its jobs",
            "mainstay queues resume mail",
            id="paused by somebody",
        ),
        pytest.param(
            waiting(),
            facts(W1, queue=QueueSettings(name="mail", paused=True)),
            "Queue mail is paused (no reason was given). Its jobs are not handed out until it is resumed.",
            "mainstay queues resume mail",
            id="paused without a reason",
        ),
        pytest.param(
            waiting(concurrency_key="tenant-7", lane=Lane.BLOCKED),
            facts(W1, limit=1, held=(held_here(concurrency_key="tenant-7"), held_here(id=THIRD))),
            f"Its concurrency key 'tenant-7' is at its limit: 1 of 1 slots are taken, by {OTHER} "
            "(report.render, held by w1).",
            f"mainstay jobs explain {OTHER}",
            id="blocked by its key",
        ),
        pytest.param(
            waiting(concurrency_key="tenant-7"),
            facts(W1, limit=1, held=(held_here(concurrency_key="tenant-7"),)),
            "Its concurrency key 'tenant-7' is at its limit",
            f"mainstay jobs explain {OTHER}",
            id="about to be blocked",
        ),
        pytest.param(
            waiting(lane=Lane.ASIDE),
            facts(W1),
            "Its stored row cannot be read and was set aside: no worker will take it.",
            "mainstay check",
            id="set aside",
        ),
        pytest.param(
            waiting(status="scheduled", lane=Lane.DUE, due_ms=NOW + 250_000),
            facts(W1),
            "It waits until it is due: 2023-11-14 22:17:30Z, in 4m10s.",
            f"mainstay jobs retry {ID}",
            id="not yet due",
        ),
        pytest.param(
            waiting(status="scheduled", lane=Lane.DUE, due_ms=AWAITS_MS, options=Options(after_when="settled")),
            facts(W1, awaited=(Awaited(id=OTHER, name="sums.add", status="running", settled=False),)),
            f"It waits until another job has settled. Still open: {OTHER} (sums.add, running).",
            f"mainstay jobs explain {OTHER}",
            id="waits for another job",
        ),
        pytest.param(
            waiting(
                status="scheduled",
                lane=Lane.DUE,
                due_ms=AWAITS_MS,
                options=Options(after_when="succeeded", after_failed="skip"),
            ),
            facts(
                awaited=(
                    Awaited(id=THIRD, name="a", status="succeeded"),
                    Awaited(id=OTHER, name="b", status="pending", settled=False),
                )
            ),
            f"It waits until 2 other jobs have all succeeded (1 of 2 settled). Still open: {OTHER} (b, pending). "
            "If one of them does not succeed, it is skipped.",
            f"mainstay jobs explain {OTHER}",
            id="waits for two",
        ),
        pytest.param(
            waiting(status="scheduled", lane=Lane.DUE, due_ms=AWAITS_MS, options=Options(after_when="settled")),
            facts(W1),
            "It waits for other jobs, but all of them have settled or are gone.",
            "mainstay check",
            id="stranded",
        ),
    ],
)
def test_why_it_waits_and_what_to_do_about_it(job: Job, world: Facts, said: str, command: str) -> None:
    told = explain(job.id, job, [], world)

    assert said in section(told, "waits for")
    assert command in commands(told)


def test_a_free_slot_is_no_obstacle() -> None:
    job = waiting(concurrency_key="tenant-7")
    world = facts(W1, limit=2, held=(held_here(concurrency_key="tenant-7"),))

    told = explain(job.id, job, [], world)

    assert section(told, "waits for") == ""
    assert section(told, "next") == "It is next: the first worker of its queue with room takes it."
    assert commands(told) == [f"mainstay jobs watch {ID}"]


def test_every_obstacle_is_told_at_once() -> None:
    job = waiting(concurrency_key="k", lane=Lane.BLOCKED, due_ms=NOW + 1_000)
    world = facts(limit=1, queue=QueueSettings(name="mail", paused=True), held=(held_here(concurrency_key="k"),))

    said = section(explain(job.id, job, [], world), "waits for")

    assert [part in said for part in ("waits until it is due", "is paused", "at its limit", "No worker is alive")] == [
        True
    ] * 4


def test_the_holders_of_a_full_key_are_named_and_then_counted() -> None:
    job = waiting(concurrency_key="k", lane=Lane.BLOCKED)
    held = tuple(held_here(id=f"job-{n}", concurrency_key="k") for n in range(7))

    said = section(explain(job.id, job, [], facts(W1, limit=7, held=held)), "waits for")

    assert "job-4 (report.render, held by w1) and 2 more jobs." in said
    assert "job-5" not in said


@pytest.mark.parametrize(
    ("job", "world", "said"),
    [
        (waiting(), facts(), "It stays where it is until that changes."),
        (waiting(status="scheduled", due_ms=NOW + 1_000), facts(W1), "At 2023-11-14 22:13:21Z it becomes ready"),
        (waiting(), facts(W1, held=(held_here(),), ahead=3), "It is taken when its turn comes."),
        (
            waiting(options=Options(start_by_ms=NOW + 60_000)),
            facts(W1),
            "If no worker has started it by 2023-11-14 22:14:20Z (in 1m), it times out for good.",
        ),
        (
            waiting(status="scheduled", due_ms=AWAITS_MS, lane=Lane.DUE, options=Options(after_when="settled")),
            facts(awaited=(Awaited(id=OTHER, status="running", settled=False),)),
            "It moves on in the transaction that settles the last of them.",
        ),
    ],
)
def test_what_comes_next_for_a_job_that_waits(job: Job, world: Facts, said: str) -> None:
    assert said in section(explain(job.id, job, [], world), "next")


# -- who holds it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "world", "now", "comes", "command"),
    [
        pytest.param(
            running(started_ms=NOW - 4_000, expires_ms=NOW + 60_000),
            facts(W1),
            "w1 (pid 12 on box) has held it for 5s; its last heartbeat was 1s ago. The work began 4s ago.",
            "It may run until 2023-11-14 22:14:20Z (in 1m): run timeout 1h, grace 10s. "
            "If it fails, it is tried again: 3 of 3 retries are left.",
            f"mainstay jobs cancel {ID}",
            id="alive",
        ),
        pytest.param(
            running(),
            facts(W1),
            "The work has not begun yet.",
            "Its timeouts count from the moment when the work begins.",
            f"mainstay jobs watch {ID}",
            id="not begun",
        ),
        pytest.param(
            running(session=SILENT.id),
            facts(W1, SILENT),
            "w2 has held it for 5s, but it has been silent for 20s, longer than its lease of 8s.",
            "The next sweep (every second, by every worker) takes it back",
            f"mainstay jobs watch {ID}",
            id="silent",
        ),
        pytest.param(
            running(session=DEAD.id),
            facts(DEAD),
            "w3 has held it for 5s, but it was found dead (silent for 1s).",
            "No worker is alive to sweep: the next worker that starts takes it back.",
            "mainstay worker MODULE:APP",
            id="dead, and nobody else",
        ),
        pytest.param(
            running(session=f"w9.{CHANCE}"),
            facts(W1),
            "w9 has held it for 5s, but that session is no longer known.",
            "The next sweep",
            f"mainstay jobs watch {ID}",
            id="forgotten",
        ),
        pytest.param(
            running(session=f"session.{CHANCE}"),
            facts(W1),
            "session 01234567 has held it for 5s",
            "The next sweep",
            f"mainstay jobs watch {ID}",
            id="without a name",
        ),
        pytest.param(
            running(session=None, kind="batch"),
            facts(W1, open_units=2),
            "No worker holds it: its owner was lost, or its units do the work. 2 of its units are open.",
            "If it fails",
            f"mainstay jobs watch {ID}",
            id="units at work",
        ),
        pytest.param(
            running(failures=3),
            facts(W1),
            "It is running",
            "If it fails, it is quarantined: its retries are spent.",
            f"mainstay jobs cancel {ID}",
            id="last chance",
        ),
        pytest.param(
            running(
                started_ms=NOW - 4_000,
                expires_ms=NOW + 1_000,
                extra_ms=30_000,
                options=Options(run_timeout_s=60, stall_timeout_s=5),
            ),
            facts(W1),
            "It is running",
            "(in 1s): run timeout 1m, 30s granted on top, stall timeout 5s, grace 10s.",
            f"mainstay jobs cancel {ID}",
            id="every limit",
        ),
        pytest.param(
            running(status="cancelling", reason="enough", expires_ms=NOW + 7_000),
            facts(W1),
            "It was asked to stop: enough.",
            "If it has not stopped by 2023-11-14 22:13:27Z (in 7s), a sweep ends it.",
            f"mainstay jobs watch {ID}",
            id="asked to stop",
        ),
    ],
)
def test_who_holds_it_and_how_they_are(job: Job, world: Facts, now: str, comes: str, command: str) -> None:
    told = explain(job.id, job, [], world)

    assert now in section(told, "now")
    assert comes in section(told, "next")
    assert command in commands(told)


def test_who_asked_it_to_stop_is_named() -> None:
    job = running(status="cancelling", reason="enough")
    events = [event(3, "running", "cancelling", actor="bob@box", reason="enough")]

    assert "It was asked to stop by bob@box: enough." in section(explain(ID, job, events, facts(W1)), "now")
    assert f"mainstay jobs cancel {ID}" not in commands(explain(ID, job, events, facts(W1)))


@pytest.mark.parametrize(
    ("progress", "at_ms", "said"),
    [
        (
            Progress(done=3, total=12, message="rows"),
            NOW - 2_000,
            "Progress is 3 of 12 (25%), last reported 2s ago: rows.",
        ),
        (Progress(done=3), NOW - 2_000, "Progress is 3, last reported 2s ago."),
        (Progress(done=0, total=0), NOW - 2_000, "Progress is 0, last reported 2s ago."),
        (Progress(done=3), NOW - 6_000, ""),
    ],
)
def test_progress_is_told_if_this_attempt_made_it(progress: Progress, at_ms: int, said: str) -> None:
    job = running(progress=progress, progress_ms=at_ms)

    told = section(explain(job.id, job, [], facts(W1)), "now")

    assert said in told
    assert ("Progress" in told) is bool(said)


# -- how it ended ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "now", "comes", "wanted"),
    [
        pytest.param(
            settled("succeeded"),
            "It succeeded at 2023-11-14 22:12:20Z, 1m ago: done, and it stays done.",
            "Nothing: it never changes again.",
            [],
            id="succeeded",
        ),
        pytest.param(
            settled("succeeded", expires_ms=NOW + 1_000, options=Options(keep_s=61)),
            "It succeeded at",
            "It is kept until 2023-11-14 22:13:21Z and may be trimmed after that.",
            [],
            id="with its own retention",
        ),
        pytest.param(
            settled(
                "quarantined",
                reason="gave up after 4 failed attempts",
                failures=4,
                error=ErrorInfo(type="LookupError", message="no such card", code="card_unknown"),
            ),
            "Why: gave up after 4 failed attempts. Its last error: LookupError: no such card (card_unknown).",
            "Nothing happens until an operator acts on it.",
            [f"mainstay jobs show {ID}", f"mainstay jobs retry {ID}", f"mainstay jobs cancel {ID}"],
            id="quarantined",
        ),
        pytest.param(
            settled("timed_out", reason="no attempt had begun by then"),
            "Why: no attempt had begun by then.",
            "Nothing happens until an operator acts on it.",
            [f"mainstay jobs retry {ID}", f"mainstay jobs cancel {ID}"],
            id="timed out",
        ),
        pytest.param(
            settled("skipped", reason="nothing to do"),
            "not needed; left out on purpose. Why: nothing to do.",
            "Nothing: it never changes again.",
            [],
            id="skipped",
        ),
        pytest.param(
            settled("failed", parent=OTHER, unit="u1"),
            "It has been failed",
            "Nothing happens until an operator acts on it.",
            [f"mainstay jobs retry {ID}"],
            id="a unit, which cannot be cancelled from there",
        ),
    ],
)
def test_how_it_ended_and_what_can_be_done(job: Job, now: str, comes: str, wanted: list[str]) -> None:
    told = explain(job.id, job, [], facts(W1))

    assert now in section(told, "now")
    assert comes in section(told, "next")
    assert commands(told) == wanted


def test_a_retry_of_what_is_spent_says_that_it_is_one_attempt() -> None:
    spent = settled("quarantined", failures=4)
    fresh = settled("quarantined", failures=1)

    assert explain(ID, spent, [], facts()).advice[0].why.endswith("its retries are spent)")
    assert explain(ID, fresh, [], facts()).advice[0].why == "the cause is fixed: run it again"


def test_what_is_not_worth_another_attempt_says_why_it_was_not_retried() -> None:
    error = ErrorInfo(type="KeyError", message="'to'", retryable=False)
    job = settled("failed", failures=1, reason="KeyError: 'to'", error=error, options=Options(retry=RetryPolicy()))

    told = explain(job.id, job, [], facts())

    assert section(told, "now").startswith(
        "It has been failed since 2023-11-14 22:12:20Z, 1m ago: the attempt failed. Why: KeyError: 'to'. "
        "It was not retried: KeyError is declared as not worth another attempt "
        "(by retry_on or give_up_on of its task, or by retryable=False of the error)."
    )
    assert "So far: 1 failure, 0 crashes" in section(told, "history")


@pytest.mark.parametrize(
    ("status", "failures", "retryable"),
    [
        pytest.param("failed", 1, None, id="an error that says nothing of it"),
        pytest.param("failed", 0, False, id="no attempt of its own"),
        pytest.param("quarantined", 4, None, id="given up"),
        pytest.param("pending", 1, False, id="sent back by hand"),
    ],
)
def test_nothing_else_is_said_not_to_be_worth_another_attempt(
    status: str, failures: int, retryable: bool | None
) -> None:
    error = ErrorInfo(type="KeyError", message="'to'", retryable=retryable)
    job = a_job(status, settled_ms=NOW, failures=failures, error=error)

    told = explain(job.id, job, [], facts())

    assert "not retried" not in section(told, "now")
    assert ("(3 may be retried)" in section(told, "history")) is (failures > 0)


@pytest.mark.parametrize(
    ("by_hand", "said"),
    [
        (0, "Why: gave up after 4 failed attempts."),
        (1, "Why: gave up after 4 failed attempts (retries=2, and retried manually once)."),
        (2, "Why: gave up after 4 failed attempts (retries=2, and retried manually 2 times)."),
    ],
)
def test_more_attempts_than_its_retries_are_put_down_to_whoever_sent_it_back(by_hand: int, said: str) -> None:
    events = [event(1 + n, "quarantined", "pending", actor="bob@box") for n in range(by_hand)]
    policy = Options(retry=RetryPolicy(retries=2))
    job = settled("quarantined", failures=4, reason="gave up after 4 failed attempts", options=policy)

    assert said in section(explain(ID, job, events, facts()), "now")


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (event(2, "pending", "cancelled", actor="bob@box", reason="enough"), "It was moved to this state by bob@box."),
        (
            event(2, "running", "cancelled", actor="bob@box", flag="forced"),
            "It was put into this state by bob@box (forced).",
        ),
        (
            event(2, "failed", "cancelled", actor="check", flag="repair"),
            "It was put into this state by check (repair).",
        ),
    ],
)
def test_whoever_else_ended_it_is_named(last: Event, said: str) -> None:
    assert said in section(explain(ID, settled("cancelled"), [last], facts()), "now")


def test_a_deleted_job_has_its_tombstone_told() -> None:
    left = event(
        9, "failed", "failed", actor="bob@box", reason="by request", flag="tombstone", details='{"name":"a.b"}'
    )

    told = explain(ID, None, [left], facts())

    assert (told.name, told.status, told.advice) == ("a.b", None, ())
    assert section(told, "now").startswith(
        "It was deleted by bob@box at 2023-11-14 22:12:20Z, 1m ago, when it was failed: by request."
    )


def test_a_state_of_a_newer_version_is_left_alone() -> None:
    told = explain(ID, a_job("hibernating"), [], facts(W1))

    assert "'hibernating', a state this version does not know" in section(told, "now")
    assert section(told, "next").startswith("This version does not touch it")


# -- what happened ---------------------------------------------------------------------------------

SUBMIT = event(1, None, "pending", actor="ann", token=0, at_ms=NOW - 90_000)
CLAIM = event(2, "pending", "running", at_ms=NOW - 60_000)
FAILED = '{"attempt":1,"error":{"type":"ValueError","message":"no such column\\nsecond line"}}'


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        pytest.param(
            [event(3, "running", "succeeded", at_ms=NOW - 57_000)],
            "Claim 1: w1 took it at 2023-11-14 22:12:20Z, held it for 3s, and finished it.",
            id="success",
        ),
        pytest.param(
            [
                event(3, "running", "failed", at_ms=NOW - 57_000, details=FAILED, reason="ValueError: no such column"),
                event(4, "failed", "scheduled", at_ms=NOW - 57_000, reason="retry 1 of 3 in 1.2s"),
            ],
            "held it for 3s, and it ended as failed: ValueError: no such column. Then: retry 1 of 3 in 1.2s.",
            id="failure and backoff",
        ),
        pytest.param(
            [
                event(3, "running", "timed_out", actor="sweeper", details='{"crash":1,"error":{"type":"WorkerLost"}}'),
                event(4, "timed_out", "pending", actor="sweeper", reason="again at once; crash 1 of 3"),
            ],
            "sweeper ended it as timed_out: WorkerLost. Then: again at once; crash 1 of 3.",
            id="crash",
        ),
        pytest.param(
            [event(3, "running", "pending", at_ms=NOW - 58_000, reason="drained")],
            "held it for 2s, and gave it back: drained; no failure was counted.",
            id="release",
        ),
        pytest.param(
            [event(3, "running", "pending", actor="sweeper", reason="its worker died before the work began")],
            "and lost it: its worker died before the work began; no failure was counted.",
            id="reaped before it began",
        ),
        pytest.param(
            [
                event(3, "running", "pending", reason="given back by itself"),
                event(4, "pending", "scheduled", reason="put itself off until then"),
            ],
            "gave it back: given back by itself; no failure was counted. Then: put itself off until then.",
            id="snooze",
        ),
        pytest.param(
            [
                event(3, "running", "running", flag="note", details='{"grant":1,"seconds":30.0,"done":4}'),
                event(4, "running", "running", flag="note", details='{"grant":2,"seconds":15.0,"done":5}'),
                event(5, "running", "succeeded"),
            ],
            "was granted more time (30s, 15s), held it for 0s, and finished it.",
            id="grants",
        ),
        pytest.param(
            [
                event(3, "running", "finalizing"),
                event(4, "finalizing", "finalizing", flag="note", actor="sweeper", reason="owner lost"),
                event(5, "finalizing", "finalizing", flag="note", actor="w5", token=2, reason="taken over by w5"),
                event(6, "finalizing", "succeeded", actor="w5", token=2),
            ],
            "(noted: owner lost), held it for 0s, and lost it: its owner was lost.",
            id="taken over in place",
        ),
        pytest.param(
            [
                event(3, "running", "quarantined", details=FAILED),
                event(4, "quarantined", "pending", actor="bob", reason="mended", at_ms=NOW - 1_000),
            ],
            "bob moved it from quarantined to pending at 2023-11-14 22:13:19Z: mended.",
            id="sent back by a person",
        ),
        pytest.param(
            [event(3, "running", "cancelled", actor="bob", flag="forced", reason="hung for ever")],
            "bob forced it from running to cancelled at 2023-11-14 22:12:20Z: hung for ever.",
            id="forced",
        ),
        pytest.param(
            [event(3, "running", "pending"), event(4, "pending", "pending", flag="note", actor="bob", reason="hurry")],
            "bob noted at 2023-11-14 22:12:20Z: hurry.",
            id="a note between attempts",
        ),
        pytest.param(
            [event(3, "running", "hibernating")],
            "held it for 0s, and left it as hibernating.",
            id="a state of a newer version",
        ),
    ],
)
def test_each_hold_is_told_with_its_end(rest: list[Event], said: str) -> None:
    told = explain(ID, settled("quarantined", token=1), [SUBMIT, CLAIM, *rest], facts(W1))

    assert said in section(told, "history")


def test_the_history_begins_with_the_submit() -> None:
    told = explain(ID, waiting(), [SUBMIT], facts(W1))

    assert section(told, "history") == "It was submitted by ann at 2023-11-14 22:11:50Z, 1m30s ago."


def test_that_its_time_came_is_no_news() -> None:
    events = [SUBMIT, event(2, "scheduled", "pending", actor="store", reason="its time has come")]

    assert "store" not in section(explain(ID, waiting(), events, facts()), "history")


def test_a_long_history_tells_its_end_and_counts_the_rest() -> None:
    events = [SUBMIT]
    for n in range(20):
        events.append(event(2 + 2 * n, "pending", "running", token=n + 1))
        events.append(event(3 + 2 * n, "running", "pending", token=n + 1, reason="drained"))

    said = section(explain(ID, waiting(token=20, releases=20), events, facts()), "history")

    assert "5 earlier claims and moves are left out here." in said
    assert "Claim 5:" not in said
    assert "Claim 6:" in said
    assert "Claim 20:" in said
    assert said.endswith("So far: 0 failures (3 may be retried), 0 crashes (the budget is 3), 20 releases.")


def test_trimmed_events_are_owned_up_to() -> None:
    said = section(explain(ID, waiting(), [event(41, "pending", "running")], facts()), "history")

    assert "Its events up to number 40 are left out here." in said


def test_a_refused_ghost_is_told() -> None:
    ghost = RefusedWrite(job_id=ID, token=1, session=SILENT.id, wanted="succeeded", at_ms=NOW - 1_000)

    said = section(explain(ID, settled("succeeded"), [], facts(SILENT, refusals=(ghost,))), "refused")

    assert said == (
        "w2 came back at 2023-11-14 22:13:19Z and reported 'succeeded' with an old claim (token 1): "
        "it had lost the job by then, so this was refused."
    )


# -- always ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", [None, W1.id, DEAD.id])
@pytest.mark.parametrize(
    ("parent", "status"), [*((None, name) for name in JOB.states), *((OTHER, name) for name in UNIT.states)]
)
def test_every_state_has_something_to_say_and_every_word_ends_in_a_sentence(
    parent: str | None, status: str, session: str | None
) -> None:
    job = a_job(status, parent=parent, session=session, error=ErrorInfo(type="E", message="m"), reason="r")
    job_with_budget = a_job(status, parent=parent, options=Options(retry=RetryPolicy(retries=0), run_timeout_s=None))

    for row in (job, job_with_budget):
        told = explain(ID, row, [SUBMIT, CLAIM], facts(W1, DEAD))
        assert [part.title for part in told.sections if part.title in ("now", "history", "next")] == [
            "now",
            "history",
            "next",
        ]
        for part in told.sections:
            assert all(sentence.endswith(".") and sentence[0] != " " for sentence in part.sentences), part
        assert all(command.startswith("mainstay ") for command in commands(told))


# -- batches ---------------------------------------------------------------------------------------


def test_a_batch_that_lacks_outputs_is_resumed_looked_at_or_accepted_and_not_simply_retried() -> None:
    told = explain(ID, settled("partial", kind="batch", reason="3 of 4 outputs are there"), [], facts())

    assert [command.split()[2] for command in commands(told)] == ["resume", "resume", "validate", "force", "cancel"]

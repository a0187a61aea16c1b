"""The decisions all adapters share."""

from __future__ import annotations

import msgspec
import pytest

from mainstay.lifecycle import Chain, Move, apply
from mainstay.model import AWAITS_MS, Job, Lane, Options, Progress
from mainstay.stores import ClaimReport, SealedChange
from mainstay.stores.change_check import (
    GONE,
    dependant_move,
    freed,
    judge,
    keeps_waiting,
    landed,
    parent_move,
    reported,
    stranded_move,
    topics,
)
from mainstay.testing import a_job

CHAIN = Chain()
HELD = a_job("running", session="s1", token=2, version=4, starts=1, started_ms=10)


def change(job: Job, *to: str, holder: str | None = None) -> SealedChange:
    moved = apply(job, *(Move(to=name) for name in to), now_ms=50, actor="test", chain=CHAIN)
    return SealedChange.of(job, moved, holder=holder)


def row(**fields: object) -> Job:
    return msgspec.structs.replace(HELD, **fields)


@pytest.mark.parametrize(
    ("stored", "holder", "outcome"),
    [
        (None, "s1", "missing"),
        (HELD, "s1", "applied"),
        (HELD, None, "applied"),
        (row(version=5), "s1", "conflict"),
        (row(version=5), None, "conflict"),
        (row(starts=2), "s1", "conflict"),
        (row(session="s2", token=3, version=6), "s1", "stale"),
        (row(session="s1", token=3, version=6), "s1", "stale"),
        (row(session=None, status="pending", version=6), "s1", "stale"),
        (row(session=None, status="succeeded", version=5), "s1", "stale"),
        (row(session=None, status="succeeded", version=5), None, "already_applied"),
        (row(session=None, status="succeeded", token=3, version=7), None, "conflict"),
        (row(session=None, status="succeeded", token=3, version=7), "s1", "stale"),
        # a crash of the server took the claim, and its version and token were given again
        (row(head=b"of another claim"), "s1", "stale"),
        (row(head=b"of another claim"), None, "conflict"),
    ],
)
def test_a_completion_is_judged_by_the_stored_row(stored: Job | None, holder: str | None, outcome: str) -> None:
    assert judge(stored, change(HELD, "succeeded", holder=holder), ()) == outcome


def test_a_recorded_event_wins_over_everything() -> None:
    sent = change(HELD, "failed", "pending", holder="s1")
    claimed_since = row(session="s2", token=3, version=7)
    assert judge(claimed_since, sent, sent.events) == "already_applied"
    assert judge(claimed_since, sent, change(HELD, "timed_out", "pending").events) == "stale"


def test_a_change_decided_anew_is_recognised_by_what_it_did_and_who_did_it() -> None:
    written = change(HELD, "failed", "pending", holder="s1")
    later = apply(HELD, Move(to="failed"), Move(to="quarantined"), now_ms=9_000, actor="test", chain=CHAIN)
    resent = SealedChange.of(HELD, later, holder="s1")
    claimed_since = row(session="s2", token=3, version=7)

    assert judge(claimed_since, resent, written.events) == "already_applied"
    [first, *rest] = written.events
    for other in ({"actor": "ann"}, {"token": 1}, {"to": "timed_out"}, {"flag": "forced"}):
        assert judge(claimed_since, resent, [msgspec.structs.replace(first, **other), *rest]) == "stale", other


def test_a_completion_is_recognised_although_a_remark_was_written_before_it() -> None:
    remark = apply(HELD, Move(to="running", flag="note"), now_ms=20, actor="ann", chain=CHAIN)
    written = change(remark.job, "succeeded", holder="s1")
    stored = row(session=None, status="succeeded", version=6)
    since = [*remark.events, *written.events]

    assert judge(stored, change(HELD, "succeeded", holder="s1"), since) == "already_applied"


def test_somebody_elses_success_does_not_stand_for_the_holders_own() -> None:
    forced = apply(HELD, Move(to="succeeded", reason="r", flag="forced"), now_ms=20, actor="ann", chain=CHAIN)
    assert judge(forced.job, change(HELD, "succeeded", holder="s1"), forced.events) == "stale"


def test_a_second_remark_is_not_taken_for_the_first() -> None:
    def remark(reason: str) -> SealedChange:
        moved = apply(HELD, Move(to="running", reason=reason, flag="note"), now_ms=20, actor="ann", chain=CHAIN)
        return SealedChange.of(HELD, moved)

    assert judge(remark("one").after, remark("two"), remark("one").events) == "conflict"
    assert judge(remark("one").after, remark("one"), remark("one").events) == "already_applied"


def test_a_trimmed_event_is_still_recognised_by_the_seal_of_what_was_trimmed() -> None:
    sent = change(HELD, "failed", "pending", holder="s1")
    last = sent.events[-1]
    trimmed = row(session="s2", token=3, version=9, trimmed_seq=last.seq, trimmed_digest=last.digest)
    assert judge(trimmed, sent, ()) == "already_applied"
    half = row(session="s2", token=3, version=9, trimmed_seq=last.seq - 1, trimmed_digest=sent.events[0].digest)
    assert judge(half, sent, sent.events[1:]) == "already_applied"


def test_a_change_without_events_is_never_applied() -> None:
    assert judge(HELD, SealedChange(before=HELD, after=HELD, events=(), kind="note"), ()) == "conflict"


def test_what_the_holder_reported_survives_a_change() -> None:
    stored = row(progress=Progress(done=1), progress_ms=40, checkpoint=b"x")
    after = landed(stored, change(HELD, "succeeded"))
    assert (after.status, after.progress, after.progress_ms, after.checkpoint) == (
        "succeeded",
        Progress(done=1),
        40,
        b"x",
    )


def test_a_report_starts_the_clock_of_the_run_once() -> None:
    fresh = row(starts=0, started_ms=None, options=Options(run_timeout_s=60, grace_s=1))
    report = ClaimReport(job_id=HELD.id, session="s1", token=2, started_ms=1_000)
    first = reported(fresh, report, 1_500)
    assert first is not None
    assert (first.starts, first.started_ms, first.expires_ms) == (1, 1_000, 62_000)
    assert reported(first, report, 9_000) == first


def test_a_report_under_another_token_or_session_is_refused() -> None:
    report = ClaimReport(job_id=HELD.id, session="s1", token=2, checkpoint=b"x")
    for stored in (None, row(token=3), row(session="s2"), row(session=None, status="failed")):
        assert reported(stored, report, 0) is None


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        (a_job("running", session="s1"), a_job("succeeded"), "k"),
        (a_job("running", session="s1"), a_job("cancelling", session="s1"), None),
        (a_job("pending", lane=Lane.READY), a_job("running", session="s1"), None),
        (a_job("pending", lane=Lane.READY), a_job("cancelled"), "k"),
        (a_job("pending", lane=Lane.READY), None, "k"),
        (a_job("pending", lane=Lane.READY), a_job("pending", lane=Lane.READY), None),
        (a_job("pending", lane=Lane.BLOCKED), a_job("cancelled"), None),
    ],
)
def test_a_key_is_freed_by_who_held_a_slot_or_was_let_through_to_one(
    before: Job, after: Job | None, key: str | None
) -> None:
    keyed = msgspec.structs.replace(before, concurrency_key="k")
    then = None if after is None else msgspec.structs.replace(after, concurrency_key="k")
    assert freed(keyed, then) == key
    assert freed(before, after) is None, "without a key there is nothing to free"


def test_topics_name_whom_a_change_concerns() -> None:
    ready = a_job("pending", lane=Lane.READY)
    assert topics(None, ready) == ["queue:default"]
    assert topics(ready, ready) == []
    assert topics(HELD, row(status="succeeded", session=None, settled_ms=50)) == [f"job:{HELD.id}"]
    assert topics(HELD, row(status="cancelling")) == ["session:s1"]
    assert topics(row(status="cancelling"), row(status="cancelling", version=9)) == []


def test_a_parent_that_may_not_make_the_move_stays() -> None:
    last = msgspec.structs.replace(change(HELD, "succeeded"), on_last=Move(to="finalizing"))
    moved = parent_move(a_job("running"), last, 60, CHAIN)
    assert moved is not None
    assert moved.job.status == "finalizing"
    assert parent_move(a_job("cancelled"), last, 60, CHAIN) is None
    assert parent_move(None, last, 60, CHAIN) is None


WAITING = a_job("scheduled", due_ms=AWAITS_MS, rank=AWAITS_MS, lane=Lane.DUE, version=1)


def waiting(**options: object) -> Job:
    return msgspec.structs.replace(WAITING, options=Options(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("job", "status", "more", "becomes"),
    [
        (waiting(), "succeeded", False, "pending"),
        (waiting(), "succeeded", True, None),
        (waiting(), "failed", False, "skipped"),
        (waiting(), "failed", True, "skipped"),
        (waiting(), GONE, True, "skipped"),
        (waiting(after_failed="fail"), "cancelled", True, "failed"),
        (waiting(after_when="settled"), "failed", True, None),
        (waiting(after_when="settled"), "failed", False, "pending"),
        (waiting(after_when="settled"), GONE, False, "pending"),
        (waiting(not_before_ms=99), "succeeded", False, "scheduled"),
        (waiting(not_before_ms=50), "succeeded", False, "pending"),
        (waiting(not_before_ms=99), "failed", False, "skipped"),
        (msgspec.structs.replace(WAITING, due_ms=99), "succeeded", False, None),
        (msgspec.structs.replace(WAITING, status="cancelled", settled_ms=9), "succeeded", False, None),
        (msgspec.structs.replace(WAITING, status="of a newer version"), "succeeded", False, None),
        (None, "succeeded", False, None),
    ],
)
def test_the_end_of_a_job_moves_those_who_wait_as_they_asked(
    job: Job | None, status: str, more: bool, becomes: str | None
) -> None:
    moved = dependant_move(job, "other", status, more=more, now_ms=50, chain=CHAIN)
    assert (moved and moved.job.status) == becomes
    if moved is not None:
        assert moved.job.due_ms < AWAITS_MS, "whatever it becomes, it waits for nobody any more"
        assert moved.job.rank == moved.job.due_ms
        assert len(moved.events) == 1


@pytest.mark.parametrize("job", [waiting(), waiting(after_when="settled"), waiting(after_failed="fail")])
@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled", GONE])
@pytest.mark.parametrize("more", [True, False])
def test_a_row_that_need_not_be_read_would_not_have_moved(job: Job, status: str, more: bool) -> None:
    if keeps_waiting(status, more=more):
        assert dependant_move(job, "other", status, more=more, now_ms=50, chain=CHAIN) is None


@pytest.mark.parametrize(
    ("job", "awaited", "becomes"),
    [
        (waiting(), [], "pending"),
        (waiting(), [("a", "succeeded"), ("b", "succeeded")], "pending"),
        (waiting(), [("a", "succeeded"), ("b", "failed")], "skipped"),
        (waiting(after_when="settled"), [("a", "failed")], "pending"),
    ],
)
def test_a_stranded_row_moves_as_the_others_stand(job: Job, awaited: list[tuple[str, str]], becomes: str) -> None:
    moved = stranded_move(job, awaited, now_ms=50, chain=CHAIN)
    assert moved is not None
    assert (moved.job.status, moved.events[0].actor) == (becomes, "check")

"""The machine, over every pair of states of both tables."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay.errors import InvalidInput, InvalidTransition
from mainstay.lifecycle import JOB, UNIT, Chain, Move, Table, apply, claim, promote, submit, tombstone
from mainstay.lifecycle.seals import job_seal
from mainstay.model import Job, Lane, Options
from mainstay.testing import a_job

CHAIN = Chain()
NOW = 1_700_000_000_000
PARENT = "018bcfe5-6800-7000-8000-0000000000ff"

PAIRS = [(table, source, to) for table in (JOB, UNIT) for source in table.states for to in table.states]
ALLOWED = [(t, a, b) for t, a, b in PAIRS if a != b and t.allows(a, b)]
FORBIDDEN = [(t, a, b) for t, a, b in PAIRS if a != b and not t.allows(a, b)]
SAME = [(t, a) for t in (JOB, UNIT) for a in t.states]
FINAL = [(t, a) for t in (JOB, UNIT) for a in t.named("final")]


def row(table: Table, status: str, **fields: Any) -> Job:
    """A believable row in a state: owned where the state has an owner, settled where it is."""
    state = table.states[status]
    if state.holds:
        fields = {"session": "s1", "token": 3, "claimed_ms": NOW - 9, "started_ms": NOW - 8, **fields}
    if state.settled:
        fields = {"settled_ms": NOW - 5, **fields}
    return a_job(status, parent=PARENT if table is UNIT else None, **fields)


def move(job: Job, to: str, **given: Any) -> Any:
    return apply(job, Move(to=to, **given), now_ms=NOW, actor="tester", chain=CHAIN)


def test_the_pairs_are_all_there() -> None:
    assert len(PAIRS) == len(JOB.states) ** 2 + len(UNIT.states) ** 2
    assert len(ALLOWED) + len(FORBIDDEN) + len(SAME) == len(PAIRS)


@pytest.mark.parametrize(("table", "source", "to"), ALLOWED)
def test_an_allowed_move_moves_and_writes_exactly_one_event(table: Table, source: str, to: str) -> None:
    job = row(table, source, version=7)

    moved = move(job, to, reason="because")

    (event,) = moved.events
    assert (event.job_id, event.seq, event.at_ms) == (job.id, 8, NOW)
    assert (event.source, event.to, event.actor, event.reason, event.flag) == (source, to, "tester", "because", "")
    assert (moved.job.status, moved.job.version, moved.job.head) == (to, 8, event.digest)
    assert (moved.job.changed_ms, moved.job.reason) == (NOW, "because")


@pytest.mark.parametrize(("table", "source", "to"), ALLOWED)
def test_the_row_follows_the_flags_of_the_state_it_is_in_now(table: Table, source: str, to: str) -> None:
    job, state = row(table, source), table.states[to]

    moved = move(job, to).job

    assert (moved.settled_ms is not None) == state.settled
    if not state.holds:
        assert (moved.session, moved.claimed_ms, moved.started_ms) == (None, None, None)
    elif table.states[source].holds:
        assert moved.session == "s1"
    expected = Lane.READY if state.claimable else Lane.DUE if state.waiting else Lane.NONE
    assert moved.lane == expected
    assert moved.token == job.token


@pytest.mark.parametrize(("table", "source", "to"), FORBIDDEN)
def test_any_other_move_is_refused_and_says_what_is_allowed(table: Table, source: str, to: str) -> None:
    job = row(table, source)

    with pytest.raises(InvalidTransition) as refused:
        move(job, to)

    error = refused.value
    assert (error.job_id, error.current, error.wanted) == (job.id, source, to)
    assert error.allowed == table.states[source].next
    for part in (job.id, f"from {source} to {to}", *table.states[source].next):
        assert part in str(error)


@pytest.mark.parametrize(("table", "status"), SAME)
@pytest.mark.parametrize("flag", ["", "forced"])
def test_a_move_to_the_same_state_changes_nothing_and_writes_nothing(table: Table, status: str, flag: str) -> None:
    job = row(table, status)

    moved = move(job, status, flag=flag, reason="again", fields={"failures": 9})

    assert moved.job is job
    assert moved.events == ()


def test_several_moves_are_applied_in_order_each_with_its_event() -> None:
    moved = apply(
        row(JOB, "running", version=4),
        Move(to="failed", reason="boom", fields={"failures": 1}),
        Move(to="scheduled", reason="retry 1", fields={"due_ms": NOW + 2_000}),
        now_ms=NOW,
        actor="s1",
        chain=CHAIN,
    )

    assert [(e.seq, e.source, e.to) for e in moved.events] == [(5, "running", "failed"), (6, "failed", "scheduled")]
    assert (moved.job.status, moved.job.version, moved.job.failures) == ("scheduled", 6, 1)
    assert (moved.job.reason, moved.job.due_ms, moved.job.settled_ms) == ("retry 1", NOW + 2_000, None)


def test_of_several_moves_one_forbidden_refuses_all() -> None:
    job = row(JOB, "running")

    with pytest.raises(InvalidTransition, match="from failed to succeeded"):
        apply(job, Move(to="failed"), Move(to="succeeded"), now_ms=NOW, actor="s1", chain=CHAIN)


def test_an_unknown_target_is_refused_by_name() -> None:
    with pytest.raises(InvalidTransition, match="there is no job state 'dispatched'"):
        move(row(JOB, "pending"), "dispatched")


# forced moves -----------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [None, "", "  \n"])
def test_a_forced_move_needs_a_reason(reason: str | None) -> None:
    with pytest.raises(InvalidInput, match="^reason: a forced move needs a reason"):
        move(row(JOB, "running"), "pending", flag="forced", reason=reason)


@pytest.mark.parametrize(("table", "source", "to"), [p for p in PAIRS if p[1] != p[2]])
def test_force_is_flagged_leaves_no_final_state_and_invents_no_owner(table: Table, source: str, to: str) -> None:
    job = row(table, source)
    if table.states[source].final or table.states[to].holds:
        with pytest.raises(InvalidTransition, match="not even by force|force cannot invent an owner"):
            move(job, to, flag="forced", reason="operator knows best")
        return

    moved = move(job, to, flag="forced", reason="operator knows best")

    (event,) = moved.events
    assert (event.source, event.to, event.flag, event.reason) == (source, to, "forced", "operator knows best")
    assert (moved.job.status, moved.job.session) == (to, None)


# repairs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("table", "status"), FINAL)
def test_a_repair_may_remark_on_a_final_row_but_not_move_it(table: Table, status: str) -> None:
    job = row(table, status, session="left over", token=4)

    mended = move(job, status, flag="repair", reason="it held a claim")

    assert [(e.source, e.to, e.flag) for e in mended.events] == [(status, status, "repair")]
    assert (mended.job.status, mended.job.session, mended.job.token) == (status, None, 4)
    with pytest.raises(InvalidTransition, match="final states never change"):
        move(job, "pending", flag="repair", reason="try again")


def test_a_repair_may_make_a_move_that_the_table_forbids() -> None:
    moved = move(row(JOB, "partial"), "quarantined", flag="repair", reason="its manifest is gone")

    assert [(e.source, e.to, e.flag) for e in moved.events] == [("partial", "quarantined", "repair")]


def test_a_repair_needs_a_reason_too() -> None:
    with pytest.raises(InvalidInput, match="^reason:"):
        move(row(JOB, "partial"), "quarantined", flag="repair")


# notes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("table", "status"), SAME)
def test_a_note_is_an_event_that_leaves_the_state_alone(table: Table, status: str) -> None:
    job = row(table, status, version=2, reason="as it was")

    noted = move(job, status, reason="priority raised", fields={"priority": 5}, flag="note")

    assert [(e.seq, e.source, e.to, e.flag) for e in noted.events] == [(3, status, status, "note")]
    assert (noted.job.status, noted.job.version, noted.job.priority) == (status, 3, 5)
    assert (noted.job.reason, noted.job.session, noted.job.settled_ms) == ("as it was", job.session, job.settled_ms)


@pytest.mark.parametrize("status", ["pending", "hibernating"])
def test_a_note_cannot_smuggle_a_move(status: str) -> None:
    with pytest.raises(InvalidTransition, match="a note does not change the state"):
        move(a_job(status), "cancelled", flag="note", reason="psst")


def test_granted_time_moves_the_moment_the_sweeper_looks() -> None:
    job = row(JOB, "running", started_ms=NOW, options=Options(run_timeout_s=60.0, grace_s=10.0))
    job = move(job, "running", reason="more time", fields={"extra_ms": 30_000}, flag="note").job

    assert job.expires_ms == NOW + 60_000 + 30_000 + 10_000


# a status from the future -----------------------------------------------------------------------


def test_a_status_this_version_does_not_know_is_left_alone() -> None:
    job = a_job("hibernating", session="s9")

    for flag in ("", "forced"):
        with pytest.raises(InvalidTransition, match="does not know 'hibernating'; upgrade Mainstay"):
            move(job, "pending", flag=flag, reason="tidy up")
    assert move(job, "hibernating").events == ()


def test_a_row_of_unknown_status_can_be_remarked_on_and_keeps_everything() -> None:
    job = a_job("hibernating", session="s9", lane=Lane.ASIDE)

    noted = move(job, "hibernating", reason="seen by the check", flag="note").job

    assert (noted.status, noted.session, noted.lane, noted.version) == ("hibernating", "s9", Lane.ASIDE, 1)


def test_only_a_repair_moves_a_row_of_unknown_status() -> None:
    moved = move(a_job("hibernating"), "quarantined", flag="repair", reason="no such state")

    assert [(e.source, e.to) for e in moved.events] == [("hibernating", "quarantined")]


# submit, claim, promote, tombstone --------------------------------------------------------------


@pytest.mark.parametrize(("table", "status"), SAME)
def test_a_job_begins_only_where_its_table_begins(table: Table, status: str) -> None:
    job = a_job(status, parent=PARENT if table is UNIT else None)
    if status not in table.start:
        with pytest.raises(InvalidTransition, match=f"cannot go from new to {status}; new may become"):
            submit(job, now_ms=NOW, actor="ann", chain=CHAIN)
        return

    made = submit(job, now_ms=NOW, actor="ann", chain=CHAIN, details={"by": "test"})

    (event,) = made.events
    sealed = {"by": "test", "job_sha256": job_seal(job), "due_ms": 0}
    assert (event.seq, event.source, event.to, event.data) == (1, None, status, sealed)
    assert (made.job.version, made.job.created_ms, made.job.head) == (1, NOW, event.digest)


def test_a_claim_takes_the_next_token() -> None:
    job = row(JOB, "pending", token=4)

    taken = claim(job, session="s7", now_ms=NOW, chain=CHAIN)

    assert (taken.job.session, taken.job.token, taken.job.claimed_ms) == ("s7", 5, NOW)
    assert [(e.actor, e.token) for e in taken.events] == [("s7", 5)]


def test_a_claim_of_what_somebody_holds_changes_nothing() -> None:
    held = row(JOB, "running", session="s1", token=3)

    assert claim(held, session="s2", now_ms=NOW, chain=CHAIN).job is held


def test_a_waiting_job_is_promoted_and_only_then_claimed() -> None:
    job = row(JOB, "scheduled", due_ms=NOW)
    with pytest.raises(InvalidTransition, match="from scheduled to running"):
        claim(job, session="s1", now_ms=NOW, chain=CHAIN)

    ready = promote(job, now_ms=NOW, chain=CHAIN).job

    assert (ready.status, ready.lane) == ("pending", Lane.READY)


def test_a_claimable_row_with_a_later_due_time_waits_for_it() -> None:
    moved = move(row(UNIT, "failed", due_ms=NOW, rank=NOW - 500), "pending", fields={"due_ms": NOW + 1}).job

    assert (moved.lane, moved.rank) == (Lane.DUE, NOW - 499)


def test_the_queue_deadline_is_watched_until_the_first_start_only() -> None:
    deadline = Options(start_by_ms=NOW + 99)
    fresh = submit(a_job(options=deadline), now_ms=NOW, actor="ann", chain=CHAIN).job
    begun = move(row(JOB, "running", starts=1, options=deadline), "pending").job

    assert (fresh.expires_ms, begun.expires_ms) == (NOW + 99, None)


def test_a_tombstone_closes_the_history_of_a_deleted_job() -> None:
    job = submit(a_job(), now_ms=NOW, actor="ann", chain=CHAIN).job

    last = tombstone(job, now_ms=NOW + 1, actor="ann", reason="not needed", chain=CHAIN)

    assert (last.seq, last.source, last.to, last.flag) == (2, "pending", "pending", "tombstone")
    assert last.data == {"name": "demo.task", "queue": "default", "created_ms": NOW}

"""Placed units: which session gets a unit, how long its confirmation is awaited, and when to give up. Pure.

A leader assigns a unit to the session of a node (`dispatched`, under the next token). The session confirms it by moving
it to `running`. The time line of an assignment without a confirmation:

    0 s     assigned; the session is woken
    5 s     asked again, and at 10 s and 15 s: each asks by a note on the row, which wakes the session
    20 s    taken back: the row is pending again, under a token that the session can no longer use

A unit that comes back is assigned again, until a budget is spent:

    refusals    the session gave it back before it began, or was silent for its window: at most `MOST_REFUSALS`
    losses      the session died: at most `MOST_LOSSES`

The session that gave a unit back, begun or not, is not asked for `OUT_MS`; another session of the node is asked at
once. A unit that any session may run waits for a second, then for two, four ... A unit that postponed itself or waits
for its next attempt was not given back: only its due time counts.

An operator's retry gives a unit one more assignment. Failures and crashes of the work itself are counted by the retry
policy of the unit, as for any job.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...lifecycle import Event, Move
from ...model import ErrorInfo, Job, Session
from ...words import counted
from .attempts import Moves, release

ASK_EVERY_MS = 5_000
ACK_WINDOW_MS = 20_000
OUT_MS = 30_000
MOST_REFUSALS = 5
MOST_LOSSES = 3
_REASON_LIMIT = 200
RETRIED = ErrorInfo(type="Retried", code="retried", message="an operator opened it again")


def open_nodes(sessions: Iterable[Session], *, lease_ms: int) -> dict[str, Session]:
    """The session of each node that can get work, by the name of the node: open, heard within its lease, not draining.
    The newest session of a name counts: an earlier one belongs to a process that is ending."""
    nodes: dict[str, Session] = {}
    for session in sorted(sessions, key=lambda each: (each.node, each.started_ms, each.id)):
        if session.node and is_present(session, lease_ms) and not session.is_draining:
            nodes[session.node] = session
    return nodes


def is_present(session: Session, lease_ms: int) -> bool:
    """Whether a session is open and was heard within its lease. A standing session has no lease."""
    return not session.dead and (session.standing or lease_ms - session.beat_ms <= session.lease_s * 1000)


def may_assign(unit: Job, session: Session, *, now_ms: int, given_back_by: str = "", is_bound: bool = True) -> bool:
    """Whether a session may get this unit now. `given_back_by` is the session that had it last, if that gave it back.
    `is_bound`: only one node may run it; otherwise another session may be asked, too."""
    if unit.status != "pending" or unit.due_ms > now_ms or budget_spent(unit) is not None:
        return False
    if session.dead or session.is_draining or session.knows(unit.kind, unit.name) is False:
        return False
    if not given_back_by or (is_bound and given_back_by != session.id):
        return True
    out_ms = OUT_MS if is_bound else min(OUT_MS, 1000 * 2 ** max(0, refusals(unit) - 1))
    return now_ms >= unit.changed_ms + out_ms or session.started_ms > unit.changed_ms


def may_be_given_back(unit: Job) -> bool:
    """Whether a pending unit may have been given back: only then its events tell by which session. One that postponed
    itself has a due time that was later than its last change."""
    return unit.status == "pending" and unit.releases > unit.losses and unit.due_ms <= unit.changed_ms


def given_back_by(events: Iterable[Event]) -> str:
    """The session that gave a unit back with its last move, by its latest events; empty: it was not given back."""
    session, last = "", None
    for event in events:
        if event.flag == "note":
            continue
        if event.to == "dispatched":
            session = str(event.data.get("session", ""))
        last = event
    is_back = last is not None and last.to == "pending" and last.source in ("dispatched", "running")
    return session if is_back else ""


def assign_unit(unit: Job, session: Session, *, now_ms: int) -> Moves:
    """Give a unit to a session, under the next token, for the length of its window."""
    held: dict[str, Any] = {
        "token": unit.token + 1,
        "session": session.id,
        "claimed_ms": now_ms,
        "started_ms": None,
        "expires_ms": now_ms + ACK_WINDOW_MS,
    }
    if _is_retried(unit):
        held["error"] = None
    details = {"session": session.id, "node": session.node}
    return (Move(to="dispatched", reason=f"assigned to node {session.node}", details=details, fields=held),)


def is_due_to_ask(unit: Job, *, now_ms: int) -> bool:
    """Whether the session of an assigned unit is to be asked again. A note that asks changes `changed_ms`, so the next
    one is due five seconds later."""
    if unit.status != "dispatched" or window_is_over(unit, now_ms=now_ms):
        return False
    return now_ms >= unit.changed_ms + ASK_EVERY_MS


def ask_again(unit: Job, *, now_ms: int) -> Moves:
    """Ask the session of an assigned unit again."""
    waited_s = (now_ms - (unit.claimed_ms or now_ms)) // 1000
    reason = f"not confirmed for {waited_s} s; its session is asked again"
    return (Move(to=unit.status, reason=reason, flag="note"),)


def window_is_over(unit: Job, *, now_ms: int) -> bool:
    """Whether an assigned unit is to be taken back."""
    return unit.status == "dispatched" and unit.expires_ms is not None and now_ms >= unit.expires_ms


def take_unit_back(unit: Job) -> Moves:
    """Take an assigned unit back from a session that did not confirm it."""
    return release(unit, f"session {unit.session} did not confirm it within {ACK_WINDOW_MS // 1000} s")


def lose_unit(unit: Job, reason: str) -> Moves:
    """Take a unit back from a session that has it and no longer does its work: a loss, not a failure."""
    return release(unit, reason[:_REASON_LIMIT], lost=True)


def refusals(unit: Job) -> int:
    """How many times a session gave it back before it began, or did not confirm it. Every loss is counted as a release,
    too; so is an attempt that began and postponed itself, or was stopped by a drain, but those are starts."""
    return max(0, min(unit.releases - unit.losses, unit.token - unit.starts))


def budget_spent(unit: Job) -> ErrorInfo | None:
    """Why a unit is not assigned again; None: it may be."""
    refused, lost = refusals(unit), unit.losses
    if (refused < MOST_REFUSALS and lost < MOST_LOSSES) or _is_retried(unit):
        return None
    last = f"; last: {unit.reason}" if unit.reason else ""
    if lost >= MOST_LOSSES:
        message = f"lost with its session {counted(lost, 'time')} (limit {MOST_LOSSES}){last}"
        return ErrorInfo(type="NodeLost", code="node_lost", message=message, retryable=False)
    message = f"given back or not confirmed {counted(refused, 'time')} (limit {MOST_REFUSALS}){last}"
    return ErrorInfo(type="NotPlaced", code="not_placed", message=message, retryable=False)


def retry_unit(unit: Job, reason: str, *, now_ms: int) -> Moves:
    """Open a settled unit again for an operator. Counters never shrink, so its error marks that it may be assigned once
    more although its budget is spent."""
    fields = {"due_ms": max(now_ms, unit.due_ms), "extra_ms": 0, "error": RETRIED}
    return (Move(to="pending", reason=reason, fields=fields),)


def _is_retried(unit: Job) -> bool:
    return unit.error is not None and unit.error.code == RETRIED.code


def give_unit_up(error: ErrorInfo) -> Moves:
    """Fail a unit whose budget is spent."""
    return (Move(to="failed", reason=error.message[:_REASON_LIMIT], fields={"error": error}),)

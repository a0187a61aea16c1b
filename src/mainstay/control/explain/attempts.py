"""From events to attempts: which session held a job, for how long, and how each claim ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ...lifecycle import Event, Table


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One claim, from its beginning to its end."""

    seq: int
    """the number of its first event"""
    token: int
    session: str
    claimed_ms: int
    ended_ms: int | None = None
    """None: it still runs"""
    ended: str | None = None
    """the state it ended in"""
    by: str = ""
    """the actor who ended it"""
    reason: str | None = None
    error: str | None = None
    """type and message, if there was one"""
    then: str | None = None
    """the state it moved to next, in the same transaction"""
    then_reason: str | None = None
    grants: tuple[float, ...] = ()
    """seconds of run time granted on top"""
    notes: tuple[str, ...] = ()
    assigned: str = ""
    """of a claim that a leader made for its session, which has not confirmed it: to which node"""

    @property
    def held_ms(self) -> int | None:
        return None if self.ended_ms is None else max(0, self.ended_ms - self.claimed_ms)


def read_attempts(events: Iterable[Event], table: Table) -> tuple[list[Attempt], list[Event]]:
    """Split events into attempts, in order, and the moves and notes of operators, the check and the store. An attempt
    that began before the first event is left out."""
    attempts: list[Attempt] = []
    others: list[Event] = []
    for event in events:
        current = attempts[-1] if attempts else None
        if event.flag == "note":
            if current is None or current.ended is not None:
                others.append(event)
            else:
                _note(attempts, event)
        elif _holds(table, event.to) and not _holds(table, event.source):
            attempts.append(_begun(event))
        elif current is not None and current.assigned and _holds(table, event.to):
            attempts[-1] = msgspec.structs.replace(current, session=event.actor, assigned="")
        elif current is not None and current.ended is None and not _holds(table, event.to):
            attempts[-1] = msgspec.structs.replace(
                current,
                ended=event.to,
                ended_ms=event.at_ms,
                by=event.actor,
                reason=event.reason,
                error=_error(event.data),
            )
            if event.flag:
                others.append(event)
        elif current is not None and _follows(current, event):
            attempts[-1] = msgspec.structs.replace(current, then=event.to, then_reason=event.reason)
        else:
            others.append(event)
    return attempts, others


def _begun(event: Event) -> Attempt:
    # only a leader moves a row there, for the session of another process
    assigned = event.reason or "assigned" if event.to == "dispatched" else ""
    return Attempt(seq=event.seq, token=event.token, session=event.actor, claimed_ms=event.at_ms, assigned=assigned)


def _note(attempts: list[Attempt], event: Event) -> None:
    current = attempts[-1]
    if event.token > current.token:
        # a phase whose owner was lost, taken over in place
        attempts[-1] = msgspec.structs.replace(
            current, ended=event.to, ended_ms=event.at_ms, by=event.actor, reason="its owner was lost"
        )
        attempts.append(_begun(event))
        return
    seconds = event.data.get("seconds")
    if "grant" in event.data and isinstance(seconds, int | float):
        attempts[-1] = msgspec.structs.replace(current, grants=(*current.grants, float(seconds)))
    elif event.reason:
        attempts[-1] = msgspec.structs.replace(current, notes=(*current.notes, event.reason))


def _holds(table: Table, status: str | None) -> bool:
    state = None if status is None else table.get(status)
    return state is not None and state.holds


def _follows(attempt: Attempt, event: Event) -> bool:
    same = event.source == attempt.ended and event.at_ms == attempt.ended_ms
    return attempt.then is None and same and not event.flag


def _error(data: dict[str, Any]) -> str | None:
    error = data.get("error")
    if not isinstance(error, dict):
        return None
    message = str(error.get("message", "")).strip().split("\n", 1)[0]
    kind = str(error.get("type", "error"))
    return f"{kind}: {message}" if message else kind

"""The machine: the only code that changes a status.

Pure: a row and moves in, the new row and events out; no clock, no I/O. Stores write the result with one
compare-and-swap on the version, so of several racing moves of one job exactly one is written.

>>> from mainstay.testing import a_job
>>> job = a_job("pending")
>>> moved = claim(job, session="s1", now_ms=5_000, chain=Chain())
>>> moved.job.status, moved.job.token, [event.to for event in moved.events]
('running', 1, ['running'])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from ..errors import InvalidInput, InvalidTransition
from ..model import PLACE_MS, Job, Lane, expiry
from .events import Chain, Event, details_text
from .seals import SUBMITTED, job_seal, result_seal
from .states import JOB, UNIT, State, Table, table_of

_NOTHING: Mapping[str, Any] = {}
#: the fields of a row without an owner
_UNHELD: Mapping[str, Any] = {"session": None, "claimed_ms": None, "started_ms": None, "lane": Lane.NONE}


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A requested move. `fields` are row values that change with it (due time, result, counters ...)."""

    to: str
    reason: str | None = None
    details: dict[str, Any] | None = None
    fields: Mapping[str, Any] = _NOTHING
    flag: Literal["", "note", "forced", "repair"] = ""
    unheld: bool = False
    """only for a row whose state needs a holder and that has none, because its units advance it"""


class CompletionMove(Move, frozen=True, kw_only=True):
    """The move of `completion`. It comes to the same as any move, but `apply` has its result written out."""


#: The kind of a change, so that a store need not compare the row before and after:
#:
#: - complete: the session that holds a running job ends it as succeeded. There is one event. Apart from the fields that
#:   follow from the state (version, times, owner, head), only `result` and `starts` change
#: - move: any other change of the status
#: - note: the status stays
ChangeKind = Literal["complete", "move", "note"]


class Moved(msgspec.Struct, frozen=True, gc=False):
    """The result of a move. Without events the row already had that status, and there is nothing to write."""

    job: Job
    events: tuple[Event, ...]
    kind: ChangeKind = "move"


def apply(job: Job, *moves: Move, now_ms: int, actor: str, chain: Chain) -> Moved:
    """Apply moves in order, all or none. Raises `InvalidTransition` with the job, both states and the allowed ones."""
    table = JOB if job.parent is None else UNIT
    is_completion = len(moves) == 1 and type(moves[0]) is CompletionMove
    if is_completion and job.settled_ms is None and table.allows(job.status, "succeeded"):
        return _complete(job, moves[0], now_ms, actor, chain)
    status, seq, head = job.status, job.version, job.head
    fields: dict[str, Any] = {}
    events: list[Event] = []
    for move in moves:
        to, flag = move.to, move.flag
        if to == status and flag in ("", "forced"):
            continue
        if flag or not table.allows(status, to):
            _admit(table, job, status, move)
        fields.update(move.fields)
        if flag != "note":
            fields["reason"] = move.reason
        seq += 1
        details = details_text(_sealed(table.get(to), job, fields, move))
        body = (job.id, seq, now_ms, status, to, actor, move.reason, fields.get("token", job.token), flag, details)
        head = chain.digest(head, body)
        events.append(Event(*body, head))
        status = to
    if not events:
        return Moved(job, (), "note")
    kind: ChangeKind = "note" if status == job.status else "move"
    fields["status"] = status
    fields["version"] = seq
    fields["head"] = head
    fields["changed_ms"] = now_ms
    return Moved(_arranged(table.get(status), job, fields, now_ms), tuple(events), kind)


def submit(job: Job, *, now_ms: int, actor: str, chain: Chain, details: dict[str, Any] | None = None) -> Moved:
    """Add the first event of a new job. Its status must be a start state of the table."""
    table = JOB if job.parent is None else UNIT
    if job.status not in table.start:
        raise InvalidTransition(job.id, "new", job.status, allowed=table.start)
    sealed = {**(details or {}), "job_sha256": job_seal(job)}
    if job.due_ms != now_ms:
        sealed["due_ms"] = job.due_ms
    body = (job.id, 1, now_ms, None, job.status, actor, job.reason, 0, "", details_text(sealed))
    head = chain.digest(job.head, body)
    new = msgspec.structs.replace(
        job,
        version=1,
        head=head,
        created_ms=now_ms,
        changed_ms=now_ms,
        expires_ms=job.options.start_by_ms,
        lane=_lane(table.states[job.status], job.due_ms, now_ms),
    )
    return Moved(new, (Event(*body, head),))


def claim(job: Job, *, session: str, now_ms: int, chain: Chain) -> Moved:
    """Give a claimable job to a session, under the next token."""
    token = job.token + 1
    if job.settled_ms is not None or not table_of(job.parent).allows(job.status, "running"):
        taken = {"token": token, "session": session, "claimed_ms": now_ms}
        return apply(job, Move(to="running", fields=taken), now_ms=now_ms, actor=session, chain=chain)
    # the result of `apply`, written out, because this is the most frequent move
    seq = job.version + 1
    body = (job.id, seq, now_ms, job.status, "running", session, None, token, "", None)
    head = chain.digest(job.head, body)
    claimed = msgspec.structs.replace(
        job,
        status="running",
        reason=None,
        version=seq,
        token=token,
        session=session,
        changed_ms=now_ms,
        claimed_ms=now_ms,
        started_ms=None,
        expires_ms=None,
        head=head,
        lane=Lane.NONE,
    )
    return Moved(claimed, (Event(*body, head),))


def completion(result: bytes | None, *, starts: int, started_ms: int | None) -> Move:
    """The move of a job whose work is done."""
    details = None if started_ms is None else {"started_ms": started_ms}
    return CompletionMove(to="succeeded", details=details, fields={"result": result, "starts": starts, "error": None})


def _complete(job: Job, move: Move, now_ms: int, actor: str, chain: Chain) -> Moved:
    """The result of `apply` for a completion, written out, as in `claim`."""
    seq = job.version + 1
    result = move.fields["result"]
    sealed = {**(move.details or {}), "result_sha256": result_seal(result)}
    body = (job.id, seq, now_ms, job.status, "succeeded", actor, move.reason, job.token, "", details_text(sealed))
    head = chain.digest(job.head, body)
    done = msgspec.structs.replace(
        job,
        status="succeeded",
        reason=move.reason,
        version=seq,
        session=None,
        starts=move.fields["starts"],
        changed_ms=now_ms,
        claimed_ms=None,
        started_ms=None,
        settled_ms=now_ms,
        expires_ms=_trim_at(job, now_ms),
        error=None,
        result=result,
        head=head,
        lane=Lane.NONE,
    )
    kind: ChangeKind = "complete" if job.status == "running" and job.session == actor else "move"
    return Moved(done, (Event(*body, head),), kind)


def promote(job: Job, *, now_ms: int, chain: Chain) -> Moved:
    """Move a waiting job that is due to the claimable state."""
    return apply(job, Move(to="pending", reason="its time has come"), now_ms=now_ms, actor="store", chain=chain)


def tombstone(job: Job, *, now_ms: int, actor: str, reason: str, chain: Chain) -> Event:
    """The event that stays when a job is deleted."""
    left = details_text({"name": job.name, "queue": job.queue, "created_ms": job.created_ms})
    body = (job.id, job.version + 1, now_ms, job.status, job.status, actor, reason, job.token, "tombstone", left)
    return Event(*body, chain.digest(job.head, body))


def _sealed(state: State | None, job: Job, fields: Mapping[str, Any], move: Move) -> dict[str, Any] | None:
    """The details of an event, with its seals of the row (`seals.py`). `fields` are those changed so far."""
    details = move.details
    if state is None:
        return details
    if state.settled or "result" in move.fields:
        details = {**(details or {}), "result_sha256": result_seal(fields.get("result", job.result))}
    if "due_ms" in move.fields or not (state.settled or state.holds):
        details = {**(details or {}), "due_ms": fields.get("due_ms", job.due_ms)}
    if any(name in move.fields for name in SUBMITTED):
        changed = {name: fields[name] for name in (*SUBMITTED, "options") if name in fields}
        details = {**(details or {}), "job_sha256": job_seal(msgspec.structs.replace(job, **changed))}
    return details


def _admit(table: Table, job: Job, status: str, move: Move) -> None:
    """Refuse a move that the table does not allow, unless it is a valid note, forced move or repair."""
    state = table.get(status)
    why = None
    if move.flag in ("note", "repair") and move.to == status:
        return
    if move.flag == "note":
        why = "a note does not change the state"
    elif table.get(move.to) is None:
        why = f"there is no {table.name} state {move.to!r}"
    elif state is None:
        # written by a newer version: only a repair, which has checked the trail, may move it
        if move.flag == "repair":
            return
        why = f"this version does not know {status!r}; upgrade Mainstay to move it"
    elif state.final:
        why = "final states never change, not even by force"
    elif move.flag in ("forced", "repair"):
        if not move.reason or not move.reason.strip():
            raise InvalidInput("reason", "a forced move needs a reason; it is kept in the audit trail")
        if move.flag == "repair" or not table.states[move.to].holds:
            return
        why = "force cannot invent an owner; move it to pending and let a worker claim it"
    raise InvalidTransition(job.id, status, move.to, allowed=state.next if state else (), why=why)


def _arranged(state: State | None, job: Job, fields: dict[str, Any], now_ms: int) -> Job:
    """The new row, with the fields that follow from the flags of its state."""
    if state is None:
        return msgspec.structs.replace(job, **fields)
    # a job keeps its turn while it waits for cores: that wait has no due time
    if "due_ms" in fields and "rank" not in fields and PLACE_MS not in (fields["due_ms"], job.due_ms):
        fields["rank"] = job.rank + fields["due_ms"] - job.due_ms
    stays = state.name == job.status
    if state.settled:
        fields.update(_UNHELD)
        if not stays or job.settled_ms is None:
            fields["settled_ms"] = now_ms
        fields["expires_ms"] = _trim_at(job, fields.get("settled_ms", job.settled_ms))
        return msgspec.structs.replace(job, **fields)
    if job.settled_ms is not None:
        fields["settled_ms"] = None
    if state.holds:
        fields["lane"] = Lane.NONE
    else:
        fields.update(_UNHELD)
        fields["lane"] = _lane(state, fields.get("due_ms", job.due_ms), now_ms)
    if "expires_ms" in fields or (stays and "extra_ms" not in fields):
        return msgspec.structs.replace(job, **fields)
    if not state.holds:
        fields["expires_ms"] = job.options.start_by_ms if fields.get("starts", job.starts) == 0 else None
        return msgspec.structs.replace(job, **fields)
    moved = msgspec.structs.replace(job, **fields)
    overruns_ms = expiry(moved)
    return moved if moved.expires_ms == overruns_ms else msgspec.structs.replace(moved, expires_ms=overruns_ms)


def _lane(state: State, due_ms: int, now_ms: int) -> int:
    if state.claimable:
        return Lane.READY if due_ms <= now_ms else Lane.DUE
    return Lane.DUE if state.waiting else Lane.NONE


def _trim_at(job: Job, settled_ms: int | None) -> int | None:
    """The end of the retention of a settled job that was submitted with its own."""
    if settled_ms is None or job.options.keep_s is None:
        return None
    return settled_ms + int(job.options.keep_s * 1000)


__all__ = ["ChangeKind", "Move", "Moved", "apply", "claim", "completion", "promote", "submit", "tombstone"]

"""The compare-and-swap loop that all of control writes through.

Decide from the row at hand and write; if another write was first, decide again from the row as it is now. A decision is
a pure function, so deciding twice costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from ..errors import (
    Conflict,
    InvalidTransition,
    JobNotFound,
    MainstayError,
    Overloaded,
    StaleClaim,
    UniqueClash,
    VersionChanged,
)
from ..lifecycle import ABANDONED, Move, story
from ..model import Job, Leadership, is_reserved
from ..stores import Change, ChangeResult, JobStore, NewJob
from .failure import shown

log = logging.getLogger("mainstay.control")

#: a row that was moved this often between reading and writing is left to the next try
_ROUNDS = 8
_RECENT = 5

Moves = tuple[Move, ...]
#: (row as it is now, now in ms) -> moves; may raise a `MainstayError` to refuse
Decision = Callable[[Job, int], Moves]


class Outcome(msgspec.Struct, frozen=True):
    """What became of one move request.

    - applied: written, with its events
    - already_applied: it had been applied before (a repeat, or a lost acknowledgement); nothing was written
    - stale: the claim had been lost; refused, and recorded
    - missing: there is no such job
    - invalid: refused by a rule; `error` says which. Nothing was written
    - conflict: other writes kept moving the job; nothing was written, try again
    - no_session: it was to be given to a session that is not open; nothing was written
    - withheld: another request that was to be written together with it was refused; nothing was written
    """

    outcome: Literal["applied", "already_applied", "stale", "missing", "invalid", "conflict", "no_session", "withheld"]
    job: Job | None = None
    """the row as it is now"""
    error: MainstayError | None = None
    last: bool = False
    """it was the last unsettled unit of its parent"""
    resent: bool = False
    """the request was sent more than once: what was already applied may be its own work"""

    @property
    def ok(self) -> bool:
        return self.outcome in ("applied", "already_applied")


class MoveRequest(msgspec.Struct, frozen=True, gc=False):
    """A job to move: how, and on behalf of which actor."""

    job: Job
    decide: Decision
    actor: str
    holder: str | None = None
    """the session that claims to hold it; None for all actors but workers"""
    spawn: tuple[NewJob, ...] = ()
    on_last: Move | None = None


class Writer:
    """Turns move requests into outcomes, in batches."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._clock = store.clock

    async def write(self, requests: Sequence[MoveRequest], *, lead: Leadership | None = None) -> list[Outcome]:
        """Carry out each request independently of the others; outcomes are in the order of the requests."""
        outcomes: list[Outcome | None] = [None] * len(requests)
        rows: list[Job] = [request.job for request in requests]
        todo: Sequence[int] = range(len(requests))
        for _ in range(_ROUNDS):
            changes, places = self._changes(requests, rows, todo, outcomes)
            if not changes:
                break
            again = []
            for place, answer in zip(places, await self._store.apply(changes, lead=lead), strict=True):
                if answer.outcome != "conflict" or answer.job is None:
                    outcomes[place] = _outcome(requests[place], answer)
                elif answer.job == rows[place]:
                    # the row is as it was: something else in the change clashes, and would again
                    outcomes[place] = Outcome("invalid", answer.job, _clash(requests[place], answer.job))
                else:
                    rows[place] = answer.job
                    again.append(place)
            todo = again
            if not todo:
                break
        for place in todo:
            if outcomes[place] is None:
                outcomes[place] = Outcome("conflict", rows[place])
        return [
            outcome if outcome.error is None else await self._explained(outcome)
            for outcome in outcomes
            if outcome is not None
        ]

    async def one(self, job_id: str, decide: Decision, *, actor: str) -> Job:
        """Move one job as it is now, or raise."""
        [job] = await self._store.get([job_id])
        if job is None:
            raise JobNotFound(job_id)
        [outcome] = await self.write([MoveRequest(job, decide, actor)])
        if outcome.error is not None:
            raise outcome.error
        if outcome.job is None:
            raise JobNotFound(job_id)
        if not outcome.ok:
            raise refused(outcome)
        return outcome.job

    def _changes(
        self, requests: Sequence[MoveRequest], rows: list[Job], todo: Sequence[int], outcomes: list[Outcome | None]
    ) -> tuple[list[Change], list[int]]:
        """The changes to send; a request that needs none gets its outcome here."""
        now_ms = self._clock.now_ms()
        changes = []
        places = []
        for place in todo:
            request, row = requests[place], rows[place]
            try:
                moves = request.decide(row, now_ms)
            except MainstayError as error:
                outcomes[place] = Outcome("invalid", row, error)
                continue
            except Exception as error:
                # an unexpected error is the outcome of that job: the rest of the batch is written
                log.exception("cannot decide job_id=%s", row.id)
                outcomes[place] = Outcome("invalid", row, _broken(row, error))
                continue
            if not moves:
                outcomes[place] = Outcome("already_applied", row)
                continue
            on_last = request.on_last
            if on_last is None and row.parent is not None and not is_reserved(row.queue):
                on_last = ABANDONED
            changes.append(
                Change(
                    before=row,
                    moves=moves,
                    actor=request.actor,
                    at_ms=now_ms,
                    holder=request.holder,
                    spawn=request.spawn,
                    on_last=on_last,
                )
            )
            places.append(place)
        return changes, places

    async def _explained(self, outcome: Outcome) -> Outcome:
        """Add the recent story of the job to a refused move; it is read only when it is needed."""
        if outcome.error is None or outcome.job is None or not isinstance(outcome.error, InvalidTransition):
            return outcome
        job, refusal = outcome.job, outcome.error
        try:
            recent = await self._store.events(job.id, after=max(0, job.version - _RECENT))
        except Overloaded:
            return outcome  # a busy manager refused this read, and the answer is known without it
        explained = InvalidTransition(
            refusal.job_id,
            refusal.current,
            refusal.wanted,
            allowed=refusal.allowed,
            why=refusal.why,
            story=story(recent),
        )
        return Outcome("invalid", job, explained)


def at_version(version: int | None, decide: Decision) -> Decision:
    """A decision that holds only for the job at this version; None: at any version."""
    if version is None:
        return decide

    def checked(job: Job, now_ms: int) -> Moves:
        if job.version != version:
            raise VersionChanged(job.id, version, now=job.version)
        return decide(job, now_ms)

    return checked


def refused(outcome: Outcome) -> MainstayError:
    """The exception for an outcome that is not ok and has no error."""
    job = outcome.job
    job_id = job.id if job is not None else "?"
    if outcome.outcome == "stale":
        return StaleClaim(f"job {job_id}: the claim was lost; the write was refused and recorded")
    return Conflict(f"job {job_id}: other writes kept moving it; nothing was written, try again")


def _broken(row: Job, error: Exception) -> MainstayError:
    broken = MainstayError(
        f"job {row.id}: its next state could not be decided: {shown(error, 500)}; it is still {row.status}"
    )
    broken.__cause__ = error
    return broken


def _clash(request: MoveRequest, row: Job) -> MainstayError:
    if request.spawn:
        return Conflict(
            f"job {row.id}: a job that it submits clashes with a stored one (its key was used with other arguments, or "
            "its unique key is held), or belongs to or waits for a job that does not exist; nothing was written"
        )
    return UniqueClash(
        f"job {row.id}: another unsettled job holds its unique key {row.unique_key!r}; wait for that one, or cancel it"
    )


def _outcome(request: MoveRequest, answer: ChangeResult) -> Outcome:
    if answer.outcome == "stale":
        log.warning(
            "stale write refused job_id=%s token=%d session=%s", request.job.id, request.job.token, request.holder
        )
    if answer.last and request.on_last is None:
        log.info("last unit settled job_id=%s parent=%s", request.job.id, request.job.parent)
    return Outcome(answer.outcome, answer.job, answer.error, answer.last, answer.resent)

"""The actions that can be applied to many jobs at once, with their names and the states they apply to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..lifecycle import JOB
from . import bulk
from .bulk import BulkAnswer, Do
from .control import Control

UNSETTLED = tuple(state.name for state in JOB.states.values() if not state.settled)
RETRIABLE = tuple(state.name for state in JOB.states.values() if state.settled and not state.final)
SETTLED = JOB.named("settled")
WAITING_STATES = tuple(state.name for state in JOB.states.values() if not state.settled and not state.holds)

_NOT_DELETED = {
    "held": "it is being worked on; cancel it first, then delete it",
    "missing": "the job no longer exists",
}


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """An action on many jobs."""

    verb: str
    done: str
    states: tuple[str, ...]
    """the states of a filter that names none; empty: it must name one"""
    do: Do


def cancelling(*, actor: str, reason: str | None = None) -> Action:
    """Cancel."""
    why = reason or "cancelled on request"

    async def do(control: Control, ids: Sequence[str]) -> list[BulkAnswer]:
        return bulk.answers(ids, await control.operations.cancel_many(ids, actor=actor, reason=why))

    return Action(verb="cancel", done="cancelled", states=UNSETTLED, do=do)


def withdrawing(*, actor: str, reason: str) -> Action:
    """Cancel waiting jobs; a job that a worker has claimed since continues."""

    async def do(control: Control, ids: Sequence[str]) -> list[BulkAnswer]:
        return bulk.answers(ids, await control.operations.withdraw_many(ids, actor=actor, reason=reason))

    return Action(verb="cancel", done="cancelled", states=WAITING_STATES, do=do)


def retrying(*, actor: str, reason: str | None = None) -> Action:
    """Send back to the queue."""
    why = reason or "retried on request"

    async def do(control: Control, ids: Sequence[str]) -> list[BulkAnswer]:
        return bulk.answers(ids, await control.operations.retry_many(ids, actor=actor, reason=why))

    return Action(verb="retry", done="sent back", states=RETRIABLE, do=do)


def deleting(*, actor: str, reason: str | None = None) -> Action:
    """Delete."""
    why = reason or "deleted on request"

    async def do(control: Control, ids: Sequence[str]) -> list[BulkAnswer]:
        outcomes = await control.operations.delete_many(ids, actor=actor, reason=why)
        return [
            BulkAnswer(id=job_id, outcome=outcome, error=_NOT_DELETED.get(outcome))
            for job_id, outcome in zip(ids, outcomes, strict=True)
        ]

    return Action(verb="delete", done="deleted", states=SETTLED, do=do)

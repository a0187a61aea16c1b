"""What a placement leader does with placed units, whatever their kind, and the rows that change by it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..lifecycle import Move
from ..model import ErrorInfo, Job, Session
from .job_factory import JobRequest
from .rules.placement import ask_again, assign_unit, give_unit_up, take_unit_back

_REASON_LIMIT = 200
#: nodes that are named in a reason
_NAMED = 5


class Assignment(msgspec.Struct, frozen=True):
    """A unit, and the session that gets it."""

    unit: Job
    session: Session


class Assign(msgspec.Struct, frozen=True):
    """Give units to sessions. The write includes the job: one that was cancelled since is given no more work."""

    assignments: tuple[Assignment, ...]


class Ask(msgspec.Struct, frozen=True):
    """Ask the session of an assigned unit again."""

    unit: Job


class TakeBack(msgspec.Struct, frozen=True):
    """Take an assigned unit back from a session that did not confirm it."""

    unit: Job


class FailUnit(msgspec.Struct, frozen=True):
    """Fail a unit that could not be placed."""

    unit: Job
    error: ErrorInfo


class CancelUnits(msgspec.Struct, frozen=True):
    """Cancel units that are open although their job is settled, or was started again since."""

    units: tuple[Job, ...]
    reason: str


UnitAction = Assign | Ask | TakeBack | FailUnit | CancelUnits


class RowChange(msgspec.Struct, frozen=True):
    """A row to move, and the units to create with it."""

    row: Job
    moves: tuple[Move, ...]
    units: tuple[JobRequest, ...] = ()


def unit_changes(action: UnitAction, job: Job, *, now_ms: int) -> list[RowChange]:
    """The changes of an action on units of a job: written together, or none."""
    match action:
        case Assign(assignments=assignments):
            names = node_names([each.session for each in assignments])
            note = Move(to=job.status, reason=f"units assigned to {names}", flag="note")
            moves = [RowChange(each.unit, assign_unit(each.unit, each.session, now_ms=now_ms)) for each in assignments]
            return [RowChange(job, (note,)), *moves]
        case Ask(unit=row):
            return [RowChange(row, ask_again(row, now_ms=now_ms))]
        case TakeBack(unit=row):
            return [RowChange(row, take_unit_back(row))]
        case FailUnit(unit=row, error=error):
            return [RowChange(row, give_unit_up(error))]
        case CancelUnits(units=rows, reason=reason):
            return [cancel_unit(row, reason) for row in rows]


def cancel_unit(unit: Job, reason: str) -> RowChange:
    return RowChange(unit, (Move(to="cancelled", reason=reason[:_REASON_LIMIT]),))


def in_epoch(change: RowChange, epoch: int) -> RowChange:
    """A change whose events name the epoch of the leader."""
    moves = [msgspec.structs.replace(move, details={**(move.details or {}), "epoch": epoch}) for move in change.moves]
    return RowChange(change.row, tuple(moves), change.units)


def node_names(sessions: Sequence[Session]) -> str:
    """The nodes of some sessions, for a reason: the first ones by name, the others by number."""
    names = [session.node for session in sessions]
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + rest


__all__ = [
    "Ask",
    "Assign",
    "Assignment",
    "CancelUnits",
    "FailUnit",
    "RowChange",
    "TakeBack",
    "UnitAction",
    "cancel_unit",
    "in_epoch",
    "node_names",
    "unit_changes",
]

"""From the actions of the placement leader to the rows that change. Pure."""

from __future__ import annotations

import msgspec

from ...control import JobRequest, Plan, RowChange, cancel_unit, in_epoch, unit_changes
from ...lifecycle import Move
from ...model import PLACE_MS, PLACE_QUEUE, Options, RetryPolicy
from ...words import counted
from ..kind import KIND, SLICE
from .decisions import FailRun, NoteWait, Place, PlaceAgain, PlacedRun, RunAction
from .spec import RunDemand, SliceCall, slice_id, slice_unit

_REASON_LIMIT = 200
_NAMED = 5
#: the time of a slice is that of its job. A slice whose attempt failed is placed again at once: the run waits for it
_OPTIONS = Options(retry=RetryPolicy(retries=3, kind="fixed", base_s=0.0, jitter=False), run_timeout_s=None)


def run_changes(action: RunAction, run: PlacedRun, *, epoch: int, now_ms: int) -> list[RowChange]:
    """The changes of an action: written together, or none. Each event names the epoch of the leader."""
    return [in_epoch(change, epoch) for change in _changes(action, run, now_ms)]


def _changes(action: RunAction, run: PlacedRun, now_ms: int) -> list[RowChange]:
    job = run.job
    match action:
        case Place():
            return [_place(action, run, now_ms)]
        case NoteWait(reason=reason):
            reason = reason[:_REASON_LIMIT]
            return [RowChange(job, (Move(to=job.status, reason=reason, fields={"reason": reason}, flag="note"),))]
        case FailRun(error=error):
            return [RowChange(job, (Move(to="failed", reason=error.message[:_REASON_LIMIT], fields={"error": error}),))]
        case PlaceAgain(reason=reason, units=units):
            move = Move(to="pending", reason=reason, fields={"due_ms": PLACE_MS, "extra_ms": 0})
            if job.status == "pending":
                move = msgspec.structs.replace(move, flag="note")
            return [RowChange(job, (move,)), *(cancel_unit(unit, reason) for unit in units)]
        case _:
            return unit_changes(action, job, now_ms=now_ms)


def _place(place: Place, run: PlacedRun, now_ms: int) -> RowChange:
    """The job is due now, so that a manager claims it, and has the slices of a new round."""
    job, slices = run.job, place.slices
    assert run.wants is not None
    nodes = ", ".join(each.node for each in slices[:_NAMED])
    more = f" and {len(slices) - _NAMED} more" if len(slices) > _NAMED else ""
    reason = f"got {counted(sum(each.cores for each in slices), 'core')}: {nodes}{more}"
    details = {"round": place.round, "cores": {each.node: each.cores for each in slices}}
    # another machine has dated its submit, by a clock that may be some milliseconds ahead
    fields = {"due_ms": max(now_ms, job.created_ms), "reason": reason}
    move = Move(to="pending", reason=reason, details=details, fields=fields)
    if job.status == "pending":
        move = msgspec.structs.replace(move, flag="note")
    units = tuple(_slice(place, run, run.wants, number) for number in range(len(slices)))
    return RowChange(job, (move,), units)


def _slice(place: Place, run: PlacedRun, wants: RunDemand, number: int) -> JobRequest:
    job, unit = run.job, slice_unit(place.round, number)
    call = SliceCall(
        job=job.id,
        round=place.round,
        number=number,
        of=len(place.slices),
        cores=place.slices[number].cores,
        code=wants.code,
        modules=wants.modules,
        labels=wants.demand.labels,
        node=place.slices[number].node,
    )
    plan = Plan(options=_OPTIONS, kind=KIND.name, queue=PLACE_QUEUE, parent=job.id, unit=unit, priority=job.priority)
    payload = msgspec.Raw(msgspec.msgpack.encode(call))
    return JobRequest(SLICE, payload, plan, id=slice_id(job.id, place.round, number))


__all__ = ["run_changes"]

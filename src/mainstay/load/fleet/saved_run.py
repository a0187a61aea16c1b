"""What the leader of a run on nodes saves with its job, and what its successor does with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ...errors import BadArguments
from ...model import Job
from .record import FleetRecord
from .spec import SLICE, SliceCall

Step = Literal["place", "lead", "end"]


class SavedRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The checkpoint of a job that is led: the numbers so far, and what must not be forgotten."""

    summary: msgspec.Raw
    fleet: FleetRecord
    failures: int = 0
    """failed attempts of the job before this one: what an earlier attempt has saved is not continued"""
    began_ms: int = 0
    """when the first load of this start of the run began, by the clock of the store; 0: it has not"""
    extra_s: float = 0.0
    """the time that it is known to have earned beyond its run timeout"""
    restarts: int = 0
    """how often the run was started again after the loss of a slice"""
    over: bool = False
    """the load has ended and the summary is the final one"""
    ended_round: int = 0
    """the run is to be started again: slices of this round, and of earlier ones, are not led any more"""


class SavedHead(msgspec.Struct, frozen=True, kw_only=True):
    """The summary alone, for those who only show it."""

    summary: msgspec.Raw
    failures: int = 0


def saved_run_of(job: Job) -> SavedRun | None:
    """What the leader of this attempt has saved; None: nothing yet."""
    saved = _decoded(job)
    return saved if saved is not None and saved.failures == job.failures else None


def ended_round(job: Job) -> int:
    """The last round whose slices are not led any more, although some may be open: the run was started again after it,
    or an earlier attempt of the job has led it."""
    saved = _decoded(job)
    if saved is None:
        return 0
    return saved.ended_round if saved.failures == job.failures else max(saved.ended_round, saved.fleet.round)


def _decoded(job: Job) -> SavedRun | None:
    if job.checkpoint is None:
        return None
    try:
        return msgspec.msgpack.decode(job.checkpoint, type=SavedRun)
    except msgspec.DecodeError as error:
        raise BadArguments("checkpoint", f"what the leader of the run has saved cannot be read: {error}") from None


def saved_summary(job: Job) -> bytes | None:
    """The stored summary of a led job; None: there is none of this attempt, or none of the last one if it has ended."""
    if job.checkpoint is None:
        return None
    head = msgspec.msgpack.decode(job.checkpoint, type=SavedHead)
    is_earlier = job.settled_ms is None and head.failures != job.failures
    return None if is_earlier else bytes(head.summary)


class StoredSlice(msgspec.Struct, frozen=True):
    """The row of a slice, with its payload."""

    row: Job
    call: SliceCall

    @property
    def is_open(self) -> bool:
        return self.row.settled_ms is None


def stored_slices(units: Sequence[Job]) -> list[StoredSlice]:
    """The slices of the newest round among the units of a job, by number."""
    rows = [row for row in units if row.name == SLICE]
    slices = [StoredSlice(row, msgspec.msgpack.decode(row.payload, type=SliceCall)) for row in rows]
    newest = max((each.call.round for each in slices), default=0)
    return sorted((each for each in slices if each.call.round == newest), key=lambda each: each.call.number)


def next_step(saved: SavedRun | None, slices: Sequence[StoredSlice], *, ended: int = 0) -> Step:
    """What the holder of the claim does: get cores for a new round, lead the newest one, or end the job with what was
    saved.

    A round is led on if load may exist: also when all its slices have ended, for their results are stored. One up to
    `ended` is not: its slices were stopped, and would refuse."""
    if saved is not None and saved.over:
        return "end"
    newest = slices[0].call.round if slices else 0
    if newest <= ended:
        return "place"
    may_have_load = saved is not None and saved.fleet.round == newest and bool(saved.fleet.gos)
    if any(each.is_open for each in slices) or (newest and may_have_load):
        return "lead"
    return "place"


__all__ = [
    "SavedRun",
    "Step",
    "StoredSlice",
    "ended_round",
    "next_step",
    "saved_run_of",
    "saved_summary",
    "stored_slices",
]

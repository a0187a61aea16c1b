"""The rows that placement decides from: jobs, their demands, their slices and what became of earlier assignments."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from ...control import past_assignments
from ...model import Job
from ...stores import OMITTED_FIELDS, JobStore, Query, all_rows, size_left_out
from ..kind import SLICE
from .decisions import PlacedRun, PlacedSlice
from .spec import RunDemand, SliceCall

#: longer values of rows are not read: the plan of a run, what it has saved, the numbers of its slices
VALUE_BYTES = 4096
#: more events than all assignments of a slice write
_EVENTS = 200


class PlacedRows:
    """Reads runs for one leader, and remembers what does not change."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._wants: dict[str, RunDemand | None] = {}
        """by job; a payload never changes"""
        self._calls: dict[str, SliceCall] = {}
        """by slice"""
        self._idle: dict[str, tuple[int, PlacedRun]] = {}
        """waiting jobs without an open slice, at a version: only a write of the job creates slices"""

    def keep(self, job_ids: Collection[str]) -> None:
        """Forget all other jobs."""
        self._wants = {job_id: wants for job_id, wants in self._wants.items() if job_id in job_ids}
        self._calls = {slice_id: call for slice_id, call in self._calls.items() if call.job in job_ids}
        self._idle = {job_id: idle for job_id, idle in self._idle.items() if job_id in job_ids}

    async def run(self, job: Job) -> PlacedRun | None:
        """A job with its slices; None: no manager has claimed it yet, so it has none and waits for nothing here."""
        if not job.token:
            return None
        version, idle = self._idle.get(job.id, (0, None))
        if idle is not None and version == job.version:
            return idle
        run = PlacedRun(job, await self._wanted(job), await self._slices(job))
        if job.awaits_cores and not run.open:
            self._idle[job.id] = (job.version, run)
        return run

    async def whole(self, rows: Sequence[Job]) -> dict[str, Job] | None:
        """Some rows with all their values, by id; None: one has moved since it was read."""
        cut = [row.id for row in rows if any(size_left_out(getattr(row, name)) is not None for name in OMITTED_FIELDS)]
        found = {row.id: row for row in rows}
        found |= {row.id: row for row in (await self._store.get(cut) if cut else []) if row is not None}
        return found if all(found[row.id].version == row.version for row in rows) else None

    async def _wanted(self, job: Job) -> RunDemand | None:
        if job.id not in self._wants:
            try:
                self._wants[job.id] = msgspec.msgpack.decode(await whole_payload(self._store, job), type=RunDemand)
            except msgspec.DecodeError:
                self._wants[job.id] = None  # its leader fails it
        return self._wants[job.id]

    async def _slices(self, job: Job) -> list[PlacedSlice]:
        query = Query(parent=job.id, value_bytes=VALUE_BYTES)
        units = [unit async for unit in all_rows(self._store, query) if unit.name == SLICE]
        return [await self._slice(unit) for unit in units]

    async def _slice(self, unit: Job) -> PlacedSlice:
        call = self._calls.get(unit.id)
        if call is None:
            call = self._calls[unit.id] = msgspec.msgpack.decode(await whole_payload(self._store, unit), type=SliceCall)
        if unit.status != "pending" or not unit.token:
            return PlacedSlice(unit, call)
        events = await self._store.events(unit.id, after=unit.trimmed_seq, limit=_EVENTS)
        return PlacedSlice(unit, call, tuple(past_assignments(events)))


async def whole_payload(store: JobStore, row: Job) -> bytes:
    """The payload of a row that was read without long values; empty: the row is gone."""
    if size_left_out(row.payload) is None:
        return row.payload
    [whole] = await store.get([row.id])
    return b"" if whole is None else whole.payload


__all__ = ["VALUE_BYTES", "PlacedRows", "whole_payload"]

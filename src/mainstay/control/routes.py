"""Where each placed unit of a job was, by its audit trail: which node got it, when, and why it left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from ..errors import JobNotFound
from ..lifecycle import Event
from ..model import PLACE_QUEUE, Job, check_id
from ..stores import JobStore, Query, all_rows
from .assignments import UnitAssignment, assignments_of

#: units of one answer: the events of each are read, for every caller that may read the job
_MOST_UNITS = 1000
#: events of a unit that are read: more than all assignments of one write
_EVENTS = 500
#: units whose events are read at a time
_AT_ONCE = 8


class UnitRoute(msgspec.Struct, frozen=True, kw_only=True):
    """The assignments of one unit."""

    id: str
    unit: str
    """its name within the job"""
    status: str
    assignments: tuple[UnitAssignment, ...] = ()
    """the oldest first"""


class JobRoutes(msgspec.Struct, frozen=True, kw_only=True):
    """Where the units of a job were placed."""

    id: str
    name: str
    status: str
    units: tuple[UnitRoute, ...] = ()
    """by name; without those that were never placed on a node"""
    more: int = 0
    """units that are left out because there are too many"""


async def read_routes(store: JobStore, job_id: str, *, shown: Callable[[Event], Event] | None = None) -> JobRoutes:
    """The routes of a job, or of one unit; raises `JobNotFound`. `shown` changes each event first: a mask for private
    fields."""
    [job] = await store.get([check_id(job_id)])
    if job is None:
        raise JobNotFound(job_id)
    units, more = ([job], 0) if job.is_unit else await _units(store, job.id)
    limit = asyncio.Semaphore(_AT_ONCE)

    async def read(unit: Job) -> UnitRoute:
        async with limit:
            events = await store.events(unit.id, after=unit.trimmed_seq, limit=_EVENTS)
        return unit_route(unit, events if shown is None else map(shown, events))

    routes = await asyncio.gather(*(read(unit) for unit in units))
    return JobRoutes(
        id=job.id,
        name=job.name,
        status=job.status,
        units=tuple(sorted(routes, key=_order)),
        more=more,
    )


def unit_route(unit: Job, events: Iterable[Event]) -> UnitRoute:
    """The route of a unit, by its events."""
    return UnitRoute(
        id=unit.id,
        unit=unit.unit or "",
        status=unit.status,
        assignments=tuple(assignments_of(events)),
    )


async def _units(store: JobStore, job_id: str) -> tuple[list[Job], int]:
    """The placed units of a job, and how many more there are."""
    units: list[Job] = []
    async for unit in all_rows(store, Query(parent=job_id, queue=PLACE_QUEUE, value_bytes=0)):
        if len(units) == _MOST_UNITS:
            return units, sum((await store.unit_counts(job_id)).values()) - len(units)
        units.append(unit)
    return units, 0


def _order(route: UnitRoute) -> tuple[tuple[int, int | str], ...]:
    """Numbers in names by their value: slice/1/2 before slice/1/10."""
    parts = route.unit.split("/")
    return tuple((0, int(part)) if part.isascii() and part.isdigit() else (1, part) for part in parts)


__all__ = ["JobRoutes", "UnitRoute", "read_routes", "unit_route"]

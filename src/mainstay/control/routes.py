"""Where each placed unit of a job was, by its audit trail: which node got it, when, and why it left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from ..errors import JobNotFound
from ..lifecycle import UNIT, Event
from ..model import PLACE_QUEUE, Job, check_id
from ..stores import JobStore, Query, all_rows

#: units of one answer; a job has as many as nodes, or a few times more
_MOST_UNITS = 5000
#: events of a unit that are read: more than all assignments of one write
_EVENTS = 500
#: units whose events are read at a time
_AT_ONCE = 8


class UnitAssignment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One assignment of a unit to a node."""

    token: int
    node: str
    """empty: an earlier version assigned it, and did not record the node"""
    session: str
    assigned_ms: int
    confirmed_ms: int | None = None
    """when the node confirmed it; null: it has not"""
    ended_ms: int | None = None
    """when the unit left the node; null: it is there"""
    end: str = ""
    """given_back: the node refused it, or did not confirm it in time; lost: with its session, or without an answer of
    its node; failed: the attempt failed, and another one follows; otherwise the state in which the unit settled"""
    why: str = ""
    """why it left"""
    asked: int = 0
    """how often the node was asked again to confirm it"""
    epoch: int | None = None
    """of the placement leader that assigned it"""


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
    units = [job]
    if not job.is_unit:
        query = Query(parent=job.id, queue=PLACE_QUEUE, value_bytes=0)
        units = [unit async for unit in all_rows(store, query)]
    limit = asyncio.Semaphore(_AT_ONCE)

    async def read(unit: Job) -> UnitRoute:
        async with limit:
            events = await store.events(unit.id, after=unit.trimmed_seq, limit=_EVENTS)
        return unit_route(unit, events if shown is None else map(shown, events))

    routes = await asyncio.gather(*(read(unit) for unit in units[:_MOST_UNITS]))
    return JobRoutes(
        id=job.id,
        name=job.name,
        status=job.status,
        units=tuple(sorted(routes, key=_order)),
        more=max(0, len(units) - _MOST_UNITS),
    )


def unit_route(unit: Job, events: Iterable[Event]) -> UnitRoute:
    """The route of a unit, by its events."""
    return UnitRoute(
        id=unit.id,
        unit=unit.unit or "",
        status=unit.status,
        assignments=tuple(assignments_of(events)),
    )


def assignments_of(events: Iterable[Event]) -> list[UnitAssignment]:
    """The assignments of a unit, the oldest first."""
    found: list[UnitAssignment] = []
    held: UnitAssignment | None = None
    for event in events:
        if event.to == "dispatched" and event.flag != "note":
            data = event.data
            epoch = data.get("epoch")
            held = UnitAssignment(
                token=event.token,
                node=str(data.get("node", "")),
                session=str(data.get("session", "")),
                assigned_ms=event.at_ms,
                epoch=epoch if isinstance(epoch, int) else None,
            )
            found.append(held)
        elif held is not None:
            held = _continued(held, event)
            found[-1] = held
            if held.ended_ms is not None:
                held = None
    return found


def _continued(held: UnitAssignment, event: Event) -> UnitAssignment:
    """An assignment after one more event."""
    if event.flag == "note":
        asked = held.asked + (event.to == "dispatched")
        return msgspec.structs.replace(held, asked=asked)
    if event.to == "running":
        return msgspec.structs.replace(held, confirmed_ms=event.at_ms)
    return msgspec.structs.replace(held, ended_ms=event.at_ms, end=_end(event), why=event.reason or "")


def _end(event: Event) -> str:
    if "loss" in event.data:
        return "lost"
    state = UNIT.states.get(event.to)
    if state is not None and state.settled:
        return event.to
    return "given_back" if event.to == "pending" else "failed"


def _order(route: UnitRoute) -> tuple[tuple[int, int | str], ...]:
    """Numbers in names by their value: slice/1/2 before slice/1/10."""
    parts = route.unit.split("/")
    return tuple((0, int(part)) if part.isascii() and part.isdigit() else (1, part) for part in parts)


__all__ = ["JobRoutes", "UnitAssignment", "UnitRoute", "assignments_of", "read_routes", "unit_route"]

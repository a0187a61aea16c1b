"""Masks for node jobs: results and errors of nodes, and the value of the leader phase, may contain secrets."""

from __future__ import annotations

from typing import Any

import msgspec

from ...model import ErrorInfo, Job
from ...stores import JobStore
from ...web.api import Masker, shown_jobs, value_view
from ..queries import LeaderPhaseStatus, MemberStatus, NodeJobOverview, status_of
from ..snapshot import read_snapshot


def masked_value(name: str, value: Any, _: Masker) -> Any:
    """A value of a node job. Of the payload of a job, the prepared options of its units are left out: each unit has
    them as its own."""
    if name != "payload" or not isinstance(value, dict) or "plan" not in value:
        return value
    return {key: part for key, part in value.items() if key not in ("plan", "schema")}


async def shown_node_job(store: JobStore, job: Job, masker: Masker) -> NodeJobOverview:
    """The status of a node job with masked values and texts; raises `InvalidInput` for another job."""
    snapshot = await read_snapshot(store, job)
    view, rows = status_of(snapshot), snapshot.rows
    leader = [] if rows.leader is None else [rows.leader]
    units = list(rows.units.values())
    masked = {row.id: row for row in await shown_jobs(store, [job, *units, *leader], masker)}
    stored = {unit.id: unit for unit in units}
    return msgspec.structs.replace(
        view,
        reason=masked[job.id].reason,
        error=masked[job.id].error,
        members=tuple(_member(member, stored[member.id], masked[member.id], masker) for member in view.members),
        leader=_leader(view.leader, masked),
        value=None if view.value is None else _value_of(job, masker),
    )


def _member(member: MemberStatus, unit: Job, masked: Job, masker: Masker) -> MemberStatus:
    result = None if member.result is None or not masker.shows else value_view(unit, "result", masker)
    error = _error(member.error, masked)
    return msgspec.structs.replace(member, result=result, error=error, reason=masked.reason)


def _leader(leader: LeaderPhaseStatus, masked: dict[str, Job]) -> LeaderPhaseStatus:
    unit = masked.get(leader.id or "")
    return leader if unit is None else msgspec.structs.replace(leader, error=_error(leader.error, unit))


def _error(error: ErrorInfo | None, masked: Job) -> ErrorInfo | None:
    return None if error is None else masked.error


def _value_of(job: Job, masker: Masker) -> Any:
    result = value_view(job, "result", masker) if masker.shows else None
    return result.get("value") if isinstance(result, dict) else None


__all__ = ["masked_value", "shown_node_job"]

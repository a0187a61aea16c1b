"""Batches as JSON: what the command line and the HTTP API have in common."""

from __future__ import annotations

from typing import Any

import msgspec

from ..lifecycle import table_of
from .service import BatchStatus
from .spec import UnitCounts


def status_data(status: BatchStatus, *, now_ms: int) -> dict[str, Any]:
    """The status of a batch."""
    job, spec = status.job, status.spec
    state = table_of(None).get(job.status)
    return {
        "id": job.id,
        "name": job.name,
        "status": job.status,
        "settled": state is not None and state.settled,
        "reason": job.reason,
        "version": job.version,
        "at_ms": now_ms,
        "group": status.group,
        "planned": status.planned,
        "units": {"total": spec.units, **_counts_data(status.units)},
        "aggregations": {name: _counts_data(one) for name, one in status.aggregations.items()},
        "outputs": {"expected": spec.expected, "there": status.outputs_there},
        "waits": status.waits,
        "validation": msgspec.to_builtins(status.validation),
    }


def _counts_data(counts: UnitCounts) -> dict[str, Any]:
    return {**msgspec.structs.asdict(counts), "done": counts.done}

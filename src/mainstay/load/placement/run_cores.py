"""The cores that runs on nodes hold and wait for, for those who show a cluster."""

from __future__ import annotations

from ...control import CoreHolding, CoreUse, CoreWaiter
from ...stores import JobStore
from .decisions import PlacedRun
from .obstacles import slice_obstacles
from .placed_rows import PlacedRows
from .snapshot import PlacementSnapshot, read_snapshot
from .words import long_wait


class RunCores:
    """Reads the runs of a store. A `control.CoreReader`."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._rows = PlacedRows(store)

    async def read(self) -> CoreUse:
        return core_use(await read_snapshot(self._store, self._rows))


def core_use(snapshot: PlacementSnapshot) -> CoreUse:
    """What the unsettled runs hold and wait for."""
    runs = sorted(snapshot.runs.values(), key=lambda run: (run.job.rank, run.job.id))
    parts = [each for run in runs for each in _waiting_slices(snapshot, run)]
    jobs = [_waiting_run(snapshot, run) for run in runs if run.is_waiting]
    jobs.sort(key=lambda waiter: waiter.place)
    return CoreUse(tuple(each for run in runs for each in _holdings(run)), (*parts, *jobs))


def _holdings(run: PlacedRun) -> list[CoreHolding]:
    return [
        CoreHolding(
            job=run.job.id,
            name=run.job.name,
            part=f"slice {each.call.number}",
            session=each.row.session,
            cores=each.call.cores,
            status=each.row.status,
            since_ms=each.row.claimed_ms or each.row.changed_ms,
        )
        for each in run.open
        if each.row.session is not None
    ]


def _waiting_slices(snapshot: PlacementSnapshot, run: PlacedRun) -> list[CoreWaiter]:
    """Slices without a node: in a new round all of them, otherwise those that a node lost or gave back."""
    return [
        CoreWaiter(
            job=run.job.id,
            name=run.job.name,
            part=f"slice {each.call.number}",
            cores=each.call.cores,
            since_ms=each.row.changed_ms,
            reason=" ".join(obstacle.text for obstacle in slice_obstacles(snapshot, run, each)),
        )
        for each in run.open
        if each.row.session is None
    ]


def _waiting_run(snapshot: PlacementSnapshot, run: PlacedRun) -> CoreWaiter:
    wait = snapshot.wait_of(run.job.id)
    if run.wants is None:
        reason = "Its payload cannot be read here."
    elif wait is None:
        reason = "It gets its cores now."
    else:
        reason = long_wait(wait)
    return CoreWaiter(
        job=run.job.id,
        name=run.job.name,
        place=0 if wait is None else wait.place,
        of=0 if wait is None else wait.of,
        cores=0 if wait is None else wait.cores,
        since_ms=run.job.created_ms,
        reason=reason,
    )


__all__ = ["RunCores", "core_use"]

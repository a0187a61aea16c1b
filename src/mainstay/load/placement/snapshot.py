"""The runs on nodes and the nodes at one time, for those who only show them."""

from __future__ import annotations

import contextlib

import msgspec

from ...control import PLACEMENT, UNSETTLED_JOBS
from ...model import LEAD_QUEUE, Session
from ...stores import JobStore, Query, all_rows
from ..kind import KIND
from .allocation import CoreWait
from .decisions import NodePool, PlacedRun, decide, node_pool
from .placed_rows import VALUE_BYTES, PlacedRows


class PlacementSnapshot:
    """All unsettled runs of a cluster, decided on as its placement leader does."""

    def __init__(
        self,
        runs: dict[str, PlacedRun],
        pool: NodePool,
        sessions: list[Session],
        *,
        is_led: bool,
        now_ms: int,
        lease_ms: int,
    ) -> None:
        self.runs = runs
        self.pool = pool
        self.sessions = sessions
        self.is_led = is_led
        """whether a session holds the lead `placement`"""
        self.now_ms = now_ms
        self.lease_ms = lease_ms
        self._waits = {wait.request.job: wait for wait in decide(list(runs.values()), pool, now_ms).waiting}

    def wait_of(self, job_id: str) -> CoreWait | None:
        """What a run without cores waits for; None: it gets them now, or has them."""
        return self._waits.get(job_id)

    def free_cores(self) -> dict[str, int]:
        """The free cores of each node, by name."""
        free = {node.name: node.cores for node in self.pool.core_nodes}
        for run in self.runs.values():
            for each in run.open:
                node = self.pool.names.get(each.row.session or "", "")
                if node in free:
                    free[node] -= each.call.cores
        return free


async def read_snapshot(store: JobStore, rows: PlacedRows | None = None) -> PlacementSnapshot:
    """The cost grows with the number of runs that are unsettled. Who reads often keeps `rows`, which remember what does
    not change."""
    rows = rows or PlacedRows(store)
    runs: dict[str, PlacedRun] = {}
    query = Query(kind=KIND.name, queue=LEAD_QUEUE, status=UNSETTLED_JOBS, oldest_first=True, value_bytes=VALUE_BYTES)
    async for job in all_rows(store, query):
        # the placement leader logs a run that cannot be read; the others are shown
        with contextlib.suppress(msgspec.DecodeError):
            run = await rows.run(job)
            if run is not None:
                runs[job.id] = run
    rows.keep(runs)
    sessions, stats = await store.sessions(), await store.stats()
    return PlacementSnapshot(
        runs,
        node_pool(sessions, lease_ms=store.clock.lease_ms()),
        sessions,
        is_led=PLACEMENT in stats.leads,
        now_ms=store.clock.now_ms(),
        lease_ms=store.clock.lease_ms(),
    )


__all__ = ["PlacementSnapshot", "read_snapshot"]

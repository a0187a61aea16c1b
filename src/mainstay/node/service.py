"""The operations on submitted node jobs: their nodes, and a retry. They need a store, not the program of the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..control import Control, retry_unit
from ..errors import Conflict, InvalidInput, InvalidTransition
from ..lifecycle import Move, table_of
from ..model import Job
from ..stores import Change, Query, all_rows
from ..task import Returns, Sealer
from .decisions import NodeJobView, is_settled
from .results import NodeJobResult, NodeResult
from .spec import NodeSpec, spec_of

#: events of a unit that are read to find its last start
_RECENT = 20
_RETRYABLE = ("failed", "timed_out")


class NodeJobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A node job with its units."""

    job: Job
    spec: NodeSpec
    members: tuple[str, ...]
    """the frozen members; empty: it has not begun, or has no `local`"""
    late: tuple[str, ...]
    units: dict[str, Job]
    """the current unit of each node"""
    leader: Job | None
    """the unit of the leader phase; None: it has not begun"""
    needed: int
    reached: int

    @property
    def phase(self) -> str:
        """waiting, local, leader or ended."""
        if is_settled(self.job):
            return "ended"
        return {"running": "local", "finalizing": "leader", "cancelling": "cancelling"}.get(self.job.status, "waiting")

    @property
    def result(self) -> NodeJobResult | None:
        """The stored result, with its value as it is stored."""
        return None if self.job.result is None else msgspec.msgpack.decode(self.job.result, type=NodeJobResult)


class NodeJobService:
    """The operations on the node jobs of one store."""

    def __init__(self, control: Control, sealer: Sealer | None = None) -> None:
        self.control = control
        self._store = control.store
        self._sealer = sealer or Sealer(None)

    async def status(self, job_id: str) -> NodeJobStatus:
        """A job with its units; raises `InvalidInput` for a job of another kind."""
        job = await self.control.jobs.get(job_id)
        spec = spec_of(job, self._sealer)
        view = await self._view(job, spec)
        return NodeJobStatus(
            job=job,
            spec=spec,
            members=view.members,
            late=view.late,
            units=view.units,
            leader=view.leader,
            needed=view.needed,
            reached=view.reached,
        )

    async def nodes(self, job_id: str, returns: Returns[Any] | None = None) -> list[NodeResult]:
        """The state of a job on each node, by name. Results are in the type of `returns`; without it they are left
        out."""
        status = await self.status(job_id)
        return [await node_result(self.control, node, unit, returns) for node, unit in status.units.items()]

    async def retry(
        self, job_id: str, nodes: Sequence[str] = (), *, actor: str, reason: str = "retried on request"
    ) -> list[str]:
        """Run a job again on nodes where it did not succeed: the named ones, or all. A settled job runs on under the
        same token, and its leader phase follows again. All in one write; raises `InvalidInput` or `Conflict`."""
        job = await self.control.jobs.get(job_id)
        view = await self._view(job, spec_of(job, self._sealer))
        again = self._retried(job, view, nodes)
        now_ms, names = self._store.clock.now_ms(), ", ".join(_names(view, again))
        rows: list[tuple[Job, tuple[Move, ...]]] = [(unit, retry_unit(unit, reason, now_ms=now_ms)) for unit in again]
        if is_settled(job):
            fields = {"started_ms": now_ms, "session": None, "claimed_ms": None, "extra_ms": 0, "error": None}
            runs = Move(to="running", reason=f"runs again on {names}", fields=fields)
            rows.append((job, (Move(to="pending", reason=reason), runs)))
        else:
            # written with the job, so that it is refused if the job ends at the same time
            rows.append((job, (Move(to=job.status, reason=f"runs again on {names}", flag="note"),)))
        changes = [Change(before=row, moves=moves, actor=actor, at_ms=now_ms) for row, moves in rows]
        results = await self._store.apply(changes, together=True)
        for result in results:
            if result.error is not None:
                raise result.error
        if any(result.outcome != "applied" for result in results):
            raise Conflict(f"job {job.id}: it moved at the same time; nothing was written, try again")
        return _names(view, again)

    def _retried(self, job: Job, view: NodeJobView, nodes: Sequence[str]) -> list[Job]:
        state = table_of(None).get(job.status)
        if job.status == "finalizing":
            raise InvalidInput("job", f"{job.id} is in its leader phase; retry its nodes when it has ended")
        if job.status not in ("running", *_RETRYABLE):
            why = "its end is final; submit it again" if state is not None and state.final else "it has no failed node"
            raise InvalidTransition(job.id, job.status, "running", allowed=state.next if state else (), why=why)
        for name in nodes:
            if name not in view.units:
                known = ", ".join(view.units) or "none"
                raise InvalidInput("nodes", f"{name!r} is not a node of job {job.id} (its nodes: {known})")
            if view.units[name].status not in _RETRYABLE:
                raise InvalidInput(
                    "nodes", f"node {name} is {view.units[name].status}; only failed ones can be retried"
                )
        again = [
            unit for node, unit in view.units.items() if unit.status in _RETRYABLE and (not nodes or node in nodes)
        ]
        if not again:
            raise InvalidInput("nodes", f"job {job.id} has no failed node; retry the job itself to run it on all nodes")
        best = view.reached + sum(1 for node in _names(view, again) if node in view.members)
        if is_settled(job) and best < view.needed:
            # it would fail again at once, and cancel the units that were just opened
            rule = f"with these nodes at most {best} of {view.needed} that the quorum needs could succeed"
            raise InvalidInput("nodes", f"{rule}; retry the job itself to run it on all nodes")
        return again

    async def _view(self, job: Job, spec: NodeSpec) -> NodeJobView:
        return NodeJobView(job, spec.policy, [unit async for unit in all_rows(self._store, Query(parent=job.id))])


def _names(view: NodeJobView, units: Sequence[Job]) -> list[str]:
    return [node for node, unit in view.units.items() if unit in units]


async def node_result(control: Control, node: str, unit: Job, returns: Returns[Any] | None) -> NodeResult:
    """The result of a unit, with the time of its last start from its audit trail."""
    events = await control.store.events(unit.id, after=max(0, unit.version - _RECENT))
    starts = [event.at_ms for event in events if event.to == "running" and event.flag != "note"]
    return NodeResult(
        node=node,
        state=unit.status,
        result=None if returns is None or unit.status != "succeeded" else returns.unpack(unit.result, job_id=unit.id),
        error=unit.error if unit.status in _RETRYABLE else None,
        started_ms=starts[-1] if starts else None,
        ended_ms=unit.settled_ms,
    )

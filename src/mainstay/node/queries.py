"""Node jobs and nodes as operators see them: one model, which the command line, the API and the dashboard show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from ..control import RETRIED, Control, is_present, readable_value
from ..errors import InvalidInput
from ..model import PLACE_QUEUE, ErrorInfo, Job, Progress, Session, route_of
from ..stores import JobStore, Query, size_left_out
from .decisions import NodeJobView, is_settled, quorum_limit_ms
from .obstacles import job_obstacles, unit_obstacles
from .results import NodeJobResult, StoredResult
from .snapshot import PLACEMENT, NodeJobSnapshot, PlacementLeader, newest_sessions, placement_leader, read_snapshot
from .spec import KIND, NodePolicy

#: jobs that are read per node
_WORK = 100

Phase = Literal["waiting", "assigned", "running", "succeeded", "failed", "cancelled", "lost"]
#: in the order in which they need attention
PHASES: tuple[Phase, ...] = ("lost", "failed", "running", "assigned", "waiting", "cancelled", "succeeded")
NodeState = Literal["live", "draining", "silent"]

_PHASE_OF: Mapping[str, Phase] = {
    "pending": "waiting",
    "dispatched": "assigned",
    "running": "running",
    "succeeded": "succeeded",
    "skipped": "succeeded",
    "failed": "failed",
    "timed_out": "failed",
    "cancelled": "cancelled",
}


class MemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The part of one node in a node job."""

    node: str
    id: str
    """the id of its unit"""
    phase: Phase
    """`assigned`: its node has not confirmed it yet; `lost`: the session that held it is gone, and its node is away"""
    status: str
    """the state of its unit; it tells a timeout from a failure"""
    late: bool = False
    """it joined after the start, and does not count for the quorum"""
    labels: Mapping[str, str] = {}
    attempts: int = 0
    """runs that began"""
    since_ms: int
    """when it came into its phase"""
    session: str | None = None
    """the session that holds it, or held it last before it settled"""
    progress: Progress | None = None
    result: Any = None
    """null for a large one, too: `result_bytes` tells"""
    result_bytes: int = 0
    error: ErrorInfo | None = None
    reason: str | None = None
    waits: str = ""
    """what it waits for, in a sentence"""


class LeaderPhaseStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The leader phase of a node job."""

    phase: Phase | Literal["none", "not begun"]
    """`none`: the job has no leader phase"""
    id: str | None = None
    """the id of its unit"""
    node: str = ""
    """the node that runs it"""
    attempts: int = 0
    since_ms: int | None = None
    session: str | None = None
    progress: Progress | None = None
    error: ErrorInfo | None = None


class QuorumStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The quorum of a node job."""

    policy: str
    """`majority`, `all` or a number"""
    members: int
    """nodes that were active when the job began"""
    needed: int
    reached: int
    """members that have succeeded"""
    is_reached: bool
    limit_ms: int | None = None
    """when the wait for it ends; null: that is not known yet, or it is reached"""
    then: str = ""
    """what happens at that time: `proceed`, `wait` or `fail`"""


class NodeJobOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A node job: its members, its leader phase and its quorum."""

    id: str
    name: str
    status: str
    settled: bool
    reason: str | None
    error: ErrorInfo | None = None
    version: int
    at_ms: int
    created_ms: int
    started_ms: int | None
    settled_ms: int | None
    members: tuple[MemberStatus, ...]
    """by name; without the members until they are frozen"""
    counts: dict[str, int]
    """members by phase"""
    leader: LeaderPhaseStatus
    quorum: QuorumStatus
    waits: tuple[str, ...] = ()
    """what it waits for, in sentences; each member has its own"""
    warnings: tuple[str, ...] = ()
    value: Any = None
    """what the leader phase returned"""
    policy: NodePolicy | None = None
    """null: the payload cannot be read here"""

    def member(self, node: str) -> MemberStatus:
        """The part of one node; raises `InvalidInput`."""
        for member in self.members:
            if member.node == node:
                return member
        names = ", ".join(member.node for member in self.members[:10]) or "none yet"
        more = f" and {len(self.members) - 10} more" if len(self.members) > 10 else ""
        raise InvalidInput("node", f"{node!r} is not a member of job {self.id}; its members: {names}{more}")


class NodeWork(msgspec.Struct, frozen=True, kw_only=True):
    """A unit that a node holds."""

    id: str
    job: str
    """the id of its job"""
    name: str
    unit: str
    status: str
    since_ms: int
    progress: Progress | None = None


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One node: its newest session."""

    name: str
    labels: Mapping[str, str] = {}
    state: NodeState
    """`draining`: it gets no more work; `silent`: its session is dead, or was not heard within its lease"""
    session: str
    worker: str
    host: str
    pid: int
    started_ms: int
    silent_ms: int
    """since its last heartbeat"""
    draining_by: str = ""
    leads: bool = False
    """it leads the placement of work"""
    epoch: int | None = None
    """of its leadership"""
    jobs: tuple[str, ...] | None = None
    """the node jobs that its program has; null: unknown"""
    work: tuple[NodeWork, ...] = ()


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a store."""

    at_ms: int
    nodes: tuple[NodeStatus, ...]
    """by name"""
    leader: PlacementLeader | None = None


class NodeRetryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that run a job again."""

    id: str
    nodes: list[str]


# nodes ----------------------------------------------------------------------------------------------


async def read_nodes(store: JobStore) -> NodeList:
    """The nodes of a store, with the work that each holds."""
    stats, sessions = await store.stats(), await store.sessions()
    lease_ms, now_ms = store.clock.lease_ms(), store.clock.now_ms()
    nodes = []
    for session in newest_sessions(sessions, lease_ms):
        held = (await store.find(Query(session=session.id, value_bytes=0), limit=_WORK)).jobs
        lead = stats.leads.get(PLACEMENT)
        leads = lead is not None and lead.holder == session.id
        nodes.append(
            NodeStatus(
                name=session.node,
                labels=dict(session.labels),
                state=node_state(session, lease_ms),
                session=session.id,
                worker=session.worker,
                host=session.host,
                pid=session.pid,
                started_ms=session.started_ms,
                silent_ms=0 if session.standing else max(0, lease_ms - session.beat_ms),
                draining_by=session.draining_by,
                leads=leads,
                epoch=lead.epoch if lead is not None and leads else None,
                jobs=node_jobs_of(session),
                work=tuple(_work(job) for job in held if job.queue == PLACE_QUEUE),
            )
        )
    return NodeList(at_ms=now_ms, nodes=tuple(nodes), leader=placement_leader(stats, sessions))


def node_state(session: Session, lease_ms: int) -> NodeState:
    if not is_present(session, lease_ms):
        return "silent"
    return "draining" if session.is_draining else "live"


def node_jobs_of(session: Session) -> tuple[str, ...] | None:
    """The node jobs that the program of a session has."""
    if session.offer is None:
        return None
    routes = [route.removeprefix(route_of(KIND, "")) for route in session.offer.tasks if route.startswith(f"{KIND}:")]
    return tuple(sorted({route.rpartition(":")[0] or route for route in routes}))


def _work(job: Job) -> NodeWork:
    return NodeWork(
        id=job.id,
        job=job.parent or job.id,
        name=job.name.rpartition(":")[0] or job.name,
        unit=job.unit or "",
        status=job.status,
        since_ms=_since_ms(job),
        progress=job.progress,
    )


# jobs -----------------------------------------------------------------------------------------------


async def read_node_job(store: JobStore, job_id: str) -> NodeJobOverview:
    """The status of a node job; raises `JobNotFound`, and `InvalidInput` for another job."""
    job = await Control(store).jobs.get(job_id)
    return status_of(await read_snapshot(store, job))


def status_of(snapshot: NodeJobSnapshot) -> NodeJobOverview:
    """The status of a node job, from its rows."""
    rows, job = snapshot.rows, snapshot.job
    members = tuple(_member(snapshot, node, unit) for node, unit in sorted(rows.units.items()))
    counts = Counter(member.phase for member in members)
    result = _stored_result(job)
    return NodeJobOverview(
        id=job.id,
        name=job.name,
        status=job.status,
        settled=is_settled(job),
        reason=job.reason,
        error=job.error,
        version=job.version,
        at_ms=snapshot.now_ms,
        created_ms=job.created_ms,
        started_ms=job.started_ms,
        settled_ms=job.settled_ms,
        members=members,
        counts={phase: counts[phase] for phase in PHASES if counts[phase]},
        leader=_leader_phase(snapshot),
        quorum=_quorum(snapshot, result),
        waits=tuple(obstacle.text for obstacle in job_obstacles(snapshot)),
        warnings=_warnings(rows, result),
        value=None if result is None else result.value,
        policy=snapshot.policy,
    )


def _member(snapshot: NodeJobSnapshot, node: str, unit: Job) -> MemberStatus:
    session = snapshot.session_of(node)
    waits = unit_obstacles(snapshot, unit)
    return MemberStatus(
        node=node,
        id=unit.id,
        phase=phase_of(unit, present=snapshot.present, is_active=node in snapshot.active),
        status=unit.status,
        late=node not in snapshot.rows.members,
        labels={} if session is None else dict(session.labels),
        attempts=unit.starts,
        since_ms=_since_ms(unit),
        session=unit.session,
        progress=unit.progress,
        result=_value(unit.result),
        result_bytes=size_left_out(unit.result) or len(unit.result or b""),
        error=_error_of(unit),
        reason=unit.reason,
        waits=waits[0].text if waits else "",
    )


def _error_of(unit: Job) -> ErrorInfo | None:
    """The last error of a unit. One that an operator opened again has a mark in its place."""
    return None if unit.error is not None and unit.error.code == RETRIED.code else unit.error


def phase_of(unit: Job, *, present: Collection[str], is_active: bool) -> Phase:
    """The phase of a unit. `present` are the sessions that are alive; `is_active` is whether its node has one."""
    if unit.session is not None and not is_settled(unit) and unit.session not in present:
        return "lost"
    if unit.status == "pending" and unit.losses and not is_active:
        return "lost"
    # a state of a newer version
    return _PHASE_OF.get(unit.status, "waiting")


def _since_ms(unit: Job) -> int:
    if unit.settled_ms is not None:
        return unit.settled_ms
    if unit.status == "running" and unit.started_ms is not None:
        return unit.started_ms
    if unit.session is not None and unit.claimed_ms is not None:
        return unit.claimed_ms
    return unit.changed_ms


def _leader_phase(snapshot: NodeJobSnapshot) -> LeaderPhaseStatus:
    unit = snapshot.rows.leader
    if unit is None:
        has_one = snapshot.policy is None or snapshot.policy.has_leader
        return LeaderPhaseStatus(phase="not begun" if has_one else "none")
    node = next((session.node for session in snapshot.sessions if session.id == unit.session), "")
    return LeaderPhaseStatus(
        phase=phase_of(unit, present=snapshot.present, is_active=True),
        id=unit.id,
        node=node,
        attempts=unit.starts,
        since_ms=_since_ms(unit),
        session=unit.session,
        progress=unit.progress,
        error=unit.error,
    )


def _quorum(snapshot: NodeJobSnapshot, result: NodeJobResult | None) -> QuorumStatus:
    rows, policy = snapshot.rows, snapshot.rows.policy
    members, reached = len(rows.members), rows.reached
    waits = not rows.has_quorum and rows.job.status == "running" and bool(members)
    return QuorumStatus(
        policy=str(policy.quorum),
        members=members,
        needed=rows.needed,
        reached=reached,
        is_reached=bool(members) and rows.has_quorum if result is None else result.quorum_reached,
        limit_ms=quorum_limit_ms(rows, snapshot.cluster) if waits else None,
        then=policy.on_no_quorum if waits else "",
    )


def _warnings(rows: NodeJobView, result: NodeJobResult | None) -> tuple[str, ...]:
    if result is not None:
        return result.warnings
    if rows.job.status == "finalizing" and not rows.has_quorum:
        return (f"the leader phase began without a quorum: {rows.reached} of {rows.needed} needed members succeeded",)
    return ()


def _stored_result(job: Job) -> NodeJobResult | None:
    try:
        stored = None if job.result is None else msgspec.msgpack.decode(job.result, type=StoredResult)
    except msgspec.DecodeError:
        return None
    return None if stored is None else stored.opened(_value)


def _value(stored: bytes | None) -> Any:
    if stored is None or size_left_out(stored) is not None:
        return None
    try:
        return readable_value(stored)
    except ValueError as error:
        return {"undecodable": str(error)}


__all__ = [
    "PHASES",
    "LeaderPhaseStatus",
    "MemberStatus",
    "NodeJobOverview",
    "NodeList",
    "NodeRetryResult",
    "NodeState",
    "NodeStatus",
    "NodeWork",
    "Phase",
    "QuorumStatus",
    "node_jobs_of",
    "node_state",
    "phase_of",
    "read_node_job",
    "read_nodes",
    "status_of",
]

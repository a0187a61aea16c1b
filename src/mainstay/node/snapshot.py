"""The rows and sessions around a node job, read at one time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import msgspec

from ..control import is_present, open_nodes, read_given_back
from ..errors import InvalidInput, SchemaTooNew
from ..model import Job, Session
from ..stores import JobStore, Query, Stats, all_rows, size_left_out
from ..task import Sealer
from .decisions import Cluster, NodeJobView
from .spec import KIND, NodePolicy, is_leader_unit, spec_of, unit_id

#: the name of the leadership over placed work
PLACEMENT = "placement"
#: a longer payload or result is left out of the rows of units
VALUE_BYTES = 32 * 1024


class PlacementLeader(msgspec.Struct, frozen=True, kw_only=True):
    """The session that places work on nodes."""

    session: str
    epoch: int
    node: str = ""
    """empty: its session is not known"""


class NodeJobSnapshot:
    """A node job, its units and the nodes, at one time."""

    def __init__(
        self,
        rows: NodeJobView,
        policy: NodePolicy | None,
        sessions: Sequence[Session],
        leader: PlacementLeader | None,
        *,
        now_ms: int,
        lease_ms: int,
    ) -> None:
        self.rows = rows
        self.job = rows.job
        self.policy = policy
        """None: the payload of the job cannot be read here"""
        self.sessions = sessions
        self.leader = leader
        self.now_ms = now_ms
        self.lease_ms = lease_ms

    @cached_property
    def cluster(self) -> Cluster:
        """The nodes as the leader sees them."""
        nodes = open_nodes(self.sessions, lease_ms=self.lease_ms)
        own = None if self.leader is None else nodes.get(self.leader.node)
        return Cluster(nodes=nodes, own=own)

    @cached_property
    def present(self) -> dict[str, Session]:
        """The sessions of nodes that are alive, by id."""
        return {each.id: each for each in self.sessions if each.node and is_present(each, self.lease_ms)}

    @cached_property
    def active(self) -> set[str]:
        """The nodes that have a live session."""
        return {session.node for session in self.present.values()}

    @cached_property
    def _newest(self) -> dict[str, Session]:
        return {session.node: session for session in newest_sessions(self.sessions, self.lease_ms)}

    def session_of(self, node: str) -> Session | None:
        """The newest session of a node, alive or not."""
        return self._newest.get(node)


async def read_snapshot(store: JobStore, job: Job) -> NodeJobSnapshot:
    """The rows around a node job; raises `InvalidInput` for another job."""
    policy = policy_of(job)
    units = await _units(store, job)
    sessions, stats = await store.sessions(), await store.stats()
    return NodeJobSnapshot(
        NodeJobView(job, policy or NodePolicy(), units, given_back=await read_given_back(store, units)),
        policy,
        sessions,
        placement_leader(stats, sessions),
        now_ms=store.clock.now_ms(),
        lease_ms=store.clock.lease_ms(),
    )


def placement_leader(stats: Stats, sessions: Iterable[Session]) -> PlacementLeader | None:
    lead = stats.leads.get(PLACEMENT)
    if lead is None:
        return None
    node = next((each.node for each in sessions if each.id == lead.holder), "")
    return PlacementLeader(session=lead.holder, epoch=lead.epoch, node=node)


def newest_sessions(sessions: Iterable[Session], lease_ms: int) -> list[Session]:
    """One session for each node, by name: the newest one that is present; if none is, the newest one."""
    newest: dict[str, Session] = {}
    for session in sorted(sessions, key=lambda each: (is_present(each, lease_ms), each.started_ms, each.id)):
        if session.node:
            newest[session.node] = session
    return [newest[name] for name in sorted(newest)]


def policy_of(job: Job) -> NodePolicy | None:
    """How a node job runs; None: its payload cannot be read here. Raises `InvalidInput` for another job."""
    if job.kind != KIND or job.parent is not None:
        raise InvalidInput("job", f"{job.id} ({job.name}) is not a node job; this works for node jobs only")
    try:
        return spec_of(job, Sealer(None)).policy
    except (InvalidInput, SchemaTooNew):
        return None


async def _units(store: JobStore, job: Job) -> list[Job]:
    """The units of a job. Large values are left out, except in the unit whose payload names the members."""
    units = [unit async for unit in all_rows(store, Query(parent=job.id, value_bytes=VALUE_BYTES))]
    current = [unit for unit in units if unit.id == unit_id(job.id, job.token, unit.unit or "")]
    first = min(current, key=lambda unit: (is_leader_unit(unit.unit), unit.unit or ""), default=None)
    if first is None or size_left_out(first.payload) is None:
        return units
    [whole] = await store.get([first.id])
    return [unit for unit in units if unit.id != first.id] + ([] if whole is None else [whole])


__all__ = [
    "PLACEMENT",
    "NodeJobSnapshot",
    "PlacementLeader",
    "newest_sessions",
    "placement_leader",
    "policy_of",
    "read_snapshot",
]

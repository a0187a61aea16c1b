"""What the placement leader does next about a node job. Pure: rows, sessions and the time in, actions out.

A job goes through these steps. Each is one write, which carries the epoch of the leader:

    pending      `Freeze`: the active nodes become the members, each gets a unit           -> running
    running      `AddLate`: nodes that joined since get a unit, if the job asks for it
                 `BeginLeaderPhase`: the quorum is reached, or is not waited for           -> finalizing
    finalizing   the leader phase is a unit, too
    (any)        `End`: cancels all open units and settles the job

Besides, units are placed: `Assign`, `Ask`, `TakeBack`, `FailUnit`. All that a decision needs is stored: the members are
in the payload of every unit, times are those of the rows. So the next leader continues where the last one stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ..control import (
    Ask,
    Assign,
    Assignment,
    CancelUnits,
    FailUnit,
    TakeBack,
    UnitAction,
    budget_spent,
    is_due_to_ask,
    may_assign,
    window_is_over,
)
from ..model import ErrorInfo, Job, Session
from ..words import counted
from .results import NodeJobResult
from .spec import LEADER, LOCAL, NodePolicy, Quorum, members_of, node_of, round_of, row_name, unit_id


class Freeze(msgspec.Struct, frozen=True):
    """Freeze the members of a job and create their units; a job without `local` has none."""

    members: tuple[Session, ...] = ()


class AddLate(msgspec.Struct, frozen=True):
    """Create units for nodes that joined after the start."""

    nodes: tuple[Session, ...]


class BeginLeaderPhase(msgspec.Struct, frozen=True):
    """Create the unit of the leader phase."""

    round: int
    """which leader phase of this start it is"""
    ended: tuple[str, ...]
    """the nodes whose results it gets"""
    reason: str


class End(msgspec.Struct, frozen=True):
    """Cancel the open units and settle the job."""

    to: str
    reason: str
    result: NodeJobResult | None = None
    """with the bytes of the leader's result as its value"""
    error: ErrorInfo | None = None
    cancels: tuple[Job, ...] = ()


JobAction = Freeze | AddLate | BeginLeaderPhase | End
Action = JobAction | UnitAction


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes as the leader sees them."""

    nodes: Mapping[str, Session]
    """the session of each node that can get work, by the name of the node"""
    own: Session | None = None
    """the leader's own session; None: it cannot get work"""
    since_ms: int | None = None
    """when the session of a leader began that is not a node; None: `own` leads, or no session does"""

    @property
    def own_node(self) -> str:
        return "" if self.own is None else self.own.node

    @property
    def led_since_ms(self) -> int | None:
        """When the session of the leader began; None: no session leads."""
        return self.since_ms if self.own is None else self.own.started_ms


class NodeJobView:
    """A job and its current units, with what follows from them."""

    def __init__(
        self, job: Job, policy: NodePolicy, units: Iterable[Job], *, given_back: Mapping[str, str] | None = None
    ) -> None:
        self.job = job
        self.policy = policy
        self.given_back = given_back or {}
        """by the id of a pending unit that was given back: the session that had it"""
        self.units: dict[str, Job] = {}
        """by node"""
        self.earlier: list[Job] = []
        """units from before the job was started again"""
        self.leaders: list[Job] = []
        """the units of its leader phases, in order: several, if nodes were retried after the first"""
        for unit in sorted(units, key=lambda each: each.unit or ""):
            name = unit.unit or ""
            if unit.id != unit_id(job.id, job.token, name):
                self.earlier.append(unit)
            elif node := node_of(name):
                self.units[node] = unit
            else:
                self.leaders.append(unit)
        self.leaders.sort(key=lambda each: round_of(each.unit or ""))
        known = next(iter([*self.units.values(), *self.leaders]), None)
        self.members = () if known is None else members_of(known)

    @property
    def leader(self) -> Job | None:
        """The unit of the current leader phase; None: it has not begun."""
        return self.leaders[-1] if self.leaders and self.job.status != "running" else None

    @property
    def began_ms(self) -> int:
        """When the job began, or when nodes of it were last retried."""
        return self.job.started_ms or 0

    @property
    def late(self) -> tuple[str, ...]:
        return tuple(node for node in self.units if node not in self.members)

    @property
    def open(self) -> tuple[Job, ...]:
        """All units that have not ended."""
        return tuple(unit for unit in (*self.units.values(), *self.leaders) if not is_settled(unit))

    @property
    def open_nodes(self) -> tuple[str, ...]:
        return tuple(node for node, unit in self.units.items() if not is_settled(unit))

    def nodes_in(self, *states: str) -> tuple[str, ...]:
        return tuple(node for node, unit in self.units.items() if unit.status in states)

    @property
    def succeeded(self) -> tuple[str, ...]:
        """The nodes that have done their part. A node that skipped it had nothing to do, which is a success."""
        return self.nodes_in("succeeded", "skipped")

    @property
    def needed(self) -> int:
        return quorum_size(self.policy.quorum, len(self.members))

    @property
    def reached(self) -> int:
        """How many members have succeeded."""
        return sum(1 for node in self.succeeded if node in self.members)

    @property
    def has_quorum(self) -> bool:
        return self.reached >= self.needed

    @property
    def quorum_ms(self) -> int | None:
        """When the quorum was reached; None: it was not."""
        times = sorted(self.units[node].settled_ms or 0 for node in self.succeeded if node in self.members)
        if len(times) < self.needed:
            return None
        return times[self.needed - 1] if self.needed else (self.job.started_ms or 0)


def is_settled(row: Job) -> bool:
    return row.settled_ms is not None


def is_due(job: Job, now_ms: int) -> bool:
    """Whether a waiting job may begin: not before its time, and not after its queue deadline; a sweep ends it then."""
    start_by_ms = job.options.start_by_ms
    too_late = start_by_ms is not None and start_by_ms <= now_ms and job.starts == 0
    return not job.awaits and job.due_ms <= now_ms and not too_late


def quorum_size(quorum: Quorum, members: int) -> int:
    """How many of the members must succeed.

    >>> [quorum_size("majority", n) for n in (0, 1, 2, 3, 4)], quorum_size("all", 4), quorum_size(2, 4)
    ([0, 1, 2, 2, 3], 4, 2)
    """
    if members == 0:
        return 0
    if quorum == "majority":
        return members // 2 + 1
    return members if quorum == "all" else quorum


def matching(nodes: Iterable[Session], labels: Mapping[str, str]) -> list[Session]:
    """The nodes that have all these labels."""
    return [node for node in nodes if all(node.labels.get(name) == value for name, value in labels.items())]


def decide(view: NodeJobView, cluster: Cluster, now_ms: int) -> list[Action]:
    """The next actions for a job: at most one of the job, or those of its units."""
    actions: list[Action] = []
    if stale := tuple(unit for unit in view.earlier if not is_settled(unit)):
        actions.append(CancelUnits(stale, "the job was started again since"))
    if is_settled(view.job):
        if view.open:
            actions.append(CancelUnits(view.open, f"the job is {view.job.status}"))
        return actions
    action = next_step(view, cluster, now_ms)
    if action is not None:
        # the job changes with it; what is left to do for its units is decided after that write
        return [*actions, action]
    return [*actions, *place_units(view, cluster, now_ms)]


def next_step(view: NodeJobView, cluster: Cluster, now_ms: int) -> JobAction | None:
    """The next step of an unsettled job; None: it waits."""
    status = view.job.status
    if status in ("pending", "scheduled"):
        return _freeze(view, cluster, now_ms)
    if status == "cancelling":
        return _end(view, "cancelled", view.job.reason or "cancelled on request")
    if status == "running":
        return _after_local(view, cluster, now_ms)
    if status == "finalizing":
        return _after_leader(view, now_ms)
    return None  # a state of a newer version


def _freeze(view: NodeJobView, cluster: Cluster, now_ms: int) -> Freeze | None:
    """Start a job when enough nodes are active. Without any node it waits; so does a job whose quorum is a number,
    while fewer nodes than that are active."""
    job, policy = view.job, view.policy
    if not is_due(job, now_ms):
        return None
    if not policy.has_local:
        return Freeze() if _leader_session(view, cluster) is not None else None
    members = _candidates(view, cluster)
    least = policy.quorum if isinstance(policy.quorum, int) else 1
    return Freeze(tuple(members)) if len(members) >= least else None


def _candidates(view: NodeJobView, cluster: Cluster) -> list[Session]:
    """The active nodes that can run `local`, by name."""
    name = row_name(view.job.name, LOCAL)
    fitting = matching(cluster.nodes.values(), view.policy.labels)
    return sorted((node for node in fitting if node.knows(view.job.kind, name) is not False), key=_by_name)


def _by_name(session: Session) -> str:
    return session.node


def _after_local(view: NodeJobView, cluster: Cluster, now_ms: int) -> JobAction | None:
    """A job whose members are at work: is the quorum reached, impossible, or overdue?"""
    policy = view.policy
    open_members = sum(1 for node in view.open_nodes if node in view.members)
    if not view.has_quorum and view.reached + open_members < view.needed:
        return _end(view, "failed", _shortfall(view, "can no longer be reached"), code="no_quorum")
    limit_ms = quorum_limit_ms(view, cluster)
    overdue = limit_ms is not None and now_ms >= limit_ms
    if not view.has_quorum:
        if not overdue or policy.on_no_quorum == "wait":
            return _add_late(view, cluster)
        if policy.on_no_quorum == "fail":
            return _end(view, "failed", _shortfall(view, "was not reached in time"), code="no_quorum")
    if policy.has_leader:
        if view.leaders and _waits_for_nodes(view, view.began_ms, now_ms):
            return None  # nodes were retried: the next leader phase is for their results
        ended = tuple(node for node, unit in view.units.items() if is_settled(unit))
        reached = f"{view.reached} of {counted(len(view.members), 'node')} succeeded"
        return BeginLeaderPhase(len(view.leaders) + 1, ended, f"{reached}; the leader phase begins")
    since_ms = view.quorum_ms if view.has_quorum else limit_ms
    since_ms = None if since_ms is None else max(since_ms, view.began_ms)
    return _end_in_time(view, since_ms, now_ms) or _add_late(view, cluster)


def _after_leader(view: NodeJobView, now_ms: int) -> End | None:
    """A job in its leader phase: it ends with that phase and its stragglers."""
    leader = view.leader
    if leader is None:
        return _end(view, "failed", "the unit of its leader phase is missing", code="unit_missing")
    return _end_in_time(view, leader.created_ms, now_ms) if is_settled(leader) else None


def quorum_limit_ms(view: NodeJobView, cluster: Cluster) -> int | None:
    """When the wait for the quorum is over: counted from the end of the leader's own part, or, if its node has none,
    from the first end. None: neither has ended. If no member is left that could end, the wait begins when the members
    have had the time of stragglers to come back."""
    own = view.units.get(cluster.own_node)
    if own is not None and (is_settled(own) or _may_end(own, cluster)):
        ended = [own.settled_ms]
    else:
        ended = [unit.settled_ms for unit in view.units.values()]
    times = [at_ms for at_ms in ended if at_ms is not None]
    if times:
        begins_ms: int | None = max(min(times), view.began_ms)
    else:
        begins_ms = _given_up_ms(view, cluster)
    return None if begins_ms is None else begins_ms + round(view.policy.quorum_wait_s * 1000)


def _may_end(unit: Job, cluster: Cluster) -> bool:
    """Whether the unit of a node is at work, or can be assigned."""
    session = cluster.nodes.get(node_of(unit.unit or ""))
    return unit.status != "pending" or (session is not None and session.knows(unit.kind, unit.name) is not False)


def _given_up_ms(view: NodeJobView, cluster: Cluster) -> int | None:
    """When the members are given up, if all of them are away. Counted from the start of the leader's session at the
    earliest: after an outage of all nodes, the first one that is back waits for the others."""
    since_ms = cluster.led_since_ms
    if since_ms is None or any(_may_end(unit, cluster) for unit in view.units.values()):
        return None
    away_ms = max((max(unit.changed_ms, unit.due_ms) for unit in view.units.values()), default=0)
    return max(away_ms, view.began_ms, since_ms) + round(view.policy.stragglers_s * 1000)


def _add_late(view: NodeJobView, cluster: Cluster) -> AddLate | None:
    if not view.policy.late_nodes:
        return None
    new = tuple(node for node in _candidates(view, cluster) if node.node not in view.units)
    return AddLate(new) if new else None


def _end_in_time(view: NodeJobView, since_ms: int | None, now_ms: int) -> End | None:
    """The end of a job by its outcome, when all its nodes have ended or the stragglers have had their time."""
    return None if _waits_for_nodes(view, since_ms, now_ms) else outcome(view)


def _waits_for_nodes(view: NodeJobView, since_ms: int | None, now_ms: int) -> bool:
    if not view.open_nodes:
        return False
    return since_ms is None or now_ms < since_ms + round(view.policy.stragglers_s * 1000)


def outcome(view: NodeJobView) -> End:
    """How a job ends that has done all its steps: what is still open is cancelled."""
    leader = view.leader
    if leader is not None and leader.status not in ("succeeded", "skipped"):
        why = leader.error.message if leader.error is not None else leader.reason or leader.status
        return _end(view, "failed", f"its leader phase {_ended_as(leader.status)}: {why}", code="leader_failed")
    if view.policy.require == "all" and view.reached < len(view.members):
        others = [node for node in view.members if node not in view.succeeded]
        return _end(view, "failed", f"not all nodes succeeded: {_listed(others)}", code="nodes_failed")
    return _end(view, "succeeded", "")


def _end(view: NodeJobView, to: str, reason: str, *, code: str = "") -> End:
    warnings = []
    if to == "succeeded" and not view.has_quorum:
        warnings.append(_shortfall(view, "was not reached"))
    unfinished = view.nodes_in("cancelled")
    result = NodeJobResult(
        value=view.leader.result if view.leader is not None and to == "succeeded" else None,
        members=view.members,
        late=view.late,
        succeeded=view.succeeded,
        failed=view.nodes_in("failed", "timed_out"),
        cancelled=tuple(node for node in view.units if node in (*unfinished, *view.open_nodes)),
        quorum_needed=view.needed,
        quorum_reached=view.has_quorum,
        warnings=tuple(warnings),
    )
    error = ErrorInfo(type="NodeJobFailed", code=code, message=reason, retryable=False) if code else None
    return End(to, reason or "; ".join(warnings), result, error, view.open)


def _shortfall(view: NodeJobView, what: str) -> str:
    members = counted(len(view.members), "node")
    return f"the quorum {what}: {view.reached} of {members} succeeded, {view.needed} are needed"


def _ended_as(status: str) -> str:
    return {"timed_out": "timed out", "cancelled": "was cancelled"}.get(status, status)


def _listed(nodes: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(nodes) - most} more" if len(nodes) > most else ""
    return ", ".join(nodes[:most]) + rest


# units ----------------------------------------------------------------------------------------------


def place_units(view: NodeJobView, cluster: Cluster, now_ms: int) -> list[UnitAction]:
    """What to do about the open units of a job that runs."""
    if view.job.status not in ("running", "finalizing"):
        return []
    placed = [_place(view, cluster, unit, now_ms) for unit in view.open]
    assignments = tuple(each for each in placed if isinstance(each, Assignment))
    actions: list[UnitAction] = [each for each in placed if each is not None and not isinstance(each, Assignment)]
    return [*actions, Assign(assignments)] if assignments else actions


def _place(view: NodeJobView, cluster: Cluster, unit: Job, now_ms: int) -> UnitAction | Assignment | None:
    if unit.status == "pending":
        error = budget_spent(unit)
        if error is not None:
            return FailUnit(unit, error)
        session = _session_for(view, cluster, unit)
        if session is not None and may_assign(
            unit,
            session,
            now_ms=now_ms,
            given_back_by=view.given_back.get(unit.id, ""),
            is_bound=bool(node_of(unit.unit or "")),
        ):
            return Assignment(unit, session)
        return None
    if window_is_over(unit, now_ms=now_ms):
        return TakeBack(unit)
    return Ask(unit) if is_due_to_ask(unit, now_ms=now_ms) else None


def _session_for(view: NodeJobView, cluster: Cluster, unit: Job) -> Session | None:
    """The session that a unit belongs to: the leader's own for the leader phase, otherwise that of its node."""
    node = node_of(unit.unit or "")
    return cluster.nodes.get(node) if node else _leader_session(view, cluster)


def _leader_session(view: NodeJobView, cluster: Cluster) -> Session | None:
    """The session that runs the leader phase: the leader's own; if its program does not have the job, the first node,
    by name, whose program has it."""
    name = row_name(view.job.name, LEADER)
    own = [] if cluster.own is None else [cluster.own]
    every = [*own, *sorted(cluster.nodes.values(), key=_by_name)]
    return next((node for node in every if node.knows(view.job.kind, name) is not False), None)


__all__ = [
    "Action",
    "AddLate",
    "Ask",
    "Assign",
    "Assignment",
    "BeginLeaderPhase",
    "CancelUnits",
    "Cluster",
    "End",
    "FailUnit",
    "Freeze",
    "NodeJobView",
    "TakeBack",
    "decide",
    "is_due",
    "is_settled",
    "matching",
    "quorum_limit_ms",
    "quorum_size",
]

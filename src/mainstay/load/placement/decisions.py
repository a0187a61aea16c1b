"""What the placement leader does next about the runs on nodes. Pure: rows, sessions and the time in, actions out.

    the job waits for cores    `Place`: it has cores; one write wakes it and creates its slices, pending
                               `NoteWait`: it has none; its row says what it waits for
    its slices are pending     `Assign`: those of a new round together, each to a node of its own; a lost or refused one
                               by itself, to another node
                               `PlaceAgain`: no nodes could hold a new round any more, so the job waits for cores again
    assigned, not confirmed    `Ask`, then `TakeBack`
    refused or lost too often  `FailUnit`
    the job has ended, or has started again    `CancelUnits`

A slice that waits goes before all runs that wait: nodes that could hold it get no other run. All that a decision needs
is stored, so the next leader continues where the last one stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from ...control import (
    AWAITS_CORES,
    OUT_MS,
    Ask,
    Assign,
    Assignment,
    CancelUnits,
    FailUnit,
    PastAssignment,
    TakeBack,
    UnitAction,
    budget_spent,
    is_due_to_ask,
    may_assign,
    open_nodes,
    window_is_over,
)
from ...lifecycle import is_stopping
from ...model import ErrorInfo, Job, Session
from ..kind import KIND, SLICE
from .allocation import Allocation, CoreWait, HeldCores, RunRequest, SliceCores, allocate
from .core_pools import CoreNode, fits, matching_nodes, nodes_for
from .spec import RunDemand, SliceCall
from .words import lost_fit, short_wait

#: how often the row of a job gets another reason for its wait, at most
NOTE_EVERY_MS = 10_000
#: the states of a job whose slices are placed; one that waits for its retry, or is being cancelled, gets nothing
_ACTIVE = ("pending", "running")


class Place(msgspec.Struct, frozen=True):
    """Wake a job that waits for cores, and create the slices of a new round."""

    round: int
    slices: tuple[SliceCores, ...]


class NoteWait(msgspec.Struct, frozen=True):
    """Have the row of a job say what it waits for."""

    reason: str


class PlaceAgain(msgspec.Struct, frozen=True):
    """Have a job wait for cores again: its nodes could not hold the slices of its new round any more. None of them was
    assigned; they are cancelled with the same write."""

    reason: str
    units: tuple[Job, ...]


class FailRun(msgspec.Struct, frozen=True):
    """Fail a job whose slices cannot be created."""

    error: ErrorInfo


RunAction = Place | NoteWait | PlaceAgain | FailRun | UnitAction


class PlacedSlice(msgspec.Struct, frozen=True):
    """The row of a slice, with its payload."""

    row: Job
    call: SliceCall
    past: tuple[PastAssignment, ...] = ()
    """the assignments that are over; read for pending slices only"""

    @property
    def is_open(self) -> bool:
        return self.row.settled_ms is None


class PlacedRun:
    """A job and its slices, with what follows from them."""

    def __init__(self, job: Job, wants: RunDemand | None, slices: Iterable[PlacedSlice]) -> None:
        self.job = job
        self.wants = wants
        """None: the payload of the job cannot be read"""
        every = sorted(slices, key=lambda each: (each.call.round, each.call.number))
        self.round = max((each.call.round for each in every), default=0)
        """the newest one; 0: it had none yet"""
        self.open = [each for each in every if each.is_open]
        self.current = [each for each in every if each.call.round == self.round]

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for cores."""
        return self.job.awaits_cores and self.job.session is None

    @property
    def is_active(self) -> bool:
        return self.job.status in _ACTIVE and not self.job.awaits_cores and not self.job.awaits

    @property
    def runs_alone(self) -> bool:
        """Whether it has cores, and its pool for itself."""
        return bool(self.open) and self.wants is not None and self.wants.demand.share == "exclusive"


class NodePool(msgspec.Struct, frozen=True):
    """The nodes as the leader sees them."""

    nodes: Mapping[str, Session]
    """the session of each node that can get a slice, by the name of the node"""
    names: Mapping[str, str]
    """the node of each session, also of those that are over"""
    lost: tuple[CoreNode, ...] = ()
    """nodes that were lost a moment ago: a run that needs them keeps its place"""
    leaving: tuple[HeldCores, ...] = ()
    """cores of slices that were cancelled a moment ago: their processes may still end"""

    def without(self, sessions: Collection[str]) -> NodePool:
        """The same without the nodes of these sessions."""
        names = {self.names.get(session) for session in sessions}
        return msgspec.structs.replace(
            self, nodes={name: node for name, node in self.nodes.items() if name not in names}
        )

    @property
    def core_nodes(self) -> list[CoreNode]:
        return [_core_node(self.nodes[name]) for name in sorted(self.nodes)]


class Decisions(msgspec.Struct, frozen=True):
    """What to do now, in order, and what the runs without cores wait for."""

    actions: tuple[tuple[PlacedRun, RunAction], ...]
    waiting: tuple[CoreWait, ...] = ()


def node_pool(sessions: Sequence[Session], *, lease_ms: int) -> NodePool:
    """The nodes that can get slices: heard, not draining, with cores and the handler of slices."""
    nodes = open_nodes(sessions, lease_ms=lease_ms)
    able = {name: session for name, session in nodes.items() if _cores(session) and session.knows(KIND.name, SLICE)}
    return NodePool(able, {session.id: session.node for session in sessions})


def core_nodes(sessions: Sequence[Session], *, lease_ms: int) -> list[CoreNode]:
    """The nodes that can get slices, with their cores."""
    return node_pool(sessions, lease_ms=lease_ms).core_nodes


def decide(runs: Sequence[PlacedRun], pool: NodePool, now_ms: int) -> Decisions:
    """The next actions for all runs of a cluster: they share its cores."""
    actions: list[tuple[PlacedRun, RunAction]] = []
    cores = _Account(runs, pool)
    for run in sorted(runs, key=lambda each: (each.job.rank, each.job.id)):
        kept = _upkeep(run, now_ms)
        actions += [(run, action) for action in kept]
        given_up = {action.unit.id for action in kept if isinstance(action, FailUnit)}
        if run.is_active and (found := cores.assign(run, given_up, now_ms)) is not None:
            actions.append((run, found))
    by_id = {run.job.id: run for run in runs if run.is_waiting}
    allocation = cores.allocate(list(by_id.values()))
    for job_id, slices in allocation.placed.items():
        actions.append((by_id[job_id], Place(by_id[job_id].round + 1, slices)))
    for wait in allocation.waiting:
        run = by_id[wait.request.job]
        if (note := _note(run, wait, now_ms)) is not None:
            actions.append((run, note))
    return Decisions(tuple(actions), allocation.waiting)


def _upkeep(run: PlacedRun, now_ms: int) -> list[UnitAction]:
    """What to do about the open slices of a run, besides assigning them."""
    job = run.job
    if job.settled_ms is not None:
        return _cancel(run.open, f"the job is {job.status}")
    if job.awaits_cores:
        return _cancel(run.open, "the run waits for other cores")
    if is_stopping(job.parent, job.status):
        # its leader stops those that run; no other one begins
        return _cancel([each for each in run.open if each.row.status != "running"], f"the job is {job.status}")
    actions = _cancel([each for each in run.open if each.call.round < run.round], "the run was started again since")
    for each in run.current:
        row = each.row
        if window_is_over(row, now_ms=now_ms):
            actions.append(TakeBack(row))
        elif run.is_active and is_due_to_ask(row, now_ms=now_ms):
            actions.append(Ask(row))
        elif run.is_active and row.status == "pending" and (error := _given_up(run, each)) is not None:
            actions.append(FailUnit(row, error))
    return actions


def _cancel(slices: Sequence[PlacedSlice], reason: str) -> list[UnitAction]:
    return [CancelUnits(tuple(each.row for each in slices), reason)] if slices else []


def _given_up(run: PlacedRun, each: PlacedSlice) -> ErrorInfo | None:
    """Why a pending slice is not assigned again; None: it is."""
    on_loss = "replace" if run.wants is None else run.wants.on_loss
    # its start is stored when its load begins: before that, a loss costs nothing, whatever the policy
    if each.past and each.past[-1].end == "lost" and each.row.starts and on_loss != "replace":
        message = f"lost under load with node {each.past[-1].node}; not placed again (on_loss={on_loss})"
        return ErrorInfo(type="SliceLost", code="slice_lost", message=message, retryable=False)
    return budget_spent(each.row)


def _note(run: PlacedRun, wait: CoreWait, now_ms: int) -> NoteWait | None:
    reason = short_wait(wait)
    is_first = run.job.reason in (None, AWAITS_CORES)
    if reason == run.job.reason or not (is_first or now_ms >= run.job.changed_ms + NOTE_EVERY_MS):
        return None
    return NoteWait(reason)


class _Account:
    """The cores of the nodes, while slices are assigned in one decision."""

    def __init__(self, runs: Sequence[PlacedRun], pool: NodePool) -> None:
        self._pool = pool
        self._nodes = pool.core_nodes
        self._degraded = {node.name for node in self._nodes if node.degraded}
        self._held: list[HeldCores] = list(pool.leaving)
        self._siblings: dict[str, set[str]] = {}
        """by job: the nodes that have a slice of it"""
        self._reserved: dict[str, str] = {}
        """nodes that a slice waits for, with its job"""
        self._alone = {run.job.id: run.wants.demand.labels for run in runs if run.runs_alone and run.wants is not None}
        for run in runs:
            for each in run.open:
                if each.row.session is not None:
                    self._hold(run.job.id, pool.names.get(each.row.session, ""), each.call.cores)

    def allocate(self, waiting: Sequence[PlacedRun]) -> Allocation:
        """Divide what is left among the runs that wait."""
        requests = [RunRequest(run.job.id, run.job.rank, run.wants.demand) for run in waiting if run.wants is not None]
        return allocate(
            self._nodes,
            requests,
            held=self._held,
            exclusive=self._alone,
            reserved=self._reserved,
            lost=self._pool.lost,
        )

    def assign(self, run: PlacedRun, given_up: set[str], now_ms: int) -> Assign | PlaceAgain | None:
        """Give nodes to the pending slices of a run: those of a new round together, or none of them."""
        pending = [each for each in run.current if each.row.status == "pending" and each.row.id not in given_up]
        fresh = [each for each in pending if each.row.token == 0]
        if fresh and len(fresh) == len(run.current) and not self._could_hold(fresh):
            return PlaceAgain(lost_fit([each.call.cores for each in fresh]), tuple(each.row for each in fresh))
        found = self._gang(run, fresh, now_ms) if fresh else []
        for each in pending:
            if each.row.token and (name := self._other_node(run, each, now_ms)) is not None:
                found.append(self._assigned(run, each, name))
        return Assign(tuple(found)) if found else None

    def _gang(self, run: PlacedRun, fresh: Sequence[PlacedSlice], now_ms: int) -> list[Assignment]:
        names = self._open_to(run, fresh[0].call)
        free = self._free()
        pairs = [(each, each.call.node) for each in fresh]
        if not all(name in names and each.call.cores <= free[name] for each, name in pairs):
            # not where they were placed any more
            by_size = sorted(fresh, key=lambda each: (-each.call.cores, each.call.number))
            names.sort(key=lambda name: (name in self._degraded, -free[name], name))
            chosen = nodes_for([each.call.cores for each in by_size], names, free)
            pairs = list(zip(by_size, chosen or [], strict=bool(chosen)))
        if not pairs or not all(may_assign(each.row, self._pool.nodes[name], now_ms=now_ms) for each, name in pairs):
            self._reserve(run, names)
            return []
        return [self._assigned(run, each, name) for each, name in pairs]

    def _could_hold(self, fresh: Sequence[PlacedSlice]) -> bool:
        """Whether the nodes could hold the slices of a new round if they were idle."""
        nodes = matching_nodes([*self._nodes, *self._pool.lost], fresh[0].call.labels)
        caps = sorted((node.cores for node in nodes), reverse=True)
        return fits(sorted((each.call.cores for each in fresh), reverse=True), caps)

    def _other_node(self, run: PlacedRun, each: PlacedSlice, now_ms: int) -> str | None:
        """A node for a slice that a node lost or gave back; None: it waits."""
        sizes = {node.name: node.cores for node in self._nodes}
        # beside another slice of the run rather than not at all: its part of the load is missing meanwhile
        names = [name for name in self._open_to(run, each.call, beside_own=True) if sizes[name] >= each.call.cores]
        free, sessions = self._free(), self._pool.nodes
        had = {past.node for past in each.past}
        own = self._siblings.get(run.job.id, set())
        allowed = [name for name in names if not is_out(each, sessions[name], names, now_ms)]
        able = [name for name in allowed if free[name] >= each.call.cores]

        def preference(name: str) -> tuple[bool, bool, bool, int, str]:
            return name in self._degraded, name in own, name in had, -free[name], name

        for name in sorted(able, key=preference):
            if may_assign(each.row, sessions[name], now_ms=now_ms):
                return name
        if each.row.due_ms <= now_ms:
            self._reserve(run, allowed or names)
        return None

    def _open_to(self, run: PlacedRun, call: SliceCall, *, beside_own: bool = False) -> list[str]:
        """The nodes that a slice of a run may use: with its labels, without another slice of it unless it may be
        `beside_own`, and not held by a run that runs alone."""
        alone = {
            node.name
            for job, labels in self._alone.items()
            if job != run.job.id
            for node in matching_nodes(self._nodes, labels)
        }
        taken = alone if beside_own else self._siblings.get(run.job.id, set()) | alone
        in_front = {name for name, job in self._reserved.items() if job != run.job.id}
        found = [node.name for node in matching_nodes(self._nodes, call.labels)]
        return [name for name in found if name not in taken and name not in in_front]

    def _assigned(self, run: PlacedRun, each: PlacedSlice, name: str) -> Assignment:
        self._hold(run.job.id, name, each.call.cores)
        return Assignment(each.row, self._pool.nodes[name])

    def _hold(self, job: str, node: str, cores: int) -> None:
        self._held.append(HeldCores(job, node, cores))
        self._siblings.setdefault(job, set()).add(node)

    def _free(self) -> dict[str, int]:
        free = {node.name: node.cores for node in self._nodes}
        for each in self._held:
            if each.node in free:
                free[each.node] -= each.cores
        return free

    def _reserve(self, run: PlacedRun, names: Iterable[str]) -> None:
        for name in names:
            self._reserved.setdefault(name, run.job.id)


def is_out(each: PlacedSlice, session: Session, names: Iterable[str], now_ms: int) -> bool:
    """Whether a node does not get a slice that it had before: one that lost it, not at all; one that gave it back, not
    for `OUT_MS`. If all of the nodes `names` have lost it, each may get it again after that time, or in a new
    session."""
    lost = {past.node for past in each.past if past.end == "lost"}
    all_lost = lost.issuperset(names)
    for past in each.past:
        if past.node != session.node or past.end == "failed":
            continue
        if past.end == "lost" and not all_lost:
            return True
        if session.started_ms <= past.at_ms and now_ms < past.at_ms + OUT_MS:
            return True
    return False


def _core_node(session: Session) -> CoreNode:
    return CoreNode(session.node, _cores(session), session.labels, session.degraded)


def _cores(session: Session) -> int:
    return 0 if session.offer is None else max(0, session.offer.cores)


__all__ = [
    "Decisions",
    "FailRun",
    "NodePool",
    "NoteWait",
    "Place",
    "PlaceAgain",
    "PlacedRun",
    "PlacedSlice",
    "RunAction",
    "core_nodes",
    "decide",
    "is_out",
    "node_pool",
]

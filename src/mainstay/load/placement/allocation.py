"""Which waiting run gets which cores on which nodes. Pure, and the same for the same input.

*Shares.* A run asks for a share of its pool: the cores of all healthy nodes that have its labels, free or not. It gets
at least the lower bound of its class and at most the upper one; a number of processes is both. A slice is the part of a
run on one node: a run has at most one slice on a node, and gets all its cores or none.

    low 1 to 25 %    normal 25 to 75 %    high 75 to 100 %    auto 1 to 100 %
    exclusive 100 %, and no other run has a core of its pool beside it

*Order.* Runs are admitted in the order of their queue. A run that does not fit waits in front: it reserves all nodes
that it could use, so no later run overtakes it there, and none starves. A run that the present nodes could never hold,
even if they were idle, reserves nothing; it would block the others for as long as its nodes are missing. Nodes that
were lost a moment ago count as present here: a node that restarts costs no run its place.

*Cores.* All admitted runs get their minimum, the most demanding class first. What is left goes to the lowest class up
to its maximum, then to the next one; runs of one class get equal parts of it. On 24 cores, a high and a low run that
are admitted together get 18 and 6.

*Nodes.* A run gets as few nodes as have its cores. Of nodes that fit equally well it gets those that the fewest runs
ask for by labels, then those with the fewest labels: a run that needs no GPU leaves the nodes with one to others.

*Cost.* An admission places one more run beside those that were admitted before. Only if it finds no place so, all of
them are placed again, the most demanding class first. A run without a place reserves its nodes, so that happens at most
as often as there are nodes, however long the queue is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from .core_pools import CoreNode, CorePool, CorePools, bounds_of, could_hold, even_sizes, even_total, nodes_for
from .spec import CoreDemand, PoolShare

#: the most demanding class first
_CLASSES: tuple[PoolShare, ...] = ("exclusive", "high", "normal", "auto", "low")


class HeldCores(msgspec.Struct, frozen=True):
    """The cores of a slice that was assigned to a node."""

    job: str
    node: str
    cores: int


class SliceCores(msgspec.Struct, frozen=True):
    """A slice of a run: where, and how many cores."""

    node: str
    cores: int


class RunRequest(msgspec.Struct, frozen=True):
    """A run that waits for cores."""

    job: str
    rank: int
    """its order in the queue: lower goes first"""
    demand: CoreDemand


WaitCause = Literal["no_node", "too_large", "lost", "beside", "behind", "cores"]


class CoreWait(msgspec.Struct, frozen=True, kw_only=True):
    """What a run that got no cores waits for.

    - no_node: no node has its labels
    - too_large: its nodes could not hold it, even if they were idle
    - lost: nodes that it needs were lost a moment ago
    - beside: it, or the run that holds its pool, runs alone
    - behind: its cores are free, and reserved for runs that wait in front of it
    - cores: fewer cores are free than it needs
    """

    request: RunRequest
    cause: WaitCause
    place: int
    """among all runs that wait, from 1"""
    of: int
    cores: int
    """it needs at least this many"""
    free: int
    """of its pool"""
    total: int
    nodes: int
    """of its pool"""
    jobs: tuple[str, ...] = ()
    """the runs that it waits for"""


class Allocation(msgspec.Struct, frozen=True):
    """The answer for a batch of waiting runs."""

    placed: Mapping[str, tuple[SliceCores, ...]]
    """by job: its slices, the largest first"""
    waiting: tuple[CoreWait, ...]
    """in the order of the queue"""


def allocate(
    nodes: Iterable[CoreNode],
    requests: Iterable[RunRequest],
    *,
    held: Iterable[HeldCores] = (),
    exclusive: Mapping[str, Mapping[str, str]] | None = None,
    reserved: Mapping[str, str] | None = None,
    lost: Iterable[CoreNode] = (),
) -> Allocation:
    """Divide the free cores of the nodes among the waiting runs.

    `exclusive`: of the runs that hold cores and run alone, their labels. `reserved`: nodes that a slice of a run that
    has begun waits for, with its job. `lost`: nodes that were lost a moment ago.
    """
    requests = sorted(requests, key=lambda each: (each.rank, each.job))
    pools = CorePools(nodes, lost)
    start = _start(pools, requests, held, exclusive or {})
    cores = _Cores(start)
    front = dict(reserved or {})
    admitted: list[_Run] = []
    waiting: list[tuple[_Run, WaitCause, tuple[str, ...]]] = []
    for request in requests:
        run = _Run(request, pools.of(request.demand.labels), front)
        if run.cause in ("no_node", "too_large"):
            waiting.append((run, run.cause, ()))
        elif run.cause is None and run.usable and (found := _with(run, admitted, cores, start)) is not None:
            cores = found
            admitted.append(run)
        else:
            waiting.append((run, run.cause, ()) if run.cause else (run, *_cause(run, start, front, admitted)))
            for name in run.pool:
                front.setdefault(name, request.job)
    # the classes in their order, if the runs that were admitted one by one fit in it, too
    cores = _placed(admitted, start) or cores
    cores.fill(admitted)
    return Allocation(
        {run.job: cores.slices(run) for run in admitted},
        tuple(
            CoreWait(
                request=run.request,
                cause=cause,
                place=place,
                of=len(waiting),
                cores=run.least,
                free=sum(cores.free[name] for name in run.pool),
                total=run.total,
                nodes=len(run.pool),
                jobs=jobs,
            )
            for place, (run, cause, jobs) in enumerate(waiting, 1)
        ),
    )


class _Start(NamedTuple):
    """The nodes before any of the waiting runs has a core."""

    free: Mapping[str, int]
    holders: Mapping[str, Mapping[str, int]]
    """by node: how many cores each job holds there"""
    alone: Mapping[str, str]
    """nodes that one run has for itself, with its job"""
    order: Mapping[str, int]
    """of nodes with as many free cores, the lowest is taken first"""
    degraded: frozenset[str]
    """nodes that are used last"""


def _start(
    pools: CorePools,
    requests: Iterable[RunRequest],
    held: Iterable[HeldCores],
    exclusive: Mapping[str, Mapping[str, str]],
) -> _Start:
    nodes = pools.nodes
    holders: dict[str, dict[str, int]] = {name: {} for name in nodes}
    for each in held:
        if each.node in holders:
            jobs = holders[each.node]
            jobs[each.job] = jobs.get(each.job, 0) + each.cores
    alone = {name: job for job, labels in sorted(exclusive.items()) for name in pools.of(labels).names}
    wanted = {id(pool): pool for pool in (pools.of(each.demand.labels) for each in requests)}.values()
    asked = Counter(name for pool in wanted for name in pool.names)
    return _Start(
        free={name: max(0, node.cores - sum(holders[name].values())) for name, node in nodes.items()},
        holders=holders,
        alone=alone,
        order={
            name: at
            for at, name in enumerate(sorted(nodes, key=lambda name: (asked[name], len(nodes[name].labels), name)))
        },
        degraded=frozenset(name for name, node in nodes.items() if node.degraded),
    )


class _Run:
    """A request, with what follows from the nodes."""

    def __init__(self, request: RunRequest, pool: CorePool, front: Mapping[str, str]) -> None:
        demand = request.demand
        self.request = request
        self.job = request.job
        self.share: PoolShare = demand.share
        self.n_nodes = demand.nodes
        self.is_exact = demand.processes is not None
        self.pool = pool.names
        self.members = pool.members
        self.total = pool.total
        self.least, self.most = bounds_of(demand, pool.nodes)
        self.usable = pool.members - front.keys()
        self.cause: WaitCause | None = None
        """why it cannot have its cores, whatever else runs"""
        if could_hold(demand, pool.nodes):
            return
        with_lost = [*pool.nodes, *pool.lost]
        if pool.lost and could_hold(demand, with_lost):
            self.cause = "lost"
            self.least, self.most = bounds_of(demand, with_lost)
        else:
            self.cause = "too_large" if pool.nodes else "no_node"


class _Cores:
    """The free cores while they are dealt out."""

    def __init__(self, start: _Start) -> None:
        self.free = dict(start.free)
        self._start = start
        self._degraded = start.degraded
        self._alone = dict(start.alone)
        self._given: dict[str, dict[str, int]] = {}
        """by job: how many cores it got on each node"""
        self._users: dict[str, set[str]] = {name: set() for name in start.free}
        """by node: the jobs that got some"""

    def slices(self, run: _Run) -> tuple[SliceCores, ...]:
        given = self._given[run.job].items()
        return tuple(SliceCores(name, cores) for name, cores in sorted(given, key=lambda each: (-each[1], each[0])))

    def place(self, run: _Run) -> bool:
        """Give a run its minimum; False: it does not fit, and gets nothing."""
        if run.share == "exclusive" and not self._is_idle(run):
            return False
        names = self._open_to(run)
        if run.n_nodes is not None:
            sizes = even_sizes(run.least, run.n_nodes)
            chosen = nodes_for(sizes, names, self.free)
            if chosen is None:
                return False
            given = dict(zip(chosen, sizes, strict=True))
        else:
            if sum(self.free[name] for name in names) < run.least:
                return False
            given = self._packed(names, run.least)
        self._give(run, given)
        if run.share == "exclusive":
            self._alone |= dict.fromkeys(run.pool, run.job)
        return True

    def fill(self, runs: Sequence[_Run]) -> None:
        """Give what is left, up to the maximum of each run."""
        for share in reversed(_CLASSES):
            growing = [run for run in runs if run.share == share and not run.is_exact]
            while growing:
                # each gets the same part, and no part is so large that one of them finds nothing left
                left = sum(self.free[name] for name in {name for run in growing for name in run.usable})
                part = max(1, left // (2 * len(growing)))
                growing = [run for run in growing if self._grow(run, part)]

    def _grow(self, run: _Run, part: int) -> bool:
        """Give a run some more cores; False: it can get none."""
        given = self._given[run.job]
        before = sum(given.values())
        wanted = min(part, run.most - before)
        if wanted <= 0:
            return False
        if run.n_nodes is not None:
            caps = {name: cores + self.free[name] for name, cores in given.items()}
            names = sorted(caps, key=lambda name: (-caps[name], self._start.order[name]))
            total = min(before + wanted, even_total(list(caps.values())))
            self._give(run, dict(zip(names, even_sizes(total, len(names)), strict=True)))
        else:
            # packed again as a whole: with more cores, fewer and larger nodes may do
            self._give(run, {})
            names = self._open_to(run)
            self._give(run, self._packed(names, before + wanted))
        return sum(self._given[run.job].values()) > before

    def _give(self, run: _Run, given: Mapping[str, int]) -> None:
        for name, cores in self._given.get(run.job, {}).items():
            self.free[name] += cores
            self._users[name].discard(run.job)
        self._given[run.job] = {name: cores for name, cores in given.items() if cores}
        for name, cores in self._given[run.job].items():
            self.free[name] -= cores
            self._users[name].add(run.job)

    def _open_to(self, run: _Run) -> list[str]:
        """The nodes that a run may use and that have free cores, those with most first, and degraded ones last."""
        names = [name for name in run.usable if self.free[name] and self._alone.get(name, run.job) == run.job]
        return sorted(names, key=lambda name: (name in self._degraded, -self.free[name], self._start.order[name]))

    def _packed(self, names: Sequence[str], cores: int) -> dict[str, int]:
        """Cores on as few of these nodes as possible; the last part on the smallest node that holds it, so that larger
        ones stay free for others."""
        given: dict[str, int] = {}
        for at, name in enumerate(names):
            if self.free[name] >= cores:
                smallest = min(
                    (each for each in names[at:] if self.free[each] >= cores),
                    key=lambda each: (each in self._degraded, self.free[each], self._start.order[each]),
                )
                given[smallest] = cores
                break
            given[name] = self.free[name]
            cores -= given[name]
        return given

    def _is_idle(self, run: _Run) -> bool:
        """Whether a run can have its pool for itself: nothing runs there, and no run in front waits for its nodes."""
        return len(run.usable) == len(run.pool) and not any(self._is_used(name, run.job) for name in run.pool)

    def _is_used(self, name: str, job: str) -> bool:
        """Whether another run has cores of a node, or the node for itself."""
        others = any(cores and other != job for other, cores in self._start.holders[name].items())
        return others or bool(self._users[name] - {job}) or self._alone.get(name, job) != job


def _with(run: _Run, admitted: Sequence[_Run], cores: _Cores, start: _Start) -> _Cores | None:
    """The cores after one more run got its minimum; None: they do not fit together."""
    return cores if cores.place(run) else _placed([*admitted, run], start)


def _placed(runs: Sequence[_Run], start: _Start) -> _Cores | None:
    """The same after all of these runs, the most demanding class first."""
    cores = _Cores(start)
    in_order = sorted(runs, key=lambda run: (_CLASSES.index(run.share), run.request.rank, run.job))
    return cores if all(cores.place(run) for run in in_order) else None


def _cause(
    run: _Run, start: _Start, front: Mapping[str, str], admitted: Sequence[_Run]
) -> tuple[WaitCause, tuple[str, ...]]:
    """Why a run waits that its nodes could hold, and for which runs."""
    in_front = _distinct(front[name] for name in run.pool if name in front)
    if run.share == "exclusive":
        holding = [job for name in run.pool for job, cores in start.holders[name].items() if cores and job != run.job]
        holding += [each.job for each in admitted if not run.members.isdisjoint(each.members)]
        if holding:
            return "beside", tuple(_distinct([*holding, *in_front]))
    owners = [job for name in run.pool if (job := start.alone.get(name, run.job)) != run.job]
    owners += [each.job for each in admitted if each.share == "exclusive" and not run.members.isdisjoint(each.members)]
    if owners:
        return "beside", tuple(_distinct([*owners, *in_front]))
    return ("behind" if in_front else "cores"), tuple(in_front)


def _distinct(jobs: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(jobs))


__all__ = [
    "Allocation",
    "CoreWait",
    "HeldCores",
    "RunRequest",
    "SliceCores",
    "allocate",
]

"""Which waiting run gets which cores on which nodes. Pure, and the same for the same input.

*Shares.* A run asks for a share of its pool: the cores of all healthy nodes that have its labels, free or not. It gets
at least the lower bound of its class and at most the upper one; a number of processes is both. A slice is the part of a
run on one node: a run has at most one slice on a node, and gets all its cores or none.

    low 1 to 25 %    normal 25 to 75 %    high 75 to 100 %    auto 1 to 100 %
    exclusive 100 %, and no other run has a core of its pool beside it

*Order.* Runs are admitted in the order of their queue. A run that does not fit waits in front: it reserves all nodes
that it could use, so no later run overtakes it there, and none starves. A run that the present nodes could never hold,
even if they were idle, reserves nothing; it would block the others for as long as its nodes are missing.

*Cores.* All admitted runs get their minimum, the most demanding class first. What is left goes to the lowest class up
to its maximum, then to the next one; runs of one class get equal parts of it. On 24 cores, a high and a low run that
are admitted together get 18 and 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from .spec import CoreDemand, PoolShare

#: the bounds of each class, in percent of the cores of its pool
_BOUNDS: Mapping[PoolShare, tuple[int, int]] = {
    "exclusive": (100, 100),
    "high": (75, 100),
    "normal": (25, 75),
    "auto": (1, 100),
    "low": (1, 25),
}
#: the most demanding class first
_CLASSES: tuple[PoolShare, ...] = ("exclusive", "high", "normal", "auto", "low")


class CoreNode(msgspec.Struct, frozen=True):
    """A healthy node: it is heard, and takes work."""

    name: str
    cores: int
    labels: Mapping[str, str] = {}
    degraded: bool = False
    """it is stressed or overloaded: it is used only where the others have no room"""


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


WaitCause = Literal["no_node", "too_large", "beside", "behind", "cores"]


class CoreWait(msgspec.Struct, frozen=True, kw_only=True):
    """What a run that got no cores waits for.

    - no_node: no node has its labels
    - too_large: its nodes could not hold it, even if they were idle
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
) -> Allocation:
    """Divide the free cores of the nodes among the waiting runs.

    `exclusive`: of the runs that hold cores and run alone, their labels. `reserved`: nodes that a slice of a run that
    has begun waits for, with its job.
    """
    by_name = {node.name: node for node in sorted(nodes, key=lambda each: each.name)}
    holders = _holders(by_name, held)
    alone = {
        node.name: job
        for job, labels in sorted((exclusive or {}).items())
        for node in matching_nodes(by_name.values(), labels)
    }
    front = dict(reserved or {})
    admitted: list[_Run] = []
    waiting: list[tuple[_Run, WaitCause, tuple[str, ...]]] = []
    for request in sorted(requests, key=lambda each: (each.rank, each.job)):
        run = _Run(request, by_name.values(), front)
        if (refusal := run.impossible) is not None:
            waiting.append((run, refusal, ()))
        elif run.usable and _placed([*admitted, run], by_name, holders, alone) is not None:
            admitted.append(run)
        else:
            waiting.append((run, *_cause(run, holders, alone, front, admitted)))
            for name in run.pool:
                front.setdefault(name, request.job)
    cores = _placed(admitted, by_name, holders, alone) or _Cores(by_name, holders, alone)
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


def matching_nodes(nodes: Iterable[CoreNode], labels: Mapping[str, str]) -> list[CoreNode]:
    """The nodes that have all these labels."""
    return [node for node in nodes if all(node.labels.get(name) == value for name, value in labels.items())]


def bounds_of(demand: CoreDemand, nodes: Sequence[CoreNode]) -> tuple[int, int]:
    """The least and the most cores of a run on these nodes, the pool of its labels; see the module."""
    if demand.processes is not None:
        return demand.processes, demand.processes
    total = sum(node.cores for node in nodes)
    low, high = (-(-total * percent // 100) for percent in _BOUNDS[demand.share])
    least, most = max(1, min(low, demand.most)), max(1, min(high, demand.most))
    if demand.nodes is None:
        return least, most
    sizes = sorted((node.cores for node in nodes), reverse=True)[: demand.nodes]
    even = _even_total(sizes)
    return max(demand.nodes, min(least, even)), max(demand.nodes, min(most, even))


def even_sizes(cores: int, nodes: int) -> list[int]:
    """Cores dealt evenly, the largest first.

    >>> even_sizes(10, 4)
    [3, 3, 2, 2]
    """
    base, extra = divmod(cores, nodes)
    return [base + 1] * extra + [base] * (nodes - extra)


def _even_total(caps: Sequence[int]) -> int:
    """The most cores that can be dealt evenly to slices with these limits, which may differ by one."""
    if not caps:
        return 0
    least = min(caps)
    return least * len(caps) + sum(1 for cap in caps if cap > least)


def _holders(nodes: Mapping[str, CoreNode], held: Iterable[HeldCores]) -> dict[str, dict[str, int]]:
    """By node: how many cores each job holds there."""
    holders: dict[str, dict[str, int]] = {name: {} for name in nodes}
    for each in held:
        if each.node in holders:
            jobs = holders[each.node]
            jobs[each.job] = jobs.get(each.job, 0) + each.cores
    return holders


class _Run:
    """A request, with what follows from the nodes."""

    def __init__(self, request: RunRequest, nodes: Iterable[CoreNode], front: Mapping[str, str]) -> None:
        demand = request.demand
        pool = matching_nodes(nodes, demand.labels)
        self.request = request
        self.job = request.job
        self.share: PoolShare = demand.share
        self.n_nodes = demand.nodes
        self.is_exact = demand.processes is not None
        self.pool = [node.name for node in pool]
        self.total = sum(node.cores for node in pool)
        self.least, self.most = bounds_of(demand, pool)
        self.usable = {name for name in self.pool if name not in front}
        self.impossible: WaitCause | None = None
        if not pool:
            self.impossible = "no_node"
        elif not could_hold(demand, pool):
            self.impossible = "too_large"


def could_hold(demand: CoreDemand, pool: Sequence[CoreNode]) -> bool:
    """Whether these nodes could hold a run if they were idle."""
    least, _ = bounds_of(demand, pool)
    if least < max(1, demand.nodes or 1) or (demand.nodes is not None and demand.nodes < 1):
        return False
    caps = sorted((node.cores for node in pool if node.cores), reverse=True)
    if demand.nodes is None:
        return least <= sum(caps)
    return demand.nodes <= len(caps) and _fits(even_sizes(least, demand.nodes), caps)


def _fits(sizes: Sequence[int], caps: Sequence[int]) -> bool:
    """Whether slices fit on different nodes. Both begin with the largest."""
    return len(sizes) <= len(caps) and all(size <= cap for size, cap in zip(sizes, caps, strict=False))


def nodes_for(sizes: Sequence[int], names: Sequence[str], free: Mapping[str, int]) -> list[str] | None:
    """Different nodes for slices of these sizes, the largest first: the first ones that `names` has, in the order of
    preference, or those with the most free cores if these do not do; None: no nodes do.

    >>> nodes_for([2, 2], ["a", "b", "busy"], {"a": 2, "b": 3, "busy": 8})
    ['b', 'a']
    >>> nodes_for([4, 2], ["a", "b", "busy"], {"a": 2, "b": 3, "busy": 8})
    ['busy', 'b']
    """
    by_free = sorted(names, key=lambda name: -free[name])
    for order in (names, by_free):
        chosen = sorted(order[: len(sizes)], key=lambda name: -free[name])
        if _fits(sizes, [free[name] for name in chosen]):
            return chosen
    return None


class _Cores:
    """The free cores while they are dealt out."""

    def __init__(
        self, nodes: Mapping[str, CoreNode], holders: Mapping[str, Mapping[str, int]], alone: Mapping[str, str]
    ) -> None:
        self.free = {name: max(0, node.cores - sum(holders[name].values())) for name, node in nodes.items()}
        self._holders = holders
        self._degraded = {name for name, node in nodes.items() if node.degraded}
        self._alone = dict(alone)
        """nodes that one run has for itself, with its job"""
        self._given: dict[str, dict[str, int]] = {}
        """by job: how many cores it got on each node"""

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
            names = sorted(caps, key=lambda name: (-caps[name], name))
            total = min(before + wanted, _even_total(list(caps.values())))
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
        for name, cores in given.items():
            self.free[name] -= cores
        self._given[run.job] = {name: cores for name, cores in given.items() if cores}

    def _open_to(self, run: _Run) -> list[str]:
        """The nodes that a run may use and that have free cores, those with most first, and degraded ones last."""
        names = [name for name in run.usable if self.free[name] and self._alone.get(name, run.job) == run.job]
        return sorted(names, key=lambda name: (name in self._degraded, -self.free[name], name))

    def _packed(self, names: Sequence[str], cores: int) -> dict[str, int]:
        """Cores on as few of these nodes as possible; the last part on the smallest node that holds it, so that larger
        ones stay free for others."""
        given: dict[str, int] = {}
        for at, name in enumerate(names):
            if self.free[name] >= cores:
                smallest = min(
                    (each for each in names[at:] if self.free[each] >= cores),
                    key=lambda n: (n in self._degraded, self.free[n], n),
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
        others = any(cores and other != job for other, cores in self._holders[name].items())
        given = any(other != job and name in nodes for other, nodes in self._given.items())
        return others or given or self._alone.get(name, job) != job


def _placed(
    runs: Sequence[_Run],
    nodes: Mapping[str, CoreNode],
    holders: Mapping[str, Mapping[str, int]],
    alone: Mapping[str, str],
) -> _Cores | None:
    """The cores after all of these runs got their minimum; None: they do not fit together."""
    cores = _Cores(nodes, holders, alone)
    in_order = sorted(runs, key=lambda run: (_CLASSES.index(run.share), run.request.rank, run.job))
    return cores if all(cores.place(run) for run in in_order) else None


def _cause(
    run: _Run,
    holders: Mapping[str, Mapping[str, int]],
    alone: Mapping[str, str],
    front: Mapping[str, str],
    admitted: Sequence[_Run],
) -> tuple[WaitCause, tuple[str, ...]]:
    """Why a run waits that its nodes could hold, and for which runs."""
    in_front = _distinct(front[name] for name in run.pool if name in front)
    pool = set(run.pool)
    holding = _distinct(job for name in run.pool for job, cores in holders[name].items() if cores and job != run.job)
    beside = [each.job for each in admitted if pool & set(each.pool)]
    owners = _distinct(alone[name] for name in run.pool if name in alone and alone[name] != run.job)
    owners += [each.job for each in admitted if each.share == "exclusive" and pool & set(each.pool)]
    if run.share == "exclusive" and (holding or beside):
        return "beside", tuple(dict.fromkeys([*holding, *beside, *in_front]))
    if owners:
        return "beside", tuple(dict.fromkeys([*owners, *in_front]))
    return ("behind" if in_front else "cores"), tuple(in_front)


def _distinct(jobs: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(jobs))


__all__ = [
    "Allocation",
    "CoreNode",
    "CoreWait",
    "HeldCores",
    "RunRequest",
    "SliceCores",
    "allocate",
    "bounds_of",
    "could_hold",
    "even_sizes",
    "matching_nodes",
    "nodes_for",
]

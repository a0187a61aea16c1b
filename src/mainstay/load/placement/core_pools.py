"""The nodes that a run may use by its labels, and what they could hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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


class CoreNode(msgspec.Struct, frozen=True):
    """A healthy node: it is heard, and takes work."""

    name: str
    cores: int
    labels: Mapping[str, str] = {}
    degraded: bool = False
    """it is stressed or overloaded: it is used only where the others have no room"""


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
    even = even_total(sizes)
    return max(demand.nodes, min(least, even)), max(demand.nodes, min(most, even))


def even_sizes(cores: int, nodes: int) -> list[int]:
    """Cores dealt evenly, the largest first.

    >>> even_sizes(10, 4)
    [3, 3, 2, 2]
    """
    base, extra = divmod(cores, nodes)
    return [base + 1] * extra + [base] * (nodes - extra)


def even_total(caps: Sequence[int]) -> int:
    """The most cores that can be dealt evenly to slices with these limits, which may differ by one."""
    if not caps:
        return 0
    least = min(caps)
    return least * len(caps) + sum(1 for cap in caps if cap > least)


def could_hold(demand: CoreDemand, pool: Sequence[CoreNode]) -> bool:
    """Whether these nodes could hold a run if they were idle."""
    least, _ = bounds_of(demand, pool)
    if least < max(1, demand.nodes or 1) or (demand.nodes is not None and demand.nodes < 1):
        return False
    caps = sorted((node.cores for node in pool if node.cores), reverse=True)
    if demand.nodes is None:
        return least <= sum(caps)
    return demand.nodes <= len(caps) and fits(even_sizes(least, demand.nodes), caps)


def fits(sizes: Sequence[int], caps: Sequence[int]) -> bool:
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
        if fits(sizes, [free[name] for name in chosen]):
            return chosen
    return None


class CorePool:
    """The nodes that have some labels."""

    def __init__(self, nodes: Sequence[CoreNode], lost: Sequence[CoreNode]) -> None:
        self.nodes = nodes
        self.lost = lost
        self.names = [node.name for node in nodes]
        self.members = frozenset(self.names)
        self.total = sum(node.cores for node in nodes)


class CorePools:
    """The pools of all labels that runs ask for."""

    def __init__(self, nodes: Iterable[CoreNode], lost: Iterable[CoreNode]) -> None:
        self.nodes = {node.name: node for node in sorted(nodes, key=lambda each: each.name)}
        self._lost = [node for node in lost if node.name not in self.nodes]
        self._found: dict[frozenset[tuple[str, str]], CorePool] = {}

    def of(self, labels: Mapping[str, str]) -> CorePool:
        key = frozenset(labels.items())
        if key not in self._found:
            nodes = matching_nodes(self.nodes.values(), labels)
            self._found[key] = CorePool(nodes, matching_nodes(self._lost, labels))
        return self._found[key]


__all__ = [
    "CoreNode",
    "CorePool",
    "CorePools",
    "bounds_of",
    "could_hold",
    "even_sizes",
    "even_total",
    "fits",
    "matching_nodes",
    "nodes_for",
]

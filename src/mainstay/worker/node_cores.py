"""The cores of a node: slices of load tests hold them, and plain tasks of the node get what is left."""

from __future__ import annotations

from collections.abc import Callable, Hashable


class NodeCores:
    """The cores of a node as one of its engines knows them. `total` 0: it has none for slices, and tasks are not
    limited. `on_change` is called with the number that this engine holds.

    >>> cores = NodeCores(4)
    >>> cores.take("a", 3), cores.take("b", 2), cores.free, cores.slots(10)
    (True, False, 1, 2)
    >>> cores.release("a"); cores.elsewhere = 4
    >>> cores.free, cores.slots(10)
    (0, 0)
    """

    def __init__(self, total: int = 0, *, on_change: Callable[[int], None] = lambda _: None) -> None:
        self.total = total
        self.elsewhere = 0
        """how many the other engines of the node hold"""
        self._on_change = on_change
        self._held: dict[Hashable, int] = {}

    @property
    def held(self) -> int:
        """How many this engine holds."""
        return sum(self._held.values())

    @property
    def free(self) -> int:
        """How many no engine holds."""
        return max(0, self.total - self.held - self.elsewhere)

    def take(self, holder: Hashable, cores: int) -> bool:
        """Hold cores until `release`: all of them, or none if fewer are free."""
        if cores > self.free:
            return False
        self._held[holder] = self._held.get(holder, 0) + cores
        self._on_change(self.held)
        return True

    def release(self, holder: Hashable) -> None:
        """Free what a holder has, if anything."""
        if self._held.pop(holder, 0):
            self._on_change(self.held)

    def slots(self, concurrency: int) -> int:
        """How many of its slots an engine may fill with plain tasks: as large a part of them as cores are free."""
        if not self.total or self.free == self.total:
            return concurrency
        return max(1, concurrency * self.free // self.total) if self.free else 0


__all__ = ["NodeCores"]

"""The cores of a node, and the slices that hold them."""

from __future__ import annotations


class SliceCores:
    """A slice holds all of its cores or none, and a core is held by one slice at most.

    >>> cores = SliceCores()
    >>> cores.take("a", 3, of=4), cores.take("b", 2, of=4), cores.held
    (True, False, 3)
    >>> cores.release("a"); cores.take("b", 2, of=4)
    True
    """

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def __contains__(self, slice_id: str) -> bool:
        return slice_id in self._held

    @property
    def held(self) -> int:
        """How many are held."""
        return sum(self._held.values())

    def take(self, slice_id: str, cores: int, *, of: int) -> bool:
        """Have a slice hold cores `of` those of the node; False if so many are not free."""
        if slice_id in self._held or self.held + cores > of:
            return False
        self._held[slice_id] = cores
        return True

    def release(self, slice_id: str) -> None:
        """The processes of a slice have ended."""
        del self._held[slice_id]


__all__ = ["SliceCores"]

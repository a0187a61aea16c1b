"""Ids in order of a number: an index of the memory store."""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class RankedIds:
    """Ids by (number, id), smallest first.

    Removal only drops the id; its entry leaves the heap when it reaches the top, or when dropped entries outnumber live
    ones, so every operation is logarithmic on average.

    >>> line = RankedIds()
    >>> line.put("b", 2); line.put("a", 1); line.put("b", 0)
    >>> line.first(), len(line)
    ((0, 'b'), 2)
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._live: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[str]:
        return iter(self._live)

    def put(self, job_id: str, number: int) -> None:
        """Add an id, or give it another number."""
        if self._live.get(job_id) == number:
            return
        self._live[job_id] = number
        heapq.heappush(self._heap, (number, job_id))
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = [(number, job_id) for job_id, number in self._live.items()]
            heapq.heapify(self._heap)

    def drop(self, job_id: str) -> None:
        self._live.pop(job_id, None)

    def first(self) -> tuple[int, str] | None:
        while self._heap:
            number, job_id = self._heap[0]
            if self._live.get(job_id) == number:
                return self._heap[0]
            heapq.heappop(self._heap)
        return None

    def until(self, number: int) -> list[str]:
        """The ids up to and including a number, in order."""
        first = self.first()
        if first is None or first[0] > number:
            return []
        return [job_id for _, job_id in sorted((at, job_id) for job_id, at in self._live.items() if at <= number)]

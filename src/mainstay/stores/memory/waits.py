"""Who waits for whom."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator


class Waits:
    """Edges from jobs to the jobs they wait for. What a settled row leads to gathers in `over` until the operation
    ends, and is followed up then, in order."""

    def __init__(self) -> None:
        self.on: dict[str, tuple[str, ...]] = {}
        """job -> what it waits or waited for, in the order given"""
        self.open: dict[str, dict[str, None]] = {}
        """job -> those who still wait for it, in order"""
        self.left: Counter[str] = Counter()
        """job -> how many it still waits for"""
        self.over: deque[tuple[str, str]] = deque()
        """(job, status) that settled or went, with somebody waiting for it"""
        self.touch: Callable[[str, str], None] = _nobody
        """told of (what, job) before edges are changed: `add`, `close` and `forget` by their names"""

    def add(self, job_id: str, awaited: Iterable[str]) -> None:
        self.touch("add", job_id)
        self.on[job_id] = found = tuple(dict.fromkeys(awaited))
        for each in found:
            self.open.setdefault(each, {})[job_id] = None
        self.left[job_id] = len(found)

    def keep(self, job_id: str, awaited: Iterable[str]) -> None:
        """Of what a job waits for, only these have not ended."""
        still = set(awaited)
        for each in self.on[job_id]:
            if each not in still:
                self._cut(job_id, each)
        self.left[job_id] = len(still)
        if not still:
            del self.left[job_id]

    def settled(self, job_id: str, status: str) -> None:
        """Tell that a row settled, or went."""
        if job_id in self.open:
            self.over.append((job_id, status))

    def close(self, job_id: str) -> Iterator[tuple[str, bool]]:
        """End the wait for a job: who waited for it, and whether each waits for more."""
        self.touch("close", job_id)
        for waiter in self.open.pop(job_id, ()):
            self.left[waiter] -= 1
            more = self.left[waiter] > 0
            if not more:
                del self.left[waiter]
            yield waiter, more

    def forget(self, job_id: str) -> None:
        """A job went: it waits for nothing any more."""
        if job_id not in self.on:
            return
        self.touch("forget", job_id)
        for each in self.on.pop(job_id, ()):
            self._cut(job_id, each)
        self.left.pop(job_id, None)

    def _cut(self, job_id: str, awaited: str) -> None:
        waiters = self.open.get(awaited)
        if waiters is not None:
            waiters.pop(job_id, None)
            if not waiters:
                del self.open[awaited]


def _nobody(what: str, job_id: str) -> None:
    """Nobody wants to know."""

"""Which jobs wait for which."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator


class Waits:
    """Edges from jobs to the jobs they wait for. Settled jobs collect in `over` until the operation ends; then the jobs
    that wait for them move on, in order."""

    def __init__(self) -> None:
        self.on: dict[str, tuple[str, ...]] = {}
        """job -> all jobs it waits or waited for, in the order given"""
        self.open: dict[str, dict[str, None]] = {}
        """job -> the jobs that still wait for it, in order"""
        self.left: Counter[str] = Counter()
        """job -> how many it still waits for"""
        self.over: deque[tuple[str, str]] = deque()
        """(job, status): a job that settled or went, and has waiters"""
        self.touch: Callable[[str, str], None] = lambda _operation, _job_id: None
        """called before edges change, with the operation (`add`, `close` or `forget`) and the job"""

    def add(self, job_id: str, awaited: Iterable[str]) -> None:
        self.touch("add", job_id)
        self.on[job_id] = dependencies = tuple(dict.fromkeys(awaited))
        for each in dependencies:
            self.open.setdefault(each, {})[job_id] = None
        self.left[job_id] = len(dependencies)

    def keep(self, job_id: str, awaited: Iterable[str]) -> None:
        """Of the jobs that a job waits for, only these have not ended."""
        still = set(awaited)
        for each in self.on[job_id]:
            if each not in still:
                self._cut(job_id, each)
        self.left[job_id] = len(still)
        if not still:
            del self.left[job_id]

    def settled(self, job_id: str, status: str) -> None:
        """A job has settled, or is gone."""
        if job_id in self.open:
            self.over.append((job_id, status))

    def close(self, job_id: str) -> Iterator[tuple[str, bool]]:
        """End the wait for a job. Yields each waiter, and whether it waits for more."""
        self.touch("close", job_id)
        for waiter in self.open.pop(job_id, ()):
            self.left[waiter] -= 1
            more = self.left[waiter] > 0
            if not more:
                del self.left[waiter]
            yield waiter, more

    def forget(self, job_id: str) -> None:
        """A job is gone, and waits for nothing any more."""
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

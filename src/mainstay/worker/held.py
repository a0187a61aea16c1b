"""Jobs that are claimed and have not begun. Nobody else can run them, so none may wait here for long."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence

from ..model import Job

#: how long a claimed job may wait to begin before it goes back, for others to take
MOST_S = 0.25


class Held:
    """First come, first begun; each batch with the time it came.

    >>> held = Held()
    >>> held.add(["a", "b"], now_s=1.0); held.add(["c"], now_s=1.2)
    >>> held.next(), held.too_long(now_s=1.26), len(held)
    ('a', ['b'], 1)
    """

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._batches: deque[tuple[float, int]] = deque()
        """(when it came, how many of it are left)"""

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs)

    def add(self, jobs: Sequence[Job], *, now_s: float) -> None:
        self._jobs.extend(jobs)
        self._batches.append((now_s, len(jobs)))

    def next(self) -> Job:
        """The one to begin now."""
        self._took(1)
        return self._jobs.popleft()

    def too_long(self, *, now_s: float) -> list[Job]:
        """Take out those that have waited for too long."""
        found: list[Job] = []
        while self._batches and now_s - self._batches[0][0] > MOST_S:
            _, left = self._batches.popleft()
            found += [self._jobs.popleft() for _ in range(left)]
        return found

    def everything(self) -> list[Job]:
        """Take all of them out."""
        found = list(self._jobs)
        self._jobs.clear()
        self._batches.clear()
        return found

    def only(self, ids: Collection[str]) -> list[Job]:
        """Take these out."""
        found = [job for job in self._jobs if job.id in ids]
        if found:
            rest = [job for job in self._jobs if job.id not in ids]
            came_s = self._batches[0][0]
            self.everything()
            self.add(rest, now_s=came_s)
        return found

    def _took(self, n: int) -> None:
        came_s, left = self._batches[0]
        if left > n:
            self._batches[0] = (came_s, left - n)
        else:
            self._batches.popleft()

"""Jobs that are claimed and have not begun. No other session can run them, so none may wait here for long."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence

from ..model import Job

#: how long a claimed job may wait to begin before it goes back to the queue
MOST_S = 0.25


class ClaimedJobs:
    """First claimed, first begun; each with the time of its claim.

    >>> claimed = ClaimedJobs()
    >>> claimed.add(["a", "b"], now_s=1.0); claimed.add(["c"], now_s=1.2)
    >>> claimed.next(), claimed.too_long(now_s=1.26), len(claimed)
    ('a', ['b'], 1)
    """

    def __init__(self) -> None:
        self._jobs: deque[tuple[float, Job]] = deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return (job for _, job in self._jobs)

    def add(self, jobs: Sequence[Job], *, now_s: float) -> None:
        """`now_s` is the time of the claim; infinite for jobs that may wait for as long as it takes."""
        self._jobs.extend([(now_s, job) for job in jobs])

    @property
    def first(self) -> Job:
        """The job that `next` takes out."""
        return self._jobs[0][1]

    def next(self) -> Job:
        """Take out the job to begin now."""
        return self._jobs.popleft()[1]

    def too_long(self, *, now_s: float, patient: Callable[[Job], bool] = lambda _: False) -> list[Job]:
        """Take out the jobs that have waited too long; a `patient` one stays if it is the first."""
        if self._jobs and patient(self.first):
            first = self._jobs.popleft()
            late = self.too_long(now_s=now_s)
            self._jobs.appendleft(first)
            return late
        late = [job for claimed_s, job in self._jobs if now_s - claimed_s > MOST_S]
        if late:
            self._jobs = deque(entry for entry in self._jobs if now_s - entry[0] <= MOST_S)
        return late

    def everything(self) -> list[Job]:
        """Take all of them out."""
        jobs = list(self)
        self._jobs.clear()
        return jobs

    def only(self, ids: Collection[str]) -> list[Job]:
        """Take out the jobs with these ids."""
        jobs = [job for job in self if job.id in ids]
        if jobs:
            self._jobs = deque((claimed_s, job) for claimed_s, job in self._jobs if job.id not in ids)
        return jobs

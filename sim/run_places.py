"""Where work runs: one claim of a job runs at one place at a time, whatever its engines believe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import msgspec

from mainstay.testing import SimulatedHost, VirtualLoop


class RunPlace(msgspec.Struct, eq=False):
    """A run that has begun and not ended."""

    work: str
    """the job, or the job and its unit"""
    token: int
    host: SimulatedHost
    since_s: float


class RunPlaces:
    """Every run of a job says when it begins and ends. One whose process is dead runs no more; one whose process is
    frozen runs no code, and must end soon after it goes on."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._open: dict[str, list[RunPlace]] = {}
        self.most = 0
        """runs at one moment"""

    @contextmanager
    def at(self, work: str, token: int, host: SimulatedHost) -> Iterator[list[RunPlace]]:
        """For the duration of a run; yields the runs of the same work that go on elsewhere, which there must not be."""
        run = RunPlace(work, token, host, self._loop.true_s)
        others = self.elsewhere(run)
        self._open.setdefault(work, []).append(run)
        self.most = max(self.most, sum(map(len, self._open.values())))
        try:
            yield others
        finally:
            self._open[work].remove(run)

    def elsewhere(self, run: RunPlace) -> list[RunPlace]:
        """The other runs of the same work that run code now."""
        return [each for each in self.of(run.work) if each is not run and not each.host.frozen]

    def of(self, work: str) -> list[RunPlace]:
        """The runs of some work whose process is alive."""
        alive = [each for each in self._open.get(work, []) if each.host.alive]
        self._open[work] = alive
        return alive

    def works(self) -> list[str]:
        """All work that ever ran."""
        return list(self._open)

    def doubled(self) -> list[tuple[RunPlace, RunPlace]]:
        """Work that runs at two places now."""
        found = []
        for work in list(self._open):
            running = [each for each in self.of(work) if not each.host.frozen]
            found += pairwise(running)
        return found

"""Users or arrivals as a function of time. Pure, so that tests need no clock."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import msgspec

#: random arrivals that are drawn from one seed, on average
_BLOCK = 1024


class Ramp(msgspec.Struct, frozen=True):
    """A level over time: straight lines between points of (seconds, level), and zero after the last.

    >>> ramp = Ramp(((0.0, 0.0), (10.0, 100.0), (20.0, 100.0)))
    >>> ramp.level(5), ramp.level(15), ramp.level(21)
    (50.0, 100.0, 0.0)
    >>> ramp.area(10), ramp.area(20), ramp.when(500), ramp.when(600)
    (500.0, 1500.0, 10.0, 11.0)
    """

    points: tuple[tuple[float, float], ...]

    @property
    def ends(self) -> float:
        return self.points[-1][0]

    @property
    def highest(self) -> float:
        return max(level for _, level in self.points)

    def level(self, at: float) -> float:
        """The level at a time; where it jumps, the one after the jump."""
        level = 0.0
        for (start, low), (end, high) in self._lines():
            if start <= at <= end:
                level = high if end == start else low + (high - low) * (at - start) / (end - start)
        return level

    def area(self, until: float) -> float:
        """The integral of the level: the number of arrivals, if the level is a rate."""
        total = 0.0
        for (start, low), (end, high) in self._lines():
            if until <= start:
                break
            stop = min(until, end)
            reached = high if end == start else low + (high - low) * (stop - start) / (end - start)
            total += (stop - start) * (low + reached) / 2
        return total

    def risen(self, until: float) -> float:
        """The first level and all rises until a time: how many users have begun, if the level is a number of users.

        >>> Ramp(((0.0, 5.0), (10.0, 15.0), (20.0, 5.0), (30.0, 15.0))).risen(25)
        20.0
        """
        total = self.points[0][1]
        for (start, low), (end, high) in self._lines():
            if until < start:
                break
            part = 1.0 if until >= end else (until - start) / (end - start)
            total += max(0.0, high - low) * part
        return total

    def when(self, area: float) -> float:
        """The first time at which the area has this size; infinity if it never has."""
        done = 0.0
        for (start, low), (end, high) in self._lines():
            width = end - start
            piece = width * (low + high) / 2
            if area <= done + piece and piece > 0:
                left = area - done
                slope = (high - low) / width
                # low * t + slope * t² / 2 = left, in a form that is stable for a small slope, and for none
                root = math.sqrt(max(0.0, low * low + 2 * slope * left))
                return min(end, start + 2 * left / (low + root)) if low + root > 0 else start
            done += piece
        return math.inf

    def _lines(self) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
        yield from zip(self.points, self.points[1:], strict=False)


def flat(level: float, seconds: float) -> Ramp:
    """A constant level."""
    return Ramp(((0.0, level), (seconds, level)))


def ramped(stages: Sequence[tuple[float, float]], *, start: float = 0.0) -> Ramp:
    """From level to level within the seconds of each stage. A stage of zero seconds is a jump.

    >>> ramped([(0, 50), (10, 50)]).points
    ((0.0, 50.0), (10.0, 50.0))
    """
    points = [(0.0, float(start))]
    at = 0.0
    for seconds, level in stages:
        at += seconds
        if at == 0.0:
            points = [(0.0, float(level))]
        else:
            points.append((at, float(level)))
    return Ramp(tuple(points))


class Arrivals(msgspec.Struct, frozen=True):
    """When iterations are due in one of n processes: each takes every n-th, so that all together keep the rate.

    >>> list(Arrivals(flat(4, 1.0)).times())
    [0.0, 0.25, 0.5, 0.75]
    >>> list(Arrivals(flat(4, 1.0), process=1, processes=2).times())
    [0.25, 0.75]
    >>> list(Arrivals(flat(4, 1.0)).times(since=0.3))
    [0.5, 0.75]
    """

    ramp: Ramp
    process: int = 0
    processes: int = 1
    poisson: bool = False
    seed: int = 0

    def times(self, *, since: float = 0.0) -> Iterator[float]:
        """Seconds since the start of the plan, in rising order, without those before `since`: the others are the same
        for each `since`. With `poisson`, random with the same mean rate."""
        areas = self._random(self.ramp.area(since)) if self.poisson else self._even(self.ramp.area(since))
        for area in areas:
            due = self.ramp.when(area)
            if due >= since:
                yield due

    def _even(self, since: float) -> Iterator[float]:
        total = self.ramp.area(self.ramp.ends)
        # a little before: the area is rounded
        passed = max(0, int(since - 2.0 - self.process) // self.processes)
        number = self.process + passed * self.processes
        # an arrival at the very end does not count: it would be the first of the next interval
        while number < total - 1e-9:
            yield number
            number += self.processes

    def _random(self, since: float) -> Iterator[float]:
        """Drawn in blocks with seeds of their own, which changes no chance, because what is random here has no memory.
        So the middle of a long plan is found at once."""
        total = self.ramp.area(self.ramp.ends)
        width = float(_BLOCK * self.processes)
        block = int(since / width)
        while block * width < total:
            chance = random.Random(f"{self.seed} {self.process} {block}")
            due = block * width + chance.expovariate(1.0) * self.processes
            ends = min(total, (block + 1) * width)
            while due < ends:
                yield due
                due += chance.expovariate(1.0) * self.processes
            block += 1


def shares(total: int, parts: int) -> list[int]:
    """A number split evenly; the first parts get the remainder.

    >>> shares(10, 4), shares(1, 3)
    ([3, 3, 2, 2], [1, 0, 0])
    """
    each, more = divmod(total, parts)
    return [each + (number < more) for number in range(parts)]


def weighted(total: int, weights: Sequence[float]) -> list[int]:
    """A number split by weight, with the largest remainders rounded up.

    >>> weighted(10, [3, 1]), weighted(3, [1, 1])
    ([8, 2], [2, 1])
    """
    if sum(weights) <= 0:
        return [0] * len(weights)
    exact = [total * weight / sum(weights) for weight in weights]
    given = [int(part) for part in exact]
    order = sorted(range(len(weights)), key=lambda at: (given[at] - exact[at], at))
    for at in order[: total - sum(given)]:
        given[at] += 1
    return given

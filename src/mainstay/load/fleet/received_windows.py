"""The windows of one go that have arrived from one assignment of a slice: each once, in any order."""

from __future__ import annotations

from collections.abc import Callable

from ..stats.model import WINDOW_MS, Window
from ..stats.sums import WindowSum
from ..stats.tally import KINDS

#: a slice keeps windows for as long as it has contact, and has at most hundreds in a second
MOST_AHEAD = 20_000
#: gaps that are asked for at once
_MOST_GAPS = 10


class ReceivedWindows:
    """Takes windows with their numbers, and passes each on once.

    >>> received = ReceivedWindows(lambda window: None, wall_s=100.0)
    >>> [received.take(number, Window(bucket=1000 + number)) for number in (0, 2, 0)]
    [True, True, False]
    >>> received.due = 5
    >>> received.gaps(), received.known_s
    ([(1, 2), (3, 5)], 0.1)
    """

    def __init__(
        self, on_window: Callable[[Window], None], *, wall_s: float, begin_s: float = 0.0, upto: int = 0
    ) -> None:
        """`wall_s`: from which the windows of the go are numbered. `begin_s`: the time of the plan at which this
        assignment begins. `upto`: the number of the first window that is expected."""
        self._on_window = on_window
        self._wall_s = wall_s
        self._beyond: dict[int, int] = {}
        """by number: the bucket after it"""
        self._known = -1
        """the bucket after all windows of which none is missing"""
        self.begin_s = begin_s
        self.upto = upto
        """all windows with lower numbers have arrived"""
        self.due = upto
        """how many should have arrived"""
        self.count = self.repeated = 0
        self.sum = WindowSum(most=KINDS)

    def take(self, number: int, window: Window, count: int = 1) -> bool:
        """Whether it is new. `count`: it is the sum of as many, from this number on. If one of them has arrived, the
        sum is not taken: its others are asked for again."""
        numbers = range(number, number + count)
        if number < self.upto or not self._beyond.keys().isdisjoint(numbers):
            self.repeated += 1
            return False
        self._beyond.update(dict.fromkeys(numbers, window.bucket + window.width))
        while self.upto in self._beyond:
            self._known = max(self._known, self._beyond.pop(self.upto))
            self.upto += 1
        self.count += count
        self.sum.add(window)
        self._on_window(window)
        return True

    def add_sum(self, total: Window) -> None:
        """Count the sum of the windows before the first one that is expected."""
        self.count += self.upto
        self.sum.add(total)
        self._known = total.bucket + total.width

    def gaps(self) -> list[tuple[int, int]]:
        """Windows that should have arrived, as ranges of their numbers: the oldest ones."""
        found: list[tuple[int, int]] = []
        at = self.upto
        for number in (*sorted(number for number in self._beyond if number < self.due), self.due):
            if number > at:
                found.append((at, number))
            at = number + 1
        return found[:_MOST_GAPS]

    @property
    def names(self) -> int:
        """How many steps, checks and metrics they have."""
        return len(self.sum.steps) + len(self.sum.checks) + len(self.sum.metrics)

    @property
    def total(self) -> Window | None:
        """The sum of all; None: there was none."""
        return self.sum.window() if self.sum.end >= 0 else None

    @property
    def known_s(self) -> float:
        """The time of the plan up to which all numbers are known."""
        return max(self.begin_s, round(self._known * WINDOW_MS / 1000 - self._wall_s, 3))

    @property
    def requests(self) -> int:
        return sum(step.ok.count + step.failed.count for step in self.sum.steps.values())

    @property
    def failed(self) -> int:
        return sum(step.failed.count for step in self.sum.steps.values())


__all__ = ["MOST_AHEAD", "ReceivedWindows"]

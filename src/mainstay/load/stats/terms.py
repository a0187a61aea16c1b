"""The time over which a threshold is judged: the whole run, or a window as described in `thresholds`."""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from .grammar import Meaning, Op, Threshold
from .measures import Piece
from .model import WINDOW_MS

_COMPARE: dict[Op, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
#: the most pieces of a sliding window
_PIECES = 60
#: the same for a count, which is cheaper
_COUNTS = 600


class Term(Protocol):
    """Judges a threshold over time. Returns whether it holds; None: undecided."""

    value: float | None
    final: bool
    """once broken, it stays broken"""

    def add(self, piece: Piece, seconds: float) -> bool | None: ...

    def skip(self, piece: Piece, seconds: float) -> bool | None:
        """The same for many seconds of which only the sum is known."""
        ...

    def finish(self, piece: Piece, seconds: float, load_s: float | None = None) -> bool | None:
        """The run is over. `load_s`: the base of rates over the whole run; None: the added seconds."""
        ...


class _Term:
    final = True

    def __init__(self, threshold: Threshold, meaning: Meaning) -> None:
        self._op = threshold.op
        self._meaning = meaning
        self.value: float | None = None

    def skip(self, piece: Piece, seconds: float) -> bool | None:
        """What happened in which of them is unknown, so the stretches of time begin after them."""
        del piece, seconds
        self._forget()
        return None

    def _forget(self) -> None:
        """Nothing to forget."""


class _Whole(_Term):
    final = False

    def __init__(self, threshold: Threshold, meaning: Meaning) -> None:
        super().__init__(threshold, meaning)
        self._total = Piece()
        self._seconds = 0.0

    def add(self, piece: Piece, seconds: float) -> bool | None:
        holds = self.finish(piece, seconds)
        return None if holds is False and self._may_hold_later() else holds

    skip = add

    def finish(self, piece: Piece, seconds: float, load_s: float | None = None) -> bool | None:
        self._total.merge(piece)
        self._seconds += seconds
        self.value, holds = _judged(self._op, self._meaning, self._total, load_s or self._seconds)
        return holds

    def _may_hold_later(self) -> bool:
        """Whether it is a count that is still too small, and grows."""
        if self._meaning.reading != "count" or self.value is None:
            return False
        return _grows_to(self._op, self.value, self._meaning.limit)


class _For(_Term):
    def __init__(self, threshold: Threshold, meaning: Meaning) -> None:
        super().__init__(threshold, meaning)
        self._wanted = math.ceil(meaning.window_s)
        self._broken = 0
        self._held = 0

    def _forget(self) -> None:
        self._broken = self._held = 0

    def add(self, piece: Piece, seconds: float) -> bool | None:
        value, holds = _judged(self._op, self._meaning, piece, seconds)
        if holds is None:
            return None
        self.value = value
        passed = _whole_seconds(seconds)
        self._held = self._held + passed if holds else 0
        self._broken = 0 if holds else self._broken + passed
        if self._broken >= self._wanted:
            return False
        return True if self._held >= self._wanted else None

    def finish(self, piece: Piece, seconds: float, load_s: float | None = None) -> bool | None:  # noqa: ARG002 - a part
        # a part of a second does not count, unless nothing else was measured
        if self.value is None:
            self.value = _judged(self._op, self._meaning, piece, seconds)[0]
        return None


class _Over(_Term):
    def __init__(self, threshold: Threshold, meaning: Meaning) -> None:
        super().__init__(threshold, meaning)
        seconds = math.ceil(meaning.window_s)
        self._grain = math.ceil(seconds / _PIECES)
        self._pieces: deque[tuple[Piece, float]] = deque(maxlen=math.ceil(seconds / self._grain))
        """with the time of each"""
        self._open = Piece()
        self._open_s = 0.0
        self._seconds = 0
        self._judged = False

    def _forget(self) -> None:
        self._pieces.clear()
        self._open, self._open_s, self._seconds = Piece(), 0.0, 0

    def add(self, piece: Piece, seconds: float) -> bool | None:
        self._open.merge(piece)
        self._open_s += seconds
        is_new = False
        for _ in range(_whole_seconds(seconds)):
            self._seconds += 1
            if self._seconds % self._grain == 0:
                self._pieces.append((self._open, self._open_s))
                self._open, self._open_s, is_new = Piece(), 0.0, True
        if not is_new or len(self._pieces) < (self._pieces.maxlen or 0):
            return None
        return self._look()

    def finish(self, piece: Piece, seconds: float, load_s: float | None = None) -> bool | None:  # noqa: ARG002 - a part
        if self._judged:
            return None
        self._open.merge(piece)
        self._pieces.append((self._open, self._open_s + seconds))
        return self._look()

    def _look(self) -> bool | None:
        value, holds = _judged_over(self._op, self._meaning, self._pieces)
        self.value = self.value if value is None else value
        self._judged = self._judged or holds is not None
        return holds


class _Within(_Term):
    def __init__(self, threshold: Threshold, meaning: Meaning) -> None:
        super().__init__(threshold, meaning)
        seconds = math.ceil(meaning.window_s)
        self._grain = math.ceil(seconds / _PIECES)
        self._pieces: deque[tuple[Piece, float]] = deque(maxlen=max(1, seconds // self._grain))
        """with the time of each; the last is still open"""
        self._seconds = 0

    def _forget(self) -> None:
        self._pieces.clear()
        self._seconds = 0

    def add(self, piece: Piece, seconds: float) -> bool | None:
        for _ in range(_whole_seconds(seconds)):
            if self._seconds % self._grain == 0:
                self._pieces.append((Piece(), 0.0))
            self._seconds += 1
        last, covered_s = self._pieces[-1]
        last.merge(piece)
        self._pieces[-1] = (last, covered_s + seconds)
        return self._look()

    def finish(self, piece: Piece, seconds: float, load_s: float | None = None) -> bool | None:  # noqa: ARG002 - a part
        # the rate of a part of a second does not count, unless nothing else was measured
        if not seconds or (self._meaning.reading == "per_s" and self.value is not None):
            return None
        return self.add(piece, seconds)

    def _look(self) -> bool | None:
        value, holds = _judged_over(self._op, self._meaning, self._pieces)
        self.value = self.value if value is None else value
        return holds


class _CountWithin(_Term):
    """A count is judged with each window, because it needs no histogram: two seconds of failures need not be aligned
    with whole seconds."""

    def __init__(self, threshold: Threshold, meaning: Meaning) -> None:
        super().__init__(threshold, meaning)
        buckets = max(1, round(meaning.window_s * 1000 / WINDOW_MS))
        self._grain = math.ceil(buckets / _COUNTS)
        self._length = max(1, buckets // self._grain)
        self._counts: deque[tuple[int, float]] = deque()
        """by grain: its number, and its count"""
        self._sum = 0.0
        self._first: int | None = None

    def _forget(self) -> None:
        self._counts.clear()
        self._sum, self._first = 0.0, None

    def add(self, piece: Piece, seconds: float) -> bool | None:  # noqa: ARG002 - a count has no time
        decision: bool | None = None
        for end, amount in piece.amounts:
            at = (end - 1) // self._grain
            self._count(at, amount)
            if decision is False:
                continue
            holds = _COMPARE[self._op](self._sum, self._meaning.limit)
            self.value = self._sum
            decision = decision if not holds and self._may_hold_later(at) else holds
        return decision

    def finish(self, piece: Piece, seconds: float, load_s: float | None = None) -> bool | None:  # noqa: ARG002 - a count
        decision = self.add(piece, seconds)
        if decision is None and self.value is not None:
            return _COMPARE[self._op](self.value, self._meaning.limit)
        return decision

    def _count(self, at: int, amount: float) -> None:
        self._first = at if self._first is None else self._first
        if amount:
            same = self._counts.pop()[1] if self._counts and self._counts[-1][0] == at else 0.0
            self._counts.append((at, same + amount))
            self._sum += amount
        while self._counts and self._counts[0][0] <= at - self._length:
            self._sum -= self._counts.popleft()[1]
        if not self._counts:  # rounding errors do not accumulate
            self._sum = 0.0

    def _may_hold_later(self, at: int) -> bool:
        """Whether the count is too small, and there is time left."""
        assert self._first is not None
        return _grows_to(self._op, self._sum, self._meaning.limit) and at - self._first + 1 < self._length


def _whole_seconds(seconds: float) -> int:
    """How many seconds a piece stands for: one, or more if it is that of a wide window."""
    return max(1, round(seconds))


def _within(threshold: Threshold, meaning: Meaning) -> Term:
    return _CountWithin(threshold, meaning) if meaning.reading == "count" else _Within(threshold, meaning)


_TERMS: dict[str, Callable[[Threshold, Meaning], Term]] = {"": _Whole, "for": _For, "over": _Over, "within": _within}


def _judged(op: Op, meaning: Meaning, piece: Piece, seconds: float) -> tuple[float | None, bool | None]:
    value = piece.read(meaning.reading, meaning.stat, seconds)
    return value, None if value is None else _COMPARE[op](value, meaning.limit)


def _judged_over(op: Op, meaning: Meaning, pieces: Iterable[tuple[Piece, float]]) -> tuple[float | None, bool | None]:
    """The same over several pieces, each with its time."""
    whole, seconds = Piece(), 0.0
    for piece, covered_s in pieces:
        whole.merge(piece)
        seconds += covered_s
    return _judged(op, meaning, whole, seconds)


def _grows_to(op: Op, count: float, limit: float) -> bool:
    """Whether a count that does not hold may hold when it grows."""
    return op in (">", ">=") or (op == "==" and count < limit)


def term_of(threshold: Threshold, meaning: Meaning) -> Term:
    return _TERMS[threshold.how](threshold, meaning)

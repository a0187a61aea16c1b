"""For how long a threshold must hold: over the whole run, or one of the windows that `thresholds` tells of."""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Callable
from typing import Protocol

from .grammar import Meaning, Op, Threshold
from .measures import Piece

_COMPARE: dict[Op, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
#: pieces that a sliding window is made of, at most
_PIECES = 60


class Term(Protocol):
    """How long something must hold. Answers whether it does; None: that cannot be said yet."""

    value: float | None
    final: bool
    """once broken, it stays so"""

    def add(self, piece: Piece, seconds: float) -> bool | None: ...

    def finish(self, piece: Piece, seconds: float) -> bool | None: ...


class _Whole:
    final = False

    def __init__(self, threshold: Threshold, meaning: Meaning) -> None:
        self._op = threshold.op
        self._meaning = meaning
        self._total = Piece()
        self._seconds = 0.0
        self.value: float | None = None

    def add(self, piece: Piece, seconds: float) -> bool | None:
        holds = self.finish(piece, seconds)
        return None if holds is False and self._may_come() else holds

    def finish(self, piece: Piece, seconds: float) -> bool | None:
        self._total.merge(piece)
        self._seconds += seconds
        self.value, holds = _judged(self._op, self._meaning, self._total, self._seconds)
        return holds

    def _may_come(self) -> bool:
        """A count that is still too small, and only grows."""
        if self._meaning.reading != "count" or self.value is None:
            return False
        return self._op in (">", ">=") or (self._op == "==" and self.value < self._meaning.limit)


class _For:
    final = True

    def __init__(self, threshold: Threshold, meaning: Meaning) -> None:
        self._op = threshold.op
        self._meaning = meaning
        self._wanted = math.ceil(meaning.window_s)
        self._broken = 0
        self._held = 0
        self.value: float | None = None

    def add(self, piece: Piece, seconds: float) -> bool | None:
        value, holds = _judged(self._op, self._meaning, piece, seconds)
        if holds is None:
            return None
        self.value = value
        self._held = self._held + 1 if holds else 0
        self._broken = 0 if holds else self._broken + 1
        if self._broken >= self._wanted:
            return False
        return True if self._held >= self._wanted else None

    def finish(self, piece: Piece, seconds: float) -> bool | None:
        # less than a second is no second; but it may be all that was measured
        if self.value is None:
            self.value = _judged(self._op, self._meaning, piece, seconds)[0]
        return None


class _Over:
    final = True

    def __init__(self, threshold: Threshold, meaning: Meaning) -> None:
        self._op = threshold.op
        self._meaning = meaning
        seconds = math.ceil(meaning.window_s)
        self._grain = math.ceil(seconds / _PIECES)
        self._pieces: deque[tuple[Piece, float]] = deque(maxlen=math.ceil(seconds / self._grain))
        """with the time that each covers"""
        self._open = Piece()
        self._open_s = 0.0
        self._seconds = 0
        self._judged = False
        self.value: float | None = None

    def add(self, piece: Piece, seconds: float) -> bool | None:
        self._open.merge(piece)
        self._open_s += seconds
        self._seconds += 1
        if self._seconds % self._grain:
            return None
        self._pieces.append((self._open, self._open_s))
        self._open, self._open_s = Piece(), 0.0
        if len(self._pieces) < (self._pieces.maxlen or 0):
            return None
        return self._look()

    def finish(self, piece: Piece, seconds: float) -> bool | None:
        if self._judged:
            return None
        self._open.merge(piece)
        self._pieces.append((self._open, self._open_s + seconds))
        return self._look()

    def _look(self) -> bool | None:
        whole = Piece()
        for piece, _ in self._pieces:
            whole.merge(piece)
        value, holds = _judged(self._op, self._meaning, whole, sum(covered_s for _, covered_s in self._pieces))
        self.value = self.value if value is None else value
        self._judged = self._judged or holds is not None
        return holds


class _Within:
    final = True

    def __init__(self, threshold: Threshold, meaning: Meaning) -> None:
        self._op = threshold.op
        self._meaning = meaning
        self._left = math.ceil(meaning.window_s)
        self._total = Piece()
        self._seconds = 0.0
        self.value: float | None = None

    def add(self, piece: Piece, seconds: float) -> bool | None:
        if self._left == 0:
            return None
        self._total.merge(piece)
        self._seconds += seconds
        self._left -= 1
        self.value, holds = _judged(self._op, self._meaning, self._total, self._seconds)
        return holds if self._left == 0 else None

    def finish(self, piece: Piece, seconds: float) -> bool | None:
        if self._left == 0:
            return None
        self._left = 1
        return self.add(piece, seconds)


_TERMS: dict[str, Callable[[Threshold, Meaning], Term]] = {"": _Whole, "for": _For, "over": _Over, "within": _Within}


def _judged(op: Op, meaning: Meaning, piece: Piece, seconds: float) -> tuple[float | None, bool | None]:
    value = piece.read(meaning.reading, meaning.stat, seconds)
    return value, None if value is None else _COMPARE[op](value, meaning.limit)


def term_of(threshold: Threshold, meaning: Meaning) -> Term:
    return _TERMS[threshold.how](threshold, meaning)

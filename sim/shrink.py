"""Shorten a failing run: drop the faults that it does not need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(parts: Sequence[T], fails: Callable[[Sequence[T]], bool], *, runs: int = 200) -> list[T]:
    """The parts without those that can go while `fails` stays true: halves first, then smaller pieces, then one by one.
    Makes at most `runs` runs.

    >>> shrink([1, 2, 3, 4, 5, 6, 7, 8], lambda parts: 3 in parts and 7 in parts)
    [3, 7]
    """
    left = list(parts)
    size = max(1, len(left) // 2)
    while left and runs > 0:
        dropped = False
        for start in range(0, len(left), size):
            shorter = left[:start] + left[start + size :]
            runs -= 1
            if fails(shorter):
                left, dropped = shorter, True
                break
            if runs <= 0:
                break
        if dropped:
            size = min(size, max(1, len(left) // 2))
        elif size > 1:
            size //= 2
        else:
            break
    return left

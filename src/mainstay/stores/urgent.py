"""Reads that a change begins with, which an overloaded manager must not refuse: a cancel reads its job first.

A store behind managers sends them with the class of the change. Other stores make no difference.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

#: rows that one urgent read may ask for
MOST_URGENT = 100

_urgent: ContextVar[bool] = ContextVar("mainstay_urgent_reads", default=False)


@contextlib.contextmanager
def urgent_reads() -> Iterator[None]:
    """Rows that are read by their ids within this context are read for a cancel.

    >>> with urgent_reads():
    ...     reads_are_urgent()
    True
    >>> reads_are_urgent()
    False
    """
    token = _urgent.set(True)
    try:
        yield
    finally:
        _urgent.reset(token)


def reads_are_urgent() -> bool:
    """Whether this code runs within `urgent_reads`."""
    return _urgent.get()


__all__ = ["MOST_URGENT", "reads_are_urgent", "urgent_reads"]

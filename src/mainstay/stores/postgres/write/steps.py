"""Steps: statements and their results, for a connection of any kind.

A generator yields one statement after the other and is sent the rows of each. The owner of a connection runs the steps,
with or without an event loop. So the same insert serves our own connections and those of users.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from ....errors import StoreError

T = TypeVar("T")


class Statement(NamedTuple):
    """One statement; its arguments are `$1`, `$2` and so on, in this order, each once."""

    sql: str
    args: tuple[Any, ...] = ()


class InsertClash(StoreError):
    """Another transaction stored the same key at the same time."""


Rows = list[tuple[Any, ...]]
Steps = Generator[Statement, Rows, T]

__all__ = ["InsertClash", "Rows", "Statement", "Steps"]

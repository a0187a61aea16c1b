"""Steps: statements and their answers, for a connection of any kind.

A generator asks for one statement after the other and is sent the rows of each. The owner of a connection takes the
steps, with or without an event loop; so an insert is written once for our own connections and for those of users.
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
    """Another transaction stored the same in the same moment."""


Rows = list[tuple[Any, ...]]
Steps = Generator[Statement, Rows, T]

__all__ = ["InsertClash", "Rows", "Statement", "Steps"]

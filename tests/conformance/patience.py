"""A store on which every commit is a race may refuse one: nothing was written, and whoever asked asks again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from mainstay.errors import TooManyConflicts

T = TypeVar("T")


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Ask until it is not refused for others who were quicker."""
    while True:
        try:
            return await call()
        except TooManyConflicts:
            continue

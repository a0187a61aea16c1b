"""The code of a test may raise anything; an exception never ends the generator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from ...errors import CallFailed

T = TypeVar("T")


class StepExit(Exception):
    """A step tried to exit the program (SystemExit, KeyboardInterrupt), or cancelled itself."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.kind = type(error).__name__


def is_ours(error: BaseException) -> bool:
    """Whether it is the cancellation of the current task, which must be obeyed."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


async def guarded(call: Awaitable[T]) -> T:
    """Await code of the test; anything it raises becomes an `Exception`, unless this task is cancelled."""
    try:
        return await call
    except Exception:
        raise
    except BaseException as error:
        if is_ours(error):
            raise
        raise StepExit(error) from None


def kind_of(error: Exception) -> str:
    """The kind under which an error is counted."""
    return error.kind if isinstance(error, (CallFailed, StepExit)) else type(error).__name__


def error_text(error: Exception) -> str:
    """The name and the message of an error."""
    name = error.kind if isinstance(error, StepExit) else type(error).__name__
    message = plain(error)
    return f"{name}: {message}" if message else name


def plain(value: object) -> str:
    """Any value as text that can be encoded: names and messages from the test."""
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001 - even `__str__` is code of the test
        return f"a {type(value).__name__} that cannot be shown"
    return text.encode(errors="replace").decode()

"""What users write may raise anything; what it raises ends that, and never the generator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from ...errors import CallFailed

T = TypeVar("T")


class StepExit(Exception):
    """A step wanted to leave the program (SystemExit, KeyboardInterrupt), or was cancelled by itself."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.kind = type(error).__name__


def is_ours(error: BaseException) -> bool:
    """Whether it is the cancellation of the task that runs now, which is to be obeyed."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


async def guarded(call: Awaitable[T]) -> T:
    """Await what a user wrote; whatever it raises is an `Exception`, unless this task is cancelled."""
    try:
        return await call
    except Exception:
        raise
    except BaseException as error:
        if is_ours(error):
            raise
        raise StepExit(error) from None


def kind_of(error: Exception) -> str:
    """What it is counted as."""
    return error.kind if isinstance(error, (CallFailed, StepExit)) else type(error).__name__


def told_of(error: Exception) -> str:
    """What was raised, in words."""
    name = error.kind if isinstance(error, StepExit) else type(error).__name__
    said = plain(error)
    return f"{name}: {said}" if said else name


def plain(value: object) -> str:
    """Anything as text that can be written and sent: what users name things by, and what their errors say."""
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001 - even that is the user's own code
        return f"a {type(value).__name__} that cannot be shown"
    return text.encode(errors="replace").decode()

"""What a worker may say between moves. Refused here, because a stored row that cannot be read is set aside."""

from __future__ import annotations

import math
from typing import Any

from ..errors import InvalidInput, PayloadTooLarge
from ..model import Progress
from .failure import shown, storable

MESSAGE_LIMIT = 1000


def checked_progress(progress: Progress) -> Progress:
    """The same progress if it can be stored and read back.

    >>> checked_progress(Progress(done=float("nan")))
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: progress.done: nan is not a finite number
    """
    _number(progress.done, "done")
    if progress.total is not None:
        _number(progress.total, "total")
    message: Any = progress.message
    if message is None:
        return progress
    if not isinstance(message, str):
        raise InvalidInput("progress.message", f"must be text, not {type(message).__name__}")
    if len(message) > MESSAGE_LIMIT:
        raise InvalidInput("progress.message", f"must have at most {MESSAGE_LIMIT} characters, not {len(message)}")
    if not storable(message):
        raise InvalidInput("progress.message", f"{message!r} holds half of a character (a lone surrogate)")
    return progress


def checked_checkpoint(checkpoint: bytes, *, limit: int) -> bytes:
    """The same bytes if they are some and not too many."""
    given: Any = checkpoint
    if not isinstance(given, bytes):
        raise InvalidInput("checkpoint", f"must be bytes, not {type(given).__name__}")
    if len(checkpoint) > limit:
        raise PayloadTooLarge(
            "checkpoint",
            f"{len(checkpoint)} bytes are more than the limit of {limit}; store the data elsewhere, keep a reference",
        )
    return checkpoint


def _number(value: Any, name: str) -> None:
    try:
        fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        fine = False
    if not fine:
        raise InvalidInput(f"progress.{name}", f"{shown(value)} is not a finite number")

"""Checks of progress and checkpoints. A row with an unreadable value would be set aside, so it is refused here."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ..errors import InvalidInput, PayloadTooLarge
from ..model import Progress
from ..stores import ClaimReport
from .failure import shown, storable

MESSAGE_LIMIT = 1000
#: whole numbers beyond this are stored as floats: not every reader has room for them
_MOST_WHOLE = 2**63 - 1


def checked_progress(progress: Progress) -> Progress:
    """The progress, if it can be stored and read back. Numbers and texts of derived types (of numpy, for example)
    become plain.

    >>> checked_progress(Progress(done=float("nan")))
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: progress.done: nan is not a finite number
    """
    done = _number(progress.done, "done")
    total = None if progress.total is None else _number(progress.total, "total")
    return Progress(done=done, total=total, message=_message(progress.message))


def checked_checkpoint(checkpoint: bytes, *, limit: int) -> bytes:
    """The checkpoint, if it is bytes and within the limit."""
    given: Any = checkpoint
    if not isinstance(given, bytes):
        raise InvalidInput("checkpoint", f"must be bytes, not {type(given).__name__}")
    if len(checkpoint) > limit:
        raise PayloadTooLarge(
            "checkpoint",
            f"{len(checkpoint)} bytes are more than the limit of {limit}; store the data elsewhere, keep a reference",
        )
    return bytes(checkpoint)


def checked_report(report: ClaimReport, *, limit: int) -> ClaimReport:
    """The report, if it can be stored and read back; the error names the job."""
    if report.progress is None and report.checkpoint is None:
        return report
    try:
        progress = None if report.progress is None else checked_progress(report.progress)
        checkpoint = None if report.checkpoint is None else checked_checkpoint(report.checkpoint, limit=limit)
    except InvalidInput as error:
        raise type(error)(error.field, f"job {report.job_id}: {error.rule}") from error
    return msgspec.structs.replace(report, progress=progress, checkpoint=checkpoint)


def _number(value: Any, name: str) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            whole = isinstance(value, int) and abs(value) <= _MOST_WHOLE
            return int(value) if whole else float(value)
    except OverflowError:  # a whole number beyond every float
        pass
    raise InvalidInput(f"progress.{name}", f"{shown(value)} is not a finite number")


def _message(message: Any) -> str | None:
    if message is None:
        return None
    if not isinstance(message, str):
        raise InvalidInput("progress.message", f"must be text, not {type(message).__name__}")
    if len(message) > MESSAGE_LIMIT:
        raise InvalidInput("progress.message", f"must have at most {MESSAGE_LIMIT} characters, not {len(message)}")
    if not storable(message):
        raise InvalidInput("progress.message", f"{message!r} holds half of a character (a lone surrogate)")
    return str.__str__(message)

"""Times and deadlines as users write them."""

from __future__ import annotations

from datetime import datetime

from ..clock import seconds
from ..errors import InvalidInput


def read_time(text: str, *, field: str) -> datetime:
    """Read a time with its zone.

    >>> read_time("2030-01-31T08:00+01:00", field="run_at").isoformat()
    '2030-01-31T08:00:00+01:00'
    """
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(field, f"{text!r} is not a time; write it like 2030-01-31T08:00+01:00") from None
    if at.utcoffset() is None:
        raise InvalidInput(field, f"{text!r} has no time zone; write {text}Z for UTC, or {text}+01:00")
    return at


def read_deadline(text: str, *, field: str = "queue_deadline") -> str | datetime:
    """Read a deadline: a duration, which is returned as it is, or a time."""
    try:
        seconds(text, field=field)
    except InvalidInput:
        if not text.strip()[:4].isdigit() or "-" not in text:
            raise
        return read_time(text, field=field)
    return text

"""Texts on pages: times, ages and states. A state has a word and a symbol, never only a colour."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from ...lifecycle import JOB, UNIT, State
from ...model import Job
from ...words import span

_SIGNS = {
    "scheduled": "◷",
    "finalizing": "◑",
    "validating": "◎",
    "partial": "◐",
    "quarantined": "■",
    "skipped": "»",
    "cancelled": "–",
    "cancelling": "⊘",
}


class StatusStyle(NamedTuple):
    """The style of a state: its kind, which sets the colour, and its symbol."""

    kind: str
    sign: str


def look_of(status: str) -> StatusStyle:
    """The style of a state by its flags, so that a new state of the table has a style.

    >>> look_of("succeeded"), look_of("quarantined"), look_of("running")
    (StatusStyle(kind='good', sign='✓'), StatusStyle(kind='bad', sign='■'), StatusStyle(kind='busy', sign='▸'))
    >>> look_of("of a newer version")
    StatusStyle(kind='off', sign='?')
    """
    state = JOB.get(status) or UNIT.get(status)
    if state is None:
        return StatusStyle("off", "?")
    kind, sign = _by_flags(state)
    return StatusStyle(kind, _SIGNS.get(status, sign))


def _by_flags(state: State) -> tuple[str, str]:
    if state.name == "succeeded":
        return "good", "✓"
    if state.final:
        return "off", "–"
    if state.settled:
        return "bad", "✕"
    if state.holds:
        return "busy", "▸"
    return "wait", "○"


def iso(at_ms: int) -> str:
    """A time in ISO format."""
    return _at(at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(at_ms: int) -> str:
    """A time for people, in UTC.

    >>> clock(1700000000123)
    '2023-11-14 22:13:20'
    """
    return _at(at_ms).strftime("%Y-%m-%d %H:%M:%S")


def ago(at_ms: int, now_ms: int) -> str:
    """The age of a time, or the time until it.

    >>> ago(0, 65_000), ago(65_000, 0), ago(0, 10), ago(0, 999_999_999)
    ('1m ago', 'in 1m', 'now', '11d ago')
    """
    seconds = abs(now_ms - at_ms) / 1000
    if seconds < 1:
        return "now"
    size, unit = next(each for each in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")) if seconds >= each[0])
    text = f"{int(seconds // size)}{unit}"
    return f"{text} ago" if at_ms <= now_ms else f"in {text}"


def lasted(job: Job, now_ms: int) -> str:
    """How long a worker has held it, or the time from its submission to its end."""
    if job.settled_ms is not None:
        return f"after {span(job.settled_ms - job.created_ms)}"
    if job.started_ms is not None and job.session is not None:
        return f"for {span((now_ms - job.started_ms) // 1000 * 1000)}"
    return ""


def _at(at_ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


__all__ = ["StatusStyle", "ago", "clock", "iso", "lasted", "look_of"]

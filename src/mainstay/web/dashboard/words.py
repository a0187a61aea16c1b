"""How things are said on the pages: times, ages, states. A state has its word and a sign, never only a colour."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from ...clock import duration_text
from ...lifecycle import JOB, UNIT, State
from ...model import Job

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


#: letters of the part of a session's id that is chance
_SESSION = 32


class StatusStyle(NamedTuple):
    """How a state looks: what kind it is of, for its colour, and its sign."""

    kind: str
    sign: str


def look_of(status: str) -> StatusStyle:
    """By its flags, so that a state that is new in the table looks like its kind.

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
    """For machines."""
    return _at(at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(at_ms: int) -> str:
    """For people; the page says that all times are UTC.

    >>> clock(1700000000123)
    '2023-11-14 22:13:20'
    """
    return _at(at_ms).strftime("%Y-%m-%d %H:%M:%S")


def span(seconds: float) -> str:
    """A duration, no more exact than it is read.

    >>> span(0.0421), span(3.44), span(754.3), span(0), span(93784)
    ('42ms', '3.4s', '12m34s', '0s', '1d2h')
    """
    if seconds < 0.001:
        return "0s"
    return duration_text(round(seconds, 3 if seconds < 1 else 1 if seconds < 60 else 0))


def ago(at_ms: int, now_ms: int) -> str:
    """How long ago, or in how long.

    >>> ago(0, 65_000), ago(65_000, 0), ago(0, 10), ago(0, 999_999_999)
    ('1m ago', 'in 1m', 'now', '11d ago')
    """
    seconds = abs(now_ms - at_ms) / 1000
    if seconds < 1:
        return "now"
    size, unit = next(each for each in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")) if seconds >= each[0])
    told = f"{int(seconds // size)}{unit}"
    return f"{told} ago" if at_ms <= now_ms else f"in {told}"


def lasted(job: Job, now_ms: int) -> str:
    """Since when somebody works on it, or how long it took from its submit to its end."""
    if job.settled_ms is not None:
        return f"after {span(max(0, job.settled_ms - job.created_ms) / 1000)}"
    if job.started_ms is not None and job.session is not None:
        return f"for {span(max(0, now_ms - job.started_ms) // 1000)}"
    return ""


def actor(name: str) -> str:
    """Who did it; a worker's session by its worker, and enough of the rest to tell it from others.

    >>> actor("web:ann"), actor("plant.c3ef02fd476cb699e6266acbc7a93ba9")
    ('web:ann', 'plant.c3ef02fd…')
    """
    head, dot, rest = name.rpartition(".")
    return f"{head}.{rest[:8]}…" if dot and len(rest) == _SESSION else name


def _at(at_ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


__all__ = ["StatusStyle", "actor", "ago", "clock", "iso", "lasted", "look_of", "span"]

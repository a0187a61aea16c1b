"""How the pages show a state and how long a job took. A state has its word and a sign, never only a colour."""

from __future__ import annotations

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


def lasted(job: Job, now_ms: int) -> str:
    """How long a worker has run the job, or how long it took from submit to end."""
    if job.settled_ms is not None:
        return f"after {span(job.settled_ms - job.created_ms)}"
    if job.started_ms is not None and job.session is not None:
        return f"for {span((now_ms - job.started_ms) // 1000 * 1000)}"
    return ""


__all__ = ["StatusStyle", "lasted", "look_of"]

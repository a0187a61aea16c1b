"""Cancel: at once if no worker holds the job, else through `cancelling` with a grace."""

from __future__ import annotations

from ...lifecycle import Move, table_of
from ...model import Job
from .attempts import Moves


def cancel(job: Job, reason: str, *, now_ms: int) -> Moves:
    """The moves of a cancel. A job that is stopping or cancelled is left alone."""
    if job.status in ("cancelled", "cancelling"):
        return ()
    table = table_of(job.parent)
    state = table.get(job.status)
    if state is not None and state.holds and table.allows(job.status, "cancelling"):
        ends_ms = now_ms + round(job.options.grace_s * 1000)
        return (Move(to="cancelling", reason=reason, fields={"expires_ms": ends_ms}),)
    return (Move(to="cancelled", reason=reason),)


def confirm(job: Job, reason: str | None = None) -> Moves:
    """Its worker has stopped it."""
    return (Move(to="cancelled", reason=reason or job.reason or "stopped by its worker"),)

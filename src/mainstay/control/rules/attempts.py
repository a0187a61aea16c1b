"""The ends of an attempt: failure, crash, timeout, release, snooze, park, skip."""

from __future__ import annotations

import msgspec

from ...clock import duration_text
from ...lifecycle import Move, Table, is_stopping, table_of, time_text
from ...model import ErrorInfo, Job
from ...words import counted
from .retry import Quarantine, Stop, Verdict, Wait

Moves = tuple[Move, ...]

_REASON_LIMIT = 200


def begun(job: Job) -> int:
    """`starts` including this attempt; the start is written with a later write, so the row may not have it yet."""
    return job.starts if job.started_ms is not None else job.starts + 1


def fail(job: Job, error: ErrorInfo, verdict: Verdict, *, now_ms: int, to: str = "failed") -> Moves:
    """The attempt failed (or timed out, with `to="timed_out"`); the verdict says what follows in the transaction."""
    if stopping(job):
        return _stopped(job, "failed while it was being cancelled", error)
    attempt = job.failures + 1
    fields = {"failures": attempt, "starts": begun(job), "error": error}
    details = {"attempt": attempt, "error": msgspec.to_builtins(error)}
    ended = Move(to=to, reason=error_line(error), details=details, fields=fields)
    return (ended, *_then(job, to, verdict, now_ms))


def crash(job: Job, error: ErrorInfo, verdict: Verdict, *, now_ms: int, to: str) -> Moves:
    """The attempt killed its process: counted apart from failures, and blamed on this job."""
    if stopping(job):
        return _stopped(job, "its worker died while stopping it", error)
    fields = {"crashes": job.crashes + 1, "starts": begun(job), "error": error}
    details = {"crash": job.crashes + 1, "error": msgspec.to_builtins(error)}
    ended = Move(to=to, reason=error_line(error), details=details, fields=fields)
    return (ended, *_then(job, to, verdict, now_ms))


def lose(job: Job, error: ErrorInfo, *, now_ms: int) -> Moves:
    """Its worker was lost while it ran, and nothing indicates that this job was the cause: a loss, not a crash. It runs
    again at once."""
    if stopping(job):
        return _stopped(job, "its worker died while stopping it", error)
    losses = job.losses + 1
    fields = {"releases": job.releases + 1, "losses": losses, "starts": begun(job), "error": error}
    details = {"loss": losses, "error": msgspec.to_builtins(error)}
    ended = Move(to="timed_out", reason=error_line(error), details=details, fields=fields)
    again = Wait(0, f"again at once; lost with its worker {counted(losses, 'time')}")
    return (ended, *_then(job, "timed_out", again, now_ms))


def release(job: Job, reason: str, *, lost: bool = False) -> Moves:
    """Give the claim back; no failure is counted and the job keeps its place in the queue. `lost`: its session died,
    and nothing indicates that this job was the cause."""
    if stopping(job):
        return _stopped(job, reason)
    if not _table(job).allows(job.status, "pending"):
        return disown(job, reason)
    counts = {"releases": job.releases + 1, "losses": job.losses + int(lost)}
    details = {"loss": counts["losses"]} if lost else None
    return (Move(to="pending", reason=reason, details=details, fields={**counts, "extra_ms": 0}),)


def snooze(job: Job, wait_s: float, reason: str | None, *, now_ms: int) -> Moves:
    """The job postpones itself; no failure is counted."""
    if stopping(job):
        return _stopped(job, "stopped by postponing itself")
    due_ms = now_ms + round(wait_s * 1000)
    why = reason or f"postponed itself until {time_text(due_ms)}"
    return _put_off(job, due_ms, "given back by itself", why, {"starts": begun(job)})


def park(job: Job, wait_s: float, reason: str, *, now_ms: int) -> Moves:
    """Postpone it because its worker cannot run it; neither a failure nor a start is counted."""
    if stopping(job):
        return _stopped(job, reason)
    return _put_off(job, now_ms + round(wait_s * 1000), "given back by its worker", reason, {})


def skip(job: Job, reason: str) -> Moves:
    """The job says that it is not needed."""
    if stopping(job):
        return _stopped(job, reason)
    return (Move(to="skipped", reason=reason, fields={"starts": begun(job)}),)


def disown(job: Job, reason: str, **counts: int) -> Moves:
    """The owner is gone and the state stays: another owner can take over."""
    no_holder = {"session": None, "claimed_ms": None, "started_ms": None, "expires_ms": None}
    return (Move(to=job.status, reason=reason, fields={**no_holder, **counts}, flag="note"),)


def stopping(job: Job) -> bool:
    """Whether it is being cancelled: then every end except success completes the cancel."""
    return is_stopping(job.parent, job.status)


def error_line(error: ErrorInfo) -> str:
    """An error in one line."""
    message = error.message.strip().split("\n", 1)[0]
    return (f"{error.type}: {message}" if message else error.type)[:_REASON_LIMIT]


def _stopped(job: Job, cause: str, error: ErrorInfo | None = None) -> Moves:
    why = f"{job.reason} ({cause})" if job.reason else cause
    details = None if error is None else {"error": msgspec.to_builtins(error)}
    return (Move(to="cancelled", reason=why[:_REASON_LIMIT], details=details),)


def _put_off(job: Job, due_ms: int, back: str, why: str, counts: dict[str, int]) -> Moves:
    fields = {"releases": job.releases + 1, "extra_ms": 0, **counts}
    if not _table(job).allows("pending", "scheduled"):
        return (Move(to="pending", reason=why, fields={**fields, "due_ms": due_ms}),)
    return (
        Move(to="pending", reason=back, fields=fields),
        Move(to="scheduled", reason=why, fields={"due_ms": due_ms}),
    )


def _then(job: Job, ended: str, verdict: Verdict, now_ms: int) -> Moves:
    """The next move after an ended attempt, if the table allows it."""
    table = _table(job)
    if isinstance(verdict, Stop):
        return ()
    if isinstance(verdict, Quarantine):
        return (Move(to="quarantined", reason=verdict.reason),) if table.allows(ended, "quarantined") else ()
    return (_again(table, ended, verdict, now_ms),)


def _again(table: Table, ended: str, wait: Wait, now_ms: int) -> Move:
    if not wait.seconds:
        # at once: it keeps its place in the queue
        return Move(to="pending", reason=wait.reason, fields={"extra_ms": 0})
    reason = wait.reason or f"retry in {duration_text(wait.seconds)}"
    to = "scheduled" if table.allows(ended, "scheduled") else "pending"
    return Move(to=to, reason=reason, fields={"due_ms": now_ms + round(wait.seconds * 1000), "extra_ms": 0})


def _table(job: Job) -> Table:
    return table_of(job.parent)

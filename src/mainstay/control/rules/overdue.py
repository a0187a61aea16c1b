"""The sweeper's decision about a row whose owner died or whose time ran out."""

from __future__ import annotations

import random

from ...clock import duration_text
from ...lifecycle import Move, table_of, time_text
from ...model import ErrorInfo, Job, expiry
from . import attempts
from .attempts import Moves
from .blame import is_blamed
from .retry import Decide, Quarantine, Stop, after_crash, after_failure

_LOST = "its worker died"


def lost(job: Job, *, now_ms: int) -> Moves:
    """The session that holds the job is dead. The job is blamed if it ran alone; else it counts as a loss."""
    table = table_of(job.parent)
    state = table.get(job.status)
    if state is None or not state.holds or job.session is None:
        return ()
    if attempts.stopping(job):
        return attempts.release(job, f"{_LOST} while stopping it")
    started = job.started_ms is not None
    goes_back = table.allows(job.status, "pending")
    if not started and goes_back:
        return attempts.release(job, f"{_LOST} before the work began", lost=True)
    error = ErrorInfo(
        type="WorkerLost", code="worker_lost", message=f"session {job.session} was lost while it was {job.status}"
    )
    blamed = is_blamed(job)
    verdict = after_crash(job)
    if blamed and (goes_back or (started and isinstance(verdict, Quarantine))):
        return attempts.crash(job, error, verdict, now_ms=now_ms, to="timed_out")
    if goes_back:
        return attempts.lose(job, error, now_ms=now_ms)
    reason = f"owner lost: session {job.session} is gone; another may take over"
    if not started:
        return attempts.disown(job, reason)
    if blamed:
        return attempts.disown(job, reason, crashes=job.crashes + 1)
    return attempts.disown(job, reason, releases=job.releases + 1, losses=job.losses + 1)


def overran(job: Job, *, now_ms: int, rng: random.Random) -> Moves:
    """Its `expires_ms` has passed: queue deadline, end of the grace, run timeout, or a stall.

    The deadline may have moved since (progress was reported, or time was granted); then only `expires_ms` is updated.
    """
    if job.expires_ms is None or job.expires_ms > now_ms:
        return ()
    state = table_of(job.parent).get(job.status)
    if state is None or state.settled:
        return ()
    if attempts.stopping(job):
        grace = duration_text(job.options.grace_s)
        return attempts.release(job, f"did not stop within its grace of {grace}")
    if not state.holds:
        return _late_start(job)
    if job.status == "dispatched":
        window = _elapsed(job.claimed_ms or job.changed_ms, now_ms)
        return attempts.release(job, f"session {job.session} did not confirm it within {window}")
    ends_ms = expiry(job)
    if ends_ms is None or ends_ms > now_ms:
        return _watch_again(job, ends_ms)
    return time_out(job, stalled=has_stalled(job), now_ms=now_ms, rng=rng)


def has_stalled(job: Job) -> bool:
    """Whether the stall timeout ended before the run timeout."""
    options = job.options
    if options.stall_timeout_s is None or job.started_ms is None:
        return False
    if options.run_timeout_s is None:
        return True
    quiet_from = max(job.started_ms, job.progress_ms or 0)
    return quiet_from + options.stall_timeout_s * 1000 <= job.started_ms + job.extra_ms + options.run_timeout_s * 1000


def time_out(
    job: Job, *, stalled: bool, now_ms: int, rng: random.Random, decide: Decide | None = None, how: str = ""
) -> Moves:
    """A run that overran: a failure, followed by the policy; a stalled job may be kept for an operator. `how`: the time
    and the limit, of work that counts its time itself."""
    began_ms = job.started_ms or job.claimed_ms or job.changed_ms
    if stalled:
        for_s = _elapsed(max(began_ms, job.progress_ms or 0), now_ms)
        limit = _limit("stall timeout", job.options.stall_timeout_s)
        error = ErrorInfo(type="Stalled", code="stalled", message=f"no progress for {for_s} ({limit})")
        if job.options.on_stall == "hold":
            return attempts.fail(job, error, Quarantine("stalled; kept for an operator"), now_ms=now_ms, to="timed_out")
    else:
        run_s = job.options.run_timeout_s
        limit = _limit("run timeout", None if run_s is None else run_s + job.extra_ms / 1000)
        message = how or f"still running after {_elapsed(began_ms, now_ms)} ({limit})"
        error = ErrorInfo(type="RunTimeout", code="run_timeout", message=message)
    if job.session is None:
        # its units advance it: there is no attempt to repeat, and a resume continues from the results of its units
        return attempts.fail(job, error, Stop(), now_ms=now_ms, to="timed_out")
    verdict = after_failure(job, error, rng=rng, decide=decide)
    return attempts.fail(job, error, verdict, now_ms=now_ms, to="timed_out")


def _elapsed(since_ms: int, now_ms: int) -> str:
    return duration_text(max(0, now_ms - since_ms) / 1000)


def _limit(what: str, limit_s: float | None) -> str:
    """The limit as it was set, if it was; a worker may stop a run at a limit of its own."""
    return what if limit_s is None else f"{what} {duration_text(limit_s)}"


def _missed_start(job: Job) -> Moves:
    """It had not begun by its queue deadline: settled, for an operator or the submitter to decide."""
    by = time_text(job.options.start_by_ms or 0)
    if job.awaits_cores:
        message = f"got no cores by {by} (queue deadline): {job.reason or 'it was not placed'}"
    else:
        message = f"no attempt had begun by {by} (queue deadline)"
    error = ErrorInfo(type="QueueDeadline", code="queue_deadline", message=message)
    return (Move(to="timed_out", reason=message, fields={"error": error}),)


def _late_start(job: Job) -> Moves:
    if job.options.start_by_ms != job.expires_ms or job.starts > 0:
        return _watch_again(job, job.options.start_by_ms if job.starts == 0 else None)
    if not table_of(job.parent).allows(job.status, "timed_out"):
        return _watch_again(job, None)
    return _missed_start(job)


def _watch_again(job: Job, at_ms: int | None) -> Moves:
    when = f"until {time_text(at_ms)}" if at_ms is not None else "no more"
    return (Move(to=job.status, reason=f"deadline watched {when}", fields={"expires_ms": at_ms}, flag="note"),)

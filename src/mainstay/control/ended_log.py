"""The log record of an attempt that failed, the same whichever part of the system ended it."""

from __future__ import annotations

import logging

from .failure import one_line
from .writer import Outcome

log = logging.getLogger("mainstay.job")


def log_end(outcome: Outcome) -> None:
    """Log a warning for an attempt that failed, with what follows; an error with its traceback for the last one."""
    job = outcome.job
    if outcome.outcome != "applied" or job is None or job.error is None:
        return
    fields = {"job_id": job.id, "job_name": job.name, "failures": job.failures, "crashes": job.crashes}
    what = one_line(f"{job.error.type}: {job.error.message}")
    if job.settled_ms is None:
        log.warning("failed, %s: %s", one_line(job.reason or "again"), what, extra=fields)
    elif log.isEnabledFor(logging.ERROR):
        record = log.makeRecord(
            log.name, logging.ERROR, __file__, 0, "%s: %s", (job.status, what), None, extra=dict(fields)
        )
        # formatters look for it here; it is text, because the exception may come from another process
        record.exc_text = (job.error.traceback or "").rstrip() or None
        log.handle(record)

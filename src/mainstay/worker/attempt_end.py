"""From the ending of a run to the end of an attempt that control writes."""

from __future__ import annotations

import logging
from datetime import timedelta

import msgspec

from ..control import AttemptEnd, AttemptEnds, Quarantine, error_info
from ..errors import InvalidInput
from .endings import Crashed, Done, Ending, Failed, GivenBack, Halted, Misfit, NotNeeded, Overrun, PutOff
from .run import CANCELLED, LOST, OVERRAN, STALLED, JobRun

log = logging.getLogger("mainstay.worker")


def attempt_end(ends: AttemptEnds, run: JobRun, ending: Ending) -> AttemptEnd | None:
    """What control writes about a run that ended so; None: nothing, because another session has the job."""
    try:
        if type(ending) is Done:  # nearly all of them
            return ends.success(
                run.job, ending.result, ending.followups, started_ms=run.started_ms, decide=run.work.decide
            )
        end = _other_end(ends, run, ending)
    except Exception as error:
        # A wait, a reason or a follow-up that cannot be stored is a mistake in the job. Whatever it is, the attempt has
        # to end: without an end the job would stay running, and no longer be known here.
        if not isinstance(error, InvalidInput):
            log.exception("end of attempt could not be made job_id=%s", run.job.id)
        end = ends.failure(run.job, error_info(error, retryable=False), decide=run.work.decide)
    return None if end is None else msgspec.structs.replace(end, started_ms=run.started_ms, policy=run.work.decide)


def _other_end(ends: AttemptEnds, run: JobRun, ending: Ending) -> AttemptEnd | None:
    job, decide = run.job, run.work.decide
    match ending:
        case Failed():
            return ends.failure(job, ending.error, decide=decide, after_s=ending.after_s)
        case Misfit(error):
            verdict = Quarantine(f"its arguments do not fit the task: {error.message}")
            return ends.failure(job, error, decide=lambda *_: verdict)
        case Crashed(error):
            return ends.failure(job, error, crashed=True)
        case PutOff(wait_s, reason):
            return ends.snooze(job, timedelta(seconds=wait_s), reason)
        case NotNeeded(reason):
            return ends.skip(job, reason)
        case GivenBack(reason):
            return ends.release(job, reason)
        case Overrun(how):
            return ends.timeout(job, "run", decide=decide, how=how)
        case Halted() if run.cause == LOST:
            return None
        case Halted() if run.cause == CANCELLED:
            return ends.cancellation(job)
        case Halted() if run.cause in (OVERRAN, STALLED):
            return ends.timeout(job, "stall" if run.cause == STALLED else "run", decide=decide)
        case Halted():
            # also a job that stopped although nothing asked it to: it goes back to the queue
            return ends.release(job, "its worker stopped")
        case _:  # `Gone`
            return None

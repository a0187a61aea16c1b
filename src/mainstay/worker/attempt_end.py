"""From the ending of a run to the end of an attempt that control writes."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from ..control import AttemptEnd, AttemptEnds, Quarantine, error_info
from ..errors import InvalidInput
from .endings import Crashed, Done, Ending, Failed, Halted, Misfit, NotNeeded, PutOff
from .run import CANCELLED, LOST, OVERRAN, STALLED, JobRun


def attempt_end(ends: AttemptEnds, run: JobRun, ending: Ending) -> AttemptEnd | None:
    """What control writes about a run that ended so; None: nothing, because another session has the job."""
    if type(ending) is Done:  # nearly all of them
        return ends.success(run.job, ending.result, ending.followups, started_ms=run.started_ms, decide=run.work.decide)
    try:
        return _other_end(ends, run, ending)
    except InvalidInput as error:  # a wait or a reason that cannot be stored is a mistake in the job
        info = error_info(error, retryable=False)
        return ends.failure(run.job, info, decide=run.work.decide, started_ms=run.started_ms)


def _other_end(ends: AttemptEnds, run: JobRun, ending: Ending) -> AttemptEnd | None:
    job, started_ms, decide = run.job, run.started_ms, run.work.decide
    match ending:
        case Failed():
            return ends.failure(job, ending.error, decide=decide, after_s=ending.after_s, started_ms=started_ms)
        case Misfit(error):
            verdict = Quarantine(f"its arguments do not fit the task: {error.message}")
            return ends.failure(job, error, decide=lambda *_: verdict, started_ms=started_ms)
        case Crashed(error):
            return ends.failure(job, error, crashed=True, started_ms=started_ms)
        case PutOff(wait_s, reason):
            return ends.snooze(job, timedelta(seconds=wait_s), reason, started_ms=started_ms)
        case NotNeeded(reason):
            return ends.skip(job, reason, started_ms=started_ms)
        case Halted() if run.cause == LOST:
            return None
        case Halted() if run.cause == CANCELLED:
            return ends.cancellation(job, started_ms=started_ms)
        case Halted() if run.cause in (OVERRAN, STALLED):
            cause: Literal["run", "stall"] = "stall" if run.cause == STALLED else "run"
            return ends.timeout(job, cause, decide=decide, started_ms=started_ms)
        case Halted():
            # also a job that stopped although nothing asked it to: it goes back to the queue
            return ends.release(job, "its worker stopped", started_ms=started_ms)
        case _:  # `Gone`
            return None

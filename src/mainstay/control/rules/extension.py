"""More time for a long run, earned by progress.

Each grant requires more progress than the grant before, and is half as long: 1/2, 1/4, 1/8 ... of the run timeout, at
least a second, at most five times. So a job that advances gets up to about its run timeout again, and a stuck job gets
nothing.

An attempt of a job that managers lead goes on from one claim to the next, and so do its grants.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...lifecycle import Event
from ...model import LEAD_QUEUE, Job

MOST_GRANTS = 5
FLOOR_S = 1.0

#: where a grant is kept in the details of its note
_MARK = "grant"
#: of which attempt it is: how many had failed before
_ATTEMPT = "failures"


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `extend`."""

    granted_s: float
    """zero when refused"""
    grants: int
    """grants of this attempt so far"""
    why: str
    total_s: float = 0.0
    """all that was granted in this attempt, now and before"""

    @property
    def granted(self) -> bool:
        return self.granted_s > 0


def grant(job: Job, events: Sequence[Event]) -> Extension:
    """Decide about one more grant; `events` are the job's latest, at least back to its claim."""
    given = [event.data for event in events if _MARK in event.data and _is_of_attempt(event, job)]
    count, total_s = len(given), float(sum(data["seconds"] for data in given))
    base_s = job.options.run_timeout_s
    if base_s is None:
        return Extension(granted_s=0.0, grants=count, why="the job has no run timeout to extend")
    why = ""
    if count >= MOST_GRANTS:
        why = f"all {MOST_GRANTS} extensions of this attempt are used up"
    elif job.progress is None or job.progress_ms is None or job.progress_ms < (job.claimed_ms or 0):
        why = "this attempt has reported no progress yet"
    elif given and job.progress.done <= given[-1].get("done", 0):
        why = f"no progress since the last extension (still at {job.progress.done:g})"
    if why or job.progress is None:
        return Extension(granted_s=0.0, grants=count, why=why, total_s=total_s)
    granted_s = max(base_s / 2 ** (count + 1), min(FLOOR_S, base_s))
    why = f"progress rose to {job.progress.done:g}"
    return Extension(granted_s=granted_s, grants=count + 1, why=why, total_s=total_s + granted_s)


def mark(job: Job, extension: Extension) -> dict[str, float]:
    """The details of the note of a grant, from which the next decision is made."""
    done = job.progress.done if job.progress is not None else 0.0
    return {_MARK: extension.grants, "seconds": extension.granted_s, "done": done, _ATTEMPT: job.failures}


def _is_of_attempt(event: Event, job: Job) -> bool:
    if job.queue == LEAD_QUEUE:
        return bool(event.data.get(_ATTEMPT) == job.failures)
    return event.token == job.token

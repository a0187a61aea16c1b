"""What a person can do about a batch that is settled, in the one place that says so."""

from __future__ import annotations

from ..control.explain import Advice
from ..model import Job

#: what a batch may be resumed from, in the same job
_RESUMABLE = ("partial", "failed", "timed_out", "quarantined")


def advice_of(job: Job) -> list[Advice]:
    """What to do about a settled batch."""
    return batch_advice(job.id, job.status, lacking=0)


def batch_advice(job_id: str, status: str, *, lacking: int) -> list[Advice]:
    """What to do. `lacking`: expected outputs that are not there, or not intact."""
    resume = f"mainstay jobs resume {job_id}"
    if status == "succeeded":
        return [Advice(why="make what is lacking, in a job of its own", command=resume)] if lacking else []
    if status not in _RESUMABLE:
        return []
    told = [
        Advice(why="see what a resume would run, and why", command=f"{resume} --dry-run"),
        Advice(why="run what is missing or corrupt, and nothing else", command=resume),
        Advice(why="outputs came late, or were restored: look again", command=f"mainstay jobs validate {job_id}"),
    ]
    if status == "partial":
        accept = f"mainstay jobs force {job_id} --to succeeded --reason '...'"
        told.append(Advice(why="it will do as it is: accept it, with a reason", command=accept))
    return told

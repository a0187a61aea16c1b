"""What an operator can do about a batch."""

from __future__ import annotations

from ..control.explain import Advice
from ..lifecycle import table_of
from ..model import Job

#: states from which the same job is resumed
RESUMABLE = ("partial", "failed", "timed_out", "quarantined")


def advice_of(job: Job) -> list[Advice]:
    """What to do about a settled batch."""
    return batch_advice(job.id, job.status, lacking=0)


def batch_advice(job_id: str, status: str, *, lacking: int) -> list[Advice]:
    """Commands to try. `lacking` is the number of missing or corrupt outputs."""
    state = table_of(None).get(status)
    if state is not None and not state.settled:
        return [Advice(why="follow its progress", command=f"mainstay jobs status {job_id} --watch")]
    resume = f"mainstay jobs resume {job_id}"
    if status == "succeeded":
        return [Advice(why="make the missing outputs, in a new job", command=resume)] if lacking else []
    if status not in RESUMABLE:
        return []
    advice = [
        Advice(why="see what a resume would run, and why", command=f"{resume} --dry-run"),
        Advice(why="run what is missing or corrupt, and nothing else", command=resume),
        Advice(
            why="outputs arrived late, or were restored: validate again", command=f"mainstay jobs validate {job_id}"
        ),
    ]
    if status == "partial":
        accept = f"mainstay jobs force {job_id} --to succeeded --reason '...'"
        advice.append(Advice(why="accept it as it is, with a reason", command=accept))
    return advice

"""What an operator can do about a node job, or about the unit of one node."""

from __future__ import annotations

from ..control.explain import Advice
from ..lifecycle import table_of
from ..model import Job
from .spec import is_leader_unit, node_of

#: states from which the failed nodes of a job are run again
RETRYABLE = ("failed", "timed_out")


def advice_of(job: Job) -> list[Advice]:
    """What to do about a settled node job."""
    advice = job_advice(job.id, job.status, failed=True)
    look = Advice(why="see how it ended on each node", command=f"mainstay node show {job.id}")
    return [look, *advice] if advice else []


def job_advice(job_id: str, status: str, *, failed: bool) -> list[Advice]:
    """Commands to try for a job whose nodes are in view. `failed` is whether the job failed on a node."""
    state = table_of(None).get(status)
    if state is not None and not state.settled:
        again = Advice(why="run it again on the nodes where it failed", command=f"mainstay node retry {job_id}")
        return [again] if failed and status == "running" else []
    if status not in RETRYABLE:
        return []
    every = Advice(why="run it again on all nodes that are active then", command=f"mainstay jobs retry {job_id}")
    if not failed:
        return [every]
    some = Advice(
        why="run it again on the nodes where it failed, and no others", command=f"mainstay node retry {job_id}"
    )
    return [some, every]


def unit_advice_of(unit: Job) -> list[Advice]:
    """What to do about a settled unit."""
    if unit.status not in RETRYABLE or unit.parent is None:
        return []
    look = Advice(why="see the other nodes of its job", command=f"mainstay node show {unit.parent}")
    if is_leader_unit(unit.unit):
        return [look]
    node = node_of(unit.unit or "")
    again = Advice(why="the cause is fixed: run it again", command=f"mainstay node retry {unit.parent} {node}")
    return [look, again]

"""What of a plan falls to each generator process, and what is left of it for processes that continue the plan."""

from __future__ import annotations

from collections.abc import Mapping

from .pace import shares, weighted
from .plan import RunPlan, WorkflowPlan


def iterations_by_process(plan: WorkflowPlan, processes: int) -> list[int]:
    """A fixed number of iterations dealt to all processes, in proportion to their users, so that each user has the
    same share. The users of a process share them; processes do not exchange any, which would cost a message for each
    iteration."""
    if plan.iterations is None or plan.users is None:
        return [0] * processes
    return weighted(plan.iterations, shares(max(1, round(plan.users.highest)), processes))


def done_by_slice(plan: RunPlan, done: Mapping[str, int], own: range, processes: int) -> list[dict[str, int]]:
    """For each process of a slice, by workflow: the iterations of its share that the slice began before."""
    dealt = {name: done_by_process(plan.workflows[name], began, own, processes) for name, began in done.items()}
    return [{name: parts[at] for name, parts in dealt.items()} for at in range(len(own))]


def done_by_process(plan: WorkflowPlan, done: int, own: range, processes: int) -> list[int]:
    """The iterations that a slice began before, dealt to its processes `own`, of all `processes`. What is left of a
    fixed number is dealt in proportion to the shares, so that all of its processes end at about the same time: which
    of them began how many before is not known.

    >>> from .pace import flat
    >>> plan = WorkflowPlan(name="Shop", model="iterations", users=flat(4, 60.0), iterations=100)
    >>> iterations_by_process(plan, 4)
    [25, 25, 25, 25]
    >>> done_by_process(plan, 31, range(2, 4), 4)
    [15, 16]
    """
    if plan.iterations is None:
        return shares(done, len(own))
    planned = iterations_by_process(plan, processes)[own.start : own.stop]
    left = weighted(max(0, sum(planned) - done), planned)
    return [share - rest for share, rest in zip(planned, left, strict=True)]


__all__ = ["done_by_process", "done_by_slice", "iterations_by_process"]

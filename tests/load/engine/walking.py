"""Virtual users without a network: workflows made from an order of steps, and walked in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mainstay.load.blueprint import blueprint_of
from mainstay.load.clients.all import Clients
from mainstay.load.clients.network import Network
from mainstay.load.engine.recorder import MetricRecorder
from mainstay.load.engine.user import StepWalker, StopSignal, User, WorkflowRecorder
from mainstay.load.engine.workflow_users import ProcessShare, Visitor, WorkflowUsers
from mainstay.load.hooks import step
from mainstay.load.plan import LoadOptions, plan_of
from mainstay.load.workflow import Workflow

#: what a step does when it is its turn
Does = Callable[[str, Any], Any]


def workflow_of(after: Mapping[str, Sequence[str]], does: Does) -> type[Workflow]:
    """A workflow with these steps; each takes the results of those that it comes after by their names."""

    def made(name: str, before: Sequence[str]) -> Any:
        source = f"async def {name}(self, {', '.join(before)}):\n    return await does({name!r}, locals())"
        space: dict[str, Any] = {"does": does}
        exec(source, space)
        return step(*before)(space[name])

    return type("Made", (Workflow,), {name: made(name, before) for name, before in after.items()})


class Walk:
    """One user of a workflow."""

    def __init__(self, workflow: type[Workflow], shared: Mapping[str, Any] | None = None, *, number: int = 0) -> None:
        blueprint = blueprint_of(workflow)
        self.metrics = MetricRecorder()
        self.notes = WorkflowRecorder(blueprint, open_model=False, metrics=self.metrics)
        self.stop = StopSignal()
        self.me = workflow()
        self.me.vu = User(number=number, process=0, processes=1, metrics=self.metrics, seed=0)
        self.me.client = Clients(Network())
        self.me.params = {}
        self._walker = StepWalker(self.me, blueprint, self.notes, shared or {}, self.stop)

    async def iterate(self) -> None:
        await self._walker.iterate()

    @property
    def skipped(self) -> dict[str, int]:
        steps = {name: one.skipped for name, one in self.notes.steps.items() if one.skipped}
        return steps | {name: one.skipped for name, one in self.notes.checks.items() if one.skipped}

    def errors(self) -> dict[str, dict[str, int]]:
        found = {name: one.take() for name, one in self.notes.steps.items()}
        return {name: stats.errors for name, stats in found.items() if stats is not None and stats.errors}


def crowd_of(
    workflow: type[Workflow],
    *,
    processes: int = 1,
    process: int = 0,
    feed: Any = None,
    begin_s: float = 0.0,
    done: int = 0,
    **options: Any,
) -> WorkflowUsers:
    """The users of one process."""
    plan = plan_of({workflow.__name__: workflow}, LoadOptions(**options))
    return WorkflowUsers(
        blueprint_of(workflow),
        plan.workflows[workflow.__name__],
        ProcessShare(process, processes, 0),
        network=Network(),
        shared={},
        params={},
        metrics=MetricRecorder(),
        feed=feed,
        begin_s=begin_s,
        done=done,
    )


async def turns(n: int = 3) -> None:
    """Let others have theirs."""
    for _ in range(n):
        await asyncio.sleep(0)


__all__ = ["Visitor", "Walk", "crowd_of", "turns", "workflow_of"]

"""A load test and the options of one submission, checked: everything that is known before a process starts."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

from ..errors import InvalidInput
from ..words import counted
from .blueprint import Blueprint, blueprint_of, check_states
from .plan import LoadOptions, RunPlan, plan_of
from .run_spec import RunOrder, RunSpec, WorkflowMethods
from .sources import LoadTest
from .stats.grammar import Threshold
from .stats.model import Header
from .stats.thresholds import check, thresholds_of
from .workflow import slips_of

#: generator processes for each core, beyond which a run warns
_CROWDED = 2


class PlannedRun:
    """A load test with the options of one submission, planned and checked."""

    def __init__(self, test: LoadTest, options: LoadOptions) -> None:
        self.test = test
        self.options = options
        self.plan: RunPlan = plan_of(test.workflows, options)
        self.blueprints: dict[str, Blueprint] = {
            name: blueprint_of(test.workflows[name]) for name in self.plan.workflows
        }
        check_states(self.blueprints)
        self.thresholds: list[Threshold] = self._thresholds()
        self.notes = [*slips_of({name: test.workflows[name] for name in self.plan.workflows}), *self.plan.notes]
        """warnings: values of the test or of the submission that have no effect, or hardly the intended one"""
        self.processes = self._processes()
        check(self.thresholds, self.header("", 0))

    def _thresholds(self) -> list[Threshold]:
        thresholds: list[Threshold] = []
        for name in self.plan.workflows:
            given = self.test.workflows[name].thresholds
            thresholds += thresholds_of([given] if isinstance(given, str) else given)
        thresholds += thresholds_of(self.options.thresholds)
        return list({str(one): one for one in thresholds}.values())

    def _processes(self) -> int:
        """One for each core, but no more than users."""
        given = self.options.processes
        users = [one.most_users for one in self.plan.workflows.values()]
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if given is not None:
            if not 1 <= given <= 1024:
                raise InvalidInput("processes", f"{given} is out of range; from 1 to 1024")
            return self._useful(given, cores, sum(users))
        return max(1, min(cores, max(users)))

    def _useful(self, given: int, cores: int, users: int) -> int:
        """How many of the requested processes have something to do."""
        useful = max(1, min(given, users))
        if useful < given:
            self.notes.append(f"{useful} of {given} processes are started: there are no more users")
        if useful > _CROWDED * cores:
            self.notes.append(
                f"{useful} generator processes share {counted(cores, 'core')}: they wait for each other, "
                "and their times include that; use one for each core"
            )
        return useful

    def order(self) -> RunOrder:
        """The same for what produces the load."""
        return RunOrder(
            name=self.test.name,
            source=self.test.source,
            options=self.options,
            plan=self.plan,
            steps={name: list(blueprint.steps) for name, blueprint in self.blueprints.items()},
        )

    def spec(self) -> RunSpec:
        """The same without the classes, for what leads the run."""
        return RunSpec(
            order=self.order(),
            methods={name: WorkflowMethods.of(blueprint) for name, blueprint in self.blueprints.items()},
            thresholds=tuple(str(one) for one in self.thresholds),
            header=self.header("", 0),
            processes=self.processes,
        )

    def header(self, run: str, started_ms: int, *, token: int = 0) -> Header:
        workflows: list[dict[str, Any]] = []
        for name, plan in self.plan.workflows.items():
            steps = self.blueprints[name].steps.values()
            cls = self.test.workflows[name]
            workflows.append(
                {
                    "name": name,
                    "model": plan.description,
                    "open": plan.arrivals is not None,
                    "vus": plan.most_users,
                    "rate": None if plan.arrivals is None else plan.arrivals.highest,
                    "duration_s": plan.duration_s,
                    "iterations": plan.iterations,
                    "after": list(cls.__depends__),
                    "tags": dict(cls.tags),
                    "steps": [
                        {"name": one.name, "kind": one.kind, "after": list(one.after), "tags": one.tags}
                        for one in steps
                    ],
                }
            )
        return Header(
            run=run,
            token=token,
            name=self.test.name,
            started_ms=started_ms,
            version=version("mainstay"),
            processes=self.processes,
            duration_s=self.plan.duration_s,
            workflows=workflows,
            thresholds=[str(one) for one in self.thresholds],
            tags=self.options.tags,
        )

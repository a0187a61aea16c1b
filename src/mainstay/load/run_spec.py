"""A planned run as data: all that a run needs to know of its test. It can be led where the code of the test is not."""

from __future__ import annotations

import msgspec

from .blueprint import Blueprint, StatePlan
from .plan import LoadOptions, RunPlan
from .sources import Source
from .stats.model import Header


class RunOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner must know of a planned run: data that can be sent to other machines."""

    name: str
    source: Source
    options: LoadOptions
    plan: RunPlan
    steps: dict[str, list[str]]
    """by workflow: the names of its steps"""


class WorkflowMethods(msgspec.Struct, frozen=True, kw_only=True):
    """The methods of a workflow that run once, and the values that it exchanges with others."""

    setups: int = 0
    """how many there are"""
    teardowns: int = 0
    states: tuple[StatePlan, ...] = ()

    @classmethod
    def of(cls, blueprint: Blueprint) -> WorkflowMethods:
        """Those of a workflow that was read."""
        return cls(setups=len(blueprint.setups), teardowns=len(blueprint.teardowns), states=blueprint.states)


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A planned run, without the classes of its workflows."""

    order: RunOrder
    methods: dict[str, WorkflowMethods]
    """by workflow"""
    thresholds: tuple[str, ...] = ()
    header: Header
    """without the id of the run and its start"""
    processes: int
    """of the machine that planned it; a run on nodes has as many as it gets cores"""

    @property
    def plan(self) -> RunPlan:
        return self.order.plan


__all__ = ["RunOrder", "RunSpec", "WorkflowMethods"]

"""A planned run as data: all that a run needs to know of its test. It can be led where the code of the test is not."""

from __future__ import annotations

import msgspec

from .blueprint import StatePlan
from .planned_run import RunOrder
from .stats.model import Header


class WorkflowMethods(msgspec.Struct, frozen=True, kw_only=True):
    """The methods of a workflow that run once, and the values that it exchanges with others."""

    setups: int = 0
    """how many there are"""
    teardowns: int = 0
    states: tuple[StatePlan, ...] = ()


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

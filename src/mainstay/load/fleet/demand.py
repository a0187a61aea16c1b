"""What users ask of the nodes of a cluster, and what is stored of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import msgspec

from ...clock import seconds
from ...errors import InvalidInput
from ...words import counted
from ..plan import RunPlan
from ..planned_run import PlannedRun
from .spec import CoreDemand, OnLoss, PoolShare

#: generator processes of one run
_MOST_CORES = 4096


class FleetDemand(msgspec.Struct, frozen=True):
    """On which nodes of a cluster a load test runs, and what travels there.

    >>> FleetDemand(8, share="high", labels={"zone": "eu"}).nodes
    8
    """

    nodes: int | None = None
    """spread over exactly this many nodes; None: over as few as have the cores"""
    cores: int | None = None
    """generator processes over all nodes: one on each core; None: what the share gives"""
    share: PoolShare = "auto"
    """how much of the cores of the cluster: low 1 to 25 %, normal 25 to 75 %, high 75 to 100 %, exclusive all of them
    with no other run beside it, auto as much as is useful and free"""
    labels: Mapping[str, str] = {}
    """only nodes with all of these labels"""
    on_loss: OnLoss = "replace"
    """when a node is lost under load: replace it by another one, restart the run, fail, or continue without it"""
    wait: str | None = None
    """how long to wait, first for nodes that are still starting, then for free cores: "5m". None: the nodes have to be
    there, and the run waits for free cores until it is cancelled"""
    include: tuple[str, ...] = ()
    """patterns of more files to send, below the root: modules that are imported by a computed name"""
    data: tuple[str, ...] = ()
    """files and folders of data to send, below the root; the files of feeds are found without it"""
    root: str = ""
    """the folder that is sent: what is imported from below it. Default: the current folder, or that of the file"""

    @property
    def wait_s(self) -> float:
        if self.wait is None:
            return 0.0
        wait_s = seconds(self.wait, field="wait")
        if wait_s <= 0:
            raise InvalidInput("wait", f"{self.wait!r} must be longer than zero; leave it out for no wait")
        return wait_s


def core_demand(demand: FleetDemand, planned: PlannedRun) -> CoreDemand:
    """The demand as it is stored, without the end of its wait; refuses what no cluster could give."""
    if planned.options.processes is not None:
        raise InvalidInput("processes", "is for one machine; on nodes, cores sets the number of generator processes")
    for field, values in (("share", get_args(PoolShare)), ("on_loss", get_args(OnLoss))):
        if (given := getattr(demand, field)) not in values:
            raise InvalidInput(field, f"{given!r} is not one of {', '.join(values)}")
    return checked_cores(
        CoreDemand(nodes=demand.nodes, processes=demand.cores, share=demand.share, labels=dict(demand.labels)),
        planned.plan,
        cores_field="cores",
    )


def checked_cores(demand: CoreDemand, plan: RunPlan, *, cores_field: str) -> CoreDemand:
    """A demand with no more processes than the plan has users; refuses what no cluster could give. `cores_field` is
    what its caller calls the number of processes."""
    users = [one.most_users for one in plan.workflows.values()]
    cores = None if demand.processes is None else _count(cores_field, demand.processes, sum(users))
    nodes = None if demand.nodes is None else _count("nodes", demand.nodes, sum(users))
    if cores is not None and demand.share != "auto":
        rule = f"{cores} cores and share={demand.share!r} are both given; leave one of them out"
        raise InvalidInput(cores_field, rule)
    if cores is not None and nodes is not None and cores < nodes:
        rule = f"{counted(cores, 'core')} cannot be spread over {counted(nodes, 'node')}: each needs one"
        raise InvalidInput(cores_field, f"{rule}; give more cores, or fewer nodes")
    _check_labels(demand.labels)
    return msgspec.structs.replace(demand, most=max(*users, nodes or 1))


def _check_labels(labels: Mapping[str, str]) -> None:
    for name, value in labels.items():
        if not name.strip() or not value.strip():
            raise InvalidInput("labels", f"{name!r}={value!r} is not a label; write it like zone=eu")


def _count(field: str, given: int, users: int) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= _MOST_CORES:
        raise InvalidInput(field, f"{given!r} is out of range; from 1 to {_MOST_CORES}")
    if given > users:
        rule = f"{given} are more than the {counted(users, 'user')} of this test"
        raise InvalidInput(field, f"{rule}: the others would have nothing to do. Give fewer, or more users")
    return given


__all__ = ["FleetDemand", "checked_cores", "core_demand"]

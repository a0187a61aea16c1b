"""What a run without cores waits for, in words; and why no nodes could ever hold it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...words import counted
from .allocation import CoreWait
from .core_pools import CoreNode, bounds_of, could_hold, even_sizes, matching_nodes
from .spec import CoreDemand

#: jobs, labels and nodes that are named; the rest is counted
_NAMED = 3


def short_wait(wait: CoreWait) -> str:
    """The reason on the row of the job. It names nothing that changes while others come and go, such as a place in the
    queue: each change is a write, for every run that waits."""
    demand = wait.request.demand
    if wait.cause == "no_node":
        return f"waits for a node{_with(demand.labels)}"
    if wait.cause == "too_large":
        return f"waits for nodes: it needs {_needs(demand, wait.cores)}, and they have {counted(wait.total, 'core')}"
    text = f"waits for {_needs(demand, wait.cores)}"
    match wait.cause:
        case "lost":
            return f"{text}: nodes were lost a moment ago"
        case "beside":
            return text if demand.share == "exclusive" else f"{text}: a run that runs alone has its nodes"
        case "behind":
            return f"{text}, behind earlier runs"
        case _:
            return text


def long_wait(wait: CoreWait) -> str:
    """The same with all numbers, in sentences."""
    demand = wait.request.demand
    needs, nodes = _needs(demand, wait.cores), counted(wait.nodes, "node")
    if wait.cause == "no_node":
        missing = f"has {_labels(demand.labels)}" if demand.labels else "runs slices of load tests"
        return f"It needs {needs}, and no active node {missing}."
    if wait.cause == "too_large":
        have = "has" if wait.nodes == 1 else "have"
        return f"It needs {needs}. The {nodes} that it may use {have} {counted(wait.total, 'core')} and cannot hold it."
    if wait.cause == "lost":
        kept = f"its other {nodes} get no run behind it meanwhile" if wait.nodes else "they may be back soon"
        return f"It needs {needs}, and nodes of it were lost less than a minute ago; {kept}."
    is_free = "is free" if wait.free == 1 else "are free"
    text = f"It needs {needs}; {wait.free} of {wait.total} {is_free} on {nodes}; place {wait.place} of {wait.of}"
    return f"{text}; {_after(wait)}." if wait.jobs else f"{text}."


def lost_fit(sizes: Sequence[int]) -> str:
    """Why a run that was placed waits for cores again."""
    listed = ", ".join(str(size) for size in sizes[:_NAMED]) + (", ..." if len(sizes) > _NAMED else "")
    return f"waits for cores again: nodes were lost, and the others cannot hold slices of {listed} cores"


def demand_problem(demand: CoreDemand, nodes: Sequence[CoreNode]) -> str:
    """Why these nodes could never hold a run, with what exists; empty: they could, if they were idle."""
    if demand.nodes is not None and demand.nodes < 1:
        return f"a run needs a node at least, not {demand.nodes}"
    if demand.processes is not None and demand.processes < 1:
        return f"a run needs a process at least, not {demand.processes}"
    if demand.nodes is not None and demand.processes is not None and demand.processes < demand.nodes:
        return f"{counted(demand.processes, 'process', 'processes')} cannot be spread over {demand.nodes} nodes"
    if not nodes:
        return "no node runs slices of load tests"
    pool = matching_nodes(nodes, demand.labels)
    if not pool:
        return _unknown_labels(demand.labels, nodes)
    if could_hold(demand, pool):
        return ""
    where = f"nodes{_with(demand.labels)}" if demand.labels else "nodes"
    if demand.nodes is not None and demand.nodes > len(pool):
        return f"it needs {demand.nodes} {where}, and there are {len(pool)}: {_listed([node.name for node in pool])}"
    least, _ = bounds_of(demand, pool)
    total = sum(node.cores for node in pool)
    if demand.nodes is None or least > total:
        return f"it needs {counted(least, 'core')}, and the {where} have {total}"
    size = even_sizes(least, demand.nodes)[0]
    largest = sorted((node.cores for node in pool), reverse=True)
    fitting = sum(1 for cores in largest if cores >= size)
    shares = f"{counted(least, 'core')} on {demand.nodes} {where}, {size} on a node"
    return f"it needs {shares}; {fitting} of {len(pool)} {'has' if fitting == 1 else 'have'} that"


def _unknown_labels(labels: Mapping[str, str], nodes: Sequence[CoreNode]) -> str:
    for name, value in sorted(labels.items()):
        values = sorted({node.labels[name] for node in nodes if name in node.labels})
        if not values:
            known = sorted({each for node in nodes for each in node.labels})
            return f"no node has a label {name!r}; the labels of the nodes: {_listed(known) or 'none'}"
        if value not in values:
            return f"no node has {name}={value}; the nodes have: {_listed([f'{name}={each}' for each in values])}"
    return f"no node has all of {_labels(labels)}"


def _needs(demand: CoreDemand, cores: int) -> str:
    """The demand: "8 cores on 4 nodes with zone=a"."""
    text = counted(cores, "core")
    if demand.nodes is not None:
        return f"{text} on {counted(demand.nodes, 'node')}{_with(demand.labels)}"
    if demand.share == "exclusive":
        text += " and no other run beside it"
    return f"{text} on nodes{_with(demand.labels)}" if demand.labels else text


def _after(wait: CoreWait) -> str:
    first = wait.jobs[0]
    more = f" and {counted(len(wait.jobs) - 1, 'more run')}" if len(wait.jobs) > 1 else ""
    if wait.cause == "beside":
        return f"until {first}{more} {'have' if more else 'has'} ended"
    return f"behind {first}{more}"


def _with(labels: Mapping[str, str]) -> str:
    return f" with {_labels(labels)}" if labels else ""


def _labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


__all__ = ["demand_problem", "long_wait", "lost_fit", "short_wait"]

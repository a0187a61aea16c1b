"""Checks before the load: are all targets reachable, and may this process open enough files?"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Mapping

from ...errors import CallFailed, InvalidInput
from ..blueprint import Blueprint
from ..clients.http.connect import open_socket
from ..clients.network import Network
from ..plan import RunPlan, WorkflowPlan
from ..prepared import URL, URLParts, joined, split

_CONNECT_S = 10.0
#: descriptors that a process needs besides its connections
_OWN_FILES = 64


def make_room(plan: RunPlan, blueprints: Mapping[str, Blueprint], processes: int) -> None:
    """Raise the limit of open files as far as allowed; raises `InvalidInput` if that is not enough."""
    connections = {
        name: -(-workflow.most_users // processes) * _kept(blueprints[name], workflow.base_url)
        for name, workflow in plan.workflows.items()
    }
    fullest = max(plan.graph.layers(), key=lambda layer: sum(connections[name] for name in layer))
    needed = _OWN_FILES + sum(connections[name] for name in fullest)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed and hard != soft:
        allowed = needed if hard == resource.RLIM_INFINITY else min(hard, max(needed, hard))
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = plan.workflows[max(fullest, key=lambda name: connections[name])]
        field, less = ("vus", "fewer users") if most.arrivals is None else ("max_in_flight", "a smaller max_in_flight")
        raise InvalidInput(
            field,
            f"each process needs {needed} open files, and {soft} are allowed here; raise the limit "
            f"(ulimit -n {needed}, or LimitNOFILE= of a service), use more --processes, or {less}",
        )


def _kept(blueprint: Blueprint, base_url: str) -> int:
    """Connections of one user: to each origin, one for each step that calls it and can be under way at the same time.
    They stay open until the user leaves. A step may open more, which cannot be known before; checks and metrics make
    no calls."""
    calling = [step for step in blueprint.steps.values() if step.kind in ("measured", "action")]
    callers: dict[str, list[str]] = {}
    for step in calling:
        urls: list[str] = [prepared for prepared in step.prepared.values() if isinstance(prepared, URL)]
        if base_url and not urls:
            urls = [base_url]  # it calls plain paths
        for place in {_place(url, base_url) for url in urls}:
            callers.setdefault(place, []).append(step.name)
    by_place = sum(blueprint.graph.width(names) for names in callers.values())
    return max(1, by_place, blueprint.graph.width(step.name for step in calling))


def _place(url: str, base_url: str) -> str:
    try:
        return split(joined(url, base_url)).origin
    except InvalidInput:
        return ""  # refused with the name of its step when it is prepared


async def look(plan: RunPlan, blueprints: Mapping[str, Blueprint], network: Network) -> None:
    """Open a connection to each origin of the steps and the workflows, and close it. Nothing is sent."""
    places = {
        prepared.parts.origin: prepared.parts
        for blueprint in blueprints.values()
        for step in blueprint.steps.values()
        for prepared in step.prepared.values()
        if isinstance(prepared, URL)
    }
    # steps that call plain paths use the base URL of their workflow
    places |= {(base := _base(workflow)).origin: base for workflow in plan.workflows.values() if workflow.base_url}
    proxy = None if network.proxy is None else split(network.proxy)
    for origin, parts in places.items():
        if parts.scheme == "udp":
            await network.resolve(parts.host, parts.port, socket.SOCK_DGRAM)
            continue
        try:
            async with asyncio.timeout(_CONNECT_S):
                opened, _ = await open_socket(network, parts, proxy=proxy, session=None)
        except TimeoutError:
            raise CallFailed("connect timeout", f"{origin} does not answer within {_CONNECT_S:g} s") from None
        opened.close()


def _base(workflow: WorkflowPlan) -> URLParts:
    try:
        return split(workflow.base_url)
    except InvalidInput as error:
        raise InvalidInput(f"{workflow.name}.base_url", error.rule) from None

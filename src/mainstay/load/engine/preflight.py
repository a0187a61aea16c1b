"""Before the load: can everything be reached that the steps name, and is there room for all the users?"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Iterable

from ...errors import CallFailed, InvalidInput
from ..blueprint import Blueprint
from ..clients.http.opening import open_socket
from ..clients.network import Network
from ..plan import RunPlan
from ..prepared import URL, split

_CONNECT_S = 10.0
#: descriptors that a process needs beside its connections
_OWN_FILES = 64


def make_room(plan: RunPlan, processes: int) -> None:
    """Raise the limit of open files as far as that is allowed; refuses a test that it would not be enough for."""
    needed = _OWN_FILES + max(
        sum(-(-plan.workflows[name].most_users // processes) for name in layer) for layer in plan.graph.layers()
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed and hard != soft:
        allowed = needed if hard == resource.RLIM_INFINITY else min(hard, max(needed, hard))
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft != resource.RLIM_INFINITY and soft < needed:
        raise InvalidInput(
            "vus",
            f"{needed} open files are needed in each process, and {soft} are allowed here; raise the limit "
            f"(ulimit -n {needed}, or LimitNOFILE= of a service), use more --processes, or fewer users",
        )


async def look(blueprints: Iterable[Blueprint], network: Network) -> None:
    """Open a connection to each place that the steps name, and close it again. Nothing is sent."""
    places = {
        prepared.parts.origin: prepared.parts
        for blueprint in blueprints
        for step in blueprint.steps.values()
        for prepared in step.prepared.values()
        if isinstance(prepared, URL) and prepared.parts.scheme != "udp"
    }
    proxy = None if network.proxy is None else split(network.proxy)
    for origin, parts in places.items():
        try:
            opened, _ = await asyncio.wait_for(open_socket(network, parts, proxy=proxy, session=None), _CONNECT_S)
        except TimeoutError:
            raise CallFailed("connect timeout", f"{origin} does not answer within {_CONNECT_S:g} s") from None
        opened.close()

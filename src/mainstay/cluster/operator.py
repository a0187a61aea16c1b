"""How an operator reaches a cluster: by its URL, or by the folder of one that `mainstay cluster up` started."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from ..bus import Bus
from ..bus.nats import after_servers
from ..control.explain import ClusterFacts
from ..errors import InvalidInput
from .address import ClusterAddress, parse_address
from .cluster_facts import cluster_facts
from .cluster_service import MOST_ENTRIES, ClusterClient
from .cluster_settings import ClusterSettings
from .local_cluster_file import read_cluster_file

#: a bus that must be there already answers in this time
SHORT_CONNECT_S = 5.0
_REMOTE = "remote+"


def operator_address(text: str) -> ClusterAddress:
    """The address of a cluster: a URL for operators, the URL of its store through managers, or the folder of a cluster
    on this machine."""
    if text.startswith(_REMOTE):
        url = text.removeprefix(_REMOTE)
        rest = after_servers(url)
        given = dict(parse_qsl(urlsplit(rest).query))
        name = given.pop("cluster", "local")
        given = {key: value for key, value in given.items() if key not in ("role", "name")}
        return parse_address(f"{url.removesuffix(rest)}/{name}{'?' + urlencode(given) if given else ''}")
    if "://" in text:
        return parse_address(text)
    try:
        return parse_address(read_cluster_file(Path(text)).url)
    except (FileNotFoundError, NotADirectoryError):
        rule = f"{text} is neither the URL of a cluster nor the folder of a running one (mainstay cluster up)"
        raise InvalidInput("cluster", rule) from None


def operator_store(text: str) -> str:
    """The URL of the store behind the managers of a cluster, for an operator."""
    return operator_address(text).store_url("operator")


@contextlib.asynccontextmanager
async def connected_operator(
    address: ClusterAddress, *, timeout_s: float | None = None
) -> AsyncIterator[ClusterClient]:
    """Ask the managers of a cluster. Waits for the bus as long as every command, or for another time."""
    async with operator_bus(address, timeout_s=timeout_s) as (bus, name):
        yield ClusterClient(bus, name=name, cluster=address.cluster, environment=address.environment)


@contextlib.asynccontextmanager
async def operator_bus(address: ClusterAddress, *, timeout_s: float | None = None) -> AsyncIterator[tuple[Bus, str]]:
    """The bus of a cluster, and the name of the operator on it: that of its certificate."""
    join = ClusterSettings.from_env(os.environ).join
    name = address.name("operator")
    bus = await address.connect(
        "operator", name, timeout_s=join.command_s if timeout_s is None else timeout_s, join=join
    )
    try:
        yield bus, name
    finally:
        await bus.close()


async def read_cluster_facts(text: str) -> ClusterFacts:
    """What the managers of a cluster know that explains a job. Its store has been opened, so the bus is there if it can
    be reached."""
    async with connected_operator(operator_address(text), timeout_s=SHORT_CONNECT_S) as client:
        return cluster_facts(await client.status(), await client.journal(most=MOST_ENTRIES))


__all__ = [
    "SHORT_CONNECT_S",
    "connected_operator",
    "operator_address",
    "operator_bus",
    "operator_store",
    "read_cluster_facts",
]

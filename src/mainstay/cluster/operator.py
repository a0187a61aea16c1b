"""How an operator reaches a cluster: by its URL, or by the folder of one that `mainstay cluster up` started."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from ..control.explain import ClusterFacts
from ..errors import InvalidInput
from .address import ClusterAddress, parse_address
from .cluster_facts import cluster_facts
from .cluster_service import MOST_ENTRIES, ClusterClient
from .local_cluster import read_cluster_file

#: the name of an operator's certificate
OPERATOR = "local"
_CONNECT_S = 5.0
_REMOTE = "remote+"


def operator_address(text: str) -> ClusterAddress:
    """The address of a cluster: a URL for operators, the URL of its store through managers, or the folder of a cluster
    on this machine."""
    if text.startswith(_REMOTE):
        parts = urlsplit(text.removeprefix(_REMOTE))
        given = dict(parse_qsl(parts.query))
        name = given.pop("cluster", "local")
        given = {key: value for key, value in given.items() if key not in ("role", "name")}
        return parse_address(f"{parts.scheme}://{parts.netloc}/{name}{'?' + urlencode(given) if given else ''}")
    if "://" in text:
        return parse_address(text)
    try:
        return parse_address(read_cluster_file(Path(text)).url)
    except (FileNotFoundError, NotADirectoryError):
        rule = f"{text} is neither the URL of a cluster nor the folder of a running one (mainstay cluster up)"
        raise InvalidInput("cluster", rule) from None


def operator_store(text: str) -> str:
    """The URL of the store behind the managers of a cluster, for an operator."""
    return operator_address(text).store_url("operator", OPERATOR)


@contextlib.asynccontextmanager
async def connected_operator(address: ClusterAddress) -> AsyncIterator[ClusterClient]:
    """Ask the managers of a cluster."""
    bus = await address.connect("operator", OPERATOR, timeout_s=_CONNECT_S)
    try:
        yield ClusterClient(bus, name=OPERATOR, cluster=address.cluster, environment=address.environment)
    finally:
        await bus.close()


async def read_cluster_facts(text: str) -> ClusterFacts:
    """What the managers of a cluster know that explains a job."""
    async with connected_operator(operator_address(text)) as client:
        return cluster_facts(await client.status(), await client.journal(most=MOST_ENTRIES))


__all__ = ["OPERATOR", "connected_operator", "operator_address", "operator_store", "read_cluster_facts"]

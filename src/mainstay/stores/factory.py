"""From a URL to an open store.

An adapter is found by the scheme of the URL, in the entry point group `mainstay.stores`. Ours are registered like those
of other packages. An adapter is an async callable

    open(url: str, *, clock: Clock, chain: Chain, options: dict[str, str]) -> JobStore
"""

from __future__ import annotations

import os
from typing import Protocol
from urllib.parse import parse_qsl

from ..clock import Clock, SystemClock
from ..errors import InvalidInput, NoAdapter
from ..lifecycle import Chain
from ..storage import driver_needed, find_adapter, known_schemes, shown_url, split_url
from .metrics import check_installed, metered, wanted
from .port import JobStore

GROUP = "mainstay.stores"
_OURS = {
    "memory": "mainstay.stores.memory:open_memory",
    "sqlite": "mainstay.stores.sqlite:open_sqlite",
    "postgresql": "mainstay.stores.postgres:open_postgres",
    "postgres": "mainstay.stores.postgres:open_postgres",
    "redis": "mainstay.stores.redis:open_redis",
    "rediss": "mainstay.stores.redis:open_redis",
    "valkey": "mainstay.stores.redis:open_redis",
    "valkeys": "mainstay.stores.redis:open_redis",
    "s3": "mainstay.stores.registry:open_registry",
    "gs": "mainstay.stores.registry:open_registry",
    "az": "mainstay.stores.registry:open_registry",
    "dynamodb": "mainstay.stores.registry:open_registry",
    "file": "mainstay.stores.registry:open_registry",
    "remote+nats": "mainstay.stores.remote:open_remote",
    "remote+tls": "mainstay.stores.remote:open_remote",
}
#: the extra that installs each driver
_DRIVERS = {
    "asyncpg": "postgres",
    "redis": "redis",
    "obstore": "objects",
    "boto3": "dynamodb",
    "botocore": "dynamodb",
}
#: schemes of a later version, and their extras
_EXTRAS = {"nats": "nats"}


#: slower defaults for buckets, where every poll and every beat is a request
_UNHURRIED = {"heartbeat": "30s", "lease": "2m", "sweep": "15s", "poll": "5s"}
REGISTRY_SCHEMES = frozenset({"s3", "gs", "az", "dynamodb", "file"})


def usual_settings(url: str) -> dict[str, str]:
    """The settings that have other defaults on this store, as users write them.

    >>> usual_settings("s3://bucket/jobs")["lease"], usual_settings("sqlite:///jobs.db")
    ('2m', {})
    """
    return dict(_UNHURRIED) if url.partition(":")[0] in REGISTRY_SCHEMES else {}


def serves_nodes(url: str) -> bool:
    """Whether work can be placed on nodes through this store. A failover of Redis may roll an epoch back, and then two
    leaders could write; a registry takes too long for each step.

    >>> serves_nodes("sqlite:///jobs.db"), serves_nodes("redis://host/0")
    (True, False)
    """
    scheme = url.partition(":")[0]
    return scheme not in REGISTRY_SCHEMES and not scheme.startswith(("redis", "valkey"))


class OpenStore(Protocol):
    async def __call__(self, url: str, *, clock: Clock, chain: Chain, options: dict[str, str]) -> JobStore: ...


async def open_store(url: str, *, clock: Clock | None = None, audit_key: bytes | None = None) -> JobStore:
    """Open the store of a URL: `memory:`, `sqlite:///jobs.db`, `sqlite:////srv/jobs.db`, `postgresql://db/app`,
    `redis://cache`.

    Options follow a question mark (`sqlite:///jobs.db?busy_timeout=5s`). `audit_key` (or the environment
    variable MAINSTAY_AUDIT_KEY) seals the audit trail with an HMAC. MAINSTAY_METRICS=on adds metrics for Prometheus.
    """
    if not isinstance(url, str) or ":" not in url:
        raise InvalidInput("store", f"{url!r} is not a store URL; write one like 'sqlite:///jobs.db'")
    parts = split_url(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if metrics := wanted(os.environ):
        check_installed()
    with driver_needed(parts.scheme, _DRIVERS):
        opener = _adapter(parts.scheme, url)
        store = await opener(url, clock=clock or SystemClock(), chain=chain_of(audit_key), options=options)
    return metered(store, names=metrics == "names") if metrics else store


def chain_of(audit_key: bytes | None) -> Chain:
    """The chain that seals events: with this key, with the one in MAINSTAY_AUDIT_KEY, or without a key."""
    if audit_key is None and (text := os.environ.get("MAINSTAY_AUDIT_KEY")):
        audit_key = text.encode()
    return Chain(audit_key)


def check_adapter(url: str) -> None:
    """Refuse a URL without an adapter, or whose driver is not installed. Opens nothing."""
    _adapter(split_url(url).scheme, url)


def _adapter(scheme: str, url: str) -> OpenStore:
    found: OpenStore | None = find_adapter(scheme, group=GROUP, ours=_OURS)
    if found:
        return found
    if coming := _EXTRAS.get(scheme):
        raise NoAdapter(
            "store",
            f"{scheme}: stores are not in this version yet; use sqlite:///jobs.db or memory: "
            f"(they will come with the extra {coming!r})",
        )
    known = known_schemes(group=GROUP, ours=_OURS)
    raise NoAdapter("store", f"no adapter for {scheme!r} (in {shown_url(url)!r}); known schemes: {known}")

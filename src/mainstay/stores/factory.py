"""From a URL to an open store.

Adapters are found by the scheme, through the entry point group `mainstay.stores`; ours are registered
the same way as anybody else's. An adapter is an async callable

    open(url: str, *, clock: Clock, chain: Chain, options: dict[str, str]) -> JobStore
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Protocol
from urllib.parse import SplitResult, parse_qsl, urlsplit

from ..clock import Clock, SystemClock
from ..errors import InvalidInput, MissingExtra, NoAdapter
from ..lifecycle import Chain
from .metered import check_installed, metered, wanted
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
}
#: drivers that are extras, and the extra that brings each
_DRIVERS = {"asyncpg": "postgres", "redis": "redis"}
#: schemes that are still to come, and the extra that will bring each
_EXTRAS = {"nats": "nats"}


class OpenStore(Protocol):
    async def __call__(self, url: str, *, clock: Clock, chain: Chain, options: dict[str, str]) -> JobStore: ...


async def open_store(url: str, *, clock: Clock | None = None, audit_key: bytes | None = None) -> JobStore:
    """Open the store a URL names: `memory:`, `sqlite:///jobs.db`, `sqlite:////srv/jobs.db`, `postgresql://db/app`,
    `redis://cache`.

    Options follow a question mark (`sqlite:///jobs.db?busy_timeout=5s`). `audit_key` (or the environment
    variable MAINSTAY_AUDIT_KEY) seals the audit trail with an HMAC. With MAINSTAY_METRICS=on it counts for Prometheus.
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
    """What seals the events: with this key, with that of the environment (MAINSTAY_AUDIT_KEY), or without one."""
    if audit_key is None and (text := os.environ.get("MAINSTAY_AUDIT_KEY")):
        audit_key = text.encode()
    return Chain(audit_key)


def shown_url(url: str) -> str:
    """A store's URL without its secrets: for messages and logs.

    >>> shown_url("postgresql://ann:secret@db/jobs?password=x")
    'postgresql://ann:***@db/jobs'
    """
    head, _, _ = url.partition("?")
    scheme, slashes, rest = head.partition("://")
    if not slashes:
        scheme, _, rest = head.partition(":")
    who, at, place = rest.rpartition("@")
    if not at:
        return head
    if not slashes:  # there is no telling a name from a password then
        return f"{scheme}:***@{place}"
    user, colon, _ = who.partition(":")
    return f"{scheme}://{user}{':***' if colon else ''}@{place}"


def check_adapter(url: str) -> None:
    """Refuse a URL that no adapter answers to, or whose driver is not installed, without opening anything."""
    _adapter(split_url(url).scheme, url)


def split_url(url: str) -> SplitResult:
    """The parts of a URL; one that has none is refused without its secrets."""
    try:
        return urlsplit(url)
    except ValueError as error:
        raise InvalidInput("store", f"{shown_url(url)!r} is not a store URL ({error})") from None


@contextlib.contextmanager
def driver_needed(scheme: str, drivers: Mapping[str, str]) -> Iterator[None]:
    """An adapter's driver is an extra, which may be missing. `drivers` names the extra that brings each."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name not in drivers:
            raise
        extra = f"mainstay[{drivers[error.name]}]"
        raise MissingExtra(
            "store", f"{scheme}: stores need {error.name}, which is not installed; run: pip install '{extra}'"
        ) from None


def find_adapter(scheme: str, *, group: str, ours: Mapping[str, str]) -> Any:
    """What opens stores of a scheme, imported only now; None if nobody does."""
    if target := ours.get(scheme):
        module, _, name = target.partition(":")
        return getattr(import_module(module), name)
    entries = tuple(entry_points(group=group, name=scheme))
    return entries[0].load() if entries else None


def known_schemes(*, group: str, ours: Mapping[str, str]) -> str:
    return ", ".join(sorted({*ours, *(entry.name for entry in entry_points(group=group))}))


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

"""From a URL to an open versioned store.

Adapters are found by the scheme, through the entry point group `mainstay.versioned`; ours are registered the same way
as anybody else's. An adapter is an async callable

    open(url: str, *, options: dict[str, str]) -> VersionedStore
"""

from __future__ import annotations

from typing import Protocol
from urllib.parse import parse_qsl

from ...errors import InvalidInput, NoAdapter
from ...storage.urls import driver_needed, find_adapter, known_schemes, shown_url, split_url
from .port import VersionedStore

GROUP = "mainstay.versioned"
_OURS = {
    "memory": "mainstay.stores.versioned.memory:open_memory",
    "file": "mainstay.stores.versioned.file:open_file",
    "sqlite": "mainstay.stores.versioned.sqlite:open_sqlite",
    "s3": "mainstay.stores.versioned.objects:open_objects",
    "gs": "mainstay.stores.versioned.objects:open_objects",
    "az": "mainstay.stores.versioned.objects:open_objects",
    "dynamodb": "mainstay.stores.versioned.dynamodb:open_dynamodb",
    "nats": "mainstay.stores.versioned.nats:open_nats",
}
#: what makes the place of a store; those that are not here need none, or make it when they are opened
_PREPARED = {
    "file": "mainstay.stores.versioned.file:prepare",
    "s3": "mainstay.stores.versioned.objects:prepare",
    "gs": "mainstay.stores.versioned.objects:prepare",
    "az": "mainstay.stores.versioned.objects:prepare",
    "dynamodb": "mainstay.stores.versioned.dynamodb:prepare",
    "nats": "mainstay.stores.versioned.nats:prepare",
}
#: drivers that are extras, and the extra that brings each
_DRIVERS = {"obstore": "objects", "boto3": "dynamodb", "botocore": "dynamodb", "nats": "nats"}


async def prepare_versioned(url: str) -> list[str]:
    """Make what the store of a URL needs (its folder, bucket, container or table) if it is not there: what was done.

    Where it may not be made from here, the error says what is needed. Schemes that need nothing made are refused.
    """
    parts = split_url(_checked(url))
    if parts.scheme not in _PREPARED:
        known = ", ".join(sorted(_PREPARED))
        raise NoAdapter("store", f"{shown_url(url)!r} needs nothing made beforehand; what does: {known}")
    with driver_needed(parts.scheme, _DRIVERS):
        prepare = find_adapter(parts.scheme, group=GROUP, ours=_PREPARED)
        made: list[str] = await prepare(url)
        return made


class OpenVersioned(Protocol):
    async def __call__(self, url: str, *, options: dict[str, str]) -> VersionedStore: ...


async def open_versioned(url: str) -> VersionedStore:
    """Open the versioned store a URL names: `memory:`, `file:///srv/jobs`, `file:relative`, `sqlite:///values.db`,
    `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `dynamodb://table/prefix`,
    `nats://host/bucket`.

    Options follow a question mark (`file:jobs?busy_timeout=5s`).

    >>> import asyncio
    >>> async def first():
    ...     store = await open_versioned("memory:")
    ...     version = await store.create_if_absent("jobs/1", b"pending")
    ...     await store.put("jobs/1", b"running", version)
    ...     return await store.put("jobs/1", b"failed", version)
    >>> asyncio.run(first()) is None  # somebody has changed it since
    True
    """
    parts = split_url(_checked(url))
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    with driver_needed(parts.scheme, _DRIVERS):
        opener: OpenVersioned | None = find_adapter(parts.scheme, group=GROUP, ours=_OURS)
        if opener is None:
            known = known_schemes(group=GROUP, ours=_OURS)
            raise NoAdapter(
                "store", f"no versioned store for {parts.scheme!r} (in {shown_url(url)!r}); known schemes: {known}"
            )
        return await opener(url, options=options)


def _checked(url: str) -> str:
    if not isinstance(url, str) or ":" not in url:
        raise InvalidInput("store", f"{url!r} is not a store URL; write one like 'file:///srv/jobs'")
    return url

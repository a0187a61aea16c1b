"""From a URL to an open versioned store.

Adapters are found by the scheme, through the entry point group `mainstay.versioned`; ours are registered the same way
as those of other distributions. An adapter is an async callable

    open(url: str, *, options: dict[str, str]) -> VersionedStore
"""

from __future__ import annotations

from ...errors import NoAdapter
from ...storage import Adapters, driver_needed, find_adapter, shown_url
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
#: what creates the place of a store. The other schemes need none, or create it when they are opened
_PREPARED = {
    "file": "mainstay.stores.versioned.file:prepare",
    "s3": "mainstay.stores.versioned.objects:prepare",
    "gs": "mainstay.stores.versioned.objects:prepare",
    "az": "mainstay.stores.versioned.objects:prepare",
    "dynamodb": "mainstay.stores.versioned.dynamodb:prepare",
    "nats": "mainstay.stores.versioned.nats:prepare",
}
_ADAPTERS = Adapters(
    noun="versioned store",
    field="store",
    example="file:///srv/jobs",
    group=GROUP,
    ours=_OURS,
    drivers={"obstore": "objects", "boto3": "dynamodb", "botocore": "dynamodb", "nats": "nats"},
)


async def prepare_versioned(url: str) -> list[str]:
    """Create the folder, bucket, container or table of a URL if it does not exist. Returns what was done.

    If this program may not create it, the error says what is needed. Schemes that need no preparation are refused.
    """
    scheme = _ADAPTERS.scheme_of(url)
    if scheme not in _PREPARED:
        known = ", ".join(sorted(_PREPARED))
        raise NoAdapter("store", f"{shown_url(url)!r} needs no preparation; schemes that do: {known}")
    with driver_needed(scheme, _ADAPTERS.drivers):
        prepare = find_adapter(scheme, group=GROUP, ours=_PREPARED)
        steps: list[str] = await prepare(url)
        return steps


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
    >>> asyncio.run(first()) is None  # the value has another version by now
    True
    """
    store: VersionedStore = await _ADAPTERS.open(url)
    return store

"""Jobs of one kind among all others. Where a store has no index of kinds (Redis), it is a walk in short stretches."""

from __future__ import annotations

import msgspec

from ...model import Job
from ...stores import JobStore, Query
from ..api.job_pages import VALUE_BYTES

#: how long one page looks; then it gives what it has, and where to go on
_LOOK_MS = 60


class KindPage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that were found, and where to go on."""

    jobs: list[Job]
    cursor: str | None


async def of_kind(
    store: JobStore,
    kind: str,
    *,
    cursor: str | None,
    name: str | None = None,
    most: int = 50,
    value_bytes: int = VALUE_BYTES,
) -> KindPage:
    """The newest jobs of a kind; with a `name`, only those. Longer values than `value_bytes` are left out."""
    found: list[Job] = []
    until_ms = store.clock.lease_ms() + _LOOK_MS
    while True:
        page = await store.find(
            Query(kind=kind, name=name, value_bytes=value_bytes), cursor=cursor, limit=most - len(found)
        )
        found += page.jobs
        cursor = page.cursor
        if cursor is None or len(found) >= most or store.clock.lease_ms() >= until_ms:
            return KindPage(jobs=found, cursor=cursor)


__all__ = ["KindPage", "of_kind"]

"""Jobs of one kind. A store without an index of kinds (Redis) is searched for a limited time."""

from __future__ import annotations

import msgspec

from ...model import Job
from ...stores import JobStore, Query
from ..api.job_pages import VALUE_BYTES

#: the longest search for a page; then a short page is returned, with its cursor
_SEARCH_MS = 60


class KindPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some jobs, and the cursor of the next page."""

    jobs: list[Job]
    cursor: str | None


async def jobs_of_kind(
    store: JobStore,
    kind: str,
    *,
    cursor: str | None,
    name: str | None = None,
    most: int = 50,
    value_bytes: int = VALUE_BYTES,
) -> KindPage:
    """The newest jobs of a kind, and of a `name` if it is given. Values longer than `value_bytes` are left out."""
    found: list[Job] = []
    until_ms = store.clock.lease_ms() + _SEARCH_MS
    while True:
        page = await store.find(
            Query(kind=kind, name=name, value_bytes=value_bytes), cursor=cursor, limit=most - len(found)
        )
        found += page.jobs
        cursor = page.cursor
        if cursor is None or len(found) >= most or store.clock.lease_ms() >= until_ms:
            return KindPage(jobs=found, cursor=cursor)


__all__ = ["KindPage", "jobs_of_kind"]

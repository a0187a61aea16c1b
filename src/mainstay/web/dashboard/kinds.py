"""Jobs of one kind among all others. Stores have no index of kinds, so it is a walk in short stretches."""

from __future__ import annotations

import msgspec

from ...model import Job
from ...stores import JobStore, Query

_PAGE = 200
#: how long one page looks; then it gives what it has, and where to go on
_LOOK_MS = 60


class Some(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that were found, and where to go on."""

    jobs: list[Job]
    looked_at: int
    cursor: str | None


async def of_kind(store: JobStore, kind: str, *, cursor: str | None, name: str | None = None, most: int = 50) -> Some:
    """The newest jobs of a kind; with a `name`, which is looked up by index, only those."""
    found: list[Job] = []
    looked_at = 0
    until_ms = store.clock.lease_ms() + _LOOK_MS
    while True:
        page = await store.find(Query(name=name), cursor=cursor, limit=_PAGE)
        cursor, looked_at = page.cursor, looked_at + len(page.jobs)
        for job in page.jobs:
            if job.kind == kind:
                found.append(job)
                if len(found) >= most:
                    return Some(jobs=found, looked_at=looked_at, cursor=job.id)
        if cursor is None or store.clock.lease_ms() >= until_ms:
            return Some(jobs=found, looked_at=looked_at, cursor=cursor)


__all__ = ["Some", "of_kind"]

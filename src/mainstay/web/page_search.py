"""Pages of jobs, looked for no longer than somebody waits for one."""

from __future__ import annotations

import msgspec

from ..model import Job
from ..stores import JobStore, Query

#: how long a page is looked for where a filter finds little; then a short one is given, with its cursor
_LOOK_MS = 200


class FoundPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some jobs, and where to go on."""

    jobs: list[Job]
    cursor: str | None
    """None: these were the last"""
    finished: bool
    """False: the time was over before the page was full. There may be more among those not looked at"""


async def full_page(store: JobStore, query: Query, cursor: str | None, limit: int) -> FoundPage:
    """A full page, if one is found soon: the store answers in short stretches when a filter finds little."""
    found: list[Job] = []
    until_ms = store.clock.lease_ms() + _LOOK_MS
    while True:
        page = await store.find(query, cursor=cursor, limit=limit - len(found))
        found += page.jobs
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            return FoundPage(jobs=found, cursor=cursor, finished=True)
        if store.clock.lease_ms() >= until_ms:
            return FoundPage(jobs=found, cursor=cursor, finished=False)


__all__ = ["FoundPage", "full_page"]

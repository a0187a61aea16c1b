"""Pages of jobs, searched for a limited time."""

from __future__ import annotations

import msgspec

from ..model import Job
from ..stores import JobStore, Query

#: the longest search for a full page; then a short page is returned, with its cursor
_SEARCH_MS = 200


class FoundPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some jobs, and the cursor of the next page."""

    jobs: list[Job]
    cursor: str | None
    """None: this is the last page"""
    finished: bool
    """False: the search ended before the page was full; more jobs may match"""


async def full_page(store: JobStore, query: Query, cursor: str | None, limit: int) -> FoundPage:
    """A full page, if it is found in time: a store may return fewer jobs at a time when few match a filter."""
    jobs: list[Job] = []
    until_ms = store.clock.lease_ms() + _SEARCH_MS
    while True:
        page = await store.find(query, cursor=cursor, limit=limit - len(jobs))
        jobs += page.jobs
        cursor = page.cursor
        if cursor is None or len(jobs) >= limit:
            return FoundPage(jobs=jobs, cursor=cursor, finished=True)
        if store.clock.lease_ms() >= until_ms:
            return FoundPage(jobs=jobs, cursor=cursor, finished=False)


__all__ = ["FoundPage", "full_page"]

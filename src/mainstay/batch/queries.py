"""Reading many jobs from a store."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..model import Job
from ..stores import JobStore, Query

_PAGE = 1000


async def jobs_of(store: JobStore, query: Query) -> AsyncIterator[Job]:
    """Every job of a query, read in pages."""
    cursor: str | None = None
    while True:
        page = await store.find(query, cursor=cursor, limit=_PAGE)
        for job in page.jobs:
            yield job
        cursor = page.cursor
        if cursor is None:
            return

"""Pages of jobs, in the order of their ids: the request, the merge of several sources, and all pages of a query."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Iterable, Sequence

from ..errors import InvalidInput
from ..model import Job, check_id
from .port import JobStore, Page, Query

_PAGE = 500


def check_page(cursor: str | None, limit: int) -> None:
    """Refuse a limit below one, and a cursor that is not an id."""
    if limit < 1:
        raise InvalidInput("limit", "a page has at least one row")
    if cursor is not None:
        check_id(cursor, field="cursor")


def merged_page(jobs: Iterable[Job], stops: Sequence[str], query: Query, limit: int) -> Page:
    """The first jobs of several sources. Each gave one job more than asked for, if it has more.

    `stops` are the last ids that were read from sources with more to read. Beyond the first of these, the order is not
    known, and nothing may be shown.
    """
    newest_first = not query.oldest_first
    bound = (max(stops) if newest_first else min(stops)) if stops else None
    known = [job for job in jobs if bound is None or (job.id >= bound if newest_first else job.id <= bound)]
    pick = heapq.nlargest if newest_first else heapq.nsmallest
    shown = pick(limit, known, key=lambda job: job.id)
    return Page(shown, shown[-1].id if len(known) > limit else bound)


async def all_rows(store: JobStore, query: Query) -> AsyncIterator[Job]:
    """Every job of a query, read in pages."""
    cursor: str | None = None
    while True:
        page = await store.find(query, cursor=cursor, limit=_PAGE)
        for job in page.jobs:
            yield job
        cursor = page.cursor
        if cursor is None:
            return

"""Pages of the rows that match a query."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence

from ...errors import InvalidInput
from ...model import Job, check_id
from ..omitted_values import shortened
from ..port import Page, Query
from ..query_filter import query_matches


def page(jobs: Mapping[str, Job], ids: Sequence[str], query: Query, cursor: str | None, limit: int) -> Page:
    """One page of matching rows; `ids` is sorted. The cursor is the last id of the previous page."""
    if limit < 1:
        raise InvalidInput("limit", "a page has at least one row")
    if cursor is not None:
        check_id(cursor, field="cursor")
    found: list[Job] = []
    for job_id in _walk(ids, query.oldest_first, cursor):
        if query_matches(jobs[job_id], query):
            if len(found) >= limit:
                return Page(found, found[-1].id)
            found.append(shortened(jobs[job_id], query.value_bytes))
    return Page(found, None)


def _walk(ids: Sequence[str], oldest_first: bool, cursor: str | None) -> Iterator[str]:
    if oldest_first:
        start = 0 if cursor is None else bisect_right(ids, cursor)
        return (ids[at] for at in range(start, len(ids)))
    end = len(ids) if cursor is None else bisect_left(ids, cursor)
    return (ids[at] for at in range(end - 1, -1, -1))

"""Which rows a query means."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence

from ...errors import InvalidInput
from ...model import Job, check_id
from ..port import Page, Query


def page(jobs: Mapping[str, Job], ids: Sequence[str], query: Query, cursor: str | None, limit: int) -> Page:
    """One page of what matches; `ids` is sorted. The cursor is the last id of the page before."""
    if limit < 1:
        raise InvalidInput("limit", "a page has at least one row")
    if cursor is not None:
        check_id(cursor, field="cursor")
    found: list[Job] = []
    for job_id in _walk(ids, query.oldest_first, cursor):
        if matches(jobs[job_id], query):
            if len(found) >= limit:
                return Page(found, found[-1].id)
            found.append(jobs[job_id])
    return Page(found, None)


def matches(job: Job, query: Query) -> bool:
    if job.parent != query.parent:
        return False
    return (
        (query.status is None or job.status in query.status)
        and (query.queue is None or job.queue == query.queue)
        and (query.name is None or job.name == query.name)
        and (query.group is None or job.group == query.group)
        and (query.session is None or job.session == query.session)
        and (query.tag is None or query.tag in job.options.tags)
        and (query.key is None or job.key == query.key)
        and (query.created_from_ms is None or job.created_ms >= query.created_from_ms)
        and (query.created_before_ms is None or job.created_ms < query.created_before_ms)
        and (query.text is None or _mentions(job, query.text.lower()))
    )


def _mentions(job: Job, text: str) -> bool:
    parts = (job.id, job.name, job.reason, job.error.message if job.error else None)
    return any(part is not None and text in part.lower() for part in parts)


def _walk(ids: Sequence[str], oldest_first: bool, cursor: str | None) -> Iterator[str]:
    if oldest_first:
        start = 0 if cursor is None else bisect_right(ids, cursor)
        return (ids[at] for at in range(start, len(ids)))
    end = len(ids) if cursor is None else bisect_left(ids, cursor)
    return (ids[at] for at in range(end - 1, -1, -1))

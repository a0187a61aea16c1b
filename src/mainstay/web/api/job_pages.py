"""Pages of jobs as they may be shown.

A list does not read large values: rows come without them (`Query.value_bytes`). Where values are asked for, a page
holds as many jobs as fit into its budget of bytes. A search finds what is shown: a job whose text contains what is
searched for only in a masked value is not found, or the value could be guessed letter by letter.
"""

from __future__ import annotations

import msgspec

from ...model import Job
from ...stores import JobStore, Query
from ...stores.omitted_values import VALUES, size_left_out
from ...stores.query_filter import matches
from ..page_search import FoundPage, full_page
from .masker import Masker
from .text_mask import UNSEARCHED, shown_jobs

#: longer values do not come with the rows of a list
VALUE_BYTES = 16 * 1024
#: bytes of the values of one page
_PAGE_BYTES = 4 * 1024 * 1024
#: jobs of a search that are read at a time, and how often that is done for one page that is shown
_LOOK, _MOST_LOOKS = 100, 20


async def shown_page(store: JobStore, query: Query, cursor: str | None, limit: int, masker: Masker) -> FoundPage:
    """A page of jobs whose texts may be shown, without large values."""
    query = msgspec.structs.replace(query, value_bytes=VALUE_BYTES)
    if query.text is None:
        page = await full_page(store, query, cursor, limit)
        return msgspec.structs.replace(page, jobs=await shown_jobs(store, page.jobs, masker))
    found: list[Job] = []
    at = cursor
    for _ in range(_MOST_LOOKS):
        page = await full_page(store, query, at, max(limit + 1, _LOOK))
        for job in await shown_jobs(store, page.jobs, masker):
            if _is_unsearched(job) and at != cursor:
                # there was no budget for it any more: the next page begins with it
                return FoundPage(jobs=found, cursor=at, finished=False)
            at = job.id
            if not matches(job, query):
                continue
            if len(found) == limit:
                # where a page ends says nothing about jobs that match only by what is masked
                return FoundPage(jobs=found, cursor=found[-1].id, finished=True)
            found.append(job)
        at = page.cursor
        if at is None or not page.finished:
            return FoundPage(jobs=found, cursor=at, finished=page.finished)
    return FoundPage(jobs=found, cursor=at, finished=False)


async def with_values(store: JobStore, page: FoundPage) -> FoundPage:
    """The same page with all values: the first of its jobs whose values fit into the budget, and at least one."""
    kept: list[Job] = []
    left = _PAGE_BYTES
    for job in page.jobs:
        left -= sum(map(_size, (job.payload, job.result, job.checkpoint)))
        if left < 0 and kept:
            break
        kept.append(job)
    wanted = [job.id for job in kept if any(size_left_out(getattr(job, name)) is not None for name in VALUES)]
    whole = {job.id: job for job in await store.get(wanted) if job is not None} if wanted else {}
    jobs = [
        msgspec.structs.replace(job, **{name: getattr(whole[job.id], name) for name in VALUES})
        if job.id in whole
        else job
        for job in kept
    ]
    cut = len(jobs) < len(page.jobs)
    return FoundPage(jobs=jobs, cursor=jobs[-1].id if cut else page.cursor, finished=page.finished or cut)


def _size(value: bytes | None) -> int:
    size = size_left_out(value)
    return len(value or b"") if size is None else size


def _is_unsearched(job: Job) -> bool:
    return job.reason == UNSEARCHED or (job.error is not None and job.error.message == UNSEARCHED)


__all__ = ["VALUE_BYTES", "shown_page", "with_values"]

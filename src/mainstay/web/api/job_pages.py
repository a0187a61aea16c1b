"""Pages of jobs, masked.

A list does not read large values: rows come without them (`Query.value_bytes`). With values, a page has as many jobs as
fit into its budget of bytes. A search finds only what is shown: otherwise a masked value could be guessed letter by
letter.
"""

from __future__ import annotations

import msgspec

from ...model import Job
from ...stores import OMITTED_FIELDS, JobStore, Query, query_matches, size_left_out
from ..page_search import FoundPage, full_page
from .masker import Masker
from .text_mask import UNSEARCHED, shown_jobs

#: longer values are left out of the rows of a list
VALUE_BYTES = 16 * 1024
#: the most bytes of the values of a page
_PAGE_BYTES = 4 * 1024 * 1024
#: jobs that a search reads at a time, and the most reads for one page
_READ, _MOST_READS = 100, 20


async def shown_page(store: JobStore, query: Query, cursor: str | None, limit: int, masker: Masker) -> FoundPage:
    """A page of jobs with masked texts, without large values."""
    query = msgspec.structs.replace(query, value_bytes=VALUE_BYTES)
    if query.text is None:
        page = await full_page(store, query, cursor, limit)
        return msgspec.structs.replace(page, jobs=await shown_jobs(store, page.jobs, masker))
    found: list[Job] = []
    at = cursor
    for _ in range(_MOST_READS):
        page = await full_page(store, query, at, max(limit + 1, _READ))
        for job in await shown_jobs(store, page.jobs, masker):
            if _is_unsearched(job) and at != cursor:
                # the budget for the search is spent: the next page begins with this job
                return FoundPage(jobs=found, cursor=at, finished=False)
            at = job.id
            if not query_matches(job, query):
                continue
            if len(found) == limit:
                # the end of a page must not reveal jobs that match only in a masked value
                return FoundPage(jobs=found, cursor=found[-1].id, finished=True)
            found.append(job)
        at = page.cursor
        if at is None or not page.finished:
            return FoundPage(jobs=found, cursor=at, finished=page.finished)
    return FoundPage(jobs=found, cursor=at, finished=False)


async def with_values(store: JobStore, page: FoundPage) -> FoundPage:
    """The page with all values: the first jobs whose values fit into the budget, at least one."""
    kept: list[Job] = []
    left = _PAGE_BYTES
    for job in page.jobs:
        left -= sum(map(_size, (job.payload, job.result, job.checkpoint)))
        if left < 0 and kept:
            break
        kept.append(job)
    wanted = [job.id for job in kept if any(size_left_out(getattr(job, name)) is not None for name in OMITTED_FIELDS)]
    whole = {job.id: job for job in await store.get(wanted) if job is not None} if wanted else {}
    jobs = [
        msgspec.structs.replace(job, **{name: getattr(whole[job.id], name) for name in OMITTED_FIELDS})
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

"""One action on many jobs: select them, preview them, apply the action in pages, and answer for each.

A walk goes by id with a keyset, the oldest first, and only over jobs that existed when it began. So it ends, even if
rows stay as they are and new jobs are submitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

import msgspec

from ..errors import JobNotFound, MainstayError, StoreError
from ..model import Job, check_id
from ..stores import JobStore, Query
from .control import Control
from .writer import Outcome

PAGE = 500
#: rows shown in a preview
SHOWN = 10

#: fields of a query that the counts of the store can answer
_COUNTED = frozenset({"status", "queue", "created_before_ms", "oldest_first"})


class BulkAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one job."""

    id: str
    outcome: str
    status: str | None = None
    """its status now, if known"""
    error: str | None = None

    @property
    def ok(self) -> bool:
        return self.outcome in ("applied", "already_applied", "deleted")


#: applies an action to a page of jobs; one answer for each
Do = Callable[[Control, Sequence[str]], Awaitable[list[BulkAnswer]]]


class JobSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that an action applies to."""

    counts: dict[str, int]
    """by state"""
    first: list[Job]
    now_ms: int
    query: Query | None = None
    """None: the jobs are given by `ids`"""
    ids: tuple[str, ...] = ()
    limit: int | None = None

    @property
    def total(self) -> int:
        """How many jobs; the number of a filter may have changed since."""
        n = sum(self.counts.values())
        return n if self.limit is None else min(n, self.limit)


async def named(store: JobStore, ids: Sequence[str]) -> JobSelection:
    """Select jobs by id. A missing job is an error before anything is done."""
    full_ids = tuple(dict.fromkeys(check_id(each) for each in ids))
    counts: Counter[str] = Counter()
    first: list[Job] = []
    for page in paged(full_ids):
        for job_id, job in zip(page, await store.get(page), strict=True):
            if job is None:
                raise JobNotFound(job_id)
            counts[job.status] += 1
            if len(first) < SHOWN:
                first.append(job)
    return JobSelection(counts=dict(counts), first=first, now_ms=store.clock.now_ms(), ids=full_ids)


def paged(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Ids in pages."""
    for start in range(0, len(ids), PAGE):
        yield ids[start : start + PAGE]


async def matching(
    store: JobStore, query: Query, *, limit: int | None = None, on_count: Callable[[int], None] = lambda _: None
) -> JobSelection:
    """Select jobs by filter, and count them: from the counts of the store if possible, else by reading every job."""
    now_ms = store.clock.now_ms()
    before_ms = now_ms if query.created_before_ms is None else min(query.created_before_ms, now_ms)
    # include ids of this millisecond: a job that was just submitted is meant, too
    pinned = msgspec.structs.replace(
        query, oldest_first=True, created_before_ms=before_ms + 1 if before_ms == now_ms else before_ms
    )
    counts: Counter[str] = Counter()
    first: list[Job] = []
    if _is_counted(query):
        counts.update(await _store_counts(store, query))
        async for page in walk(store, pinned, limit=min(SHOWN, limit or SHOWN), page_size=SHOWN):
            first += page
    else:
        async for page in walk(store, pinned, limit=limit):
            counts.update(job.status for job in page)
            first += page[: SHOWN - len(first)]
            on_count(sum(counts.values()))
    return JobSelection(counts=dict(counts), first=first, now_ms=now_ms, query=pinned, limit=limit)


async def carry_out(control: Control, selection: JobSelection, do: Do) -> AsyncIterator[list[BulkAnswer]]:
    """Apply an action to the selected jobs, a page at a time."""
    if selection.query is None:
        for ids in paged(selection.ids):
            yield await do(control, ids)
        return
    async for page in walk(control.store, selection.query, limit=selection.limit):
        yield await do(control, [job.id for job in page])


async def walk(
    store: JobStore, query: Query, *, limit: int | None = None, page_size: int | None = None
) -> AsyncIterator[list[Job]]:
    """Pages of jobs by id. The cursor only moves forward, so no row comes twice."""
    cursor: str | None = None
    left = limit
    size = page_size or PAGE
    while left is None or left > 0:
        page = await store.find(query, cursor=cursor, limit=size if left is None else min(size, left))
        if page.jobs:
            yield page.jobs
        if left is not None:
            left -= len(page.jobs)
        if page.cursor is None:
            return
        if cursor is not None and (page.cursor > cursor) is not query.oldest_first:
            raise StoreError(f"the store's cursor went back from {cursor} to {page.cursor}; stopped there")
        cursor = page.cursor


def answers(ids: Sequence[str], outcomes: Sequence[Outcome]) -> list[BulkAnswer]:
    """The outcomes of control as answers."""
    return [
        BulkAnswer(
            id=job_id,
            outcome=outcome.outcome,
            status=None if outcome.job is None else outcome.job.status,
            error=None if outcome.error is None else str(outcome.error).splitlines()[0],
        )
        for job_id, outcome in zip(ids, outcomes, strict=True)
    ]


async def one_by_one(ids: Sequence[str], act: Callable[[str], Awaitable[Job]]) -> list[BulkAnswer]:
    """Apply an action that takes one job at a time."""
    results = []
    for job_id in ids:
        try:
            job = await act(job_id)
        except JobNotFound as error:
            results.append(BulkAnswer(id=job_id, outcome="missing", error=str(error)))
        except StoreError:
            raise
        except MainstayError as error:
            results.append(BulkAnswer(id=job_id, outcome="invalid", error=str(error).splitlines()[0]))
        else:
            results.append(BulkAnswer(id=job_id, outcome="applied", status=job.status))
    return results


def _is_counted(query: Query) -> bool:
    given = {name for name in query.__struct_fields__ if getattr(query, name)}
    return given <= _COUNTED and query.created_before_ms is None


async def _store_counts(store: JobStore, query: Query) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for name, queue in (await store.stats()).queues.items():
        if query.queue in (None, name):
            counts.update({s: n for s, n in queue.counts.items() if query.status is None or s in query.status})
    return dict(counts)

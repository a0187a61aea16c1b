"""Lists of jobs, and single jobs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ...control import JobView, by_age, check_states
from ...stores import JobStore, Query
from .fields import Duration, JobId, Millis, Name, PageSize, Queue, Status, Tag, Text
from .job_pages import shown_page, with_values
from .job_responses import JobPage
from .operation import PACKED, ApiOperation, ApiRequest, ApiResponse
from .text_mask import shown_job
from .versions import is_known
from .views import etag_of, masked_job, size_of


class JobFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A filter for jobs. A field that is left out, or null, does not filter."""

    status: Annotated[list[Status], Meta(min_length=1, max_length=20)] | None = None
    """one of these states"""
    kind: Name | None = None
    """task, batch or load"""
    queue: Queue | None = None
    name: Name | None = None
    tag: Tag | None = None
    key: Text | None = None
    text: Text | None = None
    """text in its id, name, reason or last error"""
    group: JobId | None = None
    """members of the group that has this job as its callback"""
    parent: JobId | None = None
    """units of this job"""
    session: Text | None = None
    """held by this session"""
    older_than: Duration | None = None
    """submitted longer ago than this"""
    newer_than: Duration | None = None
    """submitted within this time"""
    created_from_ms: Millis | None = None
    created_before_ms: Millis | None = None

    @property
    def narrows(self) -> bool:
        """Whether at least one field is given."""
        return any(getattr(self, name) is not None for name in JobFilter.__struct_fields__)

    async def query(self, store: JobStore) -> Query:
        """The filter as a query. Ages count from now."""
        await check_states(store, self.status or ())
        query = Query(
            status=None if self.status is None else tuple(self.status),
            kind=self.kind,
            queue=self.queue,
            name=self.name,
            tag=self.tag,
            key=self.key,
            text=self.text,
            group=self.group,
            parent=self.parent,
            session=self.session,
            created_from_ms=self.created_from_ms,
            created_before_ms=self.created_before_ms,
        )
        return by_age(query, older_than=self.older_than, newer_than=self.newer_than, now_ms=store.clock.now_ms())


class JobListQuery(JobFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A filter, and the page to return."""

    oldest_first: bool = False
    limit: PageSize = 50
    cursor: JobId | None = None
    """`next` of the page before"""
    payload: bool = False
    """include payloads, results and checkpoints; a page has up to 4 MiB of them, or one job"""


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What of a job is returned."""

    payload: bool = True
    """include its payload, result and checkpoint"""


async def list_jobs(ask: ApiRequest[JobListQuery, None]) -> Response:
    query, store = ask.query, ask.served.store
    store_query = msgspec.structs.replace(await query.query(store), oldest_first=query.oldest_first)
    limit = min(query.limit, ask.site.options.page_limit)
    page = await shown_page(store, store_query, query.cursor, limit, ask.site.masker)
    if query.payload:
        page = await with_values(store, page)
    return await ask.respond(
        lambda: JobPage(
            jobs=tuple(masked_job(job, ask.site.masker, payload=query.payload) for job in page.jobs),
            next=page.cursor,
            finished=page.finished,
        ),
        sum(map(size_of, page.jobs)) if query.payload else 0,
    )


async def get_job(ask: ApiRequest[JobQuery, None]) -> Response:
    job = await ask.served.control.jobs.get(ask.path("id"))
    tag = etag_of(job)
    if is_known(ask, tag):
        return Response(status_code=304, headers={"ETag": tag})
    shown = await shown_job(ask.served.store, job, ask.site.masker)
    size = size_of(job) if ask.query.payload else 0
    return await ask.respond(lambda: masked_job(shown, ask.site.masker, payload=ask.query.payload), size, ETag=tag)


OPERATIONS = (
    ApiOperation(
        method="GET",
        path="/jobs",
        handler=list_jobs,
        scope="read",
        tag="jobs",
        summary="List jobs, newest first, page by page",
        about=PACKED,
        query=JobListQuery,
        packs=True,
        answers={200: ApiResponse(description="A page of jobs.", type=JobPage)},
    ),
    ApiOperation(
        method="GET",
        path="/jobs/{id}",
        handler=get_job,
        scope="read",
        tag="jobs",
        summary="Read one job",
        about=PACKED,
        query=JobQuery,
        packs=True,
        answers={
            200: ApiResponse(
                description="The job.", type=JobView, headers={"ETag": "the version of the job, for If-Match"}
            ),
            304: ApiResponse(description="The job has not changed."),
        },
        refusals=(404,),
        if_none_match=True,
    ),
)

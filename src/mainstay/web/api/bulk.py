"""Bulk operations: retry, cancel or delete many jobs, by id or by filter, with a preview."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ...control import Action, bulk, cancelling, deleting, retrying
from ...control.bulk import BulkAnswer, JobSelection
from ...errors import InvalidInput
from . import fields
from .fields import JobId, Reason
from .job_responses import BulkResult
from .jobs import JobFilter
from .operation import ApiOperation, ApiRequest, ApiResponse, NoParameters, json_response
from .views import masked_job

#: refusals that are listed
_LISTED = 100
_ACTIONS = {"cancel": cancelling, "retry": retrying, "delete": deleting}


class BulkRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The action and its jobs: `ids` or `filter`. A filter without a status selects the jobs that the action applies
    to: failed jobs for retry, unsettled jobs for cancel, settled jobs for delete."""

    action: fields.Action
    ids: Annotated[list[JobId], Meta(min_length=1, max_length=10_000)] | None = None
    filter: JobFilter | None = None
    dry_run: bool = False
    """only report what would be done"""
    limit: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """the most jobs to act on, the oldest first"""
    reason: Reason | None = None


async def act_on_jobs(ask: ApiRequest[NoParameters, BulkRequest]) -> Response:
    body, store, most = ask.body, ask.served.store, ask.site.options.bulk_limit
    if body.action == "delete":
        await ask.site.guard.admit(ask.request, "admin")
    action: Action = _ACTIONS[body.action](actor=ask.caller.actor, reason=body.reason)
    if (body.ids is None) is (body.filter is None):
        raise InvalidInput("filter", "give ids or a filter, not both")
    limit = min(body.limit or most, most)
    if body.filter is None:
        ids = body.ids or []
        if len(ids) > most:
            raise InvalidInput("ids", f"{len(ids):,} ids are more than the limit of {most:,} for one request")
        selection = await bulk.named(store, ids[:limit])
    else:
        if not body.filter.narrows:
            raise InvalidInput("filter", 'is empty; to select all jobs give the states: {"status": [...]}')
        query = await body.filter.query(store)
        if query.status is None:
            query = msgspec.structs.replace(query, status=action.states)
        selection = await bulk.matching(store, query, limit=limit)
    return await carried_out(ask, action, selection, dry_run=body.dry_run)


async def carried_out(ask: ApiRequest[Any, Any], action: Action, selection: JobSelection, *, dry_run: bool) -> Response:
    """Act on the selected jobs, unless this is a dry run; the response."""
    done = refused = 0
    refusals: list[BulkAnswer] = []
    if not dry_run:
        async for answers in bulk.carry_out(ask.control, selection, action.do):
            done += sum(each.ok for each in answers)
            left = [each for each in answers if not each.ok]
            refused += len(left)
            refusals += left[: _LISTED - len(refusals)]
    # refusals are in the audit trail of each job
    counts = {"action": action.verb, "dry_run": dry_run, "matched": selection.total, "done": done, "refused": refused}
    ask.audit_entry.result |= counts
    masker = ask.site.masker
    return json_response(
        BulkResult(
            action=action.verb,
            dry_run=dry_run,
            matched=selection.total,
            counts=selection.counts,
            sample=tuple(masked_job(job, masker, payload=False) for job in selection.first),
            done=done,
            refused=refused,
            refusals=tuple(refusals),
            more=selection.limit is not None and sum(selection.counts.values()) >= selection.limit,
        )
    )


OPERATIONS = (
    ApiOperation(
        method="POST",
        path="/jobs/actions",
        handler=act_on_jobs,
        scope="operate",
        tag="jobs",
        summary="Retry, cancel or delete many jobs, or preview it",
        about="The response counts the results. Deleting needs the scope `admin`.",
        body=BulkRequest,
        answers={200: ApiResponse(description="What was done, or would be done.", type=BulkResult)},
        refusals=(404,),
    ),
)

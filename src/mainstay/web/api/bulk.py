"""Doing one thing to many jobs: by id or by filter, with a look at what is meant before anything is done."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ...control import bulk
from ...control.actions import Action, cancelling, deleting, retrying
from ...control.bulk import BulkAnswer, JobSelection
from ...errors import InvalidInput
from . import fields
from .fields import JobId, Reason
from .job_responses import BulkResult
from .jobs import JobFilter
from .operation import ApiOperation, ApiRequest, ApiResponse, NoParameters, json_response
from .views import masked_job

#: refusals that are told one by one
_TOLD = 100
_ACTIONS = {"cancel": cancelling, "retry": retrying, "delete": deleting}


class BulkRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be done, and to which: `ids` or `filter`. A filter without a status means those that it makes sense
    for: what failed, for retry; what is not settled, for cancel; what is settled, for delete."""

    action: fields.Action
    ids: Annotated[list[JobId], Meta(min_length=1, max_length=10_000)] | None = None
    filter: JobFilter | None = None
    dry_run: bool = False
    """only tell what would be done"""
    limit: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """at most so many, the oldest first"""
    reason: Reason | None = None


async def act_on_jobs(ask: ApiRequest[NoParameters, BulkRequest]) -> Response:
    wanted, store, most = ask.body, ask.served.store, ask.site.options.bulk_limit
    if wanted.action == "delete":
        await ask.site.guard.admit(ask.request, "admin")
    action: Action = _ACTIONS[wanted.action](actor=ask.caller.actor, reason=wanted.reason)
    if (wanted.ids is None) is (wanted.filter is None):
        raise InvalidInput("filter", "which? give ids, or a filter; not both")
    limit = min(wanted.limit or most, most)
    if wanted.filter is None:
        ids = wanted.ids or []
        if len(ids) > most:
            raise InvalidInput("ids", f"{len(ids):,} are more than the limit of {most:,} of one request")
        found = await bulk.named(store, ids[:limit])
    else:
        if not wanted.filter.narrows:
            raise InvalidInput("filter", 'says nothing; for all of them name the states: {"status": [...]}')
        query = await wanted.filter.query(store)
        if query.status is None:
            query = msgspec.structs.replace(query, status=action.states)
        found = await bulk.matching(store, query, limit=limit)
    return await carried_out(ask, action, found, dry_run=wanted.dry_run)


async def carried_out(ask: ApiRequest[Any, Any], action: Action, found: JobSelection, *, dry_run: bool) -> Response:
    """Do it, unless this is only to see what it would do; and tell."""
    done = refused = 0
    refusals: list[BulkAnswer] = []
    if not dry_run:
        async for answers in bulk.carry_out(ask.control, found, action.do):
            done += sum(each.ok for each in answers)
            left = [each for each in answers if not each.ok]
            refused += len(left)
            refusals += left[: _TOLD - len(refusals)]
    # of what was refused, each job's own trail says why
    counts = {"action": action.verb, "dry_run": dry_run, "matched": found.total, "done": done, "refused": refused}
    ask.deed.said |= counts
    masker = ask.site.masker
    return json_response(
        BulkResult(
            action=action.verb,
            dry_run=dry_run,
            matched=found.total,
            counts=found.counts,
            sample=tuple(masked_job(job, masker, payload=False) for job in found.first),
            done=done,
            refused=refused,
            refusals=tuple(refusals),
            more=found.limit is not None and sum(found.counts.values()) >= found.limit,
        )
    )


OPERATIONS = (
    ApiOperation(
        method="POST",
        path="/jobs/actions",
        handler=act_on_jobs,
        scope="operate",
        tag="jobs",
        summary="Retry, cancel or delete many jobs, or see which that would be",
        about="Each job is answered for. To delete needs the scope admin.",
        body=BulkRequest,
        answers={200: ApiResponse(description="What was done, or would be.", type=BulkResult)},
        refusals=(404,),
    ),
)

"""Changes of one job, in the name of the caller. A request may name the version of the job that it is meant for."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from ...control import JobView, state_meant
from ...errors import InvalidInput
from ...lifecycle import JOB, UNIT
from ...model import Job
from .fields import Priority, Reason, Status
from .job_responses import JobDeleted
from .operation import ApiOperation, ApiRequest, ApiResponse, NoParameters, json_response
from .versions import wanted_version
from .views import etag_of, masked_job


class ReasonBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason for a change."""

    reason: Reason | None = None


class ForceBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state to move a job to, and the reason."""

    to: Status
    reason: Reason


class PriorityBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The priority of a job in its queue."""

    priority: Priority


class DeleteQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The reason for a deletion."""

    reason: Reason = "deleted on request"


async def cancel_job(ask: ApiRequest[NoParameters, ReasonBody]) -> Response:
    reason = ask.body.reason or "cancelled on request"
    version = await wanted_version(ask)
    return _moved(
        ask, await ask.control.operations.cancel(ask.path("id"), actor=ask.caller.actor, reason=reason, version=version)
    )


async def retry_job(ask: ApiRequest[NoParameters, ReasonBody]) -> Response:
    reason = ask.body.reason or "retried on request"
    version = await wanted_version(ask)
    return _moved(
        ask, await ask.control.operations.retry(ask.path("id"), actor=ask.caller.actor, reason=reason, version=version)
    )


async def force_job(ask: ApiRequest[NoParameters, ForceBody]) -> Response:
    version = await wanted_version(ask, needed=True)
    to, reason = ask.body.to, ask.body.reason
    if to not in JOB.states and to not in UNIT.states:
        raise InvalidInput("to", f"{to!r} is not a state; {state_meant(to)}")
    moved = await ask.control.operations.force(
        ask.path("id"), to, actor=ask.caller.actor, reason=reason, version=version
    )
    return _moved(ask, moved)


async def set_priority(ask: ApiRequest[NoParameters, PriorityBody]) -> Response:
    version = await wanted_version(ask)
    moved = await ask.control.operations.set_priority(
        ask.path("id"), ask.body.priority, actor=ask.caller.actor, version=version
    )
    return _moved(ask, moved)


async def delete_job(ask: ApiRequest[DeleteQuery, None]) -> Response:
    job_id, version = ask.path("id"), await wanted_version(ask, needed=True)
    await ask.control.operations.delete(job_id, actor=ask.caller.actor, reason=ask.query.reason, version=version)
    return json_response({"id": job_id, "deleted": True})


def _moved(ask: ApiRequest[Any, Any], job: Job) -> Response:
    return json_response(masked_job(job, ask.site.masker, payload=False), ETag=etag_of(job))


def _change(path: str, handler: Any, summary: str, body: type[msgspec.Struct], **more: Any) -> ApiOperation:
    return ApiOperation(
        method="POST",
        path=f"/jobs/{{id}}/{path}",
        handler=handler,
        scope=more.pop("scope", "operate"),
        tag="jobs",
        summary=summary,
        body=body,
        answers={
            200: ApiResponse(
                description="The job as it is now.", type=JobView, headers={"ETag": "the new version of the job"}
            )
        },
        refusals=(404, 409),
        if_match=more.pop("if_match", "may"),
        **more,
    )


OPERATIONS = (
    _change("cancel", cancel_job, "Cancel a job: at once, or through its worker", ReasonBody, limited=False),
    _change("retry", retry_job, "Send a job back to its queue", ReasonBody),
    _change("priority", set_priority, "Change the priority of a job", PriorityBody),
    _change(
        "force",
        force_job,
        "Move a job to a state that the lifecycle does not allow",
        ForceBody,
        about="The audit trail records the move as forced, with actor and reason. Jobs in a final state cannot move.",
        if_match="must",
        scope="admin",
    ),
    ApiOperation(
        method="DELETE",
        path="/jobs/{id}",
        handler=delete_job,
        scope="admin",
        tag="jobs",
        summary="Delete a job that no worker runs; its tombstone stays",
        query=DeleteQuery,
        answers={200: ApiResponse(description="The job was deleted.", type=JobDeleted)},
        refusals=(404, 409),
        if_match="must",
    ),
)

"""Queues: what waits where; pausing, resuming and purging them. And the limits of concurrency keys."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ...control import bulk, overview
from ...control.actions import WAITING, deleting, withdrawing
from ...control.overview import QueueOverview, QueuesOverview
from ...model import QueueSettings
from ...stores import Query
from ..problems import Problem
from .bulk import carried_out
from .fields import Reason, Text
from .job_responses import BulkResult
from .operation import ApiOperation, ApiRequest, ApiResponse, NoParameters, json_response
from .store_responses import LimitList


class PauseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why, for whoever overview."""

    reason: Reason | None = None


class PurgeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of the jobs that wait."""

    delete: bool = False
    """delete them, instead of cancelling them"""
    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """at most so many, the oldest first"""
    reason: Reason | None = None


class LimitBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many jobs of a concurrency key may be held at a time."""

    key: Text
    limit: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None
    """null lifts it"""


async def list_queues(ask: ApiRequest[NoParameters, None]) -> Response:
    return json_response(msgspec.to_builtins(await overview.queues(ask.served.store)))


async def get_queue(ask: ApiRequest[NoParameters, None]) -> Response:
    seen = await overview.queues(ask.served.store)
    found = next((queue for queue in seen.queues if queue.name == ask.path("name")), None)
    if found is None:
        raise _no_queue(ask.path("name"), {queue.name for queue in seen.queues})
    return json_response(msgspec.to_builtins(found))


async def pause_queue(ask: ApiRequest[NoParameters, PauseBody]) -> Response:
    await ask.control.operations.pause(ask.path("name"), reason=ask.body.reason)
    return await _settings(ask)


async def resume_queue(ask: ApiRequest[NoParameters, None]) -> Response:
    await _check(ask)
    await ask.control.operations.resume(ask.path("name"))
    return await _settings(ask)


async def purge_queue(ask: ApiRequest[NoParameters, PurgeBody]) -> Response:
    await _check(ask)
    name, wanted = ask.path("name"), ask.body
    why = wanted.reason or f"queue {name} was purged"
    action = (deleting if wanted.delete else withdrawing)(actor=ask.caller.actor, reason=why)
    limit = min(wanted.limit or ask.site.options.bulk_limit, ask.site.options.bulk_limit)
    found = await bulk.matching(ask.served.store, Query(queue=name, status=WAITING), limit=limit)
    return await carried_out(ask, action, found, dry_run=wanted.dry_run)


async def list_limits(ask: ApiRequest[NoParameters, None]) -> Response:
    return json_response({"limits": msgspec.to_builtins(await overview.limits(ask.served.store))})


async def set_limit(ask: ApiRequest[NoParameters, LimitBody]) -> Response:
    await ask.control.operations.set_limit(ask.body.key, ask.body.limit)
    return json_response({"key": ask.body.key, "limit": ask.body.limit})


async def _settings(ask: ApiRequest[Any, Any]) -> Response:
    name = ask.path("name")
    found = {queue.name: queue for queue in await ask.served.store.queues()}
    return json_response(msgspec.to_builtins(found.get(name, QueueSettings(name=name))))


async def _check(ask: ApiRequest[Any, Any]) -> None:
    known = await overview.known_queues(ask.served.store)
    if ask.path("name") not in known:
        raise _no_queue(ask.path("name"), known)


def _no_queue(name: str, known: set[str]) -> Problem:
    there = ", ".join(sorted(known)[:20]) or "none"
    return Problem(404, "queue_not_found", f"there is no queue {name[:100]!r}; there are {there}", field="name")


def _of(path: str, handler: Any, summary: str, type_: Any, **more: Any) -> ApiOperation:
    return ApiOperation(
        method=more.pop("method", "POST"),
        path=path,
        handler=handler,
        scope=more.pop("scope", "operate"),
        tag="queues",
        summary=summary,
        answers={200: ApiResponse(description=more.pop("description", "Done."), type=type_)},
        **more,
    )


OPERATIONS = (
    _of(
        "/queues", list_queues, "List the queues", QueuesOverview, method="GET", scope="read", description="The queues."
    ),
    _of(
        "/queues/{name}",
        get_queue,
        "Look at one queue",
        QueueOverview,
        method="GET",
        scope="read",
        description="The queue.",
        refusals=(404,),
    ),
    _of(
        "/queues/{name}/pause",
        pause_queue,
        "Hand out no more jobs of a queue; what runs goes on",
        QueueSettings,
        body=PauseBody,
    ),
    _of(
        "/queues/{name}/resume",
        resume_queue,
        "Hand out jobs of a queue again",
        QueueSettings,
        body=NoParameters,
        refusals=(404,),
    ),
    _of(
        "/queues/{name}/purge",
        purge_queue,
        "Cancel or delete every job of a queue that waits",
        BulkResult,
        about="Running and settled jobs are not changed. With dry_run nothing is done.",
        body=PurgeBody,
        scope="admin",
        refusals=(404,),
    ),
    _of(
        "/limits",
        list_limits,
        "List the limits of concurrency keys",
        LimitList,
        method="GET",
        scope="read",
        description="The limits.",
    ),
    _of("/limits", set_limit, "Set or lift the limit of a concurrency key", LimitBody, body=LimitBody),
)

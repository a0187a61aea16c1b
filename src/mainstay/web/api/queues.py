"""Queues and the limits of concurrency keys."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ...control import WAITING_STATES, bulk, deleting, overview, withdrawing
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
    """The reason for a pause."""

    reason: Reason | None = None


class PurgeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do with the waiting jobs."""

    delete: bool = False
    """delete them, instead of cancelling them"""
    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """the most jobs to act on, the oldest first"""
    reason: Reason | None = None


class LimitBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many jobs of a concurrency key may run at a time."""

    key: Text
    limit: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None
    """null removes the limit"""


async def list_queues(ask: ApiRequest[NoParameters, None]) -> Response:
    return json_response(await overview.queues(ask.served.store))


async def get_queue(ask: ApiRequest[NoParameters, None]) -> Response:
    queues = {queue.name: queue for queue in (await overview.queues(ask.served.store)).queues}
    queue = queues.get(ask.path("name"))
    if queue is None:
        raise _no_queue(ask.path("name"), set(queues))
    return json_response(queue)


async def pause_queue(ask: ApiRequest[NoParameters, PauseBody]) -> Response:
    await ask.control.operations.pause(ask.path("name"), reason=ask.body.reason)
    return await _settings(ask)


async def resume_queue(ask: ApiRequest[NoParameters, None]) -> Response:
    await _check(ask)
    await ask.control.operations.resume(ask.path("name"))
    return await _settings(ask)


async def purge_queue(ask: ApiRequest[NoParameters, PurgeBody]) -> Response:
    await _check(ask)
    name, body = ask.path("name"), ask.body
    reason = body.reason or f"queue {name} was purged"
    action = (deleting if body.delete else withdrawing)(actor=ask.caller.actor, reason=reason)
    limit = min(body.limit or ask.site.options.bulk_limit, ask.site.options.bulk_limit)
    selection = await bulk.matching(ask.served.store, Query(queue=name, status=WAITING_STATES), limit=limit)
    return await carried_out(ask, action, selection, dry_run=body.dry_run)


async def list_limits(ask: ApiRequest[NoParameters, None]) -> Response:
    return json_response({"limits": await overview.limits(ask.served.store)})


async def set_limit(ask: ApiRequest[NoParameters, LimitBody]) -> Response:
    await ask.control.operations.set_limit(ask.body.key, ask.body.limit)
    return json_response({"key": ask.body.key, "limit": ask.body.limit})


async def _settings(ask: ApiRequest[Any, Any]) -> Response:
    name = ask.path("name")
    stored = {queue.name: queue for queue in await ask.served.store.queues()}
    return json_response(stored.get(name, QueueSettings(name=name)))


async def _check(ask: ApiRequest[Any, Any]) -> None:
    known = await overview.known_queues(ask.served.store)
    if ask.path("name") not in known:
        raise _no_queue(ask.path("name"), known)


def _no_queue(name: str, known: set[str]) -> Problem:
    names = ", ".join(sorted(known)[:20]) or "none"
    return Problem(404, "queue_not_found", f"there is no queue {name[:100]!r}; known: {names}", field="name")


def _operation(path: str, handler: Any, summary: str, type_: Any, **more: Any) -> ApiOperation:
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
    _operation(
        "/queues", list_queues, "List the queues", QueuesOverview, method="GET", scope="read", description="The queues."
    ),
    _operation(
        "/queues/{name}",
        get_queue,
        "Read one queue",
        QueueOverview,
        method="GET",
        scope="read",
        description="The queue.",
        refusals=(404,),
    ),
    _operation(
        "/queues/{name}/pause",
        pause_queue,
        "Pause a queue: workers take no more of its jobs, and running jobs continue",
        QueueSettings,
        body=PauseBody,
    ),
    _operation(
        "/queues/{name}/resume",
        resume_queue,
        "Resume a queue: workers take its jobs again",
        QueueSettings,
        body=NoParameters,
        refusals=(404,),
    ),
    _operation(
        "/queues/{name}/purge",
        purge_queue,
        "Cancel or delete every waiting job of a queue",
        BulkResult,
        about="Running and settled jobs are not changed. With `dry_run` nothing is done.",
        body=PurgeBody,
        scope="admin",
        refusals=(404,),
    ),
    _operation(
        "/limits",
        list_limits,
        "List the limits of concurrency keys",
        LimitList,
        method="GET",
        scope="read",
        description="The limits.",
    ),
    _operation("/limits", set_limit, "Set or remove the limit of a concurrency key", LimitBody, body=LimitBody),
)

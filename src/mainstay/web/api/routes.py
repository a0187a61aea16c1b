"""All operations, and their dispatch: find the operation, admit the caller, decode, run, respond."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from ...errors import MainstayError
from ...kinds import part, server_parts
from ...model import check_id
from ..audit import AUDITED, AuditEntry
from ..problems import Problem, problem_of, problem_response
from ..services import WebServices
from . import bulk, job_actions, job_history, jobs, queues, schedules, stores, submit
from .openapi import described
from .operation import ApiOperation, ApiRequest
from .request_reader import read_body, read_query

PREFIX = "/api/v1"

OPERATIONS: tuple[ApiOperation, ...] = (
    *submit.OPERATIONS,
    *jobs.OPERATIONS,
    *job_history.OPERATIONS,
    *job_actions.OPERATIONS,
    *bulk.OPERATIONS,
    *queues.OPERATIONS,
    *schedules.OPERATIONS,
    *stores.OPERATIONS,
)

log = logging.getLogger("mainstay.web")


@cache
def operations() -> tuple[ApiOperation, ...]:
    """Every operation: our own, and those of the installed kinds and the cluster, which cannot replace ours."""
    found = {(each.method, each.path): each for each in OPERATIONS}
    for parts in server_parts():
        for each in part(parts.operations) if parts.operations else ():
            found.setdefault((each.method, each.path), each)
    return tuple(found.values())


def routes(site: WebServices, *, also: Sequence[ApiOperation] = ()) -> list[BaseRoute]:
    """One route for each path, for all its methods. The description covers `also` operations that are routed
    elsewhere."""
    by_path: dict[str, dict[str, ApiOperation]] = {}
    for operation in operations():
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [
        Route("/openapi.json", _description(site, [*operations(), *also]), methods=["GET"]),
        *(Route(_routed(path), Endpoint(site, by_path[path])) for path in sorted(by_path, key=_order)),
    ]


def _description(site: WebServices, operations: Sequence[ApiOperation]) -> Callable[[Request], Awaitable[Response]]:
    """The OpenAPI description. It contains no secret, so it needs no token."""

    @cache
    def document() -> bytes:
        return msgspec.json.encode(described(operations, stores=list(site.stores.by_name)))

    async def description(_: Request) -> Response:
        return Response(await asyncio.to_thread(document), media_type="application/json")

    return description


def _routed(path: str) -> str:
    """The path for the router: names may contain slashes."""
    return path.replace("{name}", "{name:path}")


def _order(path: str) -> tuple[bool, int, str]:
    """Plain paths first: `jobs/bulk` is not the id of a job. Of paths with a name, longer ones first: `/pause` is not
    part of a name."""
    return "{name}" in path, path.count("{") * 100 - path.count("/"), path


class Endpoint:
    """One path of the API, as an ASGI app."""

    def __init__(self, site: WebServices, operations: Mapping[str, ApiOperation]) -> None:
        self._site = site
        self._operations = operations
        methods = {*operations, *(["HEAD"] if "GET" in operations else [])}
        self._allowed = ", ".join(sorted(methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._response(request)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - the caller gets a response to any error, and no traceback
            response = problem_response(as_problem(error, request))
        await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        operation = self._operations.get("GET" if request.method == "HEAD" else request.method)
        if operation is None:
            detail = f"{request.method[:20]} is not allowed here; allowed: {self._allowed}"
            raise Problem(405, "method_not_allowed", detail, headers={"Allow": self._allowed})
        entry = AuditEntry(operation.id, request)
        if operation.scope not in AUDITED:
            return await self._run(operation, request, entry)
        try:
            response = await self._run(operation, request, entry)
        except ClientDisconnect:
            raise
        except Exception as error:
            problem = as_problem(error, request)
            entry.refused(problem)
            raise problem from error
        if operation.audits:
            entry.done()
        return response

    async def _run(self, operation: ApiOperation, request: Request, entry: AuditEntry) -> Response:
        site = self._site
        caller = await site.guard.admit(request, operation.scope, limited=operation.limited)
        if "id" in request.path_params:
            check_id(request.path_params["id"], field="id")
        store, query = read_query(request, operation)
        body = await read_body(request, operation)
        served = site.stores.find(store)
        entry.store = served.name
        entry.takes(query, body)
        return await operation.handler(ApiRequest(site, request, caller, served, query, body, entry))


def as_problem(error: Exception, request: Request) -> Problem:
    """The response to an error. An unexpected error is only given an id, under which the log has the details."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, MainstayError):
        return problem_of(error)
    mark = secrets.token_hex(8)
    # `request.url` fails for a malformed Host
    log.error("bug id=%s %r %r", mark, request.method, request.scope["path"], exc_info=error)
    detail = f"this is a bug of the server; its log has the details under {mark}"
    return Problem(500, "internal_error", detail, id=mark)


__all__ = ["OPERATIONS", "PREFIX", "as_problem", "operations", "routes"]

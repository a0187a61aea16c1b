"""All operations, and how a request comes to one: find it, let the caller in, read, do, answer."""

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
from ...kinds import kinds, part
from ...model import check_id
from ..audit import AUDITED, AuditEntry
from ..problems import Problem, answer, problem_of
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
    """Every operation: those of every job, and those of the installed kinds. A kind cannot replace one of ours."""
    found = {(each.method, each.path): each for each in OPERATIONS}
    for kind in kinds():
        for each in part(kind.operations) if kind.operations else ():
            found.setdefault((each.method, each.path), each)
    return tuple(found.values())


def routes(site: WebServices, *, also: Sequence[ApiOperation] = ()) -> list[BaseRoute]:
    """One route for each path; whoever asks for something else there is told what there is. The description is `also`
    of operations that others route."""
    by_path: dict[str, dict[str, ApiOperation]] = {}
    for operation in operations():
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [
        Route("/openapi.json", _description(site, [*operations(), *also]), methods=["GET"]),
        *(Route(_routed(path), Endpoint(site, by_path[path])) for path in sorted(by_path, key=_order)),
    ]


def _description(site: WebServices, operations: Sequence[ApiOperation]) -> Callable[[Request], Awaitable[Response]]:
    """What there is, for programs. Nothing of it is secret, so nobody is asked who they are."""

    @cache
    def made() -> bytes:
        return msgspec.json.encode(described(operations, stores=list(site.stores.by_name)))

    async def description(_: Request) -> Response:
        return Response(await asyncio.to_thread(made), media_type="application/json")

    return description


def _routed(path: str) -> str:
    """Names may have slashes in them."""
    return path.replace("{name}", "{name:path}")


def _order(path: str) -> tuple[bool, int, str]:
    """The plain paths first: `jobs/bulk` is no job. Of those with a name the longer ones: `.../pause` is no name."""
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
            response = await self._answered(request)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets an answer, and no stack trace
            response = answer(as_problem(error, request))
        await response(scope, receive, send)

    async def _answered(self, request: Request) -> Response:
        operation = self._operations.get("GET" if request.method == "HEAD" else request.method)
        if operation is None:
            detail = f"{request.method[:20]} is not done here; there is {self._allowed}"
            raise Problem(405, "method_not_allowed", detail, headers={"Allow": self._allowed})
        deed = AuditEntry(operation.id, request)
        if operation.scope not in AUDITED:
            return await self._done(operation, request, deed)
        try:
            response = await self._done(operation, request, deed)
        except ClientDisconnect:
            raise
        except Exception as error:
            problem = as_problem(error, request)
            deed.refused(problem)
            raise problem from error
        deed.done()
        return response

    async def _done(self, operation: ApiOperation, request: Request, deed: AuditEntry) -> Response:
        site = self._site
        caller = await site.guard.admit(request, operation.scope)
        if "id" in request.path_params:
            check_id(request.path_params["id"], field="id")
        store, query = read_query(request, operation)
        body = await read_body(request, operation)
        served = site.stores.find(store)
        deed.store = served.name
        deed.wants(query, body)
        return await operation.handler(ApiRequest(site, request, caller, served, query, body, deed))


def as_problem(error: Exception, request: Request) -> Problem:
    """What is said of an error. Of one that nobody foresaw only an id, by which the log tells more."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, MainstayError):
        return problem_of(error)
    mark = secrets.token_hex(8)
    # not by way of `request.url`, which a hostile Host makes fail
    log.error("bug id=%s %r %r", mark, request.method, request.scope["path"], exc_info=error)
    detail = f"this is a bug of the server; its log tells more under {mark}"
    return Problem(500, "internal_error", detail, id=mark)


__all__ = ["OPERATIONS", "PREFIX", "as_problem", "operations", "routes"]

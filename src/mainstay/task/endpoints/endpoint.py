"""AsyncEndpoint: a slow HTTP handler as a job."""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, Literal, ParamSpec
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send

from ...clock import seconds
from ...control import is_over
from ...errors import (
    InvalidInput,
    InvalidTransition,
    JobNotFound,
    KeyConflict,
    MainstayError,
    StoreError,
    WaitTimeout,
)
from ...model import Job, check_id
from ...web import Problem, problem_of, problem_response
from .. import Handle, Task
from ..options import SubmitOptions
from .body import TaskBody
from .openapi import JobAccepted, JobStatus, described
from .prefer import Preference, preferred

P = ParamSpec("P")
Owner = Callable[[Request], str | Awaitable[str | None] | None]

#: the metadata entry with the owner of a job
OWNER = "endpoint.owner"
_LIMIT = 1024 * 1024
_LONGEST_KEY = 200
_KEY = "Idempotency-Key"
_NO_STORE = {"Cache-Control": "no-store"}
#: the HTTP status of a job that ended without a result, unless its error code has one
_STATUSES = {"cancelled": 410, "skipped": 410, "timed_out": 504}

_encode = msgspec.json.Encoder(enc_hook=str).encode

log = logging.getLogger("mainstay.task.endpoints")


def _answered(do: Callable[P, Awaitable[Response]]) -> Callable[P, Coroutine[Any, Any, Response]]:
    """A handler whose errors become responses."""

    @functools.wraps(do)
    async def handler(*args: P.args, **kwargs: P.kwargs) -> Response:
        try:
            return await do(*args, **kwargs)
        except Problem as problem:
            return _problem_response(problem)
        except StoreError as error:
            # clients must not see details of the store
            log.exception("store error endpoint=%s", do.__name__)
            detail = "the request cannot be processed now; try again in a moment"
            return _problem_response(Problem(503, error.code, detail, headers={"Retry-After": "2"}))
        except MainstayError as error:
            return _problem_response(problem_of(error))

    return handler


class AsyncEndpoint:
    """Turns a task into an endpoint that answers at once, for Starlette, FastAPI and other ASGI apps.

    `POST` submits a call of the task, with its arguments as a JSON object, and answers 202 with a `Location`: the
    status URL. `GET` of that URL returns the status and leads to the result: by a redirect, or, with `results="embed"`,
    in the same response. `DELETE` cancels. With `Prefer: wait=5` each of them waits up to 5 seconds for the end. A
    repeated POST with the same `Idempotency-Key` is the same job.

    `owner` returns the user of a request (async or not; its exceptions are the app's). A job belongs to the user who
    posted it, and does not exist for others. `expose` shows the messages of errors to clients; without it they see only
    the code of the error, and `statuses` maps codes to HTTP statuses (default: 500). `options` are those of a submit.
    `retry_after` is the `Retry-After` of unfinished jobs.

    >>> import asyncio, httpx
    >>> from mainstay import App
    >>> from mainstay.testing import Harness
    >>> from starlette.applications import Starlette
    >>> jobs = App("memory:")
    >>> @jobs.task(name="report.make")
    ... async def make(year: int) -> dict[str, int]:
    ...     return {"year": year, "pages": 12}
    >>> web = Starlette(routes=AsyncEndpoint(make).routes("/reports"))
    >>> async def main():
    ...     async with Harness(jobs) as box, httpx.AsyncClient(
    ...         transport=httpx.ASGITransport(web), base_url="http://test", follow_redirects=True
    ...     ) as http:
    ...         posted = await http.post("/reports", json={"year": 2026})
    ...         await box.drain()
    ...         return posted.status_code, (await http.get(posted.headers["Location"])).json()
    >>> asyncio.run(main())
    (202, {'pages': 12, 'year': 2026})
    """

    def __init__(
        self,
        task: Task[..., Any],
        *,
        results: Literal["redirect", "embed"] = "redirect",
        owner: Owner | None = None,
        expose: bool = False,
        statuses: Mapping[str, int] | None = None,
        options: SubmitOptions | None = None,
        longest_wait: str | timedelta = "30s",
        retry_after: str | timedelta = "2s",
        body_limit: int = _LIMIT,
    ) -> None:
        if not isinstance(task, Task):
            raise InvalidInput("task", f"{task!r} is not a task; put @app.task above it")
        if results not in ("redirect", "embed"):
            raise InvalidInput("results", f"{results!r} is neither 'redirect' nor 'embed'")
        self.task = task
        self._embeds = results == "embed"
        self._owner = owner
        self._expose = expose
        self._statuses = dict(statuses or {})
        self._submits = task.options(**(options or {}))
        self._longest_s = seconds(longest_wait, field="longest_wait")
        # the header has whole seconds
        self._after = str(max(1, round(seconds(retry_after, field="retry_after"))))
        self._body = TaskBody(task, limit=body_limit)
        self._router = Router(self.routes(""))

    # mount ------------------------------------------------------------------------------------------

    def routes(self, path: str) -> list[BaseRoute]:
        """Its routes below a path, for `Starlette(routes=[...])` or `fastapi_app.router.routes.extend(...)`. The
        endpoint is also an app that can be mounted; then the path of the POST ends with a slash."""
        return [
            Route(path or "/", self._post, methods=["POST"]),
            # one route for both, so that the response to another method names both
            Route(f"{path}/{{id}}", self._get_or_delete, methods=["GET", "DELETE"]),
            Route(f"{path}/{{id}}/result", self._get_result, methods=["GET"]),
        ]

    def openapi(self, path: str) -> dict[str, Any]:
        """The `paths` and `components` of an OpenAPI description, for an app that makes its own, as FastAPI does."""
        return described(self.task, self._body.type, path, embeds=self._embeds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router(scope, receive, send)

    # operations, also for handlers that have read the request themselves --------------------------

    @_answered
    async def accept(self, request: Request, arguments: Mapping[str, Any]) -> Response:
        """Submit a call with these arguments, and answer as POST does."""
        owner = await self._owner_of_request(request)
        preference = self._preference(request)
        more: SubmitOptions = {}
        if owner is not None:
            more["metadata"] = {OWNER: owner}
        if (key := _key(request, owner)) is not None:
            more["key"] = key
        try:
            handle = await self._submits.options(**more).submit(**arguments)
        except InvalidInput as error:
            # clients know the fields of the body, but not the task
            error.field = error.field.removeprefix(f"{self.task.name}.")
            raise
        except KeyConflict as error:
            # the message of the error contains the stored key and the id of the other job
            detail = "this key was used before with other arguments; use another key, or send the same arguments"
            raise Problem(409, error.code, detail, field=_KEY) from None
        try:
            existing = None if handle.created else await handle.job()
        except JobNotFound as error:
            detail = "the job of this key was deleted; use another key to submit it again"
            raise Problem(410, error.code, detail, field=_KEY) from None
        if existing is not None and _owner_of(existing) != owner:
            raise Problem(409, "unique_clash", "the same job is already running for another caller; try again later")
        where = f"{_path(request)}/{handle.id}"
        job = await self._waited(handle, preference) or existing
        if job is not None and is_over(job):
            return self._ended(job, where, preference)
        accepted = JobAccepted(id=handle.id, status="pending" if job is None else job.status, location=where)
        return _json_response(accepted, 202, **preference.headers, Location=where, **{"Retry-After": self._after})

    @_answered
    async def status(self, request: Request, job_id: str) -> Response:
        """Answer with the status of a job, as GET does."""
        handle, job, _ = await self._found(request, job_id)
        preference = self._preference(request)
        where = _path(request)
        if not is_over(job):
            job = await self._waited(handle, preference) or job
        if is_over(job):
            return self._ended(job, where, preference)
        return _json_response(_status_of(job), 200, **preference.headers, **{"Retry-After": self._after})

    @_answered
    async def result(self, request: Request, job_id: str) -> Response:
        """Answer with the result of a job, if there is one."""
        handle, job, _ = await self._found(request, job_id)
        preference = self._preference(request)
        if not is_over(job):
            job = await self._waited(handle, preference) or job
        if not is_over(job):
            detail = f"the job is {job.status}, so there is no result yet; try again later"
            raise Problem(409, "not_settled", detail, headers={"Retry-After": self._after}, job_status=job.status)
        if job.status != "succeeded":
            raise self._failed(job)
        return _json_response(self._value(job), 200, **preference.headers)

    @_answered
    async def cancel(self, request: Request, job_id: str) -> Response:
        """Cancel a job: 204 if it is cancelled, 202 if its worker was asked to stop. Twice is the same as once."""
        handle, _, who = await self._found(request, job_id)
        preference = self._preference(request)
        try:
            job = await handle.cancel(f"cancelled by {who} over HTTP" if who else "cancelled over HTTP")
        except InvalidTransition as error:
            # the message of the error contains the story of the job, which is not for clients
            raise _too_late(job_id, error.current) from None
        if not is_over(job):
            job = await self._waited(handle, preference) or job
        if job.status == "cancelled":
            return Response(status_code=204, headers={**_NO_STORE, **preference.headers})
        if is_over(job):
            # it ended before its worker learned of the cancel
            raise _too_late(job_id, job.status)
        headers = {**preference.headers, "Location": _path(request), "Retry-After": self._after}
        return _json_response(_status_of(job), 202, **headers)

    # ------------------------------------------------------------------------------------------------

    @_answered
    async def _post(self, request: Request) -> Response:
        return await self.accept(request, await self._body.read(request))

    async def _get_or_delete(self, request: Request) -> Response:
        do = self.cancel if request.method == "DELETE" else self.status
        return await do(request, request.path_params["id"])

    async def _get_result(self, request: Request) -> Response:
        return await self.result(request, request.path_params["id"])

    async def _owner_of_request(self, request: Request) -> str | None:
        if self._owner is None:
            return None
        answer = self._owner(request)
        owner = await answer if inspect.isawaitable(answer) else answer
        if not owner:
            raise Problem(401, "not_signed_in", "the request has no signed-in user")
        return owner

    async def _found(self, request: Request, job_id: str) -> tuple[Handle[Any], Job, str | None]:
        """A job of this task that belongs to the user of the request, with that user. Other jobs are not found."""
        owner = await self._owner_of_request(request)
        not_found = Problem(404, "job_not_found", "there is no such job; it may have been deleted")
        try:
            check_id(job_id, field="id")
            handle = self.task.handle(job_id)
            job = await handle.job()
        except (InvalidInput, JobNotFound):
            raise not_found from None
        if job.name != self.task.name or job.kind != "task" or (self._owner is not None and _owner_of(job) != owner):
            raise not_found
        return handle, job, owner

    def _preference(self, request: Request) -> Preference:
        return preferred(request, longest_s=self._longest_s)

    async def _waited(self, handle: Handle[Any], preference: Preference) -> Job | None:
        """The job, if it settles within the time that the client wants to wait; else None."""
        if not preference.wait_s:
            return None
        try:
            return await handle.wait(timedelta(seconds=preference.wait_s))
        except WaitTimeout:
            return None

    def _ended(self, job: Job, where: str, preference: Preference) -> Response:
        if job.status != "succeeded":
            raise self._failed(job)
        if self._embeds:
            data = {**msgspec.structs.asdict(_status_of(job)), "result": self._value(job)}
            return _json_response(data, 200, **preference.headers, **{"Content-Location": where})
        return Response(status_code=303, headers={**_NO_STORE, **preference.headers, "Location": f"{where}/result"})

    def _failed(self, job: Job) -> Problem:
        """Why there is no result. The message of the error may contain secrets, so it is shown only with `expose`."""
        error = job.error
        code = job.status if error is None or job.status == "cancelled" else error.code
        detail = f"the job ended {job.status}"
        if self._expose and error is not None:
            detail = f"{error.type}: {error.message}"
        elif self._expose and job.reason:
            detail = f"{detail}: {job.reason}"
        status = self._statuses.get(code) or _STATUSES.get(job.status, 500)
        return Problem(status, code, detail, id=job.id, job_status=job.status)

    def _value(self, job: Job) -> Any:
        return self.task.handle(job.id).result_of(job)


def _status_of(job: Job) -> JobStatus:
    return msgspec.convert(job, JobStatus, from_attributes=True)


def _path(request: Request) -> str:
    """The path of the request, as the client sees it."""
    path: str = request.scope["path"]
    # the mount point of the whole app; `root_path` is that of this part
    root = request.scope.get("app_root_path", request.scope.get("root_path", "")).rstrip("/")
    if not path.startswith(f"{root}/"):
        # a proxy removed the prefix, and the app is configured for it
        path = root + path
    # it may contain any character, and it goes into a header
    return quote(path.rstrip("/"))


def _key(request: Request, owner: str | None) -> str | None:
    """The idempotency key of a POST, separate for each owner."""
    keys = request.headers.getlist(_KEY)
    if not keys:
        return None
    if len(keys) > 1:
        raise Problem(422, "invalid_input", "is given twice; send it once", field=_KEY)
    given = keys[0]
    if not 1 <= len(given) <= _LONGEST_KEY or not given.isprintable():
        raise Problem(422, "invalid_input", f"must have 1 to {_LONGEST_KEY} printable characters", field=_KEY)
    # a plain concatenation of name and key could equal that of another pair
    return given if owner is None else f"{hashlib.sha256(owner.encode()).hexdigest()[:32]}:{given}"


def _owner_of(job: Job) -> str | None:
    return job.options.metadata.get(OWNER)


def _too_late(job_id: str, status: str) -> Problem:
    detail = f"the job is {status}, so there is nothing to cancel"
    return Problem(409, InvalidTransition.code, detail, id=job_id, job_status=status)


def _problem_response(problem: Problem) -> Response:
    """The response to a problem; caches must not keep it."""
    response = problem_response(problem)
    response.headers.update(_NO_STORE)
    return response


def _json_response(data: Any, status: int, **headers: str) -> Response:
    return Response(_encode(data), status, {**_NO_STORE, **headers}, "application/json")


__all__ = ["AsyncEndpoint"]

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
from ...control.wait_polls import is_over
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
from ...web.problems import Problem, answer, problem_of
from .. import Handle, Task
from ..options import SubmitOptions
from .body import TaskBody
from .openapi import described
from .prefer import Preference, preferred

P = ParamSpec("P")
Owner = Callable[[Request], str | Awaitable[str | None] | None]

#: who a job was made for, among its metadata
OWNER = "endpoint.owner"
_LIMIT = 1024 * 1024
_LONGEST_KEY = 200
_KEY = "Idempotency-Key"
_UNKEPT = {"Cache-Control": "no-store"}
#: how a job that ended without a result is answered, unless its error code says otherwise
_STATUSES = {"cancelled": 410, "skipped": 410, "timed_out": 504}

_encode = msgspec.json.Encoder(enc_hook=str).encode

log = logging.getLogger("mainstay.task.endpoints")


def _answered(do: Callable[P, Awaitable[Response]]) -> Callable[P, Coroutine[Any, Any, Response]]:
    """A handler whose errors are answers."""

    @functools.wraps(do)
    async def handler(*args: P.args, **kwargs: P.kwargs) -> Response:
        try:
            return await do(*args, **kwargs)
        except Problem as problem:
            return _unkept(problem)
        except StoreError as error:
            # what is wrong with the store is no business of clients
            log.exception("the store refuses endpoint=%s", do.__name__)
            detail = "this cannot be done now; try again in a moment"
            return _unkept(Problem(503, error.code, detail, headers={"Retry-After": "2"}))
        except MainstayError as error:
            return _unkept(problem_of(error))

    return handler


class AsyncEndpoint:
    """Turns a task into an endpoint that answers at once, for Starlette, FastAPI and other ASGI apps.

    `POST` submits a call of the task, with its arguments as a JSON object, and answers 202 with a `Location`: the
    status URL. `GET` there tells how far it is, and leads to the result: by a redirect, or with `results="embed"` in
    the same answer. `DELETE` there cancels. With `Prefer: wait=5` each waits a little for the end. An `Idempotency-Key`
    makes a repeated POST the same job.

    `owner` is asked who a request is from (async or not; it may raise what the app turns into an answer). A job belongs
    to whoever posted it, and to others it is not there. `expose` shows the messages of errors to clients; without it
    they see the error's code alone, and `statuses` says which HTTP status a code has (500 otherwise). `options` are
    those of a submit. `retry_after` is when clients are told to look again.

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
        """Its routes below a path, for `Starlette(routes=[...])` or `fastapi_app.router.routes.extend(...)`. Itself, it
        is an app that can be mounted; the path to post to ends in a slash then."""
        return [
            Route(path or "/", self._post, methods=["POST"]),
            # one route for both: whoever asks for something else there is told of both
            Route(f"{path}/{{id}}", self._get_or_delete, methods=["GET", "DELETE"]),
            Route(f"{path}/{{id}}/result", self._get_result, methods=["GET"]),
        ]

    def openapi(self, path: str) -> dict[str, Any]:
        """What is there below a path, as `paths` and `components` of an OpenAPI description: for an app that makes its
        own, as FastAPI does."""
        return described(self.task, self._body.type, path, embeds=self._embeds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router(scope, receive, send)

    # do: also for handlers of one's own, which have read the request by themselves ------------------

    @_answered
    async def accept(self, request: Request, arguments: Mapping[str, Any]) -> Response:
        """Submit a call with these arguments, and answer as POST does."""
        owner = await self._asker(request)
        wish = self._wish(request)
        more: SubmitOptions = {}
        if owner is not None:
            more["metadata"] = {OWNER: owner}
        if (key := _key(request, owner)) is not None:
            more["key"] = key
        try:
            handle = await self._submits.options(**more).submit(**arguments)
        except InvalidInput as error:
            # clients know the fields of the body, and not the task
            error.field = error.field.removeprefix(f"{self.task.name}.")
            raise
        except KeyConflict as error:
            # its words name the key as it is stored, and the other job
            detail = "this key was used before with other arguments; use another, or send the same"
            raise Problem(409, error.code, detail, field=_KEY) from None
        try:
            there = None if handle.created else await handle.job()
        except JobNotFound as error:
            detail = "what was begun with this key has been deleted since; to do it again, use another"
            raise Problem(410, error.code, detail, field=_KEY) from None
        if there is not None and _owner_of(there) != owner:
            raise Problem(409, "unique_clash", "the same job is already running for another caller; try again later")
        where = f"{_path(request)}/{handle.id}"
        job = await self._waited(handle, wish) or there
        if job is not None and is_over(job):
            return self._ended(job, where, wish)
        told = {"id": handle.id, "status": "pending" if job is None else job.status, "location": where}
        return _told(told, 202, **wish.headers, Location=where, **{"Retry-After": self._after})

    @_answered
    async def status(self, request: Request, job_id: str) -> Response:
        """Tell how far a job is, and answer as GET does."""
        handle, job, _ = await self._found(request, job_id)
        wish = self._wish(request)
        where = _path(request)
        if not is_over(job):
            job = await self._waited(handle, wish) or job
        if is_over(job):
            return self._ended(job, where, wish)
        return _told(_seen(job), 200, **wish.headers, **{"Retry-After": self._after})

    @_answered
    async def result(self, request: Request, job_id: str) -> Response:
        """Give the result, if there is one."""
        handle, job, _ = await self._found(request, job_id)
        wish = self._wish(request)
        if not is_over(job):
            job = await self._waited(handle, wish) or job
        if not is_over(job):
            detail = f"it is {job.status}, so there is no result yet; ask again later"
            raise Problem(409, "not_settled", detail, headers={"Retry-After": self._after}, job_status=job.status)
        if job.status != "succeeded":
            raise self._failed(job)
        return _told(self._value(job), 200, **wish.headers)

    @_answered
    async def cancel(self, request: Request, job_id: str) -> Response:
        """Cancel a job: 204 when it is, 202 when its worker has been asked to stop. Twice is once."""
        handle, _, who = await self._found(request, job_id)
        wish = self._wish(request)
        try:
            job = await handle.cancel(f"cancelled by {who} over HTTP" if who else "cancelled over HTTP")
        except InvalidTransition as error:
            # its words tell the job's story: who worked on it, and what errors said
            raise _too_late(job_id, error.current) from None
        if not is_over(job):
            job = await self._waited(handle, wish) or job
        if job.status == "cancelled":
            return Response(status_code=204, headers={**_UNKEPT, **wish.headers})
        if is_over(job):
            # its worker was done before it heard of it
            raise _too_late(job_id, job.status)
        return _told(_seen(job), 202, **wish.headers, Location=_path(request), **{"Retry-After": self._after})

    # ------------------------------------------------------------------------------------------------

    @_answered
    async def _post(self, request: Request) -> Response:
        return await self.accept(request, await self._body.read(request))

    async def _get_or_delete(self, request: Request) -> Response:
        do = self.cancel if request.method == "DELETE" else self.status
        return await do(request, request.path_params["id"])

    async def _get_result(self, request: Request) -> Response:
        return await self.result(request, request.path_params["id"])

    async def _asker(self, request: Request) -> str | None:
        if self._owner is None:
            return None
        found = self._owner(request)
        who = await found if inspect.isawaitable(found) else found
        if not who:
            raise Problem(401, "not_signed_in", "it is not known who asks")
        return who

    async def _found(self, request: Request, job_id: str) -> tuple[Handle[Any], Job, str | None]:
        """A job of this task that belongs to whoever asks, and who that is. Any other is not there."""
        owner = await self._asker(request)
        nowhere = Problem(404, "job_not_found", "there is no such job here; it may have been deleted")
        try:
            check_id(job_id, field="id")
            handle = self.task.handle(job_id)
            job = await handle.job()
        except (InvalidInput, JobNotFound):
            raise nowhere from None
        if job.name != self.task.name or job.kind != "task" or (self._owner is not None and _owner_of(job) != owner):
            raise nowhere
        return handle, job, owner

    def _wish(self, request: Request) -> Preference:
        return preferred(request, longest_s=self._longest_s)

    async def _waited(self, handle: Handle[Any], wish: Preference) -> Job | None:
        """The job when it is settled within the time that the client wants to wait; None: it is not, or none."""
        if not wish.wait_s:
            return None
        try:
            return await handle.wait(timedelta(seconds=wish.wait_s))
        except WaitTimeout:
            return None

    def _ended(self, job: Job, where: str, wish: Preference) -> Response:
        if job.status != "succeeded":
            raise self._failed(job)
        if self._embeds:
            told = {**_seen(job), "result": self._value(job)}
            return _told(told, 200, **wish.headers, **{"Content-Location": where})
        return Response(status_code=303, headers={**_UNKEPT, **wish.headers, "Location": f"{where}/result"})

    def _failed(self, job: Job) -> Problem:
        """Why there is no result. What the error said may hold secrets, so it is told only if that is wanted."""
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


def _seen(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "status": job.status,
        "progress": msgspec.to_builtins(job.progress),
        "created_ms": job.created_ms,
        "started_ms": job.started_ms,
    }


def _path(request: Request) -> str:
    """Where the request was sent to, as the client calls it."""
    path: str = request.scope["path"]
    # where the whole app is: `root_path` is where this part of it is mounted
    root = request.scope.get("app_root_path", request.scope.get("root_path", "")).rstrip("/")
    if not path.startswith(f"{root}/"):
        # a proxy took it away, and the app was told so
        path = root + path
    # as a server has it, it may hold anything; it goes into a header
    return quote(path.rstrip("/"))


def _key(request: Request, owner: str | None) -> str | None:
    """What makes a repeated POST the same: of each owner for themselves."""
    keys = request.headers.getlist(_KEY)
    if not keys:
        return None
    if len(keys) > 1:
        raise Problem(422, "invalid_input", "is given twice; give it once", field=_KEY)
    given = keys[0]
    if not 1 <= len(given) <= _LONGEST_KEY or not given.isprintable():
        raise Problem(422, "invalid_input", f"is to have 1 to {_LONGEST_KEY} printable characters", field=_KEY)
    # a name and a key put together could be another name and another key
    return given if owner is None else f"{hashlib.sha256(owner.encode()).hexdigest()[:32]}:{given}"


def _owner_of(job: Job) -> str | None:
    return job.options.metadata.get(OWNER)


def _too_late(job_id: str, status: str) -> Problem:
    detail = f"it is {status}, so there is nothing to cancel"
    return Problem(409, InvalidTransition.code, detail, id=job_id, job_status=status)


def _unkept(problem: Problem) -> Response:
    """A refusal; like every other answer it is about this moment."""
    told = answer(problem)
    told.headers.update(_UNKEPT)
    return told


def _told(data: Any, status: int, **headers: str) -> Response:
    return Response(_encode(data), status, {**_UNKEPT, **headers}, "application/json")


__all__ = ["AsyncEndpoint"]

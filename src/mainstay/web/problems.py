"""Errors as the API tells them: `application/problem+json`, with the stable code of the error as its type."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from ..errors import (
    Conflict,
    InvalidInput,
    InvalidTransition,
    JobNotFound,
    MainstayError,
    OutputMissing,
    PayloadTooLarge,
    StoreError,
    VersionChanged,
    WorkerNotFound,
)

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """Raised anywhere while a request is answered; becomes the answer."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        field: str | None = None,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.field = field
        self.headers = headers or {}
        self.more = more
        super().__init__(detail)


_TITLES = {
    400: "Bad request", 401: "Not signed in", 403: "Not allowed", 404: "Not found", 405: "Method not allowed",
    406: "Not acceptable", 408: "Too slow", 409: "Conflict", 410: "Gone", 412: "Changed meanwhile", 413: "Too large",
    414: "Too long", 415: "Unsupported media type", 422: "Not accepted", 428: "If-Match is needed",
    429: "Too many requests", 431: "Too large",
    500: "Something went wrong here", 503: "Service unavailable",
}  # fmt: skip


def problem_of(error: MainstayError) -> Problem:
    """What an error of ours is to whoever asked. Its message was written for people, and names no secret."""
    if isinstance(error, PayloadTooLarge):
        return Problem(413, error.code, error.rule, field=error.field)
    if isinstance(error, InvalidInput):
        return Problem(422, error.code, error.rule, field=error.field)
    if isinstance(error, JobNotFound | OutputMissing | WorkerNotFound):
        return Problem(404, error.code, str(error))
    if isinstance(error, VersionChanged):
        return Problem(412, error.code, str(error), version=error.now)
    if isinstance(error, InvalidTransition | Conflict):
        return Problem(409, error.code, str(error))
    if isinstance(error, StoreError):
        return Problem(503, error.code, str(error), headers={"Retry-After": "2"})
    return Problem(409, error.code, str(error))


def answer(problem: Problem) -> Response:
    """As it is sent."""
    body: dict[str, Any] = {
        "type": problem.code,
        "title": _TITLES.get(problem.status, "Error"),
        "status": problem.status,
        "detail": problem.detail,
    }
    if problem.field is not None:
        body["field"] = problem.field
    body.update(problem.more)
    return Response(msgspec.json.encode(body), problem.status, problem.headers, MEDIA_TYPE)

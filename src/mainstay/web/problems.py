"""Errors of the API as `application/problem+json`; the type of a problem is the stable code of the error."""

from __future__ import annotations

import math
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
    Overloaded,
    PayloadTooLarge,
    RateLimited,
    StoreError,
    VersionChanged,
    WorkerNotFound,
)

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """An error that becomes the response to the request."""

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
    400: "Bad request", 401: "Not authenticated", 403: "Not allowed", 404: "Not found", 405: "Method not allowed",
    406: "Not acceptable", 408: "Request timeout", 409: "Conflict", 410: "Gone", 412: "Job has changed",
    413: "Too large", 414: "Too long", 415: "Unsupported media type", 422: "Invalid value", 428: "If-Match is required",
    429: "Too many requests", 431: "Too large",
    500: "Internal error", 503: "Service unavailable",
}  # fmt: skip


def problem_of(error: MainstayError) -> Problem:
    """The response to one of our errors. Its message is for people and contains no secret."""
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
    if isinstance(error, Overloaded):
        after = str(max(1, math.ceil(error.retry_after_s)))
        status = 429 if isinstance(error, RateLimited) else 503
        return Problem(
            status, error.code, str(error), headers={"Retry-After": after}, retry_after_s=error.retry_after_s
        )
    if isinstance(error, StoreError):
        return Problem(503, error.code, str(error), headers={"Retry-After": "2"})
    return Problem(409, error.code, str(error))


def problem_response(problem: Problem) -> Response:
    """The problem as a response."""
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

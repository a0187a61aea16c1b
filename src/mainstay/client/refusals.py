"""Errors of the library for the problems of a server."""

from __future__ import annotations

import re
from typing import Any, Protocol
from urllib.parse import unquote

import msgspec

from .. import errors
from ..errors import (
    InvalidInput,
    InvalidTransition,
    JobNotFound,
    MainstayError,
    Overloaded,
    RequestRefused,
    ServerUnreachable,
    VersionChanged,
    WorkerNotFound,
)
from ..stores import shown_url
from .calls import ApiAnswer

_JOB = re.compile(r"/jobs/([0-9a-f-]{36})")
_WORKER = re.compile(r"/workers/([^/]+)")
_IF_MATCH = re.compile(r'"(\d+)')


class RefusedRequest(Protocol):
    """The parts of a request that describe its refusal."""

    @property
    def path(self) -> str: ...
    @property
    def headers(self) -> Any: ...


def error_of(answer: ApiAnswer, request: RefusedRequest) -> MainstayError:
    """The error for a refusal: its stable code selects the class."""
    problem = _problem(answer)
    if problem is None:
        # not a response of ours: from a proxy, or another server
        to = answer.headers.get("location")
        hint = f"; it redirects to {shown_url(to)}: use that address if it is right" if to else ""
        return ServerUnreachable(f"the server responded {answer.status}, and not as a Mainstay server{hint}")
    code, detail, field = str(problem.get("type", "")), str(problem.get("detail", "")), problem.get("field")
    kind = _CLASSES.get(code)
    if kind is None or kind in (RequestRefused, ServerUnreachable):
        message = detail if field is None else f"{field}: {detail}"
        return RequestRefused(answer.status, code, message, field=field, retry_after_s=retry_after(answer))
    if issubclass(kind, Overloaded):
        # the header has whole seconds only
        exact = problem.get("retry_after_s")
        after_s = float(exact) if isinstance(exact, int | float) else retry_after(answer)
        return _made(kind, detail, retry_after_s=1.0 if after_s is None else after_s)
    if issubclass(kind, InvalidInput):
        return _made(kind, f"{field}: {detail}" if field else detail, field=field or "", rule=detail)
    job_id = found[1] if (found := _JOB.search(request.path)) else ""
    if kind is JobNotFound:
        # not every request names the job in its path
        return JobNotFound(job_id) if job_id in detail and job_id else _made(kind, detail, job_id=job_id)
    if kind is WorkerNotFound:
        which = found[1] if (found := _WORKER.search(request.path)) else ""
        return _made(kind, detail, which=unquote(which))
    if kind is VersionChanged:
        wanted = _IF_MATCH.match(request.headers.get("If-Match", ""))
        now = problem.get("version")
        return _made(kind, detail, job_id=job_id, wanted=int(wanted[1]) if wanted else 0, now=now)
    if kind is InvalidTransition:
        more = {"current": "", "wanted": "", "allowed": (), "why": None, "story": ()}
        return _made(kind, detail, job_id=job_id, **more)
    return _made(kind, detail, job_id=job_id)


def retry_after(answer: ApiAnswer) -> float | None:
    """`Retry-After` of a response in seconds; a date is ignored."""
    value = answer.headers.get("retry-after", "").strip()
    return float(value) if value.isascii() and value.isdigit() and len(value) < 10 else None


def _problem(answer: ApiAnswer) -> dict[str, Any] | None:
    if not answer.headers.get("content-type", "").startswith("application/problem+json"):
        return None
    try:
        return msgspec.json.decode(answer.body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _made(kind: type[MainstayError], message: str, **attributes: Any) -> MainstayError:
    """An error with the message of the server: its constructor would write another one."""
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


_CLASSES: dict[str, type[MainstayError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, MainstayError) and kind is not MainstayError
}

__all__ = ["error_of", "retry_after"]

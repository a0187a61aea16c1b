"""Requests as data, and decoding of their responses. Nothing is sent here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from ..clock import seconds
from ..control import encoded
from ..errors import InvalidInput, MainstayError

T = TypeVar("T")

_UNSENT = (TypeError, ValueError, OverflowError, RecursionError, UnicodeError, msgspec.MsgspecError)

PREFIX = "/api/v1"

#: for values of the user: JSON lacks bytes, times, and keys that are not text
MSGPACK = "application/msgpack"
JSON = "application/json"

_encode = msgspec.json.Encoder().encode


class ApiAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A response."""

    status: int
    headers: Mapping[str, str]
    """by names in lower case"""
    body: bytes


class ApiCall(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One request."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    """with its query"""
    read: Callable[[ApiAnswer], T]
    body: bytes | None = None
    media: str = JSON
    """media type of the body"""
    headers: Mapping[str, str] = {}
    safe: bool = False
    """idempotent: it can be sent again if the response was lost"""
    accepts: tuple[int, ...] = ()
    """statuses that are not errors for this request"""
    wait_s: float = 0.0
    """how long the server may wait before it responds"""

    def __repr__(self) -> str:
        """Without its body and headers, which may contain payloads."""
        return f"<{self.method} {self.path.partition('?')[0]}>"


def get(path: str, into: type[T], query: Mapping[str, Any] | None = None) -> ApiCall[T]:
    """A GET request."""
    return ApiCall(method="GET", path=with_query(path, query), read=reader(into), safe=True)


def post(
    path: str,
    into: type[T],
    body: Mapping[str, Any] | None = None,
    *,
    safe: bool = False,
    query: Mapping[str, Any] | None = None,
    packed: bytes | None = None,
    **headers: str | None,
) -> ApiCall[T]:
    """A POST request. `packed` is a body in MessagePack instead of JSON. Headers are written with `_` for `-`; headers
    and fields of the body that are None are left out."""
    given = {name: value for name, value in (body or {}).items() if value is not None}
    return ApiCall(
        method="POST",
        path=with_query(path, query),
        read=reader(into),
        body=_json(given) if packed is None else packed,
        media=JSON if packed is None else MSGPACK,
        headers=_named(headers),
        safe=safe,
    )


def delete(path: str, into: type[T], query: Mapping[str, Any] | None = None, **headers: str | None) -> ApiCall[T]:
    """A DELETE request."""
    return ApiCall(method="DELETE", path=with_query(path, query), read=reader(into), headers=_named(headers))


def with_query(path: str, query: Mapping[str, Any] | None) -> str:
    """A path with its query. Values that are None are left out.

    >>> with_query("/jobs", {"status": ["failed", "partial"], "limit": 5, "payload": True, "queue": None})
    '/jobs?status=failed%2Cpartial&limit=5&payload=true'
    """
    given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def named(name: str) -> str:
    """A part of a path, quoted."""
    # a dot alone would be taken for a folder
    return quote(name, safe="").replace(".", "%2E") or "%20"


def duration(value: str | timedelta | None, *, field: str) -> str | None:
    """A duration for a request.

    >>> duration(timedelta(minutes=5), field="delay"), duration("5m", field="delay")
    ('300000ms', '5m')
    """
    return f"{round(seconds(value, field=field) * 1000)}ms" if isinstance(value, timedelta) else value


def packed(job: Mapping[str, Any], *, where: str = "") -> bytes:
    """A job for a request, with its payload as the library stores it; raises `InvalidInput` with the path `where`."""
    payload = msgspec.Raw(encoded(job.get("payload"), field=f"{where}payload", limit=sys.maxsize))
    return packed_all({**job, "payload": payload}, where=where)


def packed_all(body: Mapping[str, Any], *, where: str = "") -> bytes:
    """A body in MessagePack; raises `InvalidInput`."""
    try:
        return msgspec.msgpack.encode(body)
    except _UNSENT as error:
        raise InvalidInput(f"{where}options", f"cannot be sent: {error}") from None


def _json(body: Any) -> bytes:
    try:
        return _encode(body)
    except _UNSENT as error:
        raise InvalidInput("body", f"cannot be sent as JSON: {error}") from None


def reader(into: type[T]) -> Callable[[ApiAnswer], T]:
    """A function that decodes the body of a response."""

    def read(answer: ApiAnswer) -> T:
        value: T = read_answer(answer, into)
        return value

    return read


def read_answer(answer: ApiAnswer, into: Any) -> Any:
    """Decode a response, from JSON or MessagePack."""
    if answer.headers.get("content-type", "").startswith(MSGPACK):
        return _read(msgspec.msgpack.Decoder, answer.body, into)
    return read_as(answer.body, into)


def read_as(body: bytes | str, into: Any) -> Any:
    """Decode JSON."""
    return _read(msgspec.json.Decoder, body, into)


def _read(form: Any, body: bytes | str, into: Any) -> Any:
    try:
        return _decoder(form, into).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        name = getattr(into, "__name__", str(into))
        raise MainstayError(
            f"the server's response is not a valid {name} ({error}); is it a Mainstay server of a similar version?"
        ) from None


@cache
def _decoder(form: Any, into: Any) -> Any:
    return form(into)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(str(each) for each in value)
    return str(value)


def _named(headers: Mapping[str, str | None]) -> Mapping[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items() if value is not None}


__all__ = [
    "JSON",
    "MSGPACK",
    "PREFIX",
    "ApiAnswer",
    "ApiCall",
    "delete",
    "duration",
    "get",
    "named",
    "packed",
    "packed_all",
    "post",
    "read_answer",
    "read_as",
    "reader",
    "with_query",
]

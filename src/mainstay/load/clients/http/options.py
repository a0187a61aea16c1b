"""The options of HTTP calls, and how they are encoded."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterable, Container, Iterable, Mapping
from datetime import timedelta
from typing import Any, TypedDict
from urllib.parse import urlencode

import msgspec

from ....clock import seconds
from ....errors import InvalidInput, UnknownOption
from ...prepared import Auth, Cookies, Data, File, Headers, Params, URLParts, header_line, json_bytes, split
from ..network import Timeouts
from .calls import Upload

Timeout = str | float | timedelta | Timeouts


class CallOptions(TypedDict, total=False):
    """Keyword arguments of all calls."""

    headers: Headers | Mapping[str, str] | None
    params: Params | Mapping[str, Any] | Iterable[tuple[str, Any]] | str | None
    """added to the query of the URL"""
    cookies: Cookies | Mapping[str, str] | None
    """sent in addition to those of the user; not stored"""
    auth: Auth | tuple[str, str] | str | None
    """("user", "password") or a bearer token"""
    json: Any
    """sent as JSON, even None"""
    data: Data | File | bytes | str | Mapping[str, Any] | Upload | None
    """a mapping is sent as a form; an iterable of bytes in chunks"""
    files: Mapping[str, File | bytes | str | tuple[str, bytes]] | None
    """sent as a multipart form, with the mapping in `data` as further fields"""
    timeout: Timeout | None
    """"5s", seconds, or `Timeouts` for each part"""
    redirects: int
    """how many are followed, by default 10; 0: a redirect is the response"""
    expect: Container[int] | None
    """statuses that count as successful; all others count as failed"""
    stream: bool
    """return the response with its head; read its body with `chunks()`"""


_LENGTHS = frozenset({"content-length", "transfer-encoding"})
_KNOWN = frozenset(CallOptions.__annotations__)


def check_options(options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in _KNOWN:
            raise UnknownOption(name, _KNOWN)


def limits_of(timeout: Timeout | None, usual: Timeouts) -> Timeouts:
    """A single duration limits the whole call and each phase."""
    if timeout is None:
        return usual
    if isinstance(timeout, Timeouts):
        return timeout
    if isinstance(timeout, bool) or not isinstance(timeout, str | int | float | timedelta):
        raise InvalidInput(
            "timeout", f"{timeout!r} is not a duration; write '5s', a number of seconds, or Timeouts(...)"
        )
    limit = float(timeout) if isinstance(timeout, int | float) else seconds(timeout, field="timeout")
    if not limit > 0:
        raise InvalidInput("timeout", f"{timeout!r} is not above zero; write Timeouts(total=None) for no limit")
    return Timeouts(connect=limit, write=limit, read=limit, total=limit)


def events_options(options: CallOptions, usual: Timeouts) -> CallOptions:
    """Options of a call for server-sent events, which has no total limit unless one is given."""
    made = CallOptions(**options)
    headers = headers_of(options.get("headers"))
    if headers is None or "accept" not in headers.names:
        named = headers.value if headers is not None else {}
        made["headers"] = {**named, "Accept": "text/event-stream", "Cache-Control": "no-cache"}
    if options.get("timeout") is None:
        made["timeout"] = msgspec.structs.replace(usual, total=None)
    made["stream"] = True
    return made


def with_params(parts: URLParts, params: Any) -> URLParts:
    query = Params(params).query if not isinstance(params, Params) else params.query
    if not query:
        return parts
    full = parts.full
    return split(f"{full}{'&' if '?' in full else '?'}{query}")


def headers_of(value: Headers | Mapping[str, str] | None) -> Headers | None:
    headers = value if value is None or isinstance(value, Headers) else Headers(value)
    if headers is not None and not headers.names.isdisjoint(_LENGTHS):
        raise InvalidInput("headers", "the client sets the length of the body; leave out Content-Length")
    return headers


def auth_of(value: Any, parts: URLParts) -> bytes | None:
    if value is not None:
        return (value if isinstance(value, Auth) else Auth(value)).line
    return None if parts.auth is None else b"Authorization: %b\r\n" % parts.auth


def cookies_of(value: Cookies | Mapping[str, str] | None) -> Cookies | None:
    return value if value is None or isinstance(value, Cookies) else Cookies(value)


def body_of(options: Mapping[str, Any]) -> tuple[bytes, str, Upload | None]:
    """The body, its content type, and the iterable of a body that is made while it is sent."""
    data, files = options.get("data"), options.get("files")
    if "json" in options:
        if data is not None or files is not None:
            raise InvalidInput("json", "a request has one body: give json, or data and files")
        return json_bytes(options["json"]), "application/json", None
    if files is not None:
        return (*_multipart(data, files), None)
    if data is None:
        return b"", "", None
    if isinstance(data, Data | File):
        return data.body, data.content_type, None
    if isinstance(data, Mapping):
        return urlencode(data, doseq=True).encode(), "application/x-www-form-urlencoded", None
    if isinstance(data, str | bytes | bytearray | memoryview):
        return Data(data).body, Data(data).content_type, None
    if isinstance(data, Iterable | AsyncIterable):
        return b"", "", data
    raise InvalidInput(
        "data", f"{type(data).__name__} is not a body; give bytes, text, a mapping, or an iterable of bytes"
    )


def _multipart(fields: Any, files: Mapping[str, Any]) -> tuple[bytes, str]:
    if fields is not None and not isinstance(fields, Mapping):
        raise InvalidInput("data", "beside files, data is a mapping: the other fields of the form")
    boundary = secrets.token_hex(16)
    lines: list[bytes] = []
    for name, value in (fields or {}).items():
        lines += [_part(boundary, name), b"\r\n", str(value).encode(), b"\r\n"]
    for name, value in files.items():
        file_name, body, kind = _file(name, value)
        lines += [_part(boundary, name, file_name), header_line("Content-Type", kind), b"\r\n", body, b"\r\n"]
    lines.append(f"--{boundary}--\r\n".encode())
    return b"".join(lines), f"multipart/form-data; boundary={boundary}"


def _part(boundary: str, name: str, file_name: str | None = None) -> bytes:
    named = f'form-data; name="{_quoted(name)}"'
    if file_name is not None:
        named += f'; filename="{_quoted(file_name)}"'
    return f"--{boundary}\r\nContent-Disposition: {named}\r\n".encode()


def _quoted(name: str) -> str:
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _file(name: str, value: Any) -> tuple[str, bytes, str]:
    if isinstance(value, File):
        return value.name, value.body, value.content_type
    if isinstance(value, tuple):
        return value[0], value[1], "application/octet-stream"
    return name, value.encode() if isinstance(value, str) else value, "application/octet-stream"

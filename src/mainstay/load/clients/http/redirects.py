"""Redirects: the next URL, and the next call."""

from __future__ import annotations

from urllib.parse import urljoin

from ....errors import CallFailed, InvalidInput
from ...prepared import Headers, URLParts, split
from .calls import HTTPCall
from .response import HTTPResponse

_OF_THE_CALLER = frozenset({"authorization", "cookie", "proxy-authorization", "host"})
_OF_THE_BODY = frozenset({"content-type", "content-length", "content-encoding", "content-language"})

USED_UP = -1
"""`redirects` after the last allowed one; 0 means that redirects are not followed at all"""


def next_parts(call: HTTPCall, location: str) -> URLParts:
    """The URL of a redirect; raises `CallFailed` if it is not followed."""
    try:
        parts = split(urljoin(call.parts.full, location))
    except (InvalidInput, ValueError):
        raise CallFailed(
            "redirects", f"{call.parts.shown} redirects to {location[:200]!r}, which is not a URL"
        ) from None
    if parts.scheme not in ("http", "https"):
        raise CallFailed("redirects", f"{call.parts.shown} redirects to {parts.shown}, which is not HTTP")
    if call.redirects == USED_UP:
        raise CallFailed("redirects", f"{call.parts.shown} redirects to {parts.shown}: too many redirects")
    return parts


def next_call(call: HTTPCall, status: int, parts: URLParts, *, jar: str, proxy: bytes | None) -> HTTPCall:
    """The next call: a GET after 303, and after 301 and 302 of a POST; 307 and 308 repeat the call."""
    to_get = (status == 303 and call.method != "HEAD") or (status in (301, 302) and call.method == "POST")
    if call.upload is not None and not to_get:
        raise CallFailed("redirects", f"{call.parts.shown} needs the body again, which was made while it was sent")
    elsewhere = parts.origin != call.parts.origin
    left_out = (_OF_THE_CALLER if elsewhere else frozenset()) | (_OF_THE_BODY if to_get else frozenset())
    return HTTPCall(
        "GET" if to_get else call.method,
        parts,
        limits=call.limits,
        headers=_without(call.headers, left_out),
        # credentials are not sent to another origin
        auth=None if elsewhere else call.auth,
        cookies=None if elsewhere else call.cookies,
        jar=jar,
        body=b"" if to_get else call.body,
        content_type="" if to_get else call.content_type,
        redirects=call.redirects - 1 or USED_UP,
        expect=call.expect,
        stream=call.stream,
        proxy=proxy,
    )


def add_redirect(response: HTTPResponse, earlier: HTTPResponse) -> None:
    """Add the response that redirected to the numbers of the call. Its time is part of waiting for the response."""
    response.written = earlier.written
    response.opening = earlier.opening
    response.sent += earlier.sent
    response.received += earlier.received
    response.redirects += 1


def _without(headers: Headers | None, names: frozenset[str]) -> Headers | None:
    if headers is None or not headers.names & names:
        return headers
    return Headers({name: value for name, value in headers.value.items() if name.lower() not in names})

"""Encodes the arguments of a call as bytes.

Encoded calls are cached: a GET without options as a whole, other calls up to their body. Users without cookies share
the cache; a user with cookies, or with headers built for the call, has its own.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from ....errors import InvalidInput
from ...prepared import URL, Headers, URLParts, joined, split
from .calls import HTTPCall, Upload
from .cookies import Jar
from .options import CallOptions, auth_of, body_of, check_options, cookies_of, headers_of, limits_of, with_params
from .redirects import next_call
from .shared import SharedHTTPState

if TYPE_CHECKING:
    from .connection import HTTP1Connection

_MOST_OWN = 64
#: with only these options, everything but the body is the same each time
_KEPT = frozenset({"json", "data", "headers", "files", "timeout", "expect", "redirects", "stream"})


class Encoder:
    """The encoder of one user."""

    __slots__ = ("_expiry", "_leads", "_own", "_seen", "_shared", "base_url", "cookies", "gets", "ready")

    def __init__(self, shared: SharedHTTPState, *, base_url: str) -> None:
        self.base_url = base_url
        self.cookies = Jar()
        self.gets = shared.gets
        """by absolute URL, and by prepared `URL`: shared until there are cookies"""
        self.ready: dict[str, tuple[HTTPCall, list[HTTP1Connection]]] = {}
        """GETs by URL as written, each with the idle connections to its origin: one lookup for both"""
        self._leads = shared.leads
        self._own: dict[Any, HTTPCall] = {}
        """with headers of this user"""
        self._shared = shared
        self._seen = 0
        self._expiry: asyncio.TimerHandle | None = None

    def call(self, method: str, url: URL | str, options: CallOptions | dict[str, Any]) -> HTTPCall:
        whole = joined(url.whole if type(url) is URL else url, self.base_url)
        if not options:
            if method != "GET":
                return self._from_lead(method, whole, options, b"", "")
            call = self.gets.get(whole) or self._new_get(whole)
            if type(url) is URL and whole is url.whole:
                # the next lookup finds it by the URL object
                self._keep(self.gets, url, call)
            return call
        check_options(options)
        body, content_type, upload = body_of(options)
        if upload is None and options.keys() <= _KEPT:
            return self._from_lead(method, whole, options, body, content_type)
        return self._new(method, whole, options, body=body, content_type=content_type, upload=upload)

    def _new_get(self, whole: str) -> HTTPCall:
        call = self._new("GET", whole, {})
        self._keep(self.gets, whole, call)
        return call

    def _from_lead(
        self, method: str, whole: str, options: CallOptions | dict[str, Any], body: bytes, content_type: str
    ) -> HTTPCall:
        headers, expect = options.get("headers"), options.get("expect")
        header_key: Any = headers
        leads = self._leads
        if headers is not None and not isinstance(headers, Headers):
            leads, header_key = self._own, tuple(headers.items())
        if isinstance(expect, set | list):
            expect = frozenset(expect)
        key = (
            *(method, whole, content_type, header_key, expect),
            *(options.get("timeout"), options.get("redirects"), options.get("stream")),
        )
        try:
            known = leads.get(key)
        except TypeError:  # not hashable
            return self._new(method, whole, options, body=body, content_type=content_type)
        if known is None:
            known = self._new(method, whole, options, content_type=content_type)
            # a form with files has another content type each time
            if not content_type.startswith("multipart/"):
                self._keep(leads, key, known)
        return known.with_body(body) if body else known

    def _new(
        self,
        method: str,
        whole: str,
        options: CallOptions | dict[str, Any],
        *,
        body: bytes = b"",
        content_type: str = "",
        upload: Upload | None = None,
    ) -> HTTPCall:
        parts = http_parts(whole)
        auth = auth_of(options.get("auth"), parts)
        params = options.get("params")
        if params is not None:
            parts = with_params(parts, params)
        return HTTPCall(
            method,
            parts,
            limits=limits_of(options.get("timeout"), self._shared.network.timeouts),
            headers=headers_of(options.get("headers")),
            auth=auth,
            cookies=cookies_of(options.get("cookies")),
            jar=self._cookies_for(parts),
            body=body,
            content_type=content_type,
            upload=upload,
            redirects=options.get("redirects", 10),
            expect=options.get("expect"),
            stream=options.get("stream", False),
            proxy=self._shared.proxy_head(parts),
        )

    def _keep(self, calls: dict[Any, HTTPCall], key: Any, call: HTTPCall) -> None:
        if calls is self._shared.gets or calls is self._shared.leads:
            self._shared.keep_call(calls, key, call)
            return
        if len(calls) >= _MOST_OWN:
            calls.clear()
        calls[key] = call
        soonest = self.cookies.soonest
        if self._expiry is None and soonest is not None:
            self._expiry = asyncio.get_running_loop().call_later(max(soonest - time.time(), 0.0), self.forget)

    def keep_ready(self, url: str, call: HTTPCall, idle: list[HTTP1Connection]) -> None:
        if len(self.ready) >= _MOST_OWN:
            self.ready.clear()
        self.ready[url] = (call, idle)

    def take_cookies(self, lines: list[str], parts: URLParts) -> None:
        """Take the cookies of a response."""
        self.cookies.store(lines, parts)
        if self.cookies.changes != self._seen:
            self.forget()

    def forget(self) -> None:
        """The cookies have changed: drop the calls that were encoded with them."""
        self.close()
        self._seen = self.cookies.changes
        shared = self._shared
        self.gets, self._leads = ({}, {}) if len(self.cookies) else (shared.gets, shared.leads)
        self._own = {}
        self.ready.clear()

    def next_call(self, call: HTTPCall, status: int, parts: URLParts) -> HTTPCall:
        """The call to where a response redirects."""
        return next_call(call, status, parts, jar=self._cookies_for(parts), proxy=self._shared.proxy_head(parts))

    def _cookies_for(self, parts: URLParts) -> str:
        return self.cookies.header(parts) if len(self.cookies) else ""

    def close(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


def http_parts(whole: str) -> URLParts:
    parts = split(whole)
    if parts.scheme not in ("http", "https", "http+unix"):
        raise InvalidInput("url", f"{parts.shown!r} is not for HTTP; write http:// or https://")
    return parts

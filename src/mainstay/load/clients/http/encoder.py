"""From what a user says to the bytes of a call.

What can be encoded once is kept: a GET with nothing but its URL as a whole, other calls up to their body. Users without
cookies keep them together; one with cookies, or with headers put together for the call, keeps its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from ....errors import InvalidInput
from ...prepared import URL, Headers, Parts, joined, split
from .calls import Call
from .cookies import Jar
from .options import Options, auth_of, body_of, check_options, cookies_of, headers_of, limits_of, with_params
from .redirects import next_call
from .shared import Shared

_MOST_OWN = 64
#: with no other options than these, all but the body is the same each time
_KEPT = frozenset({"json", "data", "headers", "files"})


class Encoder:
    """The one of one user."""

    __slots__ = ("_expiry", "_leads", "_own", "_seen", "_shared", "base_url", "cookies", "gets")

    def __init__(self, shared: Shared, *, base_url: str) -> None:
        self.base_url = base_url
        self.cookies = Jar()
        self.gets = shared.gets
        """by whole URL: everybody's, until there are cookies"""
        self._leads = shared.leads
        self._own: dict[Any, Call] = {}
        """with headers of this user's own"""
        self._shared = shared
        self._seen = 0
        self._expiry: asyncio.TimerHandle | None = None

    def call(self, method: str, url: URL | str, options: Options | dict[str, Any]) -> Call:
        whole = joined(url.whole if type(url) is URL else url, self.base_url)
        if not options:
            if method != "GET":
                return self._from_lead(method, whole, None, b"", "")
            return self.gets.get(whole) or self._new_get(whole)
        check_options(options)
        body, content_type, upload = body_of(options)
        if upload is None and options.keys() <= _KEPT:
            return self._from_lead(method, whole, options.get("headers"), body, content_type)
        parts = http_parts(whole)
        auth = auth_of(options.get("auth"), parts)
        params = options.get("params")
        if params is not None:
            parts = with_params(parts, params)
        return Call(
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

    def _new_get(self, whole: str) -> Call:
        call = self._new_lead("GET", whole, None, "")
        self._keep(self.gets, whole, call)
        return call

    def _from_lead(
        self, method: str, whole: str, headers: Headers | Mapping[str, str] | None, body: bytes, content_type: str
    ) -> Call:
        key: Any
        if headers is None or isinstance(headers, Headers):
            leads, key = self._leads, (method, whole, content_type, headers)
        else:
            leads, key = self._own, (method, whole, content_type, tuple(headers.items()))
        known = leads.get(key)
        if known is None:
            known = self._new_lead(method, whole, headers_of(headers), content_type)
            # a form with files has another content type each time
            if not content_type.startswith("multipart/"):
                self._keep(leads, key, known)
        return known.with_body(body) if body else known

    def _new_lead(self, method: str, whole: str, headers: Headers | None, content_type: str) -> Call:
        parts = http_parts(whole)
        return Call(
            method,
            parts,
            limits=self._shared.network.timeouts,
            headers=headers,
            auth=auth_of(None, parts),
            jar=self._cookies_for(parts),
            content_type=content_type,
            proxy=self._shared.proxy_head(parts),
        )

    def _keep(self, calls: dict[Any, Call], key: Any, call: Call) -> None:
        if calls is self._shared.gets or calls is self._shared.leads:
            self._shared.keep_call(calls, key, call)
            return
        if len(calls) >= _MOST_OWN:
            calls.clear()
        calls[key] = call
        soonest = self.cookies.soonest
        if self._expiry is None and soonest is not None:
            self._expiry = asyncio.get_running_loop().call_later(max(soonest - time.time(), 0.0), self.forget)

    def take_cookies(self, lines: list[str], parts: Parts) -> None:
        """What an answer sets."""
        self.cookies.store(lines, parts)
        if self.cookies.changes != self._seen:
            self.forget()

    def forget(self) -> None:
        """The cookies have changed: what was encoded with them is of no use."""
        self.close()
        self._seen = self.cookies.changes
        shared = self._shared
        self.gets, self._leads = ({}, {}) if len(self.cookies) else (shared.gets, shared.leads)
        self._own = {}

    def next_call(self, call: Call, status: int, parts: Parts) -> Call:
        """Where an answer leads."""
        return next_call(call, status, parts, jar=self._cookies_for(parts), proxy=self._shared.proxy_head(parts))

    def _cookies_for(self, parts: Parts) -> str:
        return self.cookies.header(parts) if len(self.cookies) else ""

    def close(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


def http_parts(whole: str) -> Parts:
    parts = split(whole)
    if parts.scheme not in ("http", "https", "http+unix"):
        raise InvalidInput("url", f"{parts.shown!r} is not for HTTP; write http:// or https://")
    return parts

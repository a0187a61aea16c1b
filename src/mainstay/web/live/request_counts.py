"""Counting requests: how many of which kind, how they were answered, and how long until the answer began."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: upper bounds in seconds; what took longer is in one more
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PROBES = frozenset({"/livez", "/readyz", "/metrics"})


class RequestTimes:
    """How long requests of one kind took, by bounds. Never averaged: the bins of several servers add up."""

    def __init__(self) -> None:
        self.bins = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, took_s: float) -> None:
        self.bins[bisect_left(BOUNDS_S, took_s)] += 1
        self.sum_s += took_s


class RequestCounts:
    """All there were since the server started."""

    def __init__(self) -> None:
        self.answered: Counter[tuple[str, str, int]] = Counter()
        """(part, method, status) -> how many"""
        self.times: dict[str, RequestTimes] = {}
        """part -> until the answer began"""
        self.open = 0
        """being answered, streams included"""

    def add(self, part: str, method: str, status: int, took_s: float) -> None:
        self.answered[part, method if method in _METHODS else "other", status] += 1
        self.times.setdefault(part, RequestTimes()).add(took_s)


class CountingApp:
    """An app whose requests are counted."""

    def __init__(self, app: ASGIApp, requests: RequestCounts) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        requests, began_s, begun = self._requests, time.perf_counter(), False

        def note(status: int) -> None:
            nonlocal begun
            if not begun:
                begun = True
                requests.add(part_of(scope["path"]), scope["method"], status, time.perf_counter() - began_s)

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                note(message["status"])
            await send(message)

        requests.open += 1
        try:
            await self._app(scope, receive, tell)
        except Exception:
            # what becomes of it is answered further out
            note(500)
            raise
        finally:
            requests.open -= 1


def part_of(path: str) -> str:
    """Which part of the server a path belongs to: a handful, whatever is asked for.

    >>> [part_of(path) for path in ("/api/v1/jobs", "/api/v1/jobs/018b/stream", "/readyz", "/queues")]
    ['api', 'stream', 'probe', 'dashboard']
    """
    if path in _PROBES:
        return "probe"
    if not path.startswith("/api/"):
        return "dashboard"
    return "stream" if path.endswith("/stream") else "api"


__all__ = ["BOUNDS_S", "CountingApp", "RequestCounts", "RequestTimes", "part_of"]

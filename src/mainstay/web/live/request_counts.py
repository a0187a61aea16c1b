"""Counts of requests by part, method and status, and the times until their responses began."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: upper bounds in seconds; a further bin counts longer times
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PROBES = frozenset({"/livez", "/readyz", "/metrics"})


class RequestTimes:
    """A histogram of times. The bins of several servers can be added."""

    def __init__(self) -> None:
        self.bins = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, took_s: float) -> None:
        self.bins[bisect_left(BOUNDS_S, took_s)] += 1
        self.sum_s += took_s


class RequestCounts:
    """The requests since the server started."""

    def __init__(self) -> None:
        self.answered: Counter[tuple[str, str, int]] = Counter()
        """(part, method, status) -> number"""
        self.times: dict[str, RequestTimes] = {}
        """part -> times until the response began"""
        self.open = 0
        """open requests, including streams"""

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

        async def note_start(message: Message) -> None:
            if message["type"] == "http.response.start":
                note(message["status"])
            await send(message)

        requests.open += 1
        try:
            await self._app(scope, receive, note_start)
        except Exception:
            # an outer handler responds
            note(500)
            raise
        finally:
            requests.open -= 1


def part_of(path: str) -> str:
    """The part of the server that a path belongs to.

    >>> [part_of(path) for path in ("/api/v1/jobs", "/api/v1/jobs/018b/stream", "/readyz", "/queues")]
    ['api', 'stream', 'probe', 'dashboard']
    """
    if path in _PROBES:
        return "probe"
    if not path.startswith("/api/"):
        return "dashboard"
    return "stream" if path.endswith("/stream") else "api"


__all__ = ["BOUNDS_S", "CountingApp", "RequestCounts", "RequestTimes", "part_of"]

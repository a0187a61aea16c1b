"""Live streams: how many there are, and how they end when the server does.

A stream goes on until its client leaves, and a server that stops would wait for that. So streams are told that their
client has left, which is what every handler of one listens for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..problems import Problem

T = TypeVar("T")


class OpenStream:
    """One that may be ended."""

    def __init__(self) -> None:
        self._over = asyncio.Event()

    def end(self) -> None:
        self._over.set()

    async def or_over(self, waiting: Callable[[], Awaitable[T]], over: T) -> T:
        """What is waited for, or `over` once it is ended."""
        waits = asyncio.ensure_future(waiting())
        ends = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait({waits, ends}, return_when=asyncio.FIRST_COMPLETED)
            return waits.result() if waits.done() else over
        finally:
            waits.cancel()
            ends.cancel()


class OpenStreams:
    """All that are open."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[OpenStream, str] = {}
        """and of whom each is"""
        self._stopping = False

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, stream: OpenStream, who: str = "") -> None:
        """Let one more be; raises `Problem` when there are too many: of all, or of one caller among others."""
        if self._stopping:
            raise Problem(503, "stopping", "the server stops; try again in a moment", headers={"Retry-After": "5"})
        if len(self._open) >= self._most:
            detail = f"{self._most} live streams are open, and that is the limit; try again later"
            raise Problem(429, "too_many_streams", detail, headers={"Retry-After": "15"})
        most_of_one = max(1, self._most // 2)
        if who and sum(one == who for one in self._open.values()) >= most_of_one:
            detail = f"{most_of_one} live streams of {who} are open, and one caller has no more; close some of them"
            raise Problem(429, "too_many_streams", detail, headers={"Retry-After": "15"})
        self._open[stream] = who

    def left(self, stream: OpenStream) -> None:
        self._open.pop(stream, None)

    def end_all(self) -> None:
        """End them, and begin none."""
        self._stopping = True
        for stream in self._open:
            stream.end()


__all__ = ["OpenStream", "OpenStreams"]

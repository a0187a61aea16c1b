"""Live streams: their limits, and their end when the server stops.

A stream lasts until its client disconnects, and a server that stops would wait for that. So the handler of a stream
sees its client disconnect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..problems import Problem

T = TypeVar("T")


class OpenStream:
    """A stream that the server can end."""

    def __init__(self) -> None:
        self._ended = asyncio.Event()

    def end(self) -> None:
        self._ended.set()

    async def or_ended(self, waiting: Callable[[], Awaitable[T]], ended: T) -> T:
        """The awaited value, or `ended` once the stream is ended."""
        waits = asyncio.ensure_future(waiting())
        ends = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({waits, ends}, return_when=asyncio.FIRST_COMPLETED)
            return waits.result() if waits.done() else ended
        finally:
            waits.cancel()
            ends.cancel()


class OpenStreams:
    """All open streams."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[OpenStream, str] = {}
        """stream -> name of its caller"""
        self._stopping = False

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, stream: OpenStream, caller: str = "") -> None:
        """Add a stream; raises `Problem` if there are too many, in total or of this caller."""
        if self._stopping:
            raise Problem(
                503, "stopping", "the server is stopping; try again in a moment", headers={"Retry-After": "5"}
            )
        if len(self._open) >= self._most:
            detail = f"{self._most} live streams are open, which is the limit; try again later"
            raise Problem(429, "too_many_streams", detail, headers={"Retry-After": "15"})
        most_of_one = max(1, self._most // 2)
        if caller and sum(one == caller for one in self._open.values()) >= most_of_one:
            detail = f"{most_of_one} live streams of {caller} are open, the limit for one caller; close some"
            raise Problem(429, "too_many_streams", detail, headers={"Retry-After": "15"})
        self._open[stream] = caller

    def left(self, stream: OpenStream) -> None:
        self._open.pop(stream, None)

    def end_all(self) -> None:
        """End all streams, and allow no new ones."""
        self._stopping = True
        for stream in self._open:
            stream.end()


__all__ = ["OpenStream", "OpenStreams"]

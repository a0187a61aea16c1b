"""The windows of a run on nodes while it runs, from its leader to whoever watches it.

They are only looked at: messages may be lost, and the numbers of record come with the end of the job. The header is
repeated, so that a watcher may come at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Self

import msgspec

from ...bus import Bus, BusMessage, Subscription
from ...errors import BusError, PayloadTooLarge
from ..stats.model import Header, Moment, Summary
from .messages import UNREADABLE, encode, live_subject

#: windows that wait to be sent; older ones are dropped
_WAITING = 50
#: printed lines that wait for the next window
_LINES = 100
#: how often the header is repeated, in messages
_EVERY = 20


class LiveMoment(msgspec.Struct, kw_only=True):
    """One message about a run."""

    epoch: int
    """of the leader that sent it: that of an older one is dropped"""
    number: int
    """from 1, counted by each leader"""
    header: Header | None = None
    moment: Moment | None = None
    """None: the run begins, or is over"""
    lines: list[tuple[int, str]] = []
    """what steps have printed, with the numbers of their processes"""
    over: bool = False


decode_live = msgspec.msgpack.Decoder(LiveMoment).decode


class BusOutput:
    """An `Output` that publishes a run. `epoch` is the token of the claim that leads it.

    It never waits for the bus: what cannot be sent in time, or is larger than a message, is dropped and counted.
    """

    name = "live data"

    def __init__(self, bus: Bus, job: str, *, epoch: int = 0) -> None:
        self._bus = bus
        self._subject = live_subject(job)
        self._epoch = epoch
        self._number = 0
        self._header: Header | None = None
        self._waiting: deque[Moment] = deque(maxlen=_WAITING)
        self._lines: deque[tuple[int, str]] = deque(maxlen=_LINES)
        self._added = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self.dropped = 0
        """windows that were not sent"""

    async def start(self, header: Header) -> None:
        """Publish the header."""
        self._header = header
        await self._publish(header=header)
        self._sending = asyncio.create_task(self._send(), name="mainstay live data")

    def add(self, moment: Moment) -> None:
        """Publish a window soon."""
        self.dropped += len(self._waiting) == _WAITING
        self._waiting.append(moment)
        self._added.set()

    def said(self, process: int, line: str) -> None:
        """Publish a line that a step has printed, with the next window."""
        self._lines.append((process, line))

    async def stop(self, summary: Summary) -> None:  # noqa: ARG002 - watchers read it from the job
        """Tell watchers that the run is over."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
        while self._waiting:
            await self._publish(moment=self._waiting.popleft())
        await self._publish(over=True)

    async def _send(self) -> None:
        while True:
            await self._added.wait()
            self._added.clear()
            while self._waiting:
                header = self._header if self._number % _EVERY == 0 else None
                await self._publish(header=header, moment=self._waiting.popleft())

    async def _publish(self, *, header: Header | None = None, moment: Moment | None = None, over: bool = False) -> None:
        self._number += 1
        lines = list(self._lines)
        self._lines.clear()
        message = LiveMoment(
            epoch=self._epoch, number=self._number, header=header, moment=moment, lines=lines, over=over
        )
        try:
            await self._bus.publish(self._subject, encode(message))
        except (BusError, PayloadTooLarge):
            self.dropped += moment is not None


class LiveWatch:
    """Receives the windows of a run: `async with`, then iterate. Each is passed on once, in the order of its leader;
    late and repeated ones are dropped. Nothing is passed on before a header."""

    def __init__(self, bus: Bus, job: str) -> None:
        self._bus = bus
        self._subject = live_subject(job)
        self._last = (0, 0)
        self._has_header = False
        self._messages: Subscription[BusMessage]
        self.missed = 0
        """messages that did not arrive, or arrived too late"""

    async def __aenter__(self) -> Self:
        self._messages = await self._bus.subscribe(self._subject)
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(BusError):
            await self._messages.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LiveMoment:
        while True:
            message = await anext(self._messages)
            try:
                found = decode_live(message.body)
            except UNREADABLE:
                continue  # of another version
            place = (found.epoch, found.number)
            if place <= self._last:
                continue
            if self._has_header and found.epoch == self._last[0]:
                self.missed += found.number - self._last[1] - 1
            self._last = place
            self._has_header = self._has_header or found.header is not None
            if self._has_header or found.over:
                return found


__all__ = ["BusOutput", "LiveMoment", "LiveWatch"]

"""The windows of a run on nodes while it runs, from its leader to its watchers.

They are only looked at: the numbers of record come with the end of the job. A message may be lost; a watcher sees that
by the counts in the next one, and asks the leader for what it lacks. The leader answers for a while after the end, for
watchers that have not received all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

import msgspec

from ...bus import Bus, BusMessage, Subscription
from ...errors import BusError, InvalidInput, PayloadTooLarge
from ...stores.remote import caller_of, may_answer
from ..stats.model import Header, Moment, Summary, WorkflowResult
from .live_history import LiveHistory, LiveQuery
from .messages import UNREADABLE, encode, live_subject

#: windows that wait to be sent; older ones are dropped
_WAITING = 50
#: printed lines that wait for the next window
_LINES = 100
#: how often the header is repeated, in messages
_EVERY = 20
#: how long the leader answers after the end of the run
_ANSWERS_S = 60.0
_ROLES = ("operator", "manager")


class LiveMoment(msgspec.Struct, kw_only=True):
    """One message about a run."""

    epoch: int
    """of the leader that sent it: that of an older one is dropped"""
    number: int
    """from 1, counted by each leader"""
    header: Header | None = None
    moment: Moment | None = None
    """None: the run begins, or is over"""
    windows: int = 0
    """how many there were, with this one. 0: none, or the leader is of an earlier version"""
    result: WorkflowResult | None = None
    """of a workflow that has ended"""
    results: int = 0
    """how many there were, with this one"""
    lines: list[tuple[int, str]] = []
    """what steps have printed, with the numbers of their processes"""
    over: bool = False


decode_live = msgspec.msgpack.Decoder(LiveMoment).decode
_decode_query = msgspec.msgpack.Decoder(LiveQuery).decode


class BusOutput:
    """An `Output` that publishes a run, and answers those who have missed a part. `epoch` is the token of the claim
    that leads it.

    It never waits for the bus: what cannot be sent in time, or is larger than a message, is dropped and counted.
    """

    name = "live data"

    def __init__(self, bus: Bus, job: str, *, epoch: int = 0) -> None:
        self._bus = bus
        self._job = job
        self._epoch = epoch
        self._number = 0
        self._history: LiveHistory
        self._waiting: deque[LiveMoment] = deque(maxlen=_WAITING)
        self._lines: deque[tuple[int, str]] = deque(maxlen=_LINES)
        self._added = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._answering: asyncio.Task[None] | None = None
        self.dropped = 0
        """windows that were not sent"""

    async def start(self, header: Header) -> None:
        """Publish the header."""
        self._history = LiveHistory(header, epoch=self._epoch)
        with contextlib.suppress(BusError):  # without the bus there are no requests
            queries = await self._bus.subscribe(f"data.history.*.*.{self._job}")
            self._answering = asyncio.create_task(self._answer(queries), name="mainstay live history")
        await self._publish(self._message(header=header))
        self._sending = asyncio.create_task(self._send(), name="mainstay live data")

    def add(self, moment: Moment) -> None:
        """Publish a window soon."""
        self._history.add(moment)
        self._put(self._message(moment=moment))

    def ended(self, result: WorkflowResult) -> None:
        """Publish the result of a workflow, after its windows."""
        self._history.results.append(result)
        self._put(self._message(result=result))

    def said(self, process: int, line: str) -> None:
        """Publish a line that a step has printed, with the next window."""
        self._lines.append((process, line))

    async def stop(self, summary: Summary) -> None:  # noqa: ARG002 - watchers read it from the job
        """Tell watchers that the run is over."""
        self._history.over = True
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
        while self._waiting:
            await self._publish(self._waiting.popleft())
        await self._publish(self._message(over=True))
        if self._answering is not None:
            asyncio.get_running_loop().call_later(_ANSWERS_S, self._answering.cancel)

    def _put(self, message: LiveMoment) -> None:
        if len(self._waiting) == _WAITING:
            self.dropped += self._waiting[0].moment is not None
        self._waiting.append(message)
        self._added.set()

    async def _send(self) -> None:
        while True:
            await self._added.wait()
            self._added.clear()
            while self._waiting:
                message = self._waiting.popleft()
                if self._number % _EVERY == 0:
                    message.header = self._history.header
                await self._publish(message)

    def _message(
        self,
        *,
        header: Header | None = None,
        moment: Moment | None = None,
        result: WorkflowResult | None = None,
        over: bool = False,
    ) -> LiveMoment:
        """Its number is that of its place on the bus, which it gets when it is sent."""
        return LiveMoment(
            epoch=self._epoch,
            number=0,
            header=header,
            moment=moment,
            windows=self._history.windows,
            result=result,
            results=len(self._history.results),
            over=over,
        )

    async def _publish(self, message: LiveMoment) -> None:
        self._number += 1
        message.number, message.lines = self._number, list(self._lines)
        self._lines.clear()
        try:
            await self._bus.publish(live_subject(self._job), encode(message))
        except (BusError, PayloadTooLarge):
            self.dropped += message.moment is not None

    async def _answer(self, queries: Subscription[BusMessage]) -> None:
        async with queries:
            async for message in queries:
                try:
                    role, name, _ = caller_of(message.subject, "history")
                    query = _decode_query(message.body)
                except (InvalidInput, *UNREADABLE):
                    continue
                # if the question is about a later leader, that one answers it
                if role not in _ROLES or not may_answer(message.reply, role, name) or query.epoch > self._epoch:
                    continue
                assert message.reply is not None
                with contextlib.suppress(BusError, PayloadTooLarge):  # the watcher asks again, or does without
                    await self._bus.publish(message.reply, encode(self._history.answer(query)))


__all__ = ["BusOutput", "LiveMoment", "decode_live"]

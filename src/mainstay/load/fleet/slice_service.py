"""The service of one slice: it obeys its leader over the bus, and stops the load if it loses contact to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from ...bus import MAX_BODY_BYTES, Bus, BusMessage, Subscription
from ...errors import BusError
from ...event_loop import steady_clock
from ..runner import MakeSliceRunner
from .messages import (
    PART_BYTES,
    UNREADABLE,
    AnswerPart,
    CommandAccepted,
    CommandPending,
    CommandRefused,
    PingSlice,
    ReleaseSlice,
    SliceAnswer,
    SliceCommand,
    SliceEnd,
    SliceLines,
    SliceWindow,
    command_subject,
    decode_command,
    encode,
    encode_windows,
    line_subject,
    window_subject,
)
from .settings import FleetSettings
from .slice_work import SliceWork

log = logging.getLogger("mainstay.load")

#: commands whose answers are kept; a leader has few under way
_ANSWERS = 64
#: printed lines that wait to be sent, and for how long
_LINES, _LINES_S = 200, 0.25
_TICK_S = 0.25
_ACCEPTED = encode(CommandAccepted())


class SliceOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How the service of a slice ended."""

    lost: str = ""
    """why the slice has to be run again by another service; empty: its leader has released it, and it is done"""


class SliceService:
    """Runs one slice of a job on a node. `run` returns when the slice is released, belongs to another machine, or
    waits for no leader any more.

    `make` makes its runner: `Generators`. `on_start` is called once, before load first begins, and `on_end` with the
    end of each go; the load waits for neither. `counts` has the requests that were refused: stale (an older token or
    leader), unreadable."""

    def __init__(
        self,
        bus: Bus,
        make: MakeSliceRunner,
        *,
        job: str,
        number: int,
        node: str,
        token: int = 1,
        settings: FleetSettings | None = None,
        steady: Callable[[], float] | None = None,
        on_start: Callable[[], Awaitable[None]] | None = None,
        on_end: Callable[[SliceEnd], Awaitable[None]] | None = None,
    ) -> None:
        self._bus = bus
        self._job = job
        self._node = node
        self._number = number
        self._token = token
        self._settings = settings or FleetSettings()
        self._steady = steady or steady_clock()
        self._work = SliceWork(
            token,
            node,
            make,
            self._add_windows,
            self._send_line,
            steady=self._steady,
            until=self._load_until,
            on_start=on_start,
            on_end=on_end,
        )
        self._epoch = 0
        self._answers: dict[tuple[int, int], asyncio.Task[bytes]] = {}
        """by epoch and number of the command"""
        self._once: dict[str, asyncio.Task[bytes]] = {}
        """by key: these are executed once, whichever leaders give them"""
        self._forgotten = (-1, -1)
        self._contact_s: float | None = None
        """when a leader last had an answer of ours; None: no leader was heard"""
        self._isolated_s: float | None = None
        self._ended: asyncio.Future[SliceOutcome]
        self._unsent: deque[SliceWindow] = deque()
        self._windows_wait = asyncio.Event()
        self._lines: deque[tuple[int, str]] = deque(maxlen=_LINES)
        self._lines_wait = asyncio.Event()
        self._handlers: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()

    async def run(self) -> SliceOutcome:
        """Serve the leader until the end of the slice."""
        self._ended = asyncio.get_running_loop().create_future()
        async with await self._bus.subscribe(command_subject(self._node, self._job, self._number)) as requests:
            own = (self._listen(requests), self._send_windows(), self._send_lines(), self._watch())
            tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(one) for one in own]
            try:
                done, _ = await asyncio.wait([self._ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
                for ended in done:
                    ended.result()  # one that broke is a bug
                return self._ended.result()
            finally:
                tasks += [*self._handlers, *self._answers.values(), *self._once.values()]
                for task in tasks:
                    task.cancel()
                await self._work.close()
                await asyncio.wait(tasks)

    def _end(self, lost: str = "") -> None:
        if not self._ended.done():
            self._ended.set_result(SliceOutcome(lost=lost))

    # commands ---------------------------------------------------------------------------------------

    async def _listen(self, requests: Subscription[BusMessage]) -> None:
        async for message in requests:
            # in a task: a stop must be read while another command is executed
            handler = asyncio.ensure_future(self._handle(message))
            self._handlers.add(handler)
            handler.add_done_callback(self._handlers.discard)

    async def _handle(self, message: BusMessage) -> None:
        try:
            command = decode_command(message.body)
        except UNREADABLE as error:
            self.counts["unreadable"] += 1
            log.warning("job=%s slice=%d: unreadable command: %s", self._job, self._number, error)
            return
        body = await self._answer(command)
        if message.reply is not None:
            with contextlib.suppress(BusError):
                await self._bus.publish(message.reply, body)
        if isinstance(command.order, ReleaseSlice) and body == _ACCEPTED:
            self._end(command.order.lost)

    async def _answer(self, command: SliceCommand) -> bytes:
        if refusal := self._stale(command):
            self.counts["stale"] += 1
            deposed = command.token == self._token and command.epoch < self._epoch
            return encode(CommandRefused(rule=refusal, epoch=self._epoch if deposed else 0))
        self._epoch = command.epoch
        if self._contact_s is None:
            self._contact_s = self._steady()
        if isinstance(command.order, PingSlice):
            if command.order.echo_s is not None:
                # not the arrival of the ping: the leader must hear us, too
                self._contact_s = max(self._contact_s, min(command.order.echo_s, self._steady()))
            return encode(self._work.beat(command.order))
        task = self._begun(command)
        if task is None:
            return encode(CommandRefused(rule=f"command {command.number} was executed long ago"))
        await asyncio.wait([task], timeout=self._settings.poll_s)
        if not task.done():
            return encode(CommandPending())
        body = task.result()
        if len(body) <= PART_BYTES:
            return body
        begin = command.part * PART_BYTES
        return encode(AnswerPart(body=body[begin : begin + PART_BYTES], of=-(-len(body) // PART_BYTES)))

    def _begun(self, command: SliceCommand) -> asyncio.Task[bytes] | None:
        """The execution of a command, begun now if it is new; None if it was forgotten."""
        if command.key:
            if command.key not in self._once:
                self._once[command.key] = asyncio.ensure_future(self._execute(command))
            return self._once[command.key]
        key = command.epoch, command.number
        if key not in self._answers:
            if key <= self._forgotten:
                return None
            self._forget()
            self._answers[key] = asyncio.ensure_future(self._execute(command))
        return self._answers[key]

    def _stale(self, command: SliceCommand) -> str:
        """Why a command is not for this slice, or not of its leader; empty if it is."""
        if command.token > self._token:
            # load that no leader counts must not go on
            why = f"the slice belongs to another machine, with token {command.token}"
            self._work.refuse(why)
            self._end(why)
        if command.token != self._token:
            return f"the command has token {command.token}, and this slice has token {self._token}"
        if command.epoch < self._epoch:
            return f"the command is from a leader of epoch {command.epoch}; the leader has epoch {self._epoch}"
        return ""

    async def _execute(self, command: SliceCommand) -> bytes:
        if isinstance(command.order, ReleaseSlice):
            await self._work.close()
            return _ACCEPTED
        answer: SliceAnswer = await self._work.obey(command.order, command.calls)
        return encode(answer)

    def _forget(self) -> None:
        while len(self._answers) >= _ANSWERS and (oldest := next(iter(self._answers))):
            if not self._answers[oldest].done():
                break
            del self._answers[oldest]
            self._forgotten = max(self._forgotten, oldest)

    # contact ----------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """End the slice when it waits for no leader any more."""
        settings, began_s = self._settings, self._steady()
        why = f"the slice had no contact to its leader for {settings.isolation_s:g} s, and stopped its load"
        while True:
            await asyncio.sleep(self._pause_s())
            now_s = self._steady()
            if self._contact_s is None:
                if now_s - began_s > settings.ready_s:
                    log.warning("job=%s slice=%d: no leader was heard; the slice ends", self._job, self._number)
                    self._end(f"no leader was heard for {settings.ready_s:g} s")
            elif self._isolated_s is not None:
                if now_s - self._isolated_s > settings.kept_s or not self._work.has_result:
                    self._end(why)
            elif now_s - self._contact_s > settings.isolation_s:
                self._isolated_s = now_s
                log.warning("job=%s slice=%d: %s", self._job, self._number, why)
                self._work.refuse(why)

    def _load_until(self) -> float:
        """To when the load may go on, if this process is suspended and cannot stop it."""
        return (self._contact_s or 0.0) + self._settings.alone_s

    def _pause_s(self) -> float:
        """How long nothing can be due: contact is only lost when it has been missing for long."""
        if self._contact_s is None or self._isolated_s is not None:
            return _TICK_S
        return max(_TICK_S, self._contact_s + self._settings.isolation_s - self._steady())

    # what it sends without being asked --------------------------------------------------------------

    def _add_windows(self, parts: Sequence[SliceWindow]) -> None:
        self._unsent.extend(parts)
        self._windows_wait.set()

    async def _send_windows(self) -> None:
        subject = window_subject(self._node, self._job, self._number)
        while True:
            await self._windows_wait.wait()
            self._windows_wait.clear()
            while self._unsent:
                await self._publish(subject, encode_windows(self._unsent))

    def _send_line(self, process: int, line: str) -> None:
        self._lines.append((process, line))
        self._lines_wait.set()

    async def _send_lines(self) -> None:
        subject = line_subject(self._node, self._job, self._number)
        while True:
            await self._lines_wait.wait()
            # those that follow go with the first
            await asyncio.sleep(_LINES_S)
            self._lines_wait.clear()
            lines = list(self._lines)
            self._lines.clear()
            await self._publish(subject, encode(SliceLines(lines=lines)))

    async def _publish(self, subject: str, body: bytes) -> None:
        # a window that does not arrive is asked for again; a line is only looked at
        if len(body) <= MAX_BODY_BYTES:
            with contextlib.suppress(BusError):
                await self._bus.publish(subject, body)

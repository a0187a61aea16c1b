"""A run on nodes as a watcher knows it: what its leader publishes, and what the leader is asked for.

A server has one for all its clients. Each client has a `LiveCursor`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from ...errors import BusError, NoResponders
from ...stores.remote import ManagerConnection
from .live import LiveMoment, decode_live
from .live_cursor import LiveCursor, LiveUpdate
from .live_history import LiveAnswer, LiveHistory, LiveQuery
from .messages import UNREADABLE, encode, live_subject

log = logging.getLogger("mainstay.load")

#: how long a leader may take to answer
_ANSWER_S = 2.0
#: pause before it is asked again for what it did not answer
_AGAIN_S = 0.5
#: for so long nothing is shown beyond what is missing; then the run goes on without it
_PATIENCE_S = 20.0
#: how often it is asked at the end, when nothing follows that could show what is missing
_TRIES = 3
#: a leader that has taken over first collects what its slices have done. Numbers that were shown must not fall, unless
#: it takes longer than this
_COLLECTS_S = 12.0
#: lines that steps printed and that wait for a client
_LINES = 500

_decode_answer = msgspec.msgpack.Decoder(LiveAnswer).decode


class PrintedLine(NamedTuple):
    """A line that a step printed."""

    number: int
    process: int
    text: str


class WatchedRun:
    """`async with WatchedRun(...)`; then `updates()`, or `history` after each `changed`."""

    def __init__(self, connection: ManagerConnection, job: str, *, now_s: Callable[[], float] | None = None) -> None:
        self._bus = connection.bus
        caller = connection.caller
        self._job = job
        self._asks = f"data.history.{caller.role}.{caller.name}.{job}"
        self._now_s = now_s or (lambda: asyncio.get_running_loop().time())
        self._last = (0, 0)
        self._next: LiveHistory | None = None
        """of a leader that has taken over, until it has collected as much as the one before"""
        self._next_s = 0.0
        self._lacks_s: float | None = None
        """since when something is missing; None: nothing is"""
        self._asked_s = float("-inf")
        self._patience_s = _PATIENCE_S
        self._asking = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._lines: deque[PrintedLine] = deque(maxlen=_LINES)
        self._line = 0
        self.history: LiveHistory | None = None
        """None: no leader has said anything yet"""
        self.asked = asyncio.Event()
        """set when the leader was asked for what was before"""
        self.changed = asyncio.Event()
        """set, and replaced by another event, at each change"""
        self.is_open = True
        """False: the bus was closed"""
        self.missed = 0
        """windows that no leader had any more"""

    async def __aenter__(self) -> Self:
        messages = await self._bus.subscribe(live_subject(self._job))

        async def read() -> None:
            try:
                async with messages:
                    with contextlib.suppress(BusError):
                        await self._ask(LiveQuery())
                    self.asked.set()
                    self._notify()
                    async for message in messages:
                        with contextlib.suppress(*UNREADABLE):  # of another version
                            await self._take(decode_live(message.body))
            except Exception:
                log.exception("the windows of job=%s cannot be followed", self._job)
            finally:
                # those who wait must not wait for a reader that is gone
                self.asked.set()
                self.is_open = False
                self._notify()

        self._reading = asyncio.create_task(read(), name="mainstay watched run")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    @property
    def lines(self) -> list[PrintedLine]:
        """The last lines that steps have printed."""
        return list(self._lines)

    @property
    def line(self) -> int:
        """The number of the last one."""
        return self._line

    def lines_after(self, number: int) -> tuple[tuple[int, str], ...]:
        """The lines after that number, with the numbers of their processes."""
        return tuple((each.process, each.text) for each in self._lines if each.number > number)

    async def updates(self) -> AsyncIterator[LiveUpdate]:
        """All updates for one watcher in this process. Does not end by itself."""
        cursor, line, over = LiveCursor(), self._line, False
        while self.is_open:
            changed, history = self.changed, self.history
            if self._line > line:
                lines, line = self.lines_after(line), self._line
                yield LiveUpdate(lines=lines)
            if history is not None:
                for update in cursor.updates(history):
                    yield update if update.entry is None else update._replace(moment=update.entry.moment)
                if history.over != over:
                    over = history.over
                    yield LiveUpdate(over=over)
            if self.changed is changed:
                await changed.wait()

    async def complete(self) -> None:
        """Ask for what is missing, if something is. For a run whose job has ended."""
        await self.asked.wait()
        for _ in range(_TRIES):
            history = self._next or self.history
            if history is not None and history.over:
                break
            try:
                await self._ask(_query(history))
            except NoResponders:
                break
            except BusError:
                continue
        self._show(at_once=True)

    async def _take(self, found: LiveMoment) -> None:
        place = (found.epoch, found.number)
        if place <= self._last:
            return
        self._last = place
        for process, text in found.lines:
            self._line += 1
            self._lines.append(PrintedLine(self._line, process, text))
        history = self._history_of(found)
        if history is None or _lacks(history, found):
            await self._ask_again(history, found.epoch)
            history = self._history_of(found)
        if history is not None and (not _lacks(history, found) or self._gives_up()):
            self._lacks_s = None
            self._add(history, found)
        self._show()

    def _history_of(self, found: LiveMoment) -> LiveHistory | None:
        """That of the leader that has sent this; None: it is not known yet."""
        for history in (self._next, self.history):
            if history is not None and history.epoch == found.epoch:
                return history
        if found.header is None:
            return None
        self._begin(LiveHistory(found.header, epoch=found.epoch))
        return self._next or self.history

    def _begin(self, history: LiveHistory) -> None:
        """Count what this leader sends."""
        shown = self.history
        if shown is None or shown.epoch == history.epoch:
            self.history, self._next = history, None
        else:
            if self._next is None:
                self._next_s = self._now_s()
            self._next = history

    def _add(self, history: LiveHistory, found: LiveMoment) -> None:
        if found.moment is not None:
            # 0: the leader is of an earlier version, and does not count
            number = found.windows - 1 if found.windows else history.windows
            if number > history.windows:
                self.missed += number - history.windows
            if number >= history.windows:
                history.add(found.moment, number=number)
        if found.result is not None and found.results == len(history.results) + 1:
            history.results.append(found.result)
        history.over = found.over

    def _show(self, *, at_once: bool = False) -> None:
        """Let clients see what has changed, and a leader that has taken over once it has collected everything."""
        new, shown = self._next, self.history
        if new is not None and shown is not None:
            waited_s = self._now_s() - self._next_s
            if at_once or new.over or new.requests >= shown.requests or waited_s >= _COLLECTS_S:
                self.history, self._next = new, None
        self._notify()

    def _notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def _ask_again(self, history: LiveHistory | None, epoch: int) -> None:
        """Ask for what is missing. Windows that arrive meanwhile are left to the answer, which has them, too."""
        now_s = self._now_s()
        self._lacks_s = now_s if self._lacks_s is None else self._lacks_s
        if now_s - self._asked_s < _AGAIN_S:
            return
        with contextlib.suppress(BusError):
            await self._ask(msgspec.structs.replace(_query(history), epoch=epoch))
        self._asked_s = self._now_s()

    def _gives_up(self) -> bool:
        """Whether the leader had enough time to answer. One that never answers costs the time once."""
        if self._lacks_s is None or self._now_s() - self._lacks_s < self._patience_s:
            return False
        self._patience_s = 0.0
        return True

    async def _ask(self, query: LiveQuery) -> None:
        """Ask the leader for what it has passed on after that. Raises the error of the bus."""
        async with self._asking:
            while True:
                body = await self._bus.request(self._asks, encode(query), _ANSWER_S)
                try:
                    answer = _decode_answer(body)
                    history = self._answered(answer, query)
                except UNREADABLE as error:
                    raise BusError(f"the history of a run cannot be read: {error}") from None
                if history is None or not answer.more:
                    return
                query = _query(history)

    def _answered(self, answer: LiveAnswer, query: LiveQuery) -> LiveHistory | None:
        """Take an answer. None: it is of no use, because it is that of an earlier leader."""
        known = self._next or self.history
        self._patience_s = _PATIENCE_S
        if known is not None and answer.epoch < known.epoch:
            return None
        history = known
        if history is None or answer.from_start or history.epoch != answer.epoch:
            history = LiveHistory(answer.header, epoch=answer.epoch)
            if known is not None and known.epoch == answer.epoch:
                history.results += known.results
            self._begin(history)
        for entry in answer.entries:
            history.add_entry(entry)
        missing = len(history.results) - query.results
        history.results += answer.results[max(0, missing) :]
        history.over = answer.over
        return history


def _lacks(history: LiveHistory, found: LiveMoment) -> bool:
    """Whether something was lost before this message."""
    windows = found.windows - (found.moment is not None)
    results = found.results - (found.result is not None)
    return windows > history.windows or results > len(history.results)


def _query(history: LiveHistory | None) -> LiveQuery:
    if history is None:
        return LiveQuery()
    return LiveQuery(epoch=history.epoch, windows=history.windows, results=len(history.results))


__all__ = ["PrintedLine", "WatchedRun"]

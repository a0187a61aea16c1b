"""The home loop of a store on a server: a thread with an event loop of its own, where its connections live.

A store may be used from any loop and any thread, but the connections of a driver only from the loop that made them. So
each store on a server has a home loop, and every call runs there and returns its result to the caller's loop.

A program whose own loop outlives every store it opens can pass it to `adopt`. Then that loop is the home loop, and
calls from it need no thread switch. A worker's engine does that, for speed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ..errors import StoreClosed
from ..event_loop import new_event_loop
from ..loop_thread import LoopThread

T = TypeVar("T")

Work = Callable[[], Coroutine[Any, Any, T]]
Unheard = Callable[[T], Coroutine[Any, Any, object]]

#: process -> its loop, so that a forked process does not use the loop of its parent
_adopted: dict[int, asyncio.AbstractEventLoop] = {}


def adopt_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Use this loop for the stores that this process opens from now on. It must run until they are closed."""
    _adopted[os.getpid()] = loop


class StoreLoop:
    """One thread with an event loop, and calls into it.

    `place` names the store in messages; it must not have a secret (see `shown_url`). With `loop`, that loop is the home
    loop, without a thread: it must run until the store is closed.
    """

    def __init__(self, place: str, *, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._place = place
        self._pid = os.getpid()
        self._door = threading.Lock()
        self._closed = False
        self._gone = threading.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._last: asyncio.Task[None] | None = None
        adopted = loop or _adopted.get(self._pid)
        self._is_adopted = adopted is not None and not adopted.is_closed()
        if adopted is not None and self._is_adopted:
            self.loop = adopted
        else:
            self.loop = LoopThread(self._live, name="mainstay-store").start()

    def check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the store on {self._place} was closed; open it again")
        if os.getpid() != self._pid:
            raise StoreClosed(
                f"the store on {self._place} was opened by the process this one was forked from; open one here"
            )

    async def run(self, work: Work[T], *, unheard: Unheard[T] | None = None) -> T:
        """Run the work on the home loop, from any loop.

        If the caller is cancelled, so is the work. With `unheard` it is not: work that has begun is finished, and its
        result is passed to `unheard`, which undoes it.
        """
        self.check_open()
        loop = asyncio.get_running_loop()
        if loop is self.loop and not self._is_adopted:
            return await work()
        future: asyncio.Future[T] = loop.create_future()
        call = _Call(work, future, unheard)
        with self._door:  # a call after the last one would never be answered
            self.check_open()
            if loop is self.loop:
                self._begin(call)
            else:
                self.loop.call_soon_threadsafe(self._begin, call)
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._send(self._give_up, call)
            else:  # answered, but cancelled before the caller ran again
                self._send(self._undo, call)
            raise

    def spawn(self, work: Work[object]) -> None:
        """Start the work on the home loop, from any thread, without waiting for it. The work handles its own errors.
        Does nothing once the store is closed."""
        with self._door:
            if not self._closed:
                self.loop.call_soon_threadsafe(self._start, work)

    async def close(self) -> None:
        """Finish the calls that have begun, then end the loop and its thread, if they are its own. Safe to call twice;
        not to be called on an own home loop."""
        with self._door:
            first, self._closed = not self._closed, True
            if first:
                self.loop.call_soon_threadsafe(self._leave)
        # a caller that is cancelled must not leave the thread behind
        if asyncio.get_running_loop() is self.loop:
            await asyncio.shield(self._leave())
        else:
            await asyncio.shield(asyncio.to_thread(self._gone.wait))

    # -- on the home loop ---------------------------------------------------------------------

    def _begin(self, call: _Call[Any]) -> None:
        if call.future.cancelled():  # before it began
            return
        call.task = self._start(call.work)
        call.task.add_done_callback(lambda _: self._answer(call))

    def _answer(self, call: _Call[Any]) -> None:
        if not call.answer():
            self._undo(call)

    def _give_up(self, call: _Call[Any]) -> None:
        call.abandoned = True
        if call.unheard is None and call.task is not None:
            call.task.cancel()
        self._undo(call)  # it may have finished since

    def _undo(self, call: _Call[Any]) -> None:
        if call.unheard is not None and call.has_value:
            undo, value, call.has_value = call.unheard, call.value, False
            self._start(lambda: undo(value))

    def _start(self, work: Work[T]) -> asyncio.Task[T]:
        task = self.loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _send(self, act: Callable[[_Call[Any]], None], call: _Call[Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the store is closed: a sweep takes back the jobs of its sessions
            self.loop.call_soon_threadsafe(act, call)

    def _leave(self) -> asyncio.Task[None]:
        if self._last is None:
            self._last = self.loop.create_task(self._finish())
        return self._last

    async def _finish(self) -> None:
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))
            await asyncio.sleep(0)  # lets their undo tasks begin
        if self._is_adopted:
            self._gone.set()
        else:
            self.loop.stop()

    def _live(self, tell: Callable[[asyncio.AbstractEventLoop], None]) -> None:
        loop = new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            tell(loop)
            loop.run_forever()
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
            self._gone.set()


class _Call(Generic[T]):
    """One call: the work, and the caller that waits for its result in another loop."""

    def __init__(self, work: Work[T], future: asyncio.Future[T], unheard: Unheard[T] | None) -> None:
        self.work = work
        self.future = future
        self.unheard = unheard
        self.task: asyncio.Task[T] | None = None
        self.abandoned = False
        self.has_value = False
        self.value: Any = None

    def answer(self) -> bool:
        """On the home loop: pass the result to the caller's loop; False if the caller is gone."""
        assert self.task is not None
        error = None
        if not self.task.cancelled() and (error := self.task.exception()) is None:
            self.value, self.has_value = self.task.result(), True
        if self.abandoned:
            return False
        if self.future.get_loop() is self.task.get_loop():
            return self._resolve(error)
        try:
            self.future.get_loop().call_soon_threadsafe(self._resolve, error)
        except RuntimeError:  # the caller's loop was closed
            return False
        return True

    def _resolve(self, error: BaseException | None) -> bool:
        if self.future.done():  # cancelled: the caller has scheduled the undo
            return True
        if error is not None:
            self.future.set_exception(error)
        elif self.has_value:
            self.future.set_result(self.value)
        else:
            self.future.cancel()
        return True

"""One open store per program.

A store may be used from any loop and any thread, so all of them share one: the `_sync` methods, the loop of a web
server and a worker use the same store, also with `memory:`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future

from ..control import Control

#: stores of the parent process: kept here, because a garbage-collected store would be closed
_inherited: list[Control] = []


class StoreConnection:
    """Opens the store on first use, once for concurrent callers; can be opened again after it was closed.

    It counts its users: `enter` and `leave` for a block, `keep` and `release` for a whole program. The last user closes
    it.
    """

    def __init__(self, connect: Callable[[], Awaitable[Control]]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._opening: Future[Control | None] | None = None
        self.control: Control | None = None
        """None: not open"""
        self._stand_ins = 0
        self._users = 0
        self._kept = False

    async def open(self) -> Control:
        while True:
            with self._lock:
                if self.control is not None:
                    return self.control
                first = self._opening is None
                opening = self._opening = self._opening or Future()
            if first:
                # shielded: the first caller may be cancelled while others wait
                return await asyncio.shield(asyncio.ensure_future(self._open(opening)))
            if (control := await asyncio.shield(asyncio.wrap_future(opening))) is not None:
                return control

    async def enter(self) -> Control:
        """Open it and keep it open until `leave`."""
        self.hold()
        try:
            return await self.open()
        except BaseException:
            self.let_go()
            raise

    async def leave(self) -> None:
        """The reverse; the last user closes it."""
        self.let_go()
        await self._close_unless_used()

    def hold(self) -> None:
        """Keep it open, once it is, until `let_go`."""
        with self._lock:
            self._users += 1

    def let_go(self) -> None:
        """The reverse. It closes nothing."""
        with self._lock:
            self._users = max(0, self._users - 1)  # a forked process leaves a block that only its parent entered

    async def keep(self) -> Control:
        """Open it and keep it open until `release`. Twice is the same as once. Within an `enter` it has no effect:
        there the caller only wants the control and will not call `release`."""
        control = await self.open()
        with self._lock:
            self._kept = self._kept or not self._in_use()
        return control

    async def release(self) -> None:
        """The reverse, also for a store that the first use opened; closes it unless it has other users."""
        self._kept = False
        await self._close_unless_used()

    async def close(self) -> None:
        """Close the store, also if it has users or is just being opened."""
        with self._lock:
            self._users, self._kept = 0, False
        await self._close_unless_used()

    async def _close_unless_used(self) -> None:
        with self._lock:
            if self._in_use():
                return
            opening = self._opening
        if opening is not None:
            with contextlib.suppress(Exception):
                await asyncio.shield(asyncio.wrap_future(opening))
        with self._lock:
            if self._in_use():  # it got a user while it was being opened
                return
            control, self.control = self.control, None
        if control is not None:
            await control.store.close()

    def _in_use(self) -> bool:
        return bool(self._stand_ins or self._users or self._kept)

    @property
    def is_replaced(self) -> bool:
        """Whether another control is used instead of its own."""
        return bool(self._stand_ins)

    @contextlib.contextmanager
    def instead(self, control: Control) -> Iterator[None]:
        """Use another control within the block. It is not closed here, nor by a user that leaves within the block:
        later code would then use the real store."""
        with self._lock:
            before, self.control = self.control, control
            self._stand_ins += 1
        try:
            yield
        finally:
            with self._lock:
                self.control = before
                self._stand_ins -= 1

    async def _open(self, opening: Future[Control | None]) -> Control:
        try:
            control = await self._connect()
        except BaseException as error:
            with self._lock:
                self._opening = None
            if isinstance(error, Exception):
                opening.set_exception(error)
            else:
                opening.set_result(None)  # its loop was stopped; the waiters try again
            raise
        with self._lock:
            self.control, self._opening = control, None
        opening.set_result(control)
        return control

    def forget(self) -> None:
        """After a fork: the store's threads and locks are the parent's."""
        self._lock = threading.Lock()
        self._opening = None
        self._users, self._kept = 0, False
        if self.control is not None:
            _inherited.append(self.control)
            self.control = None

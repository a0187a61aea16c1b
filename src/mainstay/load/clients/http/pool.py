"""The connections of one user to one origin."""

from __future__ import annotations

import asyncio
import collections
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import Connection

LIMIT = 6
"""connections of a user to an origin, as browsers have it"""


class Pool:
    """Those that are idle, how many there are in all, and who waits for one."""

    __slots__ = ("connections", "idle", "open", "origin", "waiters")

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.connections: set[Connection] = set()
        self.idle: list[Connection] = []
        self.open = 0
        """how many are there or being opened"""
        self.waiters: collections.deque[asyncio.Future[Connection | None]] = collections.deque()

    def release(self, connection: Connection) -> None:
        """It is free: for who waits longest, or for the next call."""
        if connection.closed:
            return
        if not self._hand_over(connection):
            self.idle.append(connection)

    def drop(self, connection: Connection) -> None:
        """It is closed: whoever waits may open another."""
        self.connections.discard(connection)
        if connection in self.idle:
            self.idle.remove(connection)
        self.give_back()

    def give_back(self) -> None:
        """One that was counted as open is not."""
        self.open -= 1
        self._hand_over(None)

    def _hand_over(self, connection: Connection | None) -> bool:
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    async def wait(self) -> Connection | None:
        """A connection that became free; None: there is room for another."""
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                # it was handed over just when the one who waited gave up
                connection = waiter.result()
                if connection is not None:
                    self.release(connection)
                else:
                    self._hand_over(None)
            raise

"""The connections of one user to one origin."""

from __future__ import annotations

import asyncio
import collections
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import HTTP1Connection

LIMIT = 6
"""connections of a user to an origin, as in browsers"""


class Pool:
    """Idle connections, the number of open ones, and the calls that wait for one."""

    __slots__ = ("connections", "idle", "left", "open", "origin", "tls", "waiters")

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.connections: set[HTTP1Connection] = set()
        self.idle: list[HTTP1Connection] = []
        self.open = 0
        """connections that are open or being opened"""
        self.waiters: collections.deque[asyncio.Future[HTTP1Connection | None]] = collections.deque()
        self.tls: ssl.SSLSession | None = None
        """of a closed connection: it shortens the next handshake of this user, and of no other"""
        self.left = False
        """its user has left"""

    def take_tls(self) -> ssl.SSLSession | None:
        """The TLS session for the next connection. Kept here only if no open connection has one: each takes 6 kB."""
        session, self.tls = self.tls, None
        if session is None:
            return next((own for one in self.connections if one.used and (own := one.tls_session)), None)
        return session

    def release(self, connection: HTTP1Connection) -> None:
        """The connection is free: give it to the call that waits longest, or keep it for the next one."""
        if connection.closed:
            return
        if not self._hand_over(connection):
            self.idle.append(connection)

    def drop(self, connection: HTTP1Connection) -> None:
        """The connection is closed: a waiting call may open another."""
        self.connections.discard(connection)
        if connection in self.idle:
            self.idle.remove(connection)
        self.give_back()

    def give_back(self) -> None:
        """A connection that was counted as open is closed."""
        self.open -= 1
        self._hand_over(None)

    def _hand_over(self, connection: HTTP1Connection | None) -> bool:
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    async def wait(self) -> HTTP1Connection | None:
        """A connection that became free; None: there is room for another."""
        waiter: asyncio.Future[HTTP1Connection | None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                # it was handed over when this call was cancelled
                connection = waiter.result()
                if connection is not None:
                    self.release(connection)
                else:
                    self._hand_over(None)
            raise

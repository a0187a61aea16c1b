"""Connections to one server: a small pool for commands, and the patience to send a call again.

All of it lives on the store's home loop. Every call of the port may be sent twice (see `stores/port.py` and the scripts
it runs), so a call whose connection was lost is: with growing pauses, a random part of each, up to `retries` times.
Then it raises `StoreUnavailable`.

In a cluster all keys of a namespace share one slot, so one node serves them. A node that does not says which one does,
and from then on the calls go there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redis import exceptions as driver
from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection, UnixDomainSocketConnection

from ..server_clock import ServerClock
from .address import Address
from .trouble import is_passing, needs_new_connection, translated, unavailable

log = logging.getLogger("mainstay.stores.redis")

T = TypeVar("T")
Client = Redis
Work = Callable[[Client], Awaitable[T]]

#: longest pause between two tries
_LONGEST_PAUSE_S = 2.0
_FIRST_PAUSE_S = 0.05
#: a cluster that sends us round in circles is not whole
_MOST_HOPS = 5


class Server:
    """The server a store lives on. Use it on the home loop only.

    An answer that takes longer than `answer_s` ends its connection: the server hangs, or the network swallows.
    """

    def __init__(self, address: Address, *, rng: random.Random | None = None, answer_s: float = 15.0) -> None:
        self.address = address
        self._answer_s = answer_s
        self._rng = rng or random.Random()
        self._place = (address.host, address.port)
        self._client = self._new_client()
        self._ending = asyncio.Event()

    async def call(self, work: Work[T]) -> T:
        """Do some work with a client; all of it again when the connection was lost on the way."""
        lost = 0
        hops = 0
        while True:
            try:
                return await work(self._client)
            except driver.MovedError as error:
                hops += 1
                if hops > _MOST_HOPS or self.address.path is not None:
                    raise unavailable(error, self.address.shown) from error
                await self._follow(error)
            except Exception as error:
                if not is_passing(error) or lost >= self.address.retries or self._ending.is_set():
                    ours = translated(error, self.address.shown)
                    if ours is None:
                        raise
                    raise ours from error
                if needs_new_connection(error):
                    await self._client.connection_pool.disconnect(inuse_connections=False)
                lost += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.pause_s(lost)):
                        await self._ending.wait()

    def pause_s(self, failures: int) -> float:
        """How long to wait before try number `failures` + 1: at least half of a time that doubles."""
        most: float = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(failures - 1, 16))
        return self._rng.uniform(most / 2, most)

    def listening(self, blocks_s: float) -> Client:
        """A client of its own with one connection, for commands that block up to `blocks_s`. Its user closes it."""
        return self._new_client(size=1, blocks_s=blocks_s)

    async def hear(self, clock: ServerClock) -> None:
        """Ask the server for its time."""

        async def ask(client: Client) -> None:
            sent = clock.steady()
            seconds, micros = await client.time()
            clock.heard(seconds * 1000 + micros / 1000, sent=sent, received=clock.steady())

        await self.call(ask)

    def hurry(self) -> None:
        """What is left is only to take leave: from now on nothing waits for a server that is away."""
        self._ending.set()

    async def close(self) -> None:
        self.hurry()
        await self._client.aclose()

    async def _follow(self, error: driver.MovedError) -> None:
        """The slot is served by another node: go there, and stay."""
        place = (error.host or self._place[0], error.port)
        if place == self._place:
            return
        log.info("%s: the keys are on node %s:%s of the cluster", self.address.shown, *place)
        self._place = place
        old, self._client = self._client, self._new_client()
        # calls that are under way there end by themselves; their connections go with the last of them
        await old.connection_pool.disconnect(inuse_connections=False)

    def _new_client(self, *, size: int | None = None, blocks_s: float = 0.0) -> Client:
        address = self.address
        options: dict[str, Any] = {
            "db": address.db,
            "username": address.username,
            "password": address.password,
            "socket_connect_timeout": address.connect_timeout_s,
            "socket_timeout": max(self._answer_s, address.connect_timeout_s) + blocks_s,
            "protocol": 2,
            "driver_info": None,
        }
        kind: type[Connection | UnixDomainSocketConnection] = Connection
        if address.path is not None:
            kind = UnixDomainSocketConnection
            options["path"] = address.path
        else:
            options["host"], options["port"] = self._place
            options["socket_keepalive"] = True
            if address.tls:
                kind = SSLConnection
                options |= address.tls_options
        pool = BlockingConnectionPool(
            max_connections=size or address.pool, timeout=None, connection_class=kind, **options
        )
        return Redis.from_pool(pool)

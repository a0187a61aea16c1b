"""Connections to one server: a few for commands, and the retries of calls.

All of it runs on the store's own loop. Every call of the port may be sent twice (see `stores/port` and the scripts it
runs), so a call is sent again when its connection was lost: with growing pauses, a random part of each, up to `retries`
times. Then it raises `StoreUnavailable`.

In a cluster all keys of a namespace share one slot, so one node serves them. Another node names that one, and from then
on the calls go there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from redis import exceptions as driver

from ..server_clock import ServerClock
from .address import RedisAddress
from .errors import is_passing, needs_new_connection, translated, unavailable
from .wire import RedisWire, connect

log = logging.getLogger("mainstay.stores.redis")

T = TypeVar("T")
Work = Callable[[RedisWire], Awaitable[T]]

#: longest pause between two attempts
_LONGEST_PAUSE_S = 2.0
_FIRST_PAUSE_S = 0.05
#: redirections of one call: more mean that the cluster is not consistent
_MOST_HOPS = 5


class RedisServer:
    """The server of a store. Use it on the store's own loop only.

    A reply that takes longer than `answer_s` ends its connection: the server hangs, or the network loses packets.
    """

    def __init__(self, address: RedisAddress, *, rng: random.Random | None = None, answer_s: float = 15.0) -> None:
        self.address = address
        self._answer_s = answer_s
        self._rng = rng or random.Random()
        self._place = (address.host, address.port)
        self._wires: list[RedisWire] = []
        self._connecting = 0
        self._tried = asyncio.Event()
        self._failed: Exception | None = None
        """why the last attempt to connect failed"""
        self._ending = asyncio.Event()

    async def call(self, work: Work[T]) -> T:
        """Do some work on a connection; repeats all of it when the connection was lost."""
        lost = 0
        hops = 0
        while True:
            try:
                return await work(await self._wire())
            except driver.MovedError as error:
                hops += 1
                if hops > _MOST_HOPS or self.address.path is not None:
                    raise unavailable(error, self.address.shown) from error
                self._follow(error)
            except Exception as error:
                if not is_passing(error) or lost >= self.address.retries or self._ending.is_set():
                    ours = translated(error, self.address.shown)
                    if ours is None:
                        raise
                    raise ours from error
                if needs_new_connection(error):
                    self._retire_all()
                lost += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.pause_s(lost)):
                        await self._ending.wait()

    def pause_s(self, failures: int) -> float:
        """How long to wait before attempt number `failures` + 1: at least half of a time that doubles."""
        most: float = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(failures - 1, 16))
        return self._rng.uniform(most / 2, most)

    async def listening(self, blocks_s: float) -> RedisWire:
        """A separate connection, for commands that block up to `blocks_s`. The caller closes it."""
        return await self._connect(blocks_s)

    async def hear(self, clock: ServerClock) -> None:
        """Ask the server for its time."""

        async def ask(wire: RedisWire) -> None:
            sent = clock.steady()
            seconds, micros = await wire.ask("TIME")
            clock.heard(int(seconds) * 1000 + int(micros) / 1000, sent=sent, received=clock.steady())

        await self.call(ask)

    def hurry(self) -> None:
        """The store is closing: from now on no call waits for a server that is down."""
        self._ending.set()

    async def close(self) -> None:
        self.hurry()
        wires, self._wires = self._wires, []
        for wire in wires:
            await wire.close()

    async def _wire(self) -> RedisWire:
        """An idle connection, or a new one; at the maximum, the one with the fewest pending commands."""
        while True:
            self._wires = [wire for wire in self._wires if wire.is_open]
            for wire in self._wires:
                if not wire.waiting:
                    return wire
            if len(self._wires) + self._connecting < self.address.pool:
                return await self._one_more()
            if self._wires:
                return min(self._wires, key=lambda wire: wire.waiting)
            await self._tried.wait()
            if self._failed is not None and not self._wires:
                # it counts for every waiting call: if each tried in turn, they would wait for many timeouts
                raise self._failed

    async def _one_more(self) -> RedisWire:
        place = self._place
        self._connecting += 1
        self._failed = None
        try:
            wire = await self._connect()
        except Exception as error:
            self._failed = error
            raise
        finally:
            self._connecting -= 1
            self._tried.set()
            self._tried.clear()
        if place == self._place:
            self._wires.append(wire)
        else:  # the keys have moved to another node since
            asyncio.get_running_loop().call_soon(wire.retire)
        return wire

    async def _connect(self, blocks_s: float = 0.0) -> RedisWire:
        patience_s = max(self._answer_s, self.address.connect_timeout_s) + blocks_s
        return await connect(self.address, self._place, patience_s=patience_s)

    def _retire_all(self) -> None:
        """Use none of the connections any more; their pending calls end by themselves."""
        wires, self._wires = self._wires, []
        for wire in wires:
            wire.retire()

    def _follow(self, error: driver.MovedError) -> None:
        """Another node serves the slot: use it from now on."""
        place = (error.host or self._place[0], error.port)
        if place == self._place:
            return
        log.info("%s: the keys are on node %s:%s of the cluster", self.address.shown, *place)
        self._place = place
        self._retire_all()

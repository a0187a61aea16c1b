"""Connections to one server: a few for commands, and the patience to send a call again.

All of it lives on the store's home loop. Every call of the port may be sent twice (see `stores/port` and the scripts
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
from typing import TypeVar

from redis import exceptions as driver

from ..server_clock import ServerClock
from .address import RedisAddress
from .errors import is_passing, needs_new_connection, translated, unavailable
from .wire import RedisWire, connect

log = logging.getLogger("mainstay.stores.redis")

T = TypeVar("T")
Work = Callable[[RedisWire], Awaitable[T]]

#: longest pause between two tries
_LONGEST_PAUSE_S = 2.0
_FIRST_PAUSE_S = 0.05
#: a cluster that sends us round in circles is not whole
_MOST_HOPS = 5


class RedisServer:
    """The server a store lives on. Use it on the home loop only.

    An answer that takes longer than `answer_s` ends its connection: the server hangs, or the network swallows.
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
        """why the last try to connect failed"""
        self._ending = asyncio.Event()

    async def call(self, work: Work[T]) -> T:
        """Do some work on a connection; all of it again when that was lost on the way."""
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
                    self._part()
                lost += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.pause_s(lost)):
                        await self._ending.wait()

    def pause_s(self, failures: int) -> float:
        """How long to wait before try number `failures` + 1: at least half of a time that doubles."""
        most: float = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(failures - 1, 16))
        return self._rng.uniform(most / 2, most)

    async def listening(self, blocks_s: float) -> RedisWire:
        """A connection of its own, for commands that block up to `blocks_s`. Its user closes it."""
        return await self._connect(blocks_s)

    async def hear(self, clock: ServerClock) -> None:
        """Ask the server for its time."""

        async def ask(wire: RedisWire) -> None:
            sent = clock.steady()
            seconds, micros = await wire.ask("TIME")
            clock.heard(int(seconds) * 1000 + int(micros) / 1000, sent=sent, received=clock.steady())

        await self.call(ask)

    def hurry(self) -> None:
        """What is left is only to take leave: from now on nothing waits for a server that is away."""
        self._ending.set()

    async def close(self) -> None:
        self.hurry()
        wires, self._wires = self._wires, []
        for wire in wires:
            await wire.close()

    async def _wire(self) -> RedisWire:
        """One that nobody uses, or a new one; or, when there are enough, the one with the least to do."""
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
                # it was theirs, too: one after the other they would wait for many times as long as a caller is told
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
        else:  # the keys are elsewhere by now, as it will say
            asyncio.get_running_loop().call_soon(wire.retire)
        return wire

    async def _connect(self, blocks_s: float = 0.0) -> RedisWire:
        patience_s = max(self._answer_s, self.address.connect_timeout_s) + blocks_s
        return await connect(self.address, self._place, patience_s=patience_s)

    def _part(self) -> None:
        """Use none of the connections any more; calls that are under way there end by themselves."""
        wires, self._wires = self._wires, []
        for wire in wires:
            wire.retire()

    def _follow(self, error: driver.MovedError) -> None:
        """The slot is served by another node: go there, and stay."""
        place = (error.host or self._place[0], error.port)
        if place == self._place:
            return
        log.info("%s: the keys are on node %s:%s of the cluster", self.address.shown, *place)
        self._place = place
        self._part()

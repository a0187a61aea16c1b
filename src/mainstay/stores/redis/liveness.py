"""Detecting at once that a process is dead, on any machine.

A process subscribes to a channel for each of its sessions, and for each session that it sends heartbeats for (a
supervisor for its engines), on a separate connection. Nothing is ever published there. The server drops the
subscriptions the moment the process ends, and `PUBSUB NUMSUB` shows it, in the script that looks for dead sessions
(`lua/directory.lua`).

A subscribed session has this in its row (`linked`: the run of the server that it subscribed on). Without subscribers it
counts as dead after a second, or after two if sessions of other workers have lost theirs as well: a cut connection is
not a dead process, so a lost link is restored at once. The lease decides where a subscription shows nothing: a process
that hangs, a server that restarted or failed over, a proxy without subscriptions, a user who may not subscribe.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from .connection import RedisServer
from .errors import is_passing
from .wire import RedisWire

log = logging.getLogger("mainstay.stores.redis")

#: the longest pause between two attempts to restore a link at first; and how long this lasts
QUICK_S, SOON_S = 0.2, 5.0
#: how soon to look again at a session without subscribers
AGAIN_S = 0.2
#: how often an idle connection is tested
_CHECK_S = 15.0

#: records on the server that these sessions have subscribed
Announce = Callable[[Sequence[str]], Awaitable[object]]


class SessionLink:
    """The subscriptions of one open store. Use it on the store's own loop only."""

    def __init__(self, server: RedisServer, announce: Announce) -> None:
        self._server = server
        self._announce = announce
        self._held: set[str] = set()
        """sessions of this process"""
        self._beaten: set[str] = set()
        """sessions that it sends heartbeats for"""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def hold(self, session: str) -> None:
        """Subscribe for a session of this process, in the background: until then the lease decides."""
        self._held.add(session)
        self._change()

    def release(self, session: str) -> None:
        self._held.discard(session)
        self._change()

    def beat(self, sessions: Collection[str]) -> None:
        """This process sends heartbeats for these sessions, and for no others."""
        if set(sessions) != self._beaten:
            self._beaten = set(sessions)
            self._change()

    async def close(self) -> None:
        self._closed = True
        while self._task is not None and not self._task.done():
            # more than once: the driver loses a cancellation that coincides with a reply
            self._task.cancel()
            await asyncio.wait([self._task], timeout=0.1)

    def _change(self) -> None:
        self._changed.set()
        if self._task is None and not self._closed and (self._held or self._beaten):
            self._task = asyncio.get_running_loop().create_task(self._keep(), name="mainstay redis link")

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        lost_s = loop.time()
        while True:
            wire: RedisWire | None = None
            begun_s = loop.time()
            try:
                wire = await self._server.listening(0.0)
                await self._serve(wire)
            except Exception as error:  # noqa: BLE001 - retried while the store is open; its calls report the error
                if not is_passing(error) and not failures:
                    log.warning(
                        "%s: sessions cannot subscribe (%s), so a killed worker is detected when its lease expires",
                        self._server.address.shown,
                        error,
                    )
            finally:
                if wire is not None:
                    await wire.close()
            if loop.time() - begun_s > 1.0:  # it worked; a link that is lost right away is restored after a pause
                failures, lost_s = 0, loop.time()
                continue
            failures += 1
            pause_s = self._server.pause_s(failures)
            await asyncio.sleep(min(pause_s, QUICK_S) if loop.time() - lost_s < SOON_S else pause_s)

    async def _serve(self, wire: RedisWire) -> None:
        """Until the connection is lost."""
        subscribed: set[str] = set()
        announced: set[str] = set()
        while True:
            self._changed.clear()
            wanted = self._held | self._beaten
            for session in sorted(subscribed - wanted):
                await wire.ask("UNSUBSCRIBE", self._channel(session))
            for session in sorted(wanted - subscribed):
                await wire.ask("SUBSCRIBE", self._channel(session))
            subscribed = wanted
            if fresh := sorted(self._held - announced):
                await self._announce(fresh)
            announced = set(self._held)
            if self._changed.is_set():
                continue
            changed = asyncio.ensure_future(self._changed.wait())
            lost = asyncio.ensure_future(wire.lost())
            try:
                await asyncio.wait([changed, lost], timeout=_CHECK_S, return_when=asyncio.FIRST_COMPLETED)
                if lost.done():
                    return
            finally:
                for waiting in (changed, lost):
                    waiting.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await waiting
            if not self._changed.is_set():
                await wire.ask("PING")

    def _channel(self, session: str) -> Any:
        return f"{self._server.address.tag}alive:{session}"

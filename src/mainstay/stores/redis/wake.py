"""Waking idle processes: the receiving side. The keys are in `lua/prelude.lua`, the sending side in `lua/wakes.lua`.

An open store is one listener. All its subscriptions receive through one list, on which one connection blocks. The steps
of subscriptions (enter, sleep, rise, leave) go to the server in order, many in one script; a call of the store waits
for all steps that were begun before it, so that "subscribe, then read" is exact.

A subscription sleeps for a queue only while it waits. Between two waits the ticks of its queues show whether it missed
a wake: so a worker that was woken claims at once, and does not register again first.

When the connection was lost, or the server took this listener for dead, wakes may have been missed: then all
subscriptions enter again and are woken once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from threading import Lock
from typing import Any, Self

from ..store_loop import StoreLoop
from .connection import RedisServer
from .errors import is_passing
from .wire import RedisWire

log = logging.getLogger("mainstay.stores.redis")

#: a listener without a sign of life for this time is skipped
EAR_MS = 10_000
#: how often an idle listener gives a sign of life
_SIGN_S = 3.0
#: subscriptions to topics expire after an hour unless they are renewed
_RENEW_S = 1200.0
_MOST_WAKES = 100
#: turns of the loop between a wake and its claim
_STEPS_TO_CLAIM = 3
_MOST_STEPS = 500

Step = list[Any]
#: runs the script `wake`: [listener, how long it may be silent, steps] -> whether the listener was known to be alive,
#: then a reply for each step
Send = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]


class RedisListener:
    """All subscriptions of one open store."""

    def __init__(self, server: RedisServer, home: StoreLoop, send: Send) -> None:
        self.name = os.urandom(9).hex()
        self.lock = Lock()
        self._server = server
        self._home = home
        self.loop = home.loop
        self._send = send
        self._list = f"{server.address.tag}w:{self.name}"
        self._ear = f"{server.address.tag}ear:{self.name}"
        self._signed = False
        self._numbers = itertools.count(1)
        self._all: dict[str, RedisSubscription] = {}
        # used on the store's own loop:
        self._steps: list[tuple[RedisSubscription, Step]] = []
        self._sending: asyncio.Task[None] | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._away = False
        self._closed = False

    # -- from any thread ------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str]) -> RedisSubscription:
        self._home.check_open()
        subscription = RedisSubscription(self, f"{next(self._numbers)}", tuple(dict.fromkeys(topics)))
        with self.lock:
            self._all[subscription.name] = subscription
        self.step(subscription, subscription.entering())
        return subscription

    def step(self, subscription: RedisSubscription, step: Step) -> None:
        """Send a step. Steps are made in the order of these calls."""
        subscription.begins()

        async def add() -> None:
            self._add(subscription, step)

        self._home.spawn(add)

    def forget(self, subscription: RedisSubscription) -> None:
        with self.lock:
            self._all.pop(subscription.name, None)

    # -- on the store's own loop ----------------------------------------------------------------

    async def settled(self) -> None:
        """Wait until all steps that were begun are made. Every other call of the store waits for this first."""
        if self._sending is not None:
            await asyncio.shield(self._sending)

    async def close(self) -> None:
        began, self._hearing, self._closed = self._hearing is not None, None, True
        while self._tasks:
            # more than once: the driver loses a cancellation that coincides with a reply
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(tuple(self._tasks), timeout=0.1)
        self._server.hurry()
        await self.settled()
        if began:
            with contextlib.suppress(Exception):  # the keys expire by themselves
                await self._server.call(lambda wire: wire.ask("DEL", self._ear, self._list))

    def _add(self, subscription: RedisSubscription, step: Step) -> None:
        self._steps.append((subscription, step))
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send_all())
        if self._hearing is None:
            self._start_listening(missed=False)

    async def _send_all(self) -> None:
        """Send steps until none is left. If the server cannot be reached they are dropped: when it is back, all
        subscriptions enter again."""
        part: list[tuple[RedisSubscription, Step]] = []
        try:
            while self._steps:
                part, self._steps = self._steps[:_MOST_STEPS], self._steps[_MOST_STEPS:]
                steps = [subscription.ready_to_send(step) for subscription, step in part]
                replies = await self._make_steps(steps)
                self._away = False
                for (subscription, step), reply in zip(part, replies, strict=True):
                    subscription.answered(step, reply)
                    subscription.ended()
                part = []
        except Exception as error:  # noqa: BLE001 - a waiting worker must not hang; it finds jobs by its poll
            if not self._away:
                log.warning("wakes for jobs are off, so workers poll: subscriptions cannot be registered (%s)", error)
            self._away = True
            for subscription, _ in (*part, *self._steps):
                subscription.ended()
            self._steps.clear()
            if self._hearing is not None:
                self._hearing.cancel()
            self._start_listening(missed=True)
        finally:
            self._sending = None

    async def _make_steps(self, steps: Sequence[Step]) -> Sequence[Any]:
        """Have the server make steps. This is a sign of life, too, and a full server accepts it."""
        signed = self._signed
        known, *replies = await self._send((self.name, EAR_MS, steps))
        if signed and not known:
            # the server took this listener for dead, and skipped it
            self._enter_all()
        self._signed = True
        return replies

    def _start_listening(self, *, missed: bool) -> None:
        if not self._closed:
            self._hearing = asyncio.ensure_future(self._listen(missed=missed))
            self._tasks.add(self._hearing)
            self._hearing.add_done_callback(self._tasks.discard)

    async def _listen(self, *, missed: bool) -> None:
        """Listen until another task does, or the store is closed; connects again when the connection is lost."""
        failures = 1 if missed else 0
        while self._is_hearing():
            if failures:
                await asyncio.sleep(self._server.pause_s(failures))
            wire: RedisWire | None = None
            try:
                wire = await self._server.listening(_SIGN_S)
                if failures:
                    self._signed = False  # all subscriptions enter again below, once
                await self._make_steps(())
                if failures:
                    self._enter_all()
                    await self.settled()
                    failures = 0
                await self._listen_on(wire)
            except Exception as error:  # noqa: BLE001 - listening must go on
                if not failures and not is_passing(error):
                    log.warning("%s: listening for wakes failed (%s)", self._server.address.shown, error)
                failures += 1
            finally:
                if wire is not None:
                    await wire.close()

    async def _listen_on(self, wire: RedisWire) -> None:
        """Listen on one connection until it is lost."""
        loop = asyncio.get_running_loop()
        signed = renewed = loop.time()
        while self._is_hearing():
            reply: Any = await wire.ask("BLMPOP", _SIGN_S, 1, self._list, "LEFT", "COUNT", _MOST_WAKES)
            if reply:
                for text in reply[1]:
                    self._deliver(text)
                # their claims go first: a woken worker needs a job before the next wake
                for _ in range(_STEPS_TO_CLAIM):
                    await asyncio.sleep(0)
            now = loop.time()
            if now - signed >= _SIGN_S:
                await self._make_steps(())
                signed = now
            if now - renewed >= _RENEW_S:
                self._enter_all(quietly=True)
                renewed = now

    def _is_hearing(self) -> bool:
        """Whether the current task is the one that listens: an earlier one may not have received its cancellation."""
        return self._hearing is asyncio.current_task()

    def _deliver(self, text: bytes) -> None:
        name, _, rest = text.partition(b" ")
        with self.lock:
            subscription = self._all.get(name.decode())
        if subscription is None:
            return
        tick, _, queue = rest.partition(b" ")
        subscription.ring(queue.decode() if rest else None, int(tick) if tick else 0)

    def _enter_all(self, *, quietly: bool = False) -> None:
        """All subscriptions enter again; and are woken, unless no wake can have been missed."""
        with self.lock:
            subscriptions = list(self._all.values())
        for subscription in subscriptions:
            for step in (subscription.entering(), subscription.sleeping()):
                if step is not None:
                    subscription.begins()
                    self._add(subscription, step)
            if not quietly:
                subscription.ring(None, 0)


class RedisSubscription:
    """One subscriber of some topics; see `port.Wake`. Used on one loop, and rung from the store's own loop."""

    def __init__(self, listener: RedisListener, name: str, topics: tuple[str, ...]) -> None:
        self.name = name
        self._listener = listener
        self._queues = [topic.removeprefix("queue:") for topic in topics if topic.startswith("queue:")]
        self._topics = [topic for topic in topics if not topic.startswith("queue:")]
        self._ticks = [0] * len(self._queues)
        self._entered = False
        self._rung = False
        self._rung_for: set[str] = set()
        """queues that chose this subscription for a row"""
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self._open_steps = 0
        """begun, and without a reply yet"""
        self._is_up = False
        """the wake itself made it rise: it slept for one queue, and that queue removed it"""

    async def wait(self, timeout_s: float) -> bool:
        with self._listener.lock:
            if self._heard():
                return True
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            self._is_up = False
        if self._queues:
            self._listener.step(self, self._step_to_sleep())
        timer = asyncio.get_running_loop().call_later(timeout_s, _finish, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            with self._listener.lock:
                self._waiter = None
                heard, is_up = self._rung, self._is_up
            if self._queues and not is_up:
                self._listener.step(self, ["rise", self.name, self._queues, heard])
        with self._listener.lock:
            return self._heard()

    async def close(self) -> None:
        with self._listener.lock:
            if self._closed:
                return
            self._closed = True
            asleep = self._waiter is not None
        self._listener.forget(self)
        self._listener.step(self, ["leave", self.name, self._queues, self._topics, [], asleep])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- for the listener -----------------------------------------------------------------------

    def entering(self) -> Step:
        return ["enter", self.name, self._queues, self._topics]

    def sleeping(self) -> Step | None:
        """The step back to sleep, if it sleeps."""
        with self._listener.lock:
            self._is_up = False
            return self._step_to_sleep() if self._waiter is not None and self._queues else None

    def begins(self) -> None:
        """A step was begun."""
        with self._listener.lock:
            self._open_steps += 1

    def ended(self) -> None:
        """A step was made, or dropped."""
        with self._listener.lock:
            self._open_steps -= 1

    def ready_to_send(self, step: Step) -> Step:
        """A step with the current state, which includes the replies to earlier steps."""
        if step[0] == "sleep":
            return [*step, self._ticks if self._entered else False]
        if step[0] == "leave":
            with self._listener.lock:
                return [*step[:4], sorted(self._rung_for), step[5]]
        return step

    def answered(self, step: Step, reply: Sequence[Any]) -> None:
        """The server made a step."""
        if step[0] == "rise":
            for queue in reply:
                self.ring(queue.decode(), 0)
        if step[0] == "enter":
            first, self._entered = not self._entered, True
            if first:
                self._ticks[:] = reply
        if step[0] in ("enter", "sleep") and list(reply) != self._ticks:
            self.ring(None, 0)
            self._ticks[:] = reply

    def ring(self, queue: str | None, tick: int) -> None:
        """Wake it, on the store's own loop. `queue` is the one that chose it."""
        fresh = False
        if queue in self._queues:
            index = self._queues.index(queue)
            fresh = tick > self._ticks[index]
            self._ticks[index] = max(tick, self._ticks[index])
        with self._listener.lock:
            self._rung = True
            # a wake of an earlier sleep may arrive late: only a newer one has ended this sleep
            self._is_up = fresh and not self._open_steps and len(self._queues) == 1
            if queue is not None:
                self._rung_for.add(queue)
            waiter = self._waiter
        if waiter is None:
            return
        if waiter.get_loop() is self._listener.loop:
            _finish(waiter)
            return
        with contextlib.suppress(RuntimeError):  # its loop was closed
            waiter.get_loop().call_soon_threadsafe(_finish, waiter)

    def _step_to_sleep(self) -> Step:
        return ["sleep", self.name, self._queues]

    def _heard(self) -> bool:
        """Under the lock: whether it was rung; its caller claims now."""
        rung, self._rung = self._rung, False
        self._rung_for.clear()
        return rung


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)

"""Waking idle processes: the listening side. The keys, and the telling side, are in `lua/prelude.lua`.

An open store is one listener. All its subscriptions hear through one list, on which one connection blocks. What the
subscriptions do (enter, sleep, rise, leave) goes to the server in order, many steps in one script; whoever uses the
store after a step was begun waits until it is done, so that "subscribe, then read" is exact.

A subscription sleeps for a queue only while it waits. Between two waits the ticks of its queues tell whether it missed
something: so a worker that was woken goes and claims at once, without registering anew first.

When the connection was lost, or the server had taken us for dead, something may have been missed: then everybody
enters anew and is woken once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from threading import Lock
from types import TracebackType
from typing import Any, Self

from ..store_loop import StoreLoop
from .connection import RedisServer
from .errors import is_passing
from .wire import RedisWire

log = logging.getLogger("mainstay.stores.redis")

#: a listener that shows no sign of life for this long is passed over
EAR_MS = 10_000
#: it shows one this often, while nothing else happens
_SIGN_S = 3.0
#: what is watched expires after an hour unless it is renewed
_RENEW_S = 1200.0
_MOST_TOLD = 100
#: so many turns of the loop after a wake its claim is on its way
_STEPS_TO_CLAIM = 3
_MOST_STEPS = 500

Step = list[Any]
#: has the server run the script `wake`: [listener, how long it may be silent, steps] -> whether the listener was known
#: to live, then an answer for each step
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
        # of the home loop:
        self._steps: list[tuple[RedisSubscription, Step]] = []
        self._sending: asyncio.Task[None] | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._away = False
        self._closed = False

    # -- from any thread ------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str]) -> RedisSubscription:
        self._home.check_open()
        found = RedisSubscription(self, f"{next(self._numbers)}", tuple(dict.fromkeys(topics)))
        with self.lock:
            self._all[found.name] = found
        self.step(found, found.entering())
        return found

    def step(self, who: RedisSubscription, step: Step) -> None:
        """Have a step made. Steps are made in the order they come here."""
        who.begins()

        async def add() -> None:
            self._add(who, step)

        self._home.spawn(add)

    def forget(self, who: RedisSubscription) -> None:
        with self.lock:
            self._all.pop(who.name, None)

    # -- on the home loop -----------------------------------------------------------------------

    async def settled(self) -> None:
        """Wait until all steps that were begun are made. Every other call of the store waits for this first."""
        if self._sending is not None:
            await asyncio.shield(self._sending)

    async def close(self) -> None:
        began, self._hearing, self._closed = self._hearing is not None, None, True
        while self._tasks:
            # more than once: the driver loses a cancellation that comes just as an answer does
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(tuple(self._tasks), timeout=0.1)
        self._server.hurry()
        await self.settled()
        if began:
            with contextlib.suppress(Exception):  # what is left expires by itself
                await self._server.call(lambda wire: wire.ask("DEL", self._ear, self._list))

    def _add(self, who: RedisSubscription, step: Step) -> None:
        self._steps.append((who, step))
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send_all())
        if self._hearing is None:
            self._begin_to_hear(missed=False)

    async def _send_all(self) -> None:
        """Send steps until none is left. If the server cannot be reached they are dropped: when it is back, everybody
        enters anew."""
        part: list[tuple[RedisSubscription, Step]] = []
        try:
            while self._steps:
                part, self._steps = self._steps[:_MOST_STEPS], self._steps[_MOST_STEPS:]
                steps = [who.ready_to_send(step) for who, step in part]
                answers = await self._show(steps)
                self._away = False
                for (who, step), answer in zip(part, answers, strict=True):
                    who.answered(step, answer)
                    who.ended()
                part = []
        except Exception as error:  # noqa: BLE001 - whoever waits must not hang, and finds the jobs by its poll
            if not self._away:
                log.warning("who waits for jobs cannot be registered, so they are polled for: %s", error)
            self._away = True
            for who, _ in (*part, *self._steps):
                who.ended()
            self._steps.clear()
            self._enter_anew_later()
        finally:
            self._sending = None

    async def _show(self, steps: Sequence[Step]) -> Sequence[Any]:
        """Have steps made; which is a sign of life, too, and a server that is full takes it."""
        signed = self._signed
        known, *answers = await self._send((self.name, EAR_MS, steps))
        if signed and not known:
            # it had taken us for dead, and passed us over
            self._add_everybody()
        self._signed = True
        return answers

    def _enter_anew_later(self) -> None:
        if self._hearing is not None:
            self._hearing.cancel()
        self._begin_to_hear(missed=True)

    def _begin_to_hear(self, *, missed: bool) -> None:
        if not self._closed:
            self._hearing = asyncio.ensure_future(self._hear(missed=missed))
            self._tasks.add(self._hearing)
            self._hearing.add_done_callback(self._tasks.discard)

    async def _hear(self, *, missed: bool) -> None:
        """Listen until another one does, or the store is closed; connect again whenever the connection is lost."""
        failures = 1 if missed else 0
        while self._is_hearing():
            if failures:
                await asyncio.sleep(self._server.pause_s(failures))
            wire: RedisWire | None = None
            try:
                wire = await self._server.listening(_SIGN_S)
                if failures:
                    self._signed = False  # everybody enters anew anyway, once
                await self._show(())
                if failures:
                    self._add_everybody()
                    await self.settled()
                    failures = 0
                await self._hear_on(wire)
            except Exception as error:  # noqa: BLE001 - the only way to hear again is to go on
                if not failures and not is_passing(error):
                    log.warning("%s: listening for wakes failed (%s)", self._server.address.shown, error)
                failures += 1
            finally:
                if wire is not None:
                    await wire.close()

    async def _hear_on(self, wire: RedisWire) -> None:
        """Listen on one connection until it is lost."""
        loop = asyncio.get_running_loop()
        signed = renewed = loop.time()
        while self._is_hearing():
            found: Any = await wire.ask("BLMPOP", _SIGN_S, 1, self._list, "LEFT", "COUNT", _MOST_TOLD)
            if found:
                for told in found[1]:
                    self._told(told)
                # their claims go first: who is woken wants a job, and only then the next wake
                for _ in range(_STEPS_TO_CLAIM):
                    await asyncio.sleep(0)
            now = loop.time()
            if now - signed >= _SIGN_S:
                await self._show(())
                signed = now
            if now - renewed >= _RENEW_S:
                self._add_everybody(quietly=True)
                renewed = now

    def _is_hearing(self) -> bool:
        """Whether the task that asks is the one that listens: one that was told to stop may not have heard it."""
        return self._hearing is asyncio.current_task()

    def _told(self, text: bytes) -> None:
        name, _, rest = text.partition(b" ")
        with self.lock:
            who = self._all.get(name.decode())
        if who is None:
            return
        tick, _, queue = rest.partition(b" ")
        who.ring(queue.decode() if rest else None, int(tick) if tick else 0)

    def _add_everybody(self, *, quietly: bool = False) -> None:
        """Everybody enters anew; and is woken, unless nothing can have been missed."""
        with self.lock:
            everybody = list(self._all.values())
        for who in everybody:
            for step in (who.entering(), who.sleeping()):
                if step is not None:
                    who.begins()
                    self._add(who, step)
            if not quietly:
                who.ring(None, 0)


class RedisSubscription:
    """One subscriber of some topics; see `port.Wake`. It may be used on one loop, and is rung from the home loop."""

    def __init__(self, listener: RedisListener, name: str, topics: tuple[str, ...]) -> None:
        self.name = name
        self._listener = listener
        self._queues = [topic.removeprefix("queue:") for topic in topics if topic.startswith("queue:")]
        self._topics = [topic for topic in topics if not topic.startswith("queue:")]
        self._ticks = [0] * len(self._queues)
        self._entered = False
        self._rung = False
        self._rung_for: set[str] = set()
        """queues that chose this one for a row"""
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self._open_steps = 0
        """begun, and not answered yet"""
        self._is_up = False
        """the wake itself has made it rise: it slept for one queue, and that queue took it out"""

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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- for the listener -----------------------------------------------------------------------

    def entering(self) -> Step:
        return ["enter", self.name, self._queues, self._topics]

    def sleeping(self) -> Step | None:
        """The step back to sleep, for one that sleeps."""
        with self._listener.lock:
            self._is_up = False
            return self._step_to_sleep() if self._waiter is not None and self._queues else None

    def begins(self) -> None:
        """A step is on its way."""
        with self._listener.lock:
            self._open_steps += 1

    def ended(self) -> None:
        """A step was made, or dropped."""
        with self._listener.lock:
            self._open_steps -= 1

    def ready_to_send(self, step: Step) -> Step:
        """A step with what is known by the time it is sent: the answers to earlier ones may have come since."""
        if step[0] == "sleep":
            return [*step, self._ticks if self._entered else False]
        if step[0] == "leave":
            with self._listener.lock:
                return [*step[:4], sorted(self._rung_for), step[5]]
        return step

    def answered(self, step: Step, answer: Sequence[Any]) -> None:
        """The server made a step."""
        if step[0] == "rise":
            for queue in answer:
                self.ring(queue.decode(), 0)
        if step[0] == "enter":
            first, self._entered = not self._entered, True
            if first:
                self._ticks[:] = answer
        if step[0] in ("enter", "sleep") and list(answer) != self._ticks:
            self.ring(None, 0)
            self._ticks[:] = answer

    def ring(self, queue: str | None, tick: int) -> None:
        """Wake it; on the home loop. `queue` is the one that chose it."""
        fresh = False
        if queue in self._queues:
            place = self._queues.index(queue)
            fresh = tick > self._ticks[place]
            self._ticks[place] = max(tick, self._ticks[place])
        with self._listener.lock:
            self._rung = True
            # a wake of an earlier sleep may come late: only one that is newer than this sleep has ended it
            self._is_up = fresh and not self._open_steps and len(self._queues) == 1
            if queue is not None:
                self._rung_for.add(queue)
            waiter = self._waiter
        if waiter is None:
            return
        if waiter.get_loop() is self._listener.loop:
            _finish(waiter)
            return
        with contextlib.suppress(RuntimeError):  # its loop was closed: nobody is there to be woken
            waiter.get_loop().call_soon_threadsafe(_finish, waiter)

    def _step_to_sleep(self) -> Step:
        return ["sleep", self.name, self._queues]

    def _heard(self) -> bool:
        """Under the lock: whether it was rung; it goes and looks now."""
        rung, self._rung = self._rung, False
        self._rung_for.clear()
        return rung


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)

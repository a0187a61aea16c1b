"""The subscriptions of this process, and the wakes after a commit.

A store is one listener with a channel of its own (LISTEN). The table `listeners` has the topics of each listener. After
a commit the writer wakes the subscribers of its own process directly. Then a small statement off the critical path
makes the server notify as many listeners of other processes as there are rows left; statements in quick succession are
combined. A single job wakes one of them with its own commit if possible.

A wake that is lost with a connection or a process is made up for: when the connection is reopened, all subscribers are
woken once, and workers poll from time to time anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import random
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ....errors import MainstayError
from ...change_check import topics as topics_of
from ...port import Wake, Written
from ...store_loop import StoreLoop
from ..connection.engine import PostgresEngine
from ..connection.permanent import PermanentConnection
from ..connection.pool import Db
from .listeners import ListenerTable

log = logging.getLogger("mainstay.stores.postgres")

#: wakes in quicker succession are combined
_GATHER_S = 0.003
_MOST_TOPICS = 5000
_QUEUE, _JOB = "queue:", "job:"
#: Thousands of jobs settle for each one with a listener: without any listener of a job, the ids are not even split.
_RING = (
    "SELECT topic, n FROM mainstay.ring($1::text[] || CASE WHEN EXISTS ("
    "SELECT FROM mainstay.listeners l WHERE l.topic >= 'job:' AND l.topic < 'job;' AND l.listener <> $4"
    ") THEN ARRAY(SELECT 'job:' || g.id FROM string_to_table($3, ' ') AS g (id)) END, $2, $4)"
)


def shared_channel(schema: str) -> str:
    """The channel on which a user's transaction names the queues of its jobs; all listeners receive it."""
    return f"mainstay:{schema}"


class Board:
    """All subscriptions of one open store, and the sending side."""

    def __init__(
        self,
        engine: PostgresEngine,
        home: StoreLoop,
        line: PermanentConnection | None,
        *,
        rng: random.Random | None = None,
    ) -> None:
        self._engine = engine
        self._home = home
        self.loop = home.loop
        self._rng = rng or random.Random()
        self.name = os.urandom(8).hex()
        self.lock = threading.Lock()
        self._subscribers: dict[str, dict[PostgresWake, None]] = {}
        self._closed = False
        self._to_ring: Counter[str] = Counter()
        self._numbers = itertools.count()
        self._last = -1
        """the youngest subscriber at the time when `_to_ring` got its last topic"""
        self._ringing: asyncio.Task[None] | None = None
        self._registration: ListenerTable | None = None
        """None: poll-only. Subscribers of this process are still woken"""
        if line is not None:
            self._registration = ListenerTable(self.name, engine, home, line, wanted=self._wanted, look=self._look)
            line.on_open.append(self._join)
            line.on_check.append(self._registration.stay)

    # -- from any thread ----------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str]) -> PostgresWake:
        wake = PostgresWake(self, topics, asyncio.get_running_loop())
        with self.lock:
            wake.number = next(self._numbers)
            for topic in wake.topics:
                self._subscribers.setdefault(topic, {})[wake] = None
        if self._registration is not None:
            # later calls reach the home loop after this, and wait there until it is done
            self._home.loop.call_soon_threadsafe(self._registration.register, wake.topics)
        return wake

    def leave(self, wake: PostgresWake) -> None:
        """Remove a subscriber. A wake of a queue that it has not used is passed on to another."""
        with self.lock:
            for topic in wake.topics:
                others = self._subscribers.get(topic, {})
                others.pop(wake, None)
                if not others:
                    self._subscribers.pop(topic, None)
            unheard = Counter({topic: 1 for topic in wake.rung if topic.startswith(_QUEUE)})
        with contextlib.suppress(RuntimeError):  # the store was closed
            self._home.loop.call_soon_threadsafe(self._left, unheard)

    def waits(self) -> None:
        """A subscriber has begun to wait."""
        if self._registration is not None:
            self._registration.settle()

    # -- on the home loop: sending --------------------------------------------------------------

    def committed(self, written: Sequence[Written], woken: Counter[str]) -> None:
        """After a commit: wake the subscribers that wait for the written rows."""
        found = Counter(woken)
        for before, after, _ in written:
            for topic in topics_of(before, after):
                found[topic] += 1
        self.wake(found)

    def ringer(self, topic: str) -> str | None:
        """Our name, if the commit should wake a listener of this topic; None if we cannot listen, or have a
        subscriber."""
        return self.name if self._registration is not None and topic not in self._subscribers else None

    def wake(self, woken: Counter[str]) -> None:
        for topic, n in woken.items():
            if n <= 0:
                continue
            if not topic.startswith(_QUEUE):
                self._wake_here(topic, None)
                self._to_ring[topic] = 1
            elif left := n - self._wake_here(topic, n, waiting=True):
                self._to_ring[topic] += left
        with self.lock:
            self._last = next(self._numbers)
        if self._to_ring and self._ringing is None and not self._closed:
            self._ringing = asyncio.get_running_loop().create_task(self._ring())

    async def _ring(self) -> None:
        try:
            while self._to_ring:
                some, last = dict(list(self._to_ring.items())[:_MOST_TOPICS]), self._last
                for topic in some:
                    del self._to_ring[topic]
                for topic, n in (await self._wake_elsewhere(some)).items():
                    self._wake_here(topic, n, last=last)
                await asyncio.sleep(_GATHER_S)
        finally:
            self._ringing = None

    async def _wake_elsewhere(self, some: dict[str, int]) -> dict[str, int]:
        """Make the server wake other processes; returns the topics for which it found no listener."""
        try:
            jobs = " ".join(topic.removeprefix(_JOB) for topic in some if topic.startswith(_JOB))
            others = {topic: n for topic, n in some.items() if not topic.startswith(_JOB)}
            rows = await self._engine.call(_RING, list(others), list(others.values()), jobs, self.name, lasting=False)
        except MainstayError as error:
            log.info(
                "%s: other processes could not be notified (%s); they will poll", self._engine.address.shown, error
            )
            return some
        return {row[0]: row[1] for row in rows}

    def _wake_here(self, topic: str, most: int | None, *, waiting: bool = False, last: int | None = None) -> int:
        """Wake at most `most` subscribers of this process (None: all): waiting ones before busy ones, or only `waiting`
        ones; none that subscribed after `last`. Returns how many."""
        if topic not in self._subscribers:  # nearly always: thousands of jobs settle for each one with a subscriber
            return 0
        woken = 0
        with self.lock:
            candidates = [wake for wake in self._subscribers.get(topic, ()) if most is None or not wake.rung]
            if waiting:
                candidates = [wake for wake in candidates if wake.waiting]
            if last is not None:
                candidates = [wake for wake in candidates if wake.number < last]
            self._rng.shuffle(candidates)
            candidates.sort(key=lambda wake: not wake.waiting)
            for wake in candidates:
                if woken == most:
                    break
                woken += wake.ring(topic)
        return woken

    # -- on the home loop: listening ------------------------------------------------------------

    async def ready(self) -> None:
        """Wait until all subscriptions so far are registered, or cannot be for now."""
        if self._registration is not None:
            await self._registration.ready()

    async def close(self) -> None:
        self._closed = True
        if self._ringing is not None:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                async with asyncio.timeout(2):
                    await self._ringing
        if self._registration is not None:
            await self._registration.close()

    def _left(self, unheard: Counter[str]) -> None:
        if unheard:
            self.wake(unheard)
        if self._registration is not None:
            self._registration.settle_soon()

    def _wanted(self) -> dict[str, bool]:
        """The topics of this process, and whether a subscriber waits for them."""
        with self.lock:
            return {topic: any(wake.waiting for wake in wakes) for topic, wakes in self._subscribers.items()}

    def _look(self, topics: Iterable[str]) -> None:
        """Wake all subscribers of these topics: a change may have been missed."""
        with self.lock:
            for topic in topics:
                for wake in self._subscribers.get(topic, ()):
                    wake.ring(topic)

    async def _join(self, db: Db) -> None:
        """On each new permanent connection."""
        assert self._registration is not None
        await db.execute(
            "SELECT pg_advisory_lock(hashtextextended($1, 'mainstay.listeners'::regclass::oid::bigint))", self.name
        )
        await db.raw.add_listener(f"mainstay_{self.name}", self._received)
        await db.raw.add_listener(shared_channel(self._engine.address.schema), self._received_from_user)
        await self._registration.joined(db)

    def _received(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        n, _, topic = payload.partition(" ")
        assert self._registration is not None
        self._registration.woken(topic)
        self._wake_here(topic, int(n) if topic.startswith(_QUEUE) else None)

    def _received_from_user(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        self._wake_here(f"{_QUEUE}{payload}", 1)


class PostgresWake(Wake):
    """One subscription; see the port for its contract."""

    def __init__(self, board: Board, topics: Sequence[str], loop: asyncio.AbstractEventLoop) -> None:
        self._board = board
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None
        self._is_over = False
        self._closed = False
        self.topics = tuple(dict.fromkeys(topics))
        self.number = -1
        self.waiting = False
        self.rung: set[str] = set()
        """the topics it was woken for since its last wait"""

    def ring(self, topic: str) -> bool:
        """On the home loop, under the board's lock; False if the subscriber is gone."""
        first = not self.rung
        self.rung.add(topic)
        if first and self._loop is self._board.loop:
            self._rise()
        elif first:
            try:
                self._loop.call_soon_threadsafe(self._rise)
            except RuntimeError:  # its loop was closed
                return False
        return True

    def _end(self) -> None:
        """The timeout has passed."""
        self._is_over = True
        self._rise()

    def _rise(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, timeout_s: float) -> bool:
        if not (self.rung or self._closed):
            self.waiting = True
            self._board.waits()
            self._is_over = False
            timer = self._loop.call_later(timeout_s, self._end)
            try:
                while not (self.rung or self._is_over):
                    self._waiter = self._loop.create_future()
                    await self._waiter
            finally:  # a cancelled wait keeps its wake: for the next wait, or for other subscribers when it closes
                timer.cancel()
                self.waiting = False
        with self._board.lock:
            woken, self.rung = bool(self.rung), set()
        return woken

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._board.leave(self)

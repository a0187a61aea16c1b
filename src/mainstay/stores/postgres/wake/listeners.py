"""The registration of this process for notifications: its topics, and whether a subscriber waits for them.

The table `listeners` has a row for each topic of each listener. The rows are written on the permanent connection, which
also receives the notifications. So nothing here waits for a row that another transaction has locked to wake us. An
update that is not possible now is repeated a moment later, and subscribers that have read in between look once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import asyncpg

from ...store_loop import StoreLoop
from ..connection.engine import PostgresEngine
from ..connection.permanent import PermanentConnection
from ..connection.pool import Db
from ..connection.timeouts import GATE_S

log = logging.getLogger("mainstay.stores.postgres")

#: a waiting subscriber is registered only after a moment: one that finds work at once never is
_SETTLE_S = 0.01
#: how soon an update is repeated that failed because we were being woken
_SOON_S = 0.05
#: how soon an update is repeated after an error
_AGAIN_S = 1.0


class ListenerTable:
    """The registration of one listener on the server. All methods but `settle` are for the home loop."""

    def __init__(
        self,
        name: str,
        engine: PostgresEngine,
        home: StoreLoop,
        line: PermanentConnection,
        *,
        wanted: Callable[[], Mapping[str, bool]],
        look: Callable[[Iterable[str]], None],
    ) -> None:
        """`wanted` returns the topics and whether a subscriber waits for them; `look` wakes all subscribers of
        topics."""
        self._name = name
        self._engine = engine
        self._home = home
        self._line = line
        self._wanted = wanted
        self._look = look
        self._known: dict[str, bool] = {}
        """the registered topics, and whether they are registered as waiting"""
        self._missing: set[str] = set()
        """topics that are not registered yet, and that calls wait for"""
        self._late: set[str] = set()
        """topics that are not registered yet, and that calls no longer wait for: their subscribers look once when
        they are"""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._settling = False
        self._deaf = False
        """notifications may have been missed while the connection was lost"""
        self._closed = False

    def settle(self) -> None:
        """From any thread: a subscriber has begun to wait."""
        if not self._settling:
            self._settling = True
            with contextlib.suppress(RuntimeError):  # the store was closed
                self._home.loop.call_soon_threadsafe(self.settle_soon)

    def settle_soon(self) -> None:
        self._settling = True
        self._home.loop.call_later(_SETTLE_S, self._settled)

    def register(self, topics: Iterable[str]) -> None:
        """Register these topics."""
        if missing := set(topics) - self._known.keys():
            self._missing |= missing
            self._begin()

    async def ready(self) -> None:
        """Wait until all subscriptions so far are registered, or cannot be for now. A read after that misses no change
        between the two."""
        if not self._missing:
            return
        try:
            async with asyncio.timeout(GATE_S):
                while self._missing and not self._closed:
                    if self._task is None:
                        if not self._line.up:
                            self._deaf = True  # all subscribers look when it is up
                            return
                        self._begin()
                    await self._changed.wait()
        except TimeoutError:
            self._wait_no_longer()

    async def joined(self, db: Db) -> None:
        """The connection was opened: register again, and make all subscribers look once, for missed changes."""
        self._known.clear()
        if (changes := self._changes()) is not None:
            try:
                await self._send(db, *changes)
            except asyncpg.LockNotAvailableError:  # the connection has other uses, too, and stays
                self._wait_no_longer()
                self._home.loop.call_later(_AGAIN_S, self._settled)
        if self._deaf:
            self._look(self._wanted())
        self._deaf = True  # from the loss of this connection to the next one

    async def stay(self, db: Db) -> None:
        await db.execute("SELECT mainstay.listens_still($1)", self._name)

    def woken(self, topic: str) -> None:
        """The process that woke us has reset our mark as waiting."""
        if topic in self._known:
            self._known[topic] = False

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._task
        if self._line.up and self._known:
            with contextlib.suppress(Exception):  # the next process that wakes us finds that we are gone
                async with asyncio.timeout(2):
                    sql = "SELECT mainstay.stop_listening($1, $2)"
                    await self._engine.call(sql, self._name, list(self._known), lasting=False)

    # -- internals ----------------------------------------------------------------------------

    def _settled(self) -> None:
        self._settling = False
        if self._line.up:
            self._begin()

    def _begin(self) -> None:
        if self._task is None and not self._closed:
            self._task = self._home.loop.create_task(self._bring_up_to_date())

    async def _bring_up_to_date(self) -> None:
        try:
            if not await self._line.tried():
                return
            while self._line.up and (changes := self._changes()) is not None:
                wanted, unwanted = changes
                if not await self._line.do(partial(self._send, wanted=wanted, unwanted=unwanted)):
                    self._home.loop.call_later(_SOON_S, self._settled)
                    return
        except Exception as error:  # noqa: BLE001 - the next connection registers again, and until then they poll
            log.info("%s: topics could not be registered (%s)", self._engine.address.shown, error)
            self._wait_no_longer()
            self._home.loop.call_later(_AGAIN_S, self._settled)
        finally:
            self._task = None
            self._notify_waiting()

    def _changes(self) -> tuple[dict[str, bool], list[str]] | None:
        now = self._wanted()
        # the end of a wait is not registered: a wake resets the mark, and the subscriber soon waits again
        wanted = {t: waits for t, waits in now.items() if t not in self._known or (waits and not self._known[t])}
        unwanted = [topic for topic in self._known if topic not in now]
        self._missing &= wanted.keys()
        self._late &= now.keys()
        return (wanted, unwanted) if wanted or unwanted else None

    async def _send(self, db: Db, wanted: Mapping[str, bool], unwanted: list[str]) -> bool:
        """False: some rows could not be updated, because we are being woken at this moment."""
        left: list[str] = []
        if wanted:
            left += await db.fetchval(
                "SELECT mainstay.start_listening($1, $2, $3)", self._name, list(wanted), list(wanted.values())
            )
            self._known.update(wanted)
            self._known.update(dict.fromkeys(left, False))
            self._missing -= wanted.keys()
            self._notify_waiting()
            if late := self._late & wanted.keys():
                self._late -= late
                self._look(late)
        if unwanted:
            kept = await db.fetchval("SELECT mainstay.stop_listening($1, $2)", self._name, unwanted)
            for topic in set(unwanted).difference(kept):
                self._known.pop(topic, None)
            left += kept
        return not left

    def _wait_no_longer(self) -> None:
        self._late |= self._missing
        self._missing.clear()

    def _notify_waiting(self) -> None:
        self._changed.set()
        self._changed.clear()

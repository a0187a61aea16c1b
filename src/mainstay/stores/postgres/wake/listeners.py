"""Saying who listens: which topics this process wants to hear of, and whether somebody waits for them.

The table `listeners` has a row for each topic of each listener. They are written on the store's line, on which the
wakes come, too; so nothing here waits for a row that somebody has locked to wake us. What cannot be said this moment
is said a moment later, and whoever read meanwhile looks once more.
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

#: who waits is told to the server only after a moment: those who find work at once never are
_SETTLE_S = 0.01
#: what could not be said, because we were being woken, is said soon
_SOON_S = 0.05
#: and what failed, after a while
_AGAIN_S = 1.0


class ListenerTable:
    """What the server knows of one listener. All but `settle` is for the home loop."""

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
        """`wanted` tells the topics and whether somebody waits for them; `look` has everybody look who wants these."""
        self._name = name
        self._engine = engine
        self._home = home
        self._line = line
        self._wanted = wanted
        self._look = look
        self._known: dict[str, bool] = {}
        """the topics that are registered, and whether as waiting"""
        self._missing: set[str] = set()
        """topics that the server does not know of yet, and calls wait for"""
        self._late: set[str] = set()
        """those that calls no longer wait for: whoever wants them looks once when they are known"""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._settling = False
        self._deaf = False
        """something may have been missed by the time the line is made"""
        self._closed = False

    def settle(self) -> None:
        """From any thread: somebody has begun to wait."""
        if not self._settling:
            self._settling = True
            with contextlib.suppress(RuntimeError):  # the store was closed
                self._home.loop.call_soon_threadsafe(self.settle_soon)

    def settle_soon(self) -> None:
        self._settling = True
        self._home.loop.call_later(_SETTLE_S, self._settled)

    def register(self, topics: Iterable[str]) -> None:
        """Somebody wants to hear of these from now on."""
        if missing := set(topics) - self._known.keys():
            self._missing |= missing
            self._begin()

    async def ready(self) -> None:
        """Wait until everybody who has subscribed so far will be heard of, or cannot be for now. For what is read
        after that: nothing may change unheard between the two."""
        if not self._missing:
            return
        try:
            async with asyncio.timeout(GATE_S):
                while self._missing and not self._closed:
                    if self._task is None:
                        if not self._line.up:
                            self._deaf = True  # all look when it is up
                            return
                        self._begin()
                    await self._changed.wait()
        except TimeoutError:
            self._wait_no_longer()

    async def joined(self, db: Db) -> None:
        """The line was made: be heard of again, and have everybody look once, for what was missed meanwhile."""
        self._known.clear()
        if (changes := self._changes()) is not None:
            try:
                await self._send(db, *changes)
            except asyncpg.LockNotAvailableError:  # the line is for more than wakes, and stays
                self._wait_no_longer()
                self._home.loop.call_later(_AGAIN_S, self._settled)
        if self._deaf:
            self._look(self._wanted())
        self._deaf = True  # from the end of this line to the next one

    async def stay(self, db: Db) -> None:
        await db.execute("SELECT mainstay.listens_still($1)", self._name)

    def woken(self, topic: str) -> None:
        """Whoever wakes a listener takes the mark away that it waits."""
        if topic in self._known:
            self._known[topic] = False

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._task
        if self._line.up and self._known:
            with contextlib.suppress(Exception):  # whoever rings next finds that nobody hears
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
        except Exception as error:  # noqa: BLE001 - all is said anew when the line is made again, and meanwhile they look
            log.info("%s: cannot say who waits for what (%s)", self._engine.address.shown, error)
            self._wait_no_longer()
            self._home.loop.call_later(_AGAIN_S, self._settled)
        finally:
            self._task = None
            self._tell()

    def _changes(self) -> tuple[dict[str, bool], list[str]] | None:
        now = self._wanted()
        # one that stops to wait says nothing: whoever wakes it takes the mark away, and it is back before long
        wanted = {t: waits for t, waits in now.items() if t not in self._known or (waits and not self._known[t])}
        unwanted = [topic for topic in self._known if topic not in now]
        self._missing &= wanted.keys()
        self._late &= now.keys()
        return (wanted, unwanted) if wanted or unwanted else None

    async def _send(self, db: Db, wanted: Mapping[str, bool], unwanted: list[str]) -> bool:
        """False: some of it could not be said, because we are being woken this moment."""
        unsaid: list[str] = []
        if wanted:
            unsaid += await db.fetchval(
                "SELECT mainstay.start_listening($1, $2, $3)", self._name, list(wanted), list(wanted.values())
            )
            self._known.update(wanted)
            self._known.update(dict.fromkeys(unsaid, False))
            self._missing -= wanted.keys()
            self._tell()
            if late := self._late & wanted.keys():
                self._late -= late
                self._look(late)
        if unwanted:
            left = await db.fetchval("SELECT mainstay.stop_listening($1, $2)", self._name, unwanted)
            for topic in set(unwanted).difference(left):
                self._known.pop(topic, None)
            unsaid += left
        return not unsaid

    def _wait_no_longer(self) -> None:
        self._late |= self._missing
        self._missing.clear()

    def _tell(self) -> None:
        self._changed.set()
        self._changed.clear()

"""The engine: statements and transactions that survive the loss of a connection, and the steps after a commit.

Everything here runs on the store's home loop. Every call of the port can be sent again, so it is after a lost
connection: the server may have executed the first call, and the second one finds out. A claim, whose repetition could
not be recognized, carries a nonce. A transaction that lost against another one (a deadlock) runs again, too.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from ....clock import Clock, SystemClock
from ....errors import StoreUnavailable
from ...change_check import WriteEffects
from ...durability import Durability
from ...port import Written
from ...server_clock import ServerClock
from ..rows.codec import count_arrays
from .address import PostgresAddress
from .durability import COMMITS
from .errors import is_clash, is_lost, translated, unavailable
from .pool import DEFAULT, Db, PostgresPool, begin, read_time

log = logging.getLogger("mainstay.stores.postgres")

T = TypeVar("T")

#: a claim or a beat need not survive a crash of the server: the job is claimed again, and a lost claim cannot end it
_PASSING = "off"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0
#: how often a transaction runs again that keeps losing against others
_MOST_CLASHES = 30
#: connections for calls that must not wait: one for beats, and one for the leadership, which could pass to others
_VITAL = 2
#: how long the server's time is extrapolated before it is read again
_TRUSTED_MS = 60_000


class PostgresTx(WriteEffects):
    """One write transaction: the connection, its time, and what to do after the commit."""

    def __init__(self, db: Db, now_ms: int, lease_ms: int) -> None:
        super().__init__()
        self.db = db
        self.now_ms = now_ms
        self.lease_ms = lease_ms

    async def finish(self) -> None:
        """The last statements before the commit: from here on, other transactions with the same counts wait."""
        for queue_name in await sooner_than_others(self.db, self.soonest, self.now_ms):
            self.woken[f"queue:{queue_name}"] = max(self.woken[f"queue:{queue_name}"], 1)
        counts = count_arrays(self.tallies, self.entered)
        if any(counts):
            await self.db.execute("SELECT mainstay.count_up($1, $2, $3, $4, $5, $6)", *counts, self.now_ms)


async def sooner_than_others(db: Db, soonest: dict[str, int], now_ms: int) -> list[str]:
    """The queues in which these due times come before all others. Sleeping subscribers only know the others."""
    if not soonest:
        return []
    # rows whose time has passed do not count: they stay in a queue that no worker serves
    rows = await db.fetch(
        "SELECT q.queue FROM unnest($1::text[], $2::bigint[]) AS q (queue, due_ms) WHERE NOT EXISTS ("
        "SELECT FROM mainstay.jobs j WHERE j.lane = 2 AND j.queue = q.queue AND j.due_ms > $3 AND j.due_ms < q.due_ms)",
        list(soonest),
        list(soonest.values()),
        now_ms,
    )
    return [row[0] for row in rows]


#: called with the rows that one commit wrote, and with further topics to wake
OnCommit = Callable[[Sequence[Written], Counter[str]], None]
#: the name of the listener that wakes others for a topic with a commit; None if it should not
Ringer = Callable[[str], str | None]


class PostgresEngine:
    """All connections for statements of one open store."""

    def __init__(self, address: PostgresAddress, clock: Clock, *, rng: random.Random | None = None) -> None:
        self.address = address
        self._rng = rng or random.Random()
        self._given = None if isinstance(clock, SystemClock) else clock
        server_clock = ServerClock() if self._given is None else None
        self._server_clock = server_clock
        self.clock: Clock = self._given or server_clock or clock
        """the server's time, or another clock (in tests)"""
        self._pool = PostgresPool(address, server_clock, most=address.pool)
        self._vital = PostgresPool(address, server_clock, most=_VITAL)
        self._heard_ms = 0.0
        self.on_commit: OnCommit = lambda _written, _woken: None
        """called after each commit that wrote rows"""
        self.ringer: Ringer = lambda _topic: None

    @property
    def given_ms(self) -> int | None:
        """The time to pass to a statement; None: the server uses its own clock."""
        return None if self._given is None else self._given.now_ms()

    @property
    def given_lease_ms(self) -> int | None:
        """The same for leases."""
        return None if self._given is None else self._given.lease_ms()

    def level(self, durability: Durability | None, *, lasting: bool = True) -> str:
        """The value of `synchronous_commit` for a requested durability."""
        if not lasting:
            return _PASSING
        level = durability or self.address.durability
        return DEFAULT if level is None else COMMITS[level]

    async def call(
        self,
        sql: str,
        *args: Any,
        lasting: bool = True,
        durability: Durability | None = None,
        vital: bool = False,
    ) -> list[Any]:
        """One statement that is a transaction of its own: one round trip. A statement that is not `lasting` need not
        survive a crash of the server. A `vital` one waits behind no other call: without it, a session counts as
        dead."""
        level = self.level(durability, lasting=lasting)
        pool = self._vital if vital else self._pool

        async def attempt() -> list[Any]:
            async with pool.take(level) as db:
                if self.address.listen:
                    rows = await db.fetch(sql, *args)
                else:
                    await db.raw.execute(begin(self.address, level))
                    rows = await db.fetch(sql, *args)
                    await db.raw.execute("COMMIT")
                await self._keep_time(db)
                return rows

        return await self.again(attempt)

    async def read(self, run: Callable[[Db], Awaitable[T]]) -> T:
        """Several statements that see the same moment. Keep it short: a long one keeps the server from tidying up."""

        async def attempt() -> T:
            async with self._pool.take(self.level(None)) as db:
                await db.raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return await _ended(db, run(db))

        return await self.again(attempt)

    async def read_loosely(self, run: Callable[[Db], Awaitable[T]]) -> T:
        """Long reads: every statement sees its own snapshot."""

        async def attempt() -> T:
            async with self._pool.take(self.level(None)) as db:
                return await run(db)

        return await self.again(attempt)

    async def transact(
        self, run: Callable[[PostgresTx], Awaitable[T]], *, lasting: bool = True, durability: Durability | None = None
    ) -> T:
        """Several statements that are committed together or not at all. `run` may be called more than once, so it must
        have no effects outside of its transaction."""
        level = self.level(durability, lasting=lasting)

        async def attempt() -> tuple[T, PostgresTx]:
            async with self._pool.take(level) as db:
                await db.raw.execute(begin(self.address, level))
                tx = await self._tx(db)
                return await _ended(db, self._filled(tx, run)), tx

        value, tx = await self.again(attempt)
        self.committed(tx.written, tx.woken)
        return value

    def committed(self, written: Sequence[Written], woken: Counter[str] | None = None) -> None:
        """Notify the observer and the waiting subscribers of committed rows."""
        if not written and not woken:
            return
        try:
            self.on_commit(written, woken or Counter())
        except Exception as error:  # noqa: BLE001 - the commit stands all the same
            log.warning("%s: waiting clients could not be notified (%s); they will poll", self._place, error)

    async def again(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until it succeeds, or another try is useless."""
        lost = clashes = 0
        while True:
            try:
                return await attempt()
            except Exception as error:
                if is_clash(error) and clashes < _MOST_CLASHES:
                    clashes += 1
                    await asyncio.sleep(self._rng.uniform(0, 0.002 * min(clashes, 10)))
                    continue
                if not is_lost(error):
                    raise translated(error, self._place) from error
                self._pool.drop_idle()
                self._vital.drop_idle()
                if lost >= self.address.retries:
                    raise _gone(error, self._place, lost + 1) from error
                await asyncio.sleep(wait_s(lost, self._rng))
                lost += 1
                if lost == 1:
                    log.info("%s: the connection was lost (%s); trying again", self._place, error)

    async def close(self) -> None:
        await self._pool.close()
        await self._vital.close()

    # -- internals ----------------------------------------------------------------------------

    @property
    def _place(self) -> str:
        return self.address.shown

    async def _tx(self, db: Db) -> PostgresTx:
        if self._given is not None:
            return PostgresTx(db, self._given.now_ms(), self._given.lease_ms())
        assert self._server_clock is not None
        now_ms = await read_time(db, self._server_clock)
        self._heard_ms = self._server_clock.steady()
        return PostgresTx(db, now_ms, now_ms)

    async def _filled(self, tx: PostgresTx, run: Callable[[PostgresTx], Awaitable[T]]) -> T:
        value = await run(tx)
        await tx.finish()
        return value

    async def _keep_time(self, db: Db) -> None:
        clock = self._server_clock
        if clock is not None and clock.steady() - self._heard_ms > _TRUSTED_MS:
            self._heard_ms = clock.steady()
            await read_time(db, clock)


def wait_s(lost: int, rng: random.Random) -> float:
    """How long to wait before the next try; random, so that many clients do not come back at once."""
    return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0**lost) * rng.uniform(0.5, 1.0)


async def _ended(db: Db, work: Awaitable[T]) -> T:
    """Commit after the work, or roll back if it raises."""
    try:
        value = await work
        await db.raw.execute("COMMIT")
    except Exception:
        if not db.raw.is_closed():
            await db.raw.execute("ROLLBACK")
        raise
    return value


def _gone(error: Exception, place: str, tries: int) -> BaseException:
    found = translated(error, place)
    return unavailable(error, place, tries) if isinstance(found, StoreUnavailable) else found

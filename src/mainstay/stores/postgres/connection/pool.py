"""A small connection pool. Connections are opened when needed and discarded when in doubt.

The driver's own pool resets a connection with an extra round trip after every use. Ours leave nothing behind that would
have to be reset. Each connection records its `synchronous_commit`, so that one round trip per statement is enough for
callers with different levels.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import asyncpg

from ....errors import MainstayError
from ...server_clock import ServerClock
from ..schema.definition import placed
from .address import PostgresAddress
from .timeouts import IDLE_S

#: the server's time in milliseconds
NOW = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
#: `synchronous_commit` as the server is configured
DEFAULT = "DEFAULT"


class Db:
    """A connection whose statements name their tables as `mainstay.jobs`, whatever the schema is called."""

    __slots__ = ("_schema", "level", "raw")

    def __init__(self, raw: Any, schema: str, level: str) -> None:
        self.raw = raw
        self._schema = schema
        self.level = level
        """its `synchronous_commit`"""

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        rows: list[Any] = await self.raw.fetch(placed(sql, self._schema), *args)
        return rows

    async def fetchrow(self, sql: str, *args: Any) -> Any:
        """The first row, or None."""
        return await self.raw.fetchrow(placed(sql, self._schema), *args)

    async def fetchval(self, sql: str, *args: Any) -> Any:
        """The first value of the first row, or None."""
        return await self.raw.fetchval(placed(sql, self._schema), *args)

    async def execute(self, sql: str, *args: Any) -> str:
        """The command's tag, like `UPDATE 3`."""
        tag: str = await self.raw.execute(placed(sql, self._schema), *args)
        return tag


class PostgresPool:
    """At most `most` connections; further callers wait."""

    def __init__(self, address: PostgresAddress, clock: ServerClock | None, *, most: int) -> None:
        self._address = address
        self._most = most
        self._clock = clock
        self._idle: list[Db] = []
        self._used = 0
        self._turns = asyncio.Semaphore(most)

    @contextlib.asynccontextmanager
    async def take(self, level: str) -> AsyncIterator[Db]:
        """A connection with this `synchronous_commit`. It is discarded afterwards if its state is unknown."""
        async with self._turns:
            self._used += 1
            db: Db | None = None
            try:
                db = await self._ready(level)
                yield db
            except BaseException as error:
                # unless the server has answered, a statement may still be running, and another caller could get its
                # result
                if db is not None and not isinstance(error, (asyncpg.PostgresError, MainstayError)):
                    db.raw.terminate()
                raise
            finally:
                self._used -= 1
                if db is not None and not db.raw.is_closed():
                    if db.raw.is_in_transaction():
                        db.raw.terminate()
                    else:
                        self._idle.append(db)

    def drop_idle(self) -> None:
        """Discard idle connections after one was lost: the others are probably lost, too, and each would cost a try."""
        while self._idle:
            self._idle.pop().raw.terminate()

    async def close(self) -> None:
        while self._idle:
            await hang_up(self._idle.pop())

    async def _ready(self, level: str) -> Db:
        self._idle = [db for db in self._idle if not db.raw.is_closed()]
        for place in range(len(self._idle) - 1, -1, -1):  # the most recently used one is the warmest
            if self._idle[place].level == level or not self._address.listen:
                return self._idle.pop(place)
        if not self._idle or len(self._idle) + self._used <= self._most:
            return await connect(self._address, level, self._clock)
        db = self._idle.pop()
        await db.raw.execute(f"SET synchronous_commit TO {level}")
        db.level = level
        return db


async def connect(address: PostgresAddress, level: str = DEFAULT, clock: ServerClock | None = None) -> Db:
    """A new connection, ready for statements. Sets the clock to the server's time."""
    settings = {} if "application_name=" in address.dsn else {"application_name": "mainstay"}
    raw = await asyncpg.connect(
        address.dsn,
        timeout=address.connect_timeout_s,
        # behind a pooler every transaction may get another connection, without our prepared statements
        statement_cache_size=500 if address.listen else 0,
        max_cached_statement_lifetime=0,
        server_settings=settings,
    )
    try:
        async with asyncio.timeout(address.connect_timeout_s):
            _set_keepalive(raw, address.connect_timeout_s)
            if address.listen:
                chosen = {**_settings(address), "synchronous_commit": level}
                await raw.execute(";".join(f"SET {name} TO {value}" for name, value in chosen.items()))
            await raw.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")
            db = Db(raw, address.schema, level)
            if clock is not None:
                await read_time(db, clock)
    except BaseException:
        raw.terminate()
        raise
    return db


async def read_time(db: Db, clock: ServerClock) -> int:
    """Read the server's time into the clock."""
    sent = clock.steady()
    now_ms: int = await db.fetchval(NOW)
    clock.heard(now_ms + 0.5, sent=sent, received=clock.steady())  # it is rounded down to milliseconds
    return now_ms


async def hang_up(db: Db) -> None:
    with contextlib.suppress(Exception):
        await db.raw.close(timeout=2)


def begin(address: PostgresAddress, level: str) -> str:
    """The statement that begins a transaction. Behind a pooler it includes all settings: those of the connection may be
    of another client."""
    text = "BEGIN ISOLATION LEVEL READ COMMITTED"
    if address.listen:
        return text
    chosen = {**_settings(address), "synchronous_commit": level}
    return ";".join([text, *(f"SET LOCAL {name} TO {value}" for name, value in chosen.items())])


def _settings(address: PostgresAddress) -> dict[str, str]:
    return {
        "lock_timeout": str(round(address.lock_timeout_s * 1000)),
        "idle_session_timeout": "0",  # an idle connection of ours is not abandoned
        "idle_in_transaction_session_timeout": str(round(IDLE_S * 1000)),
        "default_transaction_isolation": "'read committed'",
        "jit": "off",
    }


def _set_keepalive(raw: Any, silence_s: float) -> None:
    """Without keepalives, a call to a server that is cut off would wait for minutes."""
    handle = raw._transport.get_extra_info("socket")  # noqa: SLF001 - the driver has no public access to it
    if handle is None or handle.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # on a duplicate: uvloop returns only a wrapper of the socket
    with socket.socket(fileno=os.dup(handle.fileno())) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", 5),
            ("TCP_KEEPINTVL", 2),
            ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", round(max(silence_s, 5) * 1000)),
        ):
            if hasattr(socket, name):
                wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

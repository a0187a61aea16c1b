"""The permanent connection of a store: it listens, and holds the session locks.

It is opened when first needed, and reopened whenever it is lost, at first without delay: until then the locks are free,
and a process without its locks for a second counts as dead. Each user of the connection registers a hook that runs each
time it is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg
import msgspec

from .address import PostgresAddress
from .engine import wait_s
from .errors import is_lost, unavailable
from .pool import Db, connect
from .timeouts import QUICK_S, SOON_S, TRY_S

log = logging.getLogger("mainstay.stores.postgres")

T = TypeVar("T")

#: how often a silent connection is checked
_CHECK_S = 15.0
#: a connection that lasted this long was good
_LASTING_S = 1.0
#: the server must notice that a client is cut off, or the client's locks would stay
_KEEPALIVE = "SET tcp_keepalives_idle TO 5; SET tcp_keepalives_interval TO 2; SET tcp_keepalives_count TO 3"
_WHO = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2"

Hook = Callable[[Db], Awaitable[None]]


class PermanentConnection:
    """A connection that reopens by itself. Runs on the home loop."""

    def __init__(self, address: PostgresAddress, *, rng: random.Random | None = None) -> None:
        self._address = address
        # one try must not use up all the time
        self._hurried = msgspec.structs.replace(address, connect_timeout_s=min(address.connect_timeout_s, TRY_S))
        self._rng = rng or random.Random()
        self.on_open: list[Hook] = []
        """run in turn on each new connection, before it is used for anything else"""
        self.on_check: list[Hook] = []
        """run now and then while it is open"""
        self._db: Db | None = None
        self._who: tuple[int, object] | None = None
        self._busy = asyncio.Lock()
        self._changed = asyncio.Event()
        self._tries = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        return self._db is not None and not self._db.raw.is_closed()

    async def tried(self) -> bool:
        """Whether it is up, after the first try."""
        self._start()
        while not self.up and self._tries == 0:
            await self._changed.wait()
        return self.up

    async def do(self, run: Callable[[Db], Awaitable[T]]) -> T:
        """Use it exclusively as soon as it is up. If it is lost, the work runs again on the next one."""
        self._start()
        while True:
            deadline = self._tries + self._address.retries + 1
            while not self.up:
                if self._tries >= deadline:
                    raise unavailable(ConnectionError("the connection was lost"), self._address.shown, self._tries)
                await self._changed.wait()
            async with self._busy:
                if (db := self._db) is None:
                    continue
                try:
                    return await run(db)
                except Exception as error:
                    if not is_lost(error):
                        raise
                    db.raw.terminate()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    # -- internals ----------------------------------------------------------------------------

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        failures = 0
        lost_s: float | None = None
        while True:
            hurry = lost_s is not None and asyncio.get_running_loop().time() - lost_s < SOON_S
            try:
                db = await connect(self._hurried if hurry else self._address, "off")
            except Exception as error:  # noqa: BLE001 - it retries while the store is open; other calls report what is wrong
                failures += 1
                self._log_failure(failures, error)
            else:
                try:
                    await self._opened(db)
                    self._note(db)
                    opened_s = asyncio.get_running_loop().time()
                    await self._until_lost(db)
                    # a connection that is lost right away is not reopened without a pause
                    lasted = asyncio.get_running_loop().time() - opened_s > _LASTING_S
                    failures = 0 if lasted else failures + 1
                    now_s = asyncio.get_running_loop().time()
                    if lasted or lost_s is None or now_s - lost_s > _CHECK_S:
                        lost_s = now_s
                except Exception as error:  # noqa: BLE001 - as above: the next try may work
                    failures += 1
                    self._log_failure(failures, error)
                finally:
                    self._db = None
                    db.raw.terminate()
            if failures:
                self._note(None)
                pause_s = wait_s(failures - 1, self._rng)
                await asyncio.sleep(min(pause_s, QUICK_S * self._rng.uniform(0.5, 1.0)) if hurry else pause_s)

    async def _opened(self, db: Db) -> None:
        async with asyncio.timeout(self._address.connect_timeout_s * 2):
            await db.raw.execute(_KEEPALIVE)
            if self._who is not None:
                # the rest of the lost connection would keep our locks
                await db.raw.execute(_END, *self._who)
            self._who = tuple(await db.raw.fetchrow(_WHO))
            if self._who[0] != db.raw.get_server_pid():
                log.warning(
                    "%s: a pooler is between this process and the server. Unless it gives each client a connection "
                    "of its own (session mode), add listen=off to the URL",
                    self._address.shown,
                )
            for hook in self.on_open:
                await hook(db)

    async def _until_lost(self, db: Db) -> None:
        lost = asyncio.Event()
        db.raw.add_termination_listener(lambda *_: lost.set())
        while not (lost.is_set() or db.raw.is_closed()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_S):
                    await lost.wait()
                    return
            async with self._busy, asyncio.timeout(self._address.connect_timeout_s):
                for hook in self.on_check:
                    # a locked row is left to the next check, and does not cost the connection
                    with contextlib.suppress(asyncpg.LockNotAvailableError):
                        await hook(db)

    def _note(self, db: Db | None) -> None:
        self._db = db
        self._tries = 0 if db is not None else self._tries + 1
        self._changed.set()
        self._changed.clear()

    def _log_failure(self, failures: int, error: Exception) -> None:
        if failures == 2:
            log.warning("%s: cannot listen (%s); retrying", self._address.shown, error)

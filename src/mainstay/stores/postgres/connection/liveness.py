"""Session locks: they show at once that a process is dead, on any machine.

A process holds an advisory lock for each of its sessions, on a connection that the server closes as soon as the process
ends. The process that beats for the session (usually its supervisor) holds a second lock, as a witness. Free locks
prove a death only if the server itself did not restart, both locks are free, and neither process takes its lock again
within a second: a cut connection is not a dead process. The lease covers what a lock cannot show (a process that hangs,
a failover, a pooler in between). The rule itself is `is_gone` in `sql/sessions.sql`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from ....errors import Conflict, StoreUnavailable
from .permanent import PermanentConnection
from .pool import Db

log = logging.getLogger("mainstay.stores.postgres")

_TRY = "SELECT pg_try_advisory_lock(mainstay.lock_of($1))"
#: a sweep that tests a lock holds it for a moment; and the server may still have our lost connection
_TRIES, _BETWEEN_S = 60, 0.05


class PostgresSessionLocks:
    """The locks of this process's sessions; taken again after each loss of the connection."""

    def __init__(self, line: PermanentConnection | None) -> None:
        self._line = line
        self._held: set[str] = set()
        self._missing: set[str] = set()
        """sessions whose lock the new connection does not hold yet"""
        self._witnessed: set[str] = set()
        """sessions that this process beats for"""
        self._unwitnessed: set[str] = set()
        """those of them whose witness lock this connection does not hold yet"""
        self._dropped: set[str] = set()
        """sessions that it no longer beats for, whose witness lock this connection may still hold"""
        self._witnessing: asyncio.Task[None] | None = None
        if line is not None:
            line.on_open.append(self._take_again)
            line.on_check.append(self._take_missing)
            line.on_check.append(self._witness)

    async def hold(self, session: str) -> bool:
        """Hold a session's lock from now on; False in poll-only mode, which has no locks."""
        if self._line is None:
            return False
        if session not in self._held:
            await self._line.do(lambda db: self._take(db, session))
            self._held.add(session)
        return True

    async def release(self, session: str) -> None:
        if self._line is None or session not in self._held:
            return
        self._held.discard(session)
        self._missing.discard(session)
        if self._line.up:  # otherwise it is already free
            await self._line.do(
                lambda db: db.fetchval("SELECT pg_advisory_unlock(mainstay.lock_of($1))", session),
            )

    def witness(self, sessions: Collection[str]) -> None:
        """Record that this process beats for exactly these sessions. Does not wait: a beat must be fast."""
        wanted = set(sessions)
        if self._line is None or wanted == self._witnessed:
            return
        self._unwitnessed = (self._unwitnessed & wanted) | (wanted - self._witnessed)
        self._dropped = (self._dropped | (self._witnessed - wanted)) - wanted
        self._witnessed = wanted
        if self._witnessing is None:
            self._witnessing = asyncio.get_running_loop().create_task(self._witness_soon())

    async def close(self) -> None:
        if self._witnessing is not None:
            self._witnessing.cancel()
            await asyncio.wait([self._witnessing])

    async def _witness_soon(self) -> None:
        assert self._line is not None
        try:
            wanted = None
            while wanted is not self._witnessed:  # it may change during the call
                wanted = self._witnessed
                await self._line.do(self._witness)
        except StoreUnavailable:
            pass  # the next connection takes the locks
        except Exception as error:  # noqa: BLE001 - without a witness the session's own lock decides
            log.info("no witness lock for the sessions of this worker yet (%s)", error)
        finally:
            self._witnessing = None

    async def _witness(self, db: Db) -> None:
        if self._dropped:
            dropped, self._dropped = sorted(self._dropped), set()
            unlock = "SELECT pg_advisory_unlock(mainstay.witness_of(id)) FROM unnest($1::text[]) AS g (id)"
            await db.execute(unlock, dropped)
        if self._unwitnessed:
            rows = await db.fetch(
                "SELECT id FROM unnest($1::text[]) AS g (id) WHERE pg_try_advisory_lock(mainstay.witness_of(id))",
                sorted(self._unwitnessed),
            )
            self._unwitnessed.difference_update(row[0] for row in rows)

    async def _take(self, db: Db, session: str) -> None:
        if not await db.fetchval(_TRY, session):
            raise Conflict(f"session {session} is open in another process, which is alive; use a fresh id")

    async def _take_again(self, db: Db) -> None:
        self._missing, self._unwitnessed, self._dropped = set(self._held), set(self._witnessed), set()
        await self._witness(db)
        for _ in range(_TRIES):
            await self._take_missing(db)
            if not self._missing:
                return
            await asyncio.sleep(_BETWEEN_S)
        # another connection has them, perhaps our lost one: until we hold them, the lease decides
        await db.execute(
            "UPDATE mainstay.sessions SET locked = false, lost_ms = NULL WHERE id = ANY ($1)", sorted(self._missing)
        )

    async def _take_missing(self, db: Db) -> None:
        if not self._missing:
            return
        rows = await db.fetch(
            "SELECT id FROM unnest($1::text[]) AS g (id) WHERE pg_try_advisory_lock(mainstay.lock_of(id))",
            sorted(self._missing),
        )
        if taken := [row[0] for row in rows]:
            self._missing.difference_update(taken)
            await db.execute("SELECT mainstay.locked_again($1)", taken)

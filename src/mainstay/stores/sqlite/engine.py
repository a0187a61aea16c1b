"""The engine: one writer thread with group commit, and a few readers.

Callers submit functions of a transaction. The writer thread takes all waiting ones, passes the turnstile, runs each in
a savepoint of one transaction, and commits once. A caller gets its result only after the commit, so the result is
durable. A function that raises undoes only its own savepoint. If the whole transaction fails (on a full disk, for
example), each function runs again alone, so that every caller gets its own result.

A transaction that has only beats and claims without a mark is not forced to the disk: a power cut that loses it ends
every claimant, too, and the next forced commit includes it.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

import apsw

from ...clock import Clock
from ...errors import StoreClosed, StoreLocked
from ..change_check import WriteEffects
from .errors import in_our_words, translated
from .sql import first_row
from .turnstile import Turnstile

log = logging.getLogger("mainstay.stores.sqlite")

T = TypeVar("T")

#: The most functions in one commit: bounds how long the first of them waits.
_MOST = 256


class SqliteTx(WriteEffects):
    """One caller's part of a write transaction: the connection, its time, and what to do after the commit."""

    def __init__(self, db: apsw.Connection, clock: Clock) -> None:
        super().__init__()
        self.db = db
        self.now_ms = clock.now_ms()
        self.lease_ms = clock.lease_ms()
        self.has_waits: bool | None = None
        """whether any job waits for another; None: not looked up yet"""

    def part(self) -> SqliteTx:
        """A part that may be undone: its effects count only if `take` adds them."""
        part = copy.copy(self)
        WriteEffects.__init__(part)
        return part

    def take(self, part: SqliteTx) -> None:
        """Add the effects of a part that was not undone."""
        self.add(part)
        self.has_waits = part.has_waits

    def finish(self) -> None:
        """Wake one subscriber of each queue that now has a row which is due sooner than the others."""
        for name, due_ms in self.soonest.items():
            # rows whose time has passed do not count: they stay in a queue that no worker serves
            sooner = "SELECT 1 FROM jobs WHERE lane = 2 AND queue = ? AND due_ms > ? AND due_ms < ? LIMIT 1"
            if first_row(self.db, sooner, (name, self.now_ms, due_ms)) is None:
                self.woken[f"queue:{name}"] = max(self.woken[f"queue:{name}"], 1)


Write = Callable[[SqliteTx], T]
Read = Callable[[apsw.Connection], T]
Undo = Callable[[T], Write[None]]


class _Waiting(Generic[T]):
    """A write that waits for its commit, and the future of its caller, if it has one."""

    __slots__ = ("error", "future", "lasting", "run", "undo", "value")

    def __init__(
        self,
        run: Write[T],
        future: asyncio.Future[T] | None = None,
        undo: Undo[T] | None = None,
        *,
        lasting: bool = True,
    ) -> None:
        self.run = run
        self.future = future
        self.undo = undo
        self.lasting = lasting
        self.value: Any = None
        self.error: BaseException | None = None

    def execute(self, tx: SqliteTx) -> None:
        self.value = self.run(tx)
        tx.finish()


class SqliteEngine:
    """Owns all connections to one database file."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        turnstile: Turnstile,
        connect: Callable[[], apsw.Connection],
        notify: Callable[[list[SqliteTx]], None],
        durable: bool = True,
        refuses: Exception | None = None,
    ) -> None:
        self._path = path
        self._refuses = refuses
        self._durable = durable
        self._forced = True
        self._clock = clock
        self._turnstile = turnstile
        self._connect = connect
        self._notify = notify
        self._jobs: queue.SimpleQueue[_Waiting[Any] | None] = queue.SimpleQueue()
        self._closed = False
        self._door = threading.Lock()
        self._local = threading.local()
        self._reader_connections: list[apsw.Connection] = []
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="mainstay-reader")
        self._db = connect()
        self._writer = threading.Thread(target=self._write_loop, name="mainstay-writer", daemon=True)
        try:
            self._writer.start()
        except BaseException:
            self._db.close()
            raise

    def check_open(self) -> None:
        if self._closed:
            raise self._was_closed()

    def _was_closed(self) -> StoreClosed:
        return StoreClosed(f"the store on {self._path} was closed; open it again")

    async def write(self, run: Write[T], undo: Undo[T] | None = None, *, lasting: bool = True) -> T:
        """Run a function in a write transaction; returns after the commit. A write that is not `lasting` need not
        survive a power cut.

        It does not run if the caller is cancelled before its turn. If the caller is cancelled later, the write stays,
        unless `undo` makes a second write from the result.
        """
        if self._refuses is not None:
            raise self._refuses
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        job = _Waiting(run, future, undo, lasting=lasting)
        with self._door:  # a write after the last one would never be answered
            if self._closed:
                raise self._was_closed()
            self._jobs.put(job)
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled():  # answered, but cancelled before the caller ran again
                self._undo_unheard(job)
            raise

    async def read(self, run: Read[T]) -> T:
        """Run a function on a read connection; all its statements see one snapshot. It must be short: a long read keeps
        the log from being reset."""
        return await self._read(self._run_snapshot, run)

    async def read_loosely(self, run: Read[T]) -> T:
        """Run a long function on a read connection; every statement sees its own snapshot."""
        return await self._read(self._run_read, run)

    async def close(self) -> None:
        """Finish all accepted writes, then close. Safe to call twice."""
        with self._door:
            if self._closed:
                return
            self._closed = True
            self._jobs.put(None)
        await asyncio.to_thread(self._shut)

    # -- internals ----------------------------------------------------------------------------

    async def _read(self, runner: Callable[[Read[T]], T], run: Read[T]) -> T:
        self.check_open()
        return await asyncio.get_running_loop().run_in_executor(self._readers, runner, run)

    def _shut(self) -> None:
        self._writer.join()
        self._readers.shutdown(wait=True)
        for db in self._reader_connections:
            db.close()
        self._db.close()
        self._turnstile.close()

    def _run_read(self, run: Read[T]) -> T:
        with in_our_words(self._path):
            db: apsw.Connection | None = getattr(self._local, "db", None)
            if db is None:
                db = self._local.db = self._connect()
                self._reader_connections.append(db)
            return run(db)

    def _run_snapshot(self, run: Read[T]) -> T:
        def at_one_moment(db: apsw.Connection) -> T:
            db.execute("BEGIN")
            try:
                return run(db)
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

        return self._run_read(at_one_moment)

    def _write_loop(self) -> None:
        stopping = False
        while not stopping:
            job = self._jobs.get()
            batch: list[_Waiting[Any]] = []
            while True:
                if job is None:
                    stopping = True
                elif job.future is None or not job.future.cancelled():
                    batch.append(job)
                if len(batch) >= _MOST:
                    break
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
            if batch:
                self._commit(batch)
                self._deliver(batch)

    def _commit(self, batch: list[_Waiting[Any]]) -> None:
        try:
            effects = self._transact(batch)
        except BaseException as raised:  # noqa: BLE001 - the callers get it; the thread must survive
            error = translated(self._path, raised)
            if len(batch) == 1 or isinstance(error, StoreLocked):
                for job in batch:
                    job.error = error
                return
            for job in batch:
                job.value = job.error = None
                self._commit([job])
            return
        try:
            self._notify(effects)
        except Exception as error:  # noqa: BLE001 - the commit stands even if no subscriber was woken
            log.warning("%s: waiting subscribers could not be notified (%s); they will poll", self._path, error)

    def _transact(self, batch: list[_Waiting[Any]]) -> list[SqliteTx]:
        """Run a batch in one transaction. An error that it raises concerns the whole transaction."""
        db = self._db
        effects: list[SqliteTx] = []
        self._force(batch)
        self._turnstile.enter()
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                alone = len(batch) == 1
                for job in batch:
                    tx = SqliteTx(db, self._clock)
                    if alone:
                        # the transaction itself is the savepoint: an error undoes it
                        job.execute(tx)
                        effects.append(tx)
                    elif self._run_in_savepoint(job, tx):
                        effects.append(tx)
                _flush_counts(db, effects)
                db.execute("COMMIT")
            except BaseException:
                # SQLite itself undoes the transaction after some errors, such as a full disk
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        finally:
            self._turnstile.leave()
        return effects

    def _force(self, batch: list[_Waiting[Any]]) -> None:
        """Set whether the next commit is forced to the disk. It cannot be changed inside a transaction."""
        lasting = False
        for job in batch:
            lasting = lasting or job.lasting
        if self._durable and lasting != self._forced:
            self._db.execute("PRAGMA synchronous = FULL" if lasting else "PRAGMA synchronous = NORMAL")
            self._forced = lasting

    def _run_in_savepoint(self, job: _Waiting[Any], tx: SqliteTx) -> bool:
        db = tx.db
        db.execute("SAVEPOINT one")
        try:
            job.execute(tx)
        except BaseException as error:
            if not db.in_transaction:
                raise
            db.execute("ROLLBACK TO one")
            db.execute("RELEASE one")
            if isinstance(error, apsw.Error) and not isinstance(error, apsw.ConstraintError):
                raise
            job.error = translated(self._path, error)
            return False
        db.execute("RELEASE one")
        return True

    def _deliver(self, batch: list[_Waiting[Any]]) -> None:
        """Pass the results to the callers, with one call per event loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[_Waiting[Any]]] = {}
        for job in batch:
            if job.future is not None:
                by_loop.setdefault(job.future.get_loop(), []).append(job)
            elif job.error is not None:
                log.warning("%s: the write of a cancelled call was not undone: %s", self._path, job.error)
        for loop, jobs in by_loop.items():
            try:
                loop.call_soon_threadsafe(self._resolve, jobs)
            except RuntimeError:  # the loop was closed, and its callers are gone
                for job in jobs:
                    self._undo_unheard(job)

    def _resolve(self, jobs: list[_Waiting[Any]]) -> None:
        for job in jobs:
            if job.future is None or job.future.done():
                self._undo_unheard(job)
            elif job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.value)

    def _undo_unheard(self, job: _Waiting[Any]) -> None:
        if job.undo is None or job.error is not None:
            return
        with self._door:
            # the sessions of a closed store end, and a sweep takes back their jobs
            if not self._closed:
                self._jobs.put(_Waiting(job.undo(job.value)))


def _flush_counts(db: apsw.Connection, effects: list[SqliteTx]) -> None:
    tallies: Counter[tuple[str, str]] = Counter()
    flow: Counter[tuple[int, str]] = Counter()
    for tx in effects:
        for key, n in tx.tallies.items():
            tallies[key] += n
        for status, n in tx.entered.items():
            flow[tx.now_ms // 60_000, status] += n
    db.executemany(
        "INSERT INTO tallies VALUES (?, ?, ?) ON CONFLICT (queue, status) DO UPDATE SET n = n + excluded.n",
        [(*key, n) for key, n in tallies.items() if n],
    )
    db.executemany(
        "INSERT INTO flow VALUES (?, ?, ?) ON CONFLICT (minute, status) DO UPDATE SET n = n + excluded.n",
        [(*key, n) for key, n in flow.items()],
    )

"""SqliteStore: the port on one SQLite file, for one machine and many processes."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import apsw

from ...clock import Clock, SystemClock
from ...errors import StoreDamaged, StoreError, StoreLocked, StoreReadOnly, UnsafeEngine
from ...lifecycle import Chain, Event
from ...model import Job, Leadership, QueueSettings, Schedule, Session
from ...storage import make_private_file, make_private_folder, report_exposed
from ..change_check import admit_claim, given_back
from ..durability import LEVELS, Durability, refused
from ..port import (
    AnyChange,
    Audited,
    ChangeResult,
    ClaimReport,
    Deletion,
    InsertResult,
    NewJob,
    Observer,
    Overdue,
    Page,
    Pulse,
    Query,
    RefusedWrite,
    SealedChange,
    Stats,
    Trimmed,
    TrimPolicy,
    Violation,
    Wake,
)
from ..routes import Offers
from ..sealed_changes import apply_sealed
from ..session_names import admit_session
from ..shutdown import Shutdown
from . import audit, changes as writing, directory, queries, retention, schema, selection, waits
from .engine import SqliteEngine, SqliteTx
from .errors import damage_text, in_our_words
from .liveness import SessionFileLocks
from .path_check import admit_path, side_folder
from .rows import events_of, job_by_id
from .turnstile import Turnstile
from .wake import WakeBoard

log = logging.getLogger("mainstay.stores.sqlite")

#: SQLite versions whose WAL can lose a commit when several processes use it (fixed in 3.51.3)
_WAL_RESET_BUG = ((3, 7, 0), (3, 51, 2))

#: characters that would end the path of a URL
_IN_URL = str.maketrans({"%": "%25", "#": "%23", "?": "%3F"})


class SqliteStore:
    """Jobs in one SQLite file. Open it with `open_store("sqlite:///jobs.db")`.

    A folder `jobs.db-mainstay` beside the file has locks and wake sockets, but no data.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None = None,
        chain: Chain | None = None,
        busy_timeout_s: float = 10.0,
        durable: bool = True,
        migrates: bool = True,
    ) -> None:
        self.path = path
        self.url = f"sqlite:///{str(path).translate(_IN_URL)}"
        self.clock = clock or SystemClock()
        self.chain = chain or Chain()
        self.observer: Observer | None = None
        self.durability = (
            "a write survives a crash of the process and of the machine (WAL, synchronous=FULL); a claim or a beat "
            "need not survive the latter, which ends every worker"
            if durable
            else "a write survives a crash of the process; a power cut may lose the last ones (synchronous=NORMAL)"
        )
        self._busy_timeout_s = busy_timeout_s
        self._durable = durable
        self._migrates = migrates
        self.schema_version = self.schema_found = schema.VERSION
        """the version now, and when the file was opened (0: it was new)"""
        self._ending = Shutdown()
        self._offers = Offers()
        with contextlib.ExitStack() as undo, in_our_words(path):
            admit_path(path, busy_timeout_s=busy_timeout_s)
            self._folder = _made_side_folder(path)
            self._users = _join(self._folder, path)
            undo.callback(os.close, self._users)
            self.findings = self._prepare()
            turnstile = Turnstile(self._folder, timeout_s=busy_timeout_s)
            undo.callback(turnstile.close)
            self._locks = SessionFileLocks(self._folder / "sessions")
            self._board = WakeBoard(self._folder)
            undo.callback(self._board.close)
            self._engine = SqliteEngine(
                path,
                clock=self.clock,
                turnstile=turnstile,
                connect=self._connect,
                notify=self._after_commit,
                durable=durable,
                refuses=self._refusal(),
            )
            undo.pop_all()
        report_exposed(f"the store {path}", [path, *_beside(path), self._folder], beside=True)
        for finding in self.findings:
            log.warning("%s: %s; run: mainstay check --store %s", path, finding, self.url)

    async def close(self) -> None:
        """Finish all accepted calls and release everything. A second call waits for the same end."""
        await self._ending.reach(self._release)

    async def _release(self) -> None:
        await self._engine.close()
        self._board.close()
        self._locks.close()
        os.close(self._users)

    # -- jobs ---------------------------------------------------------------------------------

    def durability_of(self, level: Durability) -> str:
        if level != "local":
            can = LEVELS[: int(self._durable)]
            raise refused(level, "SQLite stores jobs on this machine only, and has no replicas", can=can)
        if not self._durable:
            raise refused(level, "the store was opened with durable=no, so a power cut may lose the last jobs")
        return f"local: {self.durability}"

    async def insert(
        self, jobs: Sequence[NewJob], *, durability: Durability | None = None, lead: Leadership | None = None
    ) -> list[InsertResult]:
        if durability is not None:
            self.durability_of(durability)
        if not jobs and lead is None:
            return []

        def run(tx: SqliteTx) -> list[InsertResult]:
            directory.fence(tx, lead)
            return writing.insert(tx, jobs, self.chain)

        return await self._engine.write(run)

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return await self._engine.read(lambda db: [job_by_id(db, job_id) for job_id in ids])

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 100) -> Page:
        return await self._engine.read(lambda db: queries.find(db, query, cursor, limit))

    async def claim(self, queues: Sequence[str], session: str, n: int, *, mark: str | None = None) -> list[Job]:
        admit_claim(queues)

        def run(tx: SqliteTx) -> list[Job]:
            if mark is None:
                return selection.claim_jobs(tx, queues, session, n, self.chain, self._offers)
            return selection.claim_marked(tx, queues, session, n, self.chain, self._offers, mark)

        return await self._engine.write(
            run,
            # a claim with a mark is sent again, and then gets these jobs
            undo=None if mark is not None else lambda claimed: lambda tx: _give_back(tx, claimed, self.chain),
            # a mark is for a claimer on another machine, which a power cut here does not end
            lasting=mark is not None,
        )

    async def apply(
        self, changes: Sequence[AnyChange], *, lead: Leadership | None = None, together: bool = False
    ) -> list[ChangeResult]:
        async def write(sealed: Sequence[SealedChange]) -> list[ChangeResult]:
            def run(tx: SqliteTx) -> list[ChangeResult]:
                directory.fence(tx, lead)
                return writing.apply_changes(tx, sealed, self.chain, together=together)

            return await self._engine.write(run)

        return await apply_sealed(changes, self.chain, write, together=together)

    async def report(self, reports: Sequence[ClaimReport]) -> list[bool]:
        return await self._engine.write(lambda tx: writing.report(tx, reports)) if reports else []

    async def due(self, queues: Sequence[str]) -> int | None:
        return await self._engine.read(lambda db: queries.due(db, list(queues)))

    async def overdue(self, limit: int = 100) -> list[Overdue]:
        asked_ms = self.clock.lease_ms()
        found, dead = await self._engine.write(lambda tx: directory.overdue(tx, self._locks, limit, asked_ms))
        for session in dead:  # only now: until their death is stored, the free lock is the proof
            self._locks.forget(session)
        return found

    async def events(self, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        return await self._engine.read(lambda db: events_of(db, job_id, after=after, limit=limit))

    async def refusals(self, job_id: str) -> list[RefusedWrite]:
        return await self._engine.read(lambda db: queries.refusals(db, job_id))

    async def awaited(self, job_id: str) -> list[str]:
        return await self._engine.read(lambda db: waits.awaited(db, job_id))

    async def unit_counts(self, parent: str) -> dict[str, int]:
        return await self._engine.read(lambda db: queries.unit_counts(db, parent))

    async def stats(self) -> Stats:
        return await self._engine.read(lambda db: queries.stats(db, self.clock, self.findings))

    async def trim(self, policy: TrimPolicy, *, lead: Leadership | None = None) -> Trimmed:
        def run(tx: SqliteTx) -> Trimmed:
            directory.fence(tx, lead)
            return retention.trim(tx, policy)

        return await self._engine.write(run)

    async def delete(
        self, ids: Sequence[str], *, actor: str, reason: str, versions: Mapping[str, int] | None = None
    ) -> list[Deletion]:
        return await self._engine.write(
            lambda tx: retention.delete(tx, ids, actor=actor, reason=reason, versions=versions, chain=self.chain)
        )

    # -- sessions and leadership ----------------------------------------------------------------

    async def open_session(self, session: Session) -> None:
        self._engine.check_open()
        admit_session(session.id)
        # the lock first: a stored session without one would look dead
        if session.pid == os.getpid() and not session.standing:
            self._locks.hold(session.id)
        await self._engine.write(lambda tx: directory.open_session(tx, session))
        self._offers.opened(session)

    async def beat(self, sessions: Sequence[str], reports: Sequence[ClaimReport] = ()) -> list[Pulse]:
        def run(tx: SqliteTx) -> list[Pulse]:
            writing.report(tx, reports)
            return directory.beat(tx, sessions)

        return await self._engine.write(run, lasting=False)

    async def drain(self, sessions: Sequence[str], *, by: str) -> list[bool]:
        return await self._engine.write(lambda tx: directory.drain(tx, sessions, by))

    async def close_session(self, session: str, *, lead: Leadership | None = None) -> None:
        def run(tx: SqliteTx) -> None:
            directory.fence(tx, lead)
            directory.close_session(tx, session)

        await self._engine.write(run)
        self._offers.closed(session)
        self._locks.release(session)

    async def sessions(self) -> list[Session]:
        return await self._engine.read(directory.sessions)

    async def lead(self, name: str, session: str, ttl_s: float) -> Leadership:
        return await self._engine.write(lambda tx: directory.lead(tx, self._locks, name, session, ttl_s), lasting=False)

    async def resign(self, lead: Leadership) -> None:
        await self._engine.write(lambda tx: directory.resign(tx, lead))

    # -- settings -------------------------------------------------------------------------------

    async def set_queue(self, settings: QueueSettings) -> None:
        await self._engine.write(lambda tx: directory.set_queue(tx, settings))

    async def queues(self) -> list[QueueSettings]:
        return await self._engine.read(directory.queues)

    async def set_limit(self, key: str, most: int | None) -> None:
        await self._engine.write(lambda tx: directory.set_limit(tx, key, most))

    async def limits(self) -> dict[str, int]:
        return await self._engine.read(lambda db: dict(db.execute("SELECT key, most FROM limits ORDER BY key")))

    async def put_schedule(self, schedule: Schedule) -> None:
        await self._engine.write(lambda tx: directory.put_schedule(tx, schedule))

    async def pause_schedule(self, name: str, *, paused: bool) -> bool:
        return await self._engine.write(lambda tx: directory.pause_schedule(tx, name, paused=paused))

    async def schedules(self) -> list[Schedule]:
        return await self._engine.read(directory.schedules)

    async def drop_schedule(self, name: str) -> bool:
        return await self._engine.write(lambda tx: directory.drop_schedule(tx, name))

    async def tick(
        self, name: str, at_ms: int, jobs: Sequence[NewJob], *, lead: Leadership | None = None
    ) -> list[InsertResult] | None:
        def run(tx: SqliteTx) -> list[InsertResult] | None:
            directory.fence(tx, lead)
            return directory.tick(tx, name, at_ms, jobs, self.chain)

        return await self._engine.write(run)

    # -- wake and check -------------------------------------------------------------------------

    def wake(self, topics: Sequence[str]) -> Wake:
        self._engine.check_open()
        return self._board.subscribe(topics)

    async def audit(self, *, after: str = "", limit: int = 500) -> list[Audited]:
        return await self._engine.read(lambda db: audit.audit(db, after, limit))

    async def check(self, *, repair: bool = False, quick: bool = False) -> list[Violation]:  # noqa: ARG002 - as good
        if repair:
            return await self._engine.write(lambda tx: audit.check(tx, self.path, self.chain, repair=True))
        return await self._engine.read_loosely(
            lambda db: audit.check(SqliteTx(db, self.clock), self.path, self.chain, repair=False)
        )

    async def mend(self, found: Audited, after: Job, events: Sequence[Event]) -> bool:
        return await self._engine.write(lambda tx: audit.mend(tx, found, after, events, self.chain))

    def _after_commit(self, effects: Sequence[SqliteTx]) -> None:
        """On the writer's thread. The waiting subscribers come first."""
        try:
            self._board.after_commit(effects)
        finally:
            if self.observer is not None and (written := [row for tx in effects for row in tx.written]):
                self.observer(written)

    # -- opening --------------------------------------------------------------------------------

    def _refusal(self) -> StoreError | None:
        """The error for all writes, if the schema is too old for them."""
        if self.schema_version >= schema.VERSION:
            return None
        return schema.refuse_older(str(self.path), self.schema_version, f"mainstay store migrate '{self.url}'")

    def _connect(self) -> apsw.Connection:
        older = self.schema_version < schema.VERSION
        kind = schema.OlderSchema if older else apsw.Connection
        db = kind(str(self.path), statementcachesize=200)
        db.set_busy_timeout(int(self._busy_timeout_s * 1000))
        db.pragma("synchronous", "FULL" if self._durable else "NORMAL")
        db.pragma("cache_size", -65536)
        db.pragma("temp_store", "MEMORY")
        if isinstance(db, schema.OlderSchema):
            db.supply()
        return db

    def _prepare(self) -> tuple[str, ...]:
        """Create or migrate the database and check it quickly, one process at a time."""
        setup = os.open(self._folder / "setup", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._wait_for(setup)
            # SQLite would make it readable for all users; the files beside it get its permissions
            with contextlib.suppress(OSError):  # SQLite raises a better error
                make_private_file(self.path)
            db = self._connect()
            try:
                if db.readonly("main"):
                    raise StoreReadOnly(f"{self.path} cannot be written; check owner and permissions")
                # a refused database is not changed: its log must not be written into it when we close it
                db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                _check_size(db, self.path)
                schema.admit(db, str(self.path))
                fresh = schema.is_fresh(db)
                self.schema_found = schema.version_of(db)
                if self._migrates or fresh:
                    if db.pragma("journal_mode") != "wal":
                        db.pragma("journal_mode", "WAL")
                    schema.migrate(db)
                    self._log_migrated(schema.version_of(db))
                self.schema_version = schema.version_of(db)
                schema.admit_key(db, self.chain.fingerprint, str(self.path))
                if self.schema_version < schema.VERSION:
                    db.close()
                    db = self._connect()
                small = self.path.stat().st_size <= audit.QUICK_CHECK_BYTES
                damage = audit.check_file(db, self.path, quick=True) if small else []
                return (*damage, *audit.fast_findings(db))
            finally:
                db.close()
        finally:
            os.close(setup)

    def _log_migrated(self, version: int) -> None:
        if 0 < self.schema_found < version:
            log.warning("%s was migrated from schema version %d to %d", self.path, self.schema_found, version)

    def _wait_for(self, setup: int) -> None:
        """Wait until no other process creates or migrates the database. That is rare and short, so polling is
        enough."""
        deadline = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                fcntl.flock(setup, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise StoreLocked(
                        f"another process has been creating or migrating {self.path} for more than "
                        f"{self._busy_timeout_s:g} s; nothing was opened. Wait for it, or look for a hanging process"
                    ) from None
                time.sleep(0.005)
            else:
                return


def _give_back(tx: SqliteTx, claimed: Sequence[Job], chain: Chain) -> None:
    """Release the jobs of a claim whose caller was cancelled."""
    writing.apply_changes(tx, [given_back(job, now_ms=tx.now_ms, chain=chain) for job in claimed], chain)


def _beside(path: Path) -> list[Path]:
    """SQLite's own files beside the database."""
    return [path.with_name(path.name + end) for end in ("-wal", "-shm")]


def _made_side_folder(path: Path) -> Path:
    folder = side_folder(path)
    try:
        make_private_folder(folder, like=path)
    except FileNotFoundError:
        raise StoreError(f"the folder of {path} does not exist; create it first") from None
    except PermissionError as error:
        raise StoreReadOnly(
            f"{folder} cannot be created ({error.strerror}); the folder of the database must be writable"
        ) from error
    return folder


def _join(folder: Path, path: Path) -> int:
    """Register as a user of the file. A version with the WAL-reset bug must be the only one."""
    users = os.open(folder / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    affected = is_affected(sqlite_version())
    try:
        fcntl.flock(users, (fcntl.LOCK_EX if affected else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(users)
        version = ".".join(map(str, sqlite_version()))
        user = f"this process has SQLite {version}" if affected else "that process has a version of SQLite"
        raise UnsafeEngine(
            f"{path} is in use by another process, and {user} with a bug that can lose commits when several "
            "processes share a WAL file (3.7.0 to 3.51.2); nothing was opened. Fix: pip install 'apsw>=3.51.3'"
        ) from None
    return users


def sqlite_version() -> tuple[int, ...]:
    return tuple(int(part) for part in apsw.sqlite_lib_version().split("."))


def is_affected(version: tuple[int, ...]) -> bool:
    first, last = _WAL_RESET_BUG
    return first <= version <= last


def _check_size(db: apsw.Connection, path: Path) -> None:
    """Refuse a truncated file before any row is read."""
    size = path.stat().st_size if path.exists() else 0
    if size == 0:
        return
    pages, page_size = db.pragma("page_count"), db.pragma("page_size")
    wal = path.with_name(path.name + "-wal")
    has_wal = wal.exists() and wal.stat().st_size > 0
    if not has_wal and size < pages * page_size:
        raise StoreDamaged(damage_text(path, f"it has {size} bytes and should have {pages * page_size}"))

"""The baseline: what a careful engineer would write by hand on the same schema, indexes and batch sizes.

No digests, no validation, no lifecycle, no fencing, no counters: SQLite and nothing else. It writes the same rows
and events and commits as durably.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from mainstay.model import IdSource, Lane
from mainstay.stores.sqlite.rows import INSERT_EVENT, INSERT_JOB, JOB_FIELDS, job_values
from mainstay.stores.sqlite.schema import migrate
from mainstay.testing import a_job

_DIGEST = b"\0" * 32
_ID, _DUE, _RANK = (JOB_FIELDS.index(name) for name in ("id", "due_ms", "rank"))
_DETAILS = '{"payload_sha256":"0123456789abcdef0123456789abcdef"}'

CLAIM = (
    "UPDATE jobs SET status = 'running', version = version + 1, token = token + 1, session = 'raw', changed_ms = ?, "
    "claimed_ms = ?, head = ?, lane = 0 WHERE rowid IN "
    "(SELECT rowid FROM jobs WHERE lane = 1 AND queue = 'default' ORDER BY rank LIMIT ?) RETURNING *"
)
COMPLETE = (
    "UPDATE jobs SET status = 'succeeded', version = version + 1, session = NULL, claimed_ms = NULL, changed_ms = ?, "
    "settled_ms = ?, starts = 1, head = ? WHERE id = ? AND version = 2"
)


class RawStore:
    """A connection and a few loops."""

    def __init__(self, path: Path) -> None:
        self.db = apsw.Connection(str(path))
        self.db.set_busy_timeout(30_000)
        self.db.pragma("journal_mode", "WAL")
        self.db.pragma("synchronous", "FULL")
        self.db.pragma("cache_size", -65536)
        migrate(self.db)
        self._ids = IdSource(random.Random())
        self._row = list(job_values(a_job(version=1, lane=Lane.READY, name="bench.task", payload=b"\x81\xa1i\x01")))

    def close(self) -> None:
        self.db.close()

    def submit(self, n: int) -> None:
        """Insert n jobs with their events, in one commit."""
        now = _now()
        rows, events = [], []
        for job_id in self._ids.take(now, n):
            row = self._row.copy()
            row[_ID], row[_DUE], row[_RANK] = job_id, now, now
            rows.append(row)
            events.append((job_id, 1, now, None, "pending", "client", None, 0, "", _DETAILS, _DIGEST))
        self._commit(lambda: self._insert(rows, events))

    def claim(self, n: int) -> list[tuple[Any, ...]]:
        now = _now()
        claimed: list[tuple[Any, ...]] = []

        def write() -> None:
            claimed.extend(self.db.execute(CLAIM, (now, now, _DIGEST, n)))
            events = [(row[0], 2, now, "pending", "running", "raw", None, 1, "", None, _DIGEST) for row in claimed]
            self.db.executemany(INSERT_EVENT, events)

        self._commit(write)
        return claimed

    def complete(self, rows: list[tuple[Any, ...]]) -> None:
        now = _now()

        def write() -> None:
            self.db.executemany(COMPLETE, [(now, now, _DIGEST, row[0]) for row in rows])
            events = [(row[0], 3, now, "running", "succeeded", "raw", None, 1, "", None, _DIGEST) for row in rows]
            self.db.executemany(INSERT_EVENT, events)

        self._commit(write)

    def drain(self, batch: int) -> int:
        """Claim and complete until nothing is left."""
        done = 0
        while rows := self.claim(batch):
            self.complete(rows)
            done += len(rows)
        return done

    def store_settled(self, n: int, progress: Callable[[int], None]) -> None:
        """Fill the file with jobs that ended long ago, three events each. Not timed, so not synced."""
        self.db.pragma("synchronous", "OFF")
        ids = IdSource(random.Random(1))
        done = job_values(a_job("succeeded", version=3, token=1, starts=1, name="bench.task", settled_ms=1))
        moves = ((None, "pending"), ("pending", "running"), ("running", "succeeded"))
        for start in range(0, n, 10_000):
            # a day ago, in order: as a month of work would have left them
            at = _now() - 86_400_000 + start // 1000
            rows, events = [], []
            for job_id in ids.take(at, min(10_000, n - start)):
                row = list(done)
                row[_ID] = job_id
                rows.append(row)
                for seq, (source, to) in enumerate(moves, 1):
                    events.append((job_id, seq, at, source, to, "client", None, min(seq, 2) - 1, "", None, _DIGEST))
            self._commit(lambda rows=rows, events=events: self._insert(rows, events))  # type: ignore[misc]
            progress(start + len(rows))
        self.db.execute(
            "INSERT INTO tallies VALUES ('default', 'succeeded', ?1) "
            "ON CONFLICT (queue, status) DO UPDATE SET n = n + ?1",
            (n,),
        )
        self.db.pragma("synchronous", "FULL")
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _insert(self, rows: list[Any], events: list[Any]) -> None:
        self.db.executemany(INSERT_JOB, rows)
        self.db.executemany(INSERT_EVENT, events)

    def _commit(self, write: Callable[[], None]) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        try:
            write()
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")


def _now() -> int:
    return time.time_ns() // 1_000_000

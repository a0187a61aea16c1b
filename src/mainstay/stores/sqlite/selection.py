"""Selection: which rows are claimed, from stored columns only.

The ready index of a queue is in claim order, so a claim reads as many entries as it takes. Several queues are merged
from their heads: 0.04 ms at 200,000 waiting rows, against 28-39 ms for a sort of all of them.

Jobs of one concurrency key share its slots. A claim counts the held rows of the key, its own included. Rows over the
limit go to the blocked lane, and come back when a slot is freed.

Jobs whose task the session does not have go to the routed lane, and come back when a session with the task claims
(`routes`).
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

import msgspec

from ...errors import InvalidTransition, SessionLost
from ...lifecycle import Chain, Event, claim, promote, table_of
from ...model import Job, Lane, route_of
from ..boot import boot_id
from ..port import MARKS_KEPT
from ..records import DRAINING
from ..routes import EVERYBODY, MOST_ROUTED, Offers
from ..row_codec import JOB_FIELDS
from .damaged_text import read_rows
from .engine import SqliteTx
from .rows import CLAIM_JOB, INSERT_EVENT, event_values, job_by_id, job_from
from .sql import Row, all_rows, first_row, value

log = logging.getLogger("mainstay.stores.sqlite")

_DUE_BATCH = 500
#: the most rows of full keys that one claim blocks, and the most rows that one write frees: a write must stay short
_MOST_BLOCKED = 1000
_MOST_FREED = 10_000
_decode_marks = msgspec.json.Decoder(list[tuple[str, list[tuple[str, int]]]]).decode
_LIVING = f"SELECT {', '.join(DRAINING)} FROM sessions WHERE id = ? AND dead = 0"
_order = itemgetter(JOB_FIELDS.index("rank"), JOB_FIELDS.index("due_ms"), -1)


def claim_jobs(tx: SqliteTx, queues: Sequence[str], session: str, n: int, chain: Chain, offers: Offers) -> list[Job]:
    """Take up to n rows for a live session; none if it was asked to drain."""
    found = first_row(tx.db, _LIVING, (session,))
    if found is None:
        raise SessionLost(session)
    if n < 1 or found[0] is not None:
        return []
    paused = {row[0] for row in all_rows(tx.db, "SELECT name FROM queues WHERE paused")}
    open_queues = [name for name in dict.fromkeys(queues) if name not in paused]
    for name in _queues_with(tx, open_queues, "lane = 2 AND due_ms <= ?2", tx.now_ms):
        promote_due(tx, name, chain)
    tasks = offers.tasks_of(session)
    _bring_back(tx, open_queues, tasks, n)
    limits = Slots(tx)
    strangers = Strangers(tx, tasks, offers)
    jobs: list[Job] = []
    updates: list[tuple[object, ...]] = []
    written: list[tuple[Job | None, Job, tuple[Event, ...]]] = []
    for row in _heads(tx, _queues_with(tx, open_queues, "lane = 1"), n):
        rowid = row[-1]
        job = _usable(tx, rowid, row)
        if job is None:
            continue
        if (tasks is not None and strangers.route(job, rowid)) or (
            job.concurrency_key is not None and not limits.take(job.concurrency_key, rowid)
        ):
            if limits.blocked == _MOST_BLOCKED or strangers.routed == MOST_ROUTED:
                # end this write; the subscriber that is woken continues from here
                for name in open_queues:
                    tx.wake(f"queue:{name}")
                break
            continue
        try:
            moved = claim(job, session=session, now_ms=tx.now_ms, chain=chain)
        except InvalidTransition as error:
            _set_aside_unless_newer(tx, rowid, job, error)
            continue
        after = moved.job
        updates.append(
            (
                after.status,
                after.reason,
                after.version,
                after.token,
                after.session,
                after.changed_ms,
                after.claimed_ms,
                after.expires_ms,
                after.head,
                after.lane,
                rowid,
            )
        )
        jobs.append(after)
        written.append((job, after, moved.events))
        if len(jobs) == n:
            break  # before the next row is read: it would cost a page
    tx.db.executemany(CLAIM_JOB, updates)
    tx.db.executemany(INSERT_EVENT, [event_values(event) for _, _, events in written for event in events])
    tx.wrote(written)
    return jobs


def claim_marked(
    tx: SqliteTx, queues: Sequence[str], session: str, n: int, chain: Chain, offers: Offers, mark: str
) -> list[Job]:
    """Take up to n rows for a live session; or the rows that it took under this mark before, and still holds."""
    row = first_row(
        tx.db, "SELECT claims FROM claim_marks JOIN sessions ON id = session WHERE id = ? AND dead = 0", (session,)
    )
    claims = dict(_decode_marks(row[0])) if row is not None else {}
    if mark in claims:
        return _still_held(tx, session, claims[mark])
    jobs = claim_jobs(tx, queues, session, n, chain, offers)
    claims[mark] = [(job.id, job.token) for job in jobs]
    kept = list(claims.items())[-MARKS_KEPT:]
    tx.db.execute("INSERT OR REPLACE INTO claim_marks VALUES (?, ?)", (session, msgspec.json.encode(kept).decode()))
    return jobs


def _still_held(tx: SqliteTx, session: str, claimed: Sequence[tuple[str, int]]) -> list[Job]:
    rows = [(job_by_id(tx.db, job_id), token) for job_id, token in claimed]
    return [row for row, token in rows if row is not None and (row.session, row.token) == (session, token)]


def _bring_back(tx: SqliteTx, queues: Sequence[str], tasks: Mapping[str, object] | None, n: int) -> None:
    """Make up to n routed rows ready that the session can run."""
    for queue, kind, name in all_rows(tx.db, "SELECT queue, kind, name FROM routes"):
        if queue not in queues or (tasks is not None and route_of(kind, name) not in tasks):
            continue
        routed = "SELECT rowid FROM jobs WHERE lane = 5 AND queue = ? AND kind = ? AND name = ? ORDER BY rank LIMIT ?"
        back = all_rows(tx.db, routed, (queue, kind, name, n))
        for (rowid,) in back:
            _set_lane(tx, rowid, Lane.READY)
        if len(back) < n:
            tx.db.execute("DELETE FROM routes WHERE queue = ? AND kind = ? AND name = ?", (queue, kind, name))


class Strangers:
    """Rows of one claim whose task its session does not have."""

    def __init__(self, tx: SqliteTx, tasks: Mapping[str, object] | None, offers: Offers) -> None:
        self._tx = tx
        self._tasks = tasks
        self._offers = offers
        self._may: bool | None = None
        self._places: set[tuple[str, str, str]] = set()
        self.routed = 0

    def route(self, job: Job, rowid: int) -> bool:
        """Move a row to the routed lane if the session does not have its task; False if it can be claimed. While a live
        session has no offer, every row can be claimed."""
        if self._tasks is None or route_of(job.kind, job.name) in self._tasks:
            return False
        if self._may is None:
            silent = (
                "SELECT 1 FROM sessions WHERE dead = 0 AND (standing OR boot = ?) "
                "AND id NOT IN (SELECT session FROM offers)"
            )
            self._may = first_row(self._tx.db, silent, (boot_id(),)) is None
        if not self._may:
            return False
        place = (job.queue, job.kind, job.name)
        if place not in self._places:
            self._places.add(place)
            self._tx.db.execute("INSERT OR IGNORE INTO routes VALUES (?, ?, ?)", place)
            self._offers.warn(job)
            self._tx.wake(f"queue:{job.queue}", EVERYBODY)
        _set_lane(self._tx, rowid, Lane.ROUTED)
        self.routed += 1
        return True


def promote_due(tx: SqliteTx, queue: str, chain: Chain) -> None:
    """Make due rows ready. A job leaves its waiting state with an event; a unit waits in its claimable state, and only
    changes lanes."""
    due = all_rows(
        tx.db,
        "SELECT rowid FROM jobs WHERE lane = 2 AND queue = ? AND due_ms <= ? ORDER BY due_ms LIMIT ?",
        (queue, tx.now_ms, _DUE_BATCH),
    )
    for (rowid,) in due:
        _, page = _page(tx, "WHERE rowid = ?", (rowid,))
        job = _usable(tx, rowid, page[0]) if page else None
        if job is None:
            continue
        if job.is_unit:
            _set_lane(tx, rowid, Lane.READY)
            tx.wake(f"queue:{queue}")
            continue
        try:
            moved = promote(job, now_ms=tx.now_ms, chain=chain)
        except InvalidTransition as error:
            _set_aside_unless_newer(tx, rowid, job, error)
            continue
        after = moved.job
        tx.db.execute(
            "UPDATE jobs SET status = ?, reason = ?, version = ?, changed_ms = ?, expires_ms = ?, head = ?, lane = ? "
            "WHERE rowid = ?",
            (
                after.status,
                after.reason,
                after.version,
                after.changed_ms,
                after.expires_ms,
                after.head,
                after.lane,
                rowid,
            ),
        )
        tx.db.executemany(INSERT_EVENT, [event_values(event) for event in moved.events])
        tx.wrote([(job, after, moved.events)])


def free_slots(tx: SqliteTx, key: str) -> None:
    """Make blocked rows of a key ready, as many as it has free slots: the best of every queue, so that a paused queue
    cannot keep the slot from the others."""
    limit = first_row(tx.db, "SELECT most FROM limits WHERE key = ?", (key,))
    free: int | None = None
    queue = ""
    while True:
        # from queue to queue by the index, independent of how many rows wait in each
        row = first_row(
            tx.db,
            "SELECT queue FROM jobs WHERE lane = 3 AND concurrency_key = ? AND queue > ? ORDER BY queue LIMIT 1",
            (key, queue),
        )
        if row is None:
            return
        queue = row[0]
        if free is None:
            free = _MOST_FREED if limit is None else max(0, min(limit[0] - held_count(tx, key), _MOST_FREED))
        back = all_rows(
            tx.db,
            "SELECT rowid FROM jobs WHERE lane = 3 AND concurrency_key = ? AND queue = ? ORDER BY rank LIMIT ?",
            (key, queue, free),
        )
        for (rowid,) in back:
            _set_lane(tx, rowid, Lane.READY)
        if back:
            tx.wake(f"queue:{queue}", len(back))


def held_count(tx: SqliteTx, key: str) -> int:
    return int(value(tx.db, "SELECT count(*) FROM jobs WHERE concurrency_key = ? AND session IS NOT NULL", (key,)))


class Slots:
    """The free slots of concurrency keys during one claim, counted once per key."""

    def __init__(self, tx: SqliteTx) -> None:
        self._tx = tx
        self._free: dict[str, int | None] = {}
        self.blocked = 0

    def take(self, key: str, rowid: int) -> bool:
        """True if the row may be claimed; otherwise it goes to the blocked lane."""
        if key not in self._free:
            limit = first_row(self._tx.db, "SELECT most FROM limits WHERE key = ?", (key,))
            self._free[key] = None if limit is None else limit[0] - held_count(self._tx, key)
        free = self._free[key]
        if free is None:
            return True
        if free <= 0:
            self.blocked += 1
            _set_lane(self._tx, rowid, Lane.BLOCKED)
            return False
        self._free[key] = free - 1
        return True


def _queues_with(tx: SqliteTx, queues: Sequence[str], what: str, *values: object) -> Sequence[str]:
    """The queues that have such a row, by one statement: 300 empty queues one by one took 35 ms."""
    if len(queues) == 1:
        return queues
    sql = f"SELECT value FROM json_each(?1) WHERE EXISTS (SELECT 1 FROM jobs WHERE queue = value AND {what})"
    names = msgspec.json.encode(list(queues)).decode()
    return [row[0] for row in all_rows(tx.db, sql, (names, *values))]


def _heads(tx: SqliteTx, queues: Sequence[str], n: int) -> Iterator[Row]:
    """Ready rows, best rank first over all queues, each with its row id at the end; read in short pages. Rows past
    their deadline are skipped here, at a microsecond each: a sweep ends them."""
    if len(queues) == 1:
        return _head(tx, queues[0], n)
    page = max(10, -(-n // max(1, len(queues))))
    return heapq.merge(*(_head(tx, queue, page) for queue in queues), key=_order)


def _head(tx: SqliteTx, queue: str, n: int) -> Iterator[Row]:
    after: Row = (-(1 << 63), 0, 0)
    while True:
        found, page = _page(
            tx,
            "WHERE lane = 1 AND queue = ? AND (rank, due_ms, rowid) > (?, ?, ?) "
            "AND (expires_ms IS NULL OR expires_ms > ?) ORDER BY rank, due_ms, rowid LIMIT ?",
            (queue, *after, tx.now_ms, n),
        )
        yield from page
        if len(found) < n:
            return
        after = _order(found[-1])


def _page(tx: SqliteTx, where: str, values: Sequence[object]) -> tuple[list[Row], list[Row]]:
    """All rows, each with its row id at the end; and the intact ones. The others have invalid text and are set
    aside."""
    found, broken = read_rows(tx.db, "jobs", f"FROM jobs {where}", values, more=", rowid")
    if not broken:
        return found, found
    for at, wrong in broken.items():
        _set_aside(tx, found[at][-1], found[at][0], wrong)
    return found, [row for at, row in enumerate(found) if at not in broken]


def _usable(tx: SqliteTx, rowid: int, row: Row) -> Job | None:
    """The job of a row; None if the row is damaged: then it is set aside."""
    try:
        return job_from(row)
    except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
        _set_aside(tx, rowid, row[0], error)
        return None


def _set_aside_unless_newer(tx: SqliteTx, rowid: int, job: Job, error: InvalidTransition) -> None:
    """A status of a newer version is left alone: newer workers know what to do with it."""
    if table_of(job.parent).get(job.status) is not None:
        _set_aside(tx, rowid, job.id, error)


def _set_aside(tx: SqliteTx, rowid: int, job_id: str, why: object) -> None:
    log.error("a stored job cannot be used and was set aside job_id=%s: %s; run: mainstay check", job_id, why)
    _set_lane(tx, rowid, Lane.ASIDE)


def _set_lane(tx: SqliteTx, rowid: int, lane: Lane) -> None:
    tx.db.execute("UPDATE jobs SET lane = ? WHERE rowid = ?", (int(lane), rowid))

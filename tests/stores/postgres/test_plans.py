"""Lists, statistics and trimming read what they need and no more, however much is stored.

A hundred thousand jobs with the statistics that go with them; the statements are overheard from the store at work, with
the plans by which the server ran them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from mainstay.lifecycle import Chain
from mainstay.model import first_id_at
from mainstay.stores import Query, TrimPolicy
from mainstay.stores.postgres.check import audit
from mainstay.stores.postgres.connection.address import parse
from mainstay.stores.postgres.connection.engine import PostgresEngine, PostgresTx
from mainstay.stores.postgres.read import queries
from mainstay.stores.postgres.schema import migration
from mainstay.stores.postgres.write import retention
from mainstay.testing import VirtualClock
from tests.places import server_url

from .overheard import Overheard, Ran

SCHEMA = "plans"
#: rows that are looked at to learn which statuses there are: one of each, and one more
STATUSES = 6
JOBS = 100_000
#: when the first of the jobs was made; they came one a millisecond
BEGIN_MS = 1_700_000_000_000
NOW_MS = BEGIN_MS + JOBS
CHAIN = Chain()
BIG = {"jobs", "events", "tags", "keys", "waits"}

#: 90 % have succeeded, 1 % failed, 7 % are ready, 1 % wait for their time, the newest are running. Of the settled ones
#: every 50th has its own retention; every 20th has a tag and every 10th a key; every 500th had a long life.
FILL = f"""
INSERT INTO {SCHEMA}.jobs (
    id, created_ms, changed_ms, due_ms, settled_ms, expires_ms, extra_ms, rank, priority, version, token, starts,
    failures, crashes, releases, losses, trimmed_seq, lane, kind, name, queue, "group", key, status, session, head,
    trimmed_digest, options, payload, error
)
SELECT
    (lpad(to_hex(at_ms), 12, '0') || '70008000' || lpad(to_hex(i), 12, '0'))::uuid,
    at_ms, at_ms, at_ms, CASE WHEN is_settled THEN at_ms + 5000 END,
    CASE WHEN is_settled AND i % 50 = 7 THEN at_ms + 50000 END,
    0, at_ms - (i % 5) * 60000, i % 5, CASE WHEN i % 500 = 0 THEN 23 ELSE 3 END, 1, 1, 0, 0, 0, 0, 0,
    CASE status WHEN 'pending' THEN 1 WHEN 'scheduled' THEN 2 ELSE 0 END,
    CASE WHEN i % 1000 = 5 THEN 'batch' ELSE 'task' END, 'mail.send',
    'q' || i % 7, CASE WHEN i % 100 = 1 THEN '018bcfe5-6800-7000-8000-000000000001' END,
    CASE WHEN i % 10 = 0 THEN 'order-' || i / 20 END, status,
    CASE WHEN status = 'running' THEN 's' || i % 3 END,
    '\\x00', '\\x00', '[[3]]', '\\x80', CASE WHEN status = 'failed' THEN '{{"type":"E","message":"no luck"}}' END
FROM (
    SELECT i, {BEGIN_MS} + i AS at_ms, i < {JOBS} * 0.91 AS is_settled,
        CASE WHEN i < {JOBS} * 0.91 AND i % 91 = 3 THEN 'failed' WHEN i < {JOBS} * 0.91 THEN 'succeeded'
        WHEN i < {JOBS} * 0.98 THEN 'pending' WHEN i < {JOBS} * 0.99 THEN 'scheduled' ELSE 'running' END AS status
    FROM generate_series(0, {JOBS} - 1) AS i
) AS made;
INSERT INTO {SCHEMA}.events
SELECT id, created_ms, seq, 0, 'pending', 'pending', 'me', NULL, '', NULL, '\\x00'
FROM {SCHEMA}.jobs, generate_series(1, version) AS seq;
INSERT INTO {SCHEMA}.tags SELECT id, 't' || n % 100 / 20 FROM {SCHEMA}.jobs WHERE n % 20 = 0;
INSERT INTO {SCHEMA}.keys
SELECT id, created_ms + 60000, 'mail.send', id::text, '\\x00' FROM {SCHEMA}.jobs WHERE n % 10 = 0;
INSERT INTO {SCHEMA}.tallies SELECT count(*), 1, queue, status FROM {SCHEMA}.jobs GROUP BY queue, status;
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A store with a hundred thousand jobs; what a test changes is rolled back."""
    server = server_url("postgresql")
    url = f"{server}?schema={SCHEMA}"
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        asyncio.run(migration.migrate(url))
        db.execute(FILL)  # type: ignore[arg-type]
        db.execute("ANALYZE")
        yield url
        db.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


class Store:
    """The engine of a store, overheard."""

    def __init__(self, engine: PostgresEngine, heard: Overheard) -> None:
        self.engine = engine
        self._heard = heard

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50) -> tuple[int, list[Ran]]:
        """How many were found, and what ran."""
        found = []

        async def look() -> None:
            found.append(await queries.find(self.engine, query, cursor, limit, CHAIN))

        ran = await self._heard.during(look)
        return len(found[0].jobs), ran

    async def trim(self, policy: TrimPolicy, places: retention.Places | None = None) -> tuple[Any, list[Ran]]:
        """What trimming did before it was undone, and what ran."""
        done = []

        async def trim_and_undo(tx: PostgresTx) -> None:
            done.append(await retention.trim(tx, policy, places or {}))
            raise _Undone

        async def call() -> None:
            with pytest.raises(_Undone):
                await self.engine.transact(trim_and_undo)

        ran = await self._heard.during(call)
        return done[0], ran

    async def ran(self, call: Any) -> list[Ran]:
        return await self._heard.during(call)


class _Undone(Exception):
    pass


@pytest.fixture
async def store(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    heard = Overheard(monkeypatch)
    engine = PostgresEngine(parse(url.partition("?")[0], {"schema": SCHEMA}), VirtualClock(NOW_MS))
    yield Store(engine, heard)
    await engine.close()


def assert_by_index(ran: list[Ran], *, most: int) -> None:
    """No big table is read from end to end, and of none more than so many rows."""
    for each in ran:
        assert not each.scanned & BIG, each.sql
        for table, rows in each.rows.items():
            assert table not in BIG or rows <= most, f"{rows} rows of {table}: {each.sql}"


#: in the middle of everything
MIDDLE = first_id_at(BEGIN_MS + JOBS // 2)
GROUP = "018bcfe5-6800-7000-8000-000000000001"


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("cursor", [None, MIDDLE])
@pytest.mark.parametrize(
    ("query", "index"),
    [
        ({}, "jobs_status"),
        ({"status": ("succeeded",)}, "jobs_status"),
        ({"status": ("failed", "pending")}, "jobs_status"),
        ({"status": ("quarantined",)}, "jobs_status"),
        ({"created_from_ms": BEGIN_MS + 100, "created_before_ms": NOW_MS - 100}, "jobs_status"),
        ({"group": GROUP}, "jobs_group"),
        ({"parent": MIDDLE}, "jobs_units"),
        ({"parent": MIDDLE, "status": ("failed", "running")}, "jobs_unit_status"),
        ({"key": "order-70"}, "jobs_key"),
        ({"tag": "t1"}, "tags_tag"),
        ({"kind": "batch"}, "jobs_kind"),
        ({"kind": "load"}, "jobs_kind"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, dict) else None,
)
async def test_a_page_reads_as_many_rows_as_it_shows(
    store: Store, query: dict[str, Any], index: str, cursor: str | None, oldest_first: bool
) -> None:
    for _ in range(7):  # from the sixth time on the server may use one plan for all values
        found, ran = await store.find(Query(**query, oldest_first=oldest_first), cursor=cursor)
        assert found <= 50
        assert index in {name for each in ran for name in each.indexes}
        assert_by_index(ran, most=51 * 5 + STATUSES)


#: 1 % are running: what is held is read whole
HELD = JOBS // 100


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("cursor", [None, MIDDLE])
@pytest.mark.parametrize(
    "query",
    [
        {"queue": "q3"},
        {"queue": "q3", "status": ("failed",)},
        {"queue": "q3", "status": ("failed", "running"), "name": "mail.send"},
        {"queue": "none"},
        {"name": "mail.send"},
        {"name": "none"},
        {"name": "mail.send", "status": ("quarantined",)},
        {"queue": "q1", "created_from_ms": BEGIN_MS + 100, "created_before_ms": NOW_MS - 100},
    ],
    ids=lambda each: " ".join(each) if isinstance(each, dict) else None,
)
async def test_a_page_by_queue_or_name_reads_the_heads_of_its_stretches_and_what_is_held(
    store: Store, query: dict[str, Any], cursor: str | None, oldest_first: bool
) -> None:
    stretches = (1 if "queue" in query else 7) * len(query.get("status", range(5)))
    for _ in range(7):  # from the sixth time on the server may use one plan for all values
        found, ran = await store.find(Query(**query, oldest_first=oldest_first), cursor=cursor)
        assert found <= 50
        indexes = {name for each in ran for name in each.indexes}
        assert indexes <= {"jobs_listed", "jobs_held", "jobs_id", "tallies_name"}
        assert_by_index(ran, most=51 * stretches + 51 + HELD)
        # compared as a row, entries of the index are passed over to the end of the queue, and no plan tells
        conditions = [
            node["Index Cond"] for each in ran for node in each.nodes if node.get("Index Name") == "jobs_listed"
        ]
        assert not [each for each in conditions if "ROW(" in each]


@pytest.mark.parametrize("oldest_first", [False, True])
async def test_what_is_spread_over_too_many_stretches_is_looked_for_row_by_row(
    store: Store, monkeypatch: pytest.MonkeyPatch, oldest_first: bool
) -> None:
    query = Query(queue="q3", oldest_first=oldest_first)
    whole = await queries.find(store.engine, query, None, 50, CHAIN)
    monkeypatch.setattr(queries, "MOST_STRETCHES", 3)
    assert await queries.find(store.engine, query, None, 50, CHAIN) == whole
    assert "jobs_status" in {name for each in (await store.find(query))[1] for name in each.indexes}


@pytest.fixture(scope="module")
def unmeasured() -> Iterator[str]:
    """The name of a schema with jobs of which the planner knows nothing yet."""
    name = f"{SCHEMA}_unmeasured"
    server = server_url("postgresql")
    fill = FILL.replace(f"{SCHEMA}.", f"{name}.").replace(
        f"generate_series(0, {JOBS} - 1)", "generate_series(1, 20000)"
    )
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
        asyncio.run(migration.migrate(f"{server}?schema={name}"))
        db.execute(f"ALTER TABLE {name}.jobs SET (autovacuum_enabled = off)")
        db.execute(fill)  # type: ignore[arg-type]
        yield name
        db.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.mark.parametrize(
    ("query", "stretches"),
    [
        (Query(), 1),
        (Query(status=("succeeded",)), 1),
        (Query(oldest_first=True), 1),
        (Query(queue="q3"), 2),
        (Query(name="mail.send"), 2 * 7),
    ],
)
async def test_a_page_reads_no_more_where_there_are_no_statistics_yet(
    unmeasured: str, monkeypatch: pytest.MonkeyPatch, query: Query, stretches: int
) -> None:
    engine = PostgresEngine(parse(server_url("postgresql"), {"schema": unmeasured}), VirtualClock(NOW_MS))
    try:
        found, ran = await Store(engine, Overheard(monkeypatch)).find(query)
    finally:
        await engine.close()

    assert found == 50
    assert_by_index(ran, most=51 * (stretches + 1) + STATUSES)


@pytest.mark.parametrize("cursor", [None, MIDDLE])
async def test_what_a_session_holds_is_read_whole_and_nothing_else(store: Store, cursor: str | None) -> None:
    _, ran = await store.find(Query(session="s1"), cursor=cursor)
    assert_by_index(ran, most=JOBS // 100 // 3 + 1)


@pytest.mark.parametrize(
    ("query", "held"),
    [
        (Query(queue="q3"), HELD),
        (Query(queue="q3", status=("failed",)), HELD),
        (Query(text="no luck", status=("failed",)), 0),
        (Query(tag="t1", queue="q1"), 0),
        (Query(group=GROUP, status=("succeeded",)), 0),
        (Query(name="mail.send", oldest_first=True), HELD),
    ],
)
async def test_a_filter_ends_the_reading_when_the_page_is_full(store: Store, query: Query, held: int) -> None:
    found, ran = await store.find(query, limit=5)
    assert found == 5
    pages = [each for each in ran if "LIMIT 6" in each.sql]
    assert pages
    assert_by_index(pages, most=5 * 7 * 6 * 3 + held)


async def test_a_filter_that_finds_nothing_reads_one_window_of_each_status(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "WINDOW", 1000)
    found, ran = await store.find(Query(text="nothing like it"))
    assert found == 0
    assert_by_index(ran, most=1000 * 5 + STATUSES)


async def test_a_very_long_page_goes_by_the_index_as_well(store: Store) -> None:
    found, ran = await store.find(Query(status=("succeeded",)), cursor=MIDDLE, limit=5000)
    assert found == 5000
    assert_by_index(ran, most=5001)


async def test_units_are_counted_from_an_index_alone(store: Store) -> None:
    [token, ran] = await store.ran(lambda: queries.unit_counts(store.engine, MIDDLE))
    assert token.indexes == {"jobs_id"}
    assert [node["Node Type"] for node in ran.nodes if "Relation Name" in node] == ["Index Only Scan"]
    assert ran.indexes == {"jobs_unit_status"}


async def test_statistics_read_one_row_per_queue_and_the_first_of_all(store: Store) -> None:
    stats = await queries.stats(store.engine, ())
    assert stats.queues["q0"].counts["pending"] == 1000
    assert stats.queues["q0"].oldest_ready_ms == BEGIN_MS + 91_000
    assert_by_index(await store.ran(lambda: queries.stats(store.engine, ())), most=7 + 1)


async def test_the_next_due_time_is_the_head_of_an_index(store: Store) -> None:
    assert await queries.due(store.engine, ["q1", "q2"]) == BEGIN_MS + 98_001
    assert_by_index(await store.ran(lambda: queries.due(store.engine, ["q1", "q2"])), most=2)


async def test_the_glance_at_open_reads_only_what_is_held_or_set_aside(store: Store) -> None:
    assert_by_index(await store.ran(lambda: audit.fast_findings(store.engine)), most=2 * JOBS // 100)


async def test_a_page_of_an_audit_reads_that_page(store: Store) -> None:
    ran = await store.ran(lambda: store.engine.read(lambda db: audit.audit(db, MIDDLE, 200, CHAIN)))
    assert_by_index(ran, most=200 * 4)


async def test_trimming_by_age_reads_the_batch_and_what_it_passes_over(store: Store) -> None:
    policy = TrimPolicy(settled_before_ms=dict.fromkeys(("succeeded", "failed", "cancelled"), NOW_MS), batch=100)
    (trimmed, _), ran = await store.trim(policy)
    assert (trimmed.jobs, trimmed.more) == (100, True)
    assert_by_index(ran, most=400)
    assert {"jobs_status", "events_of_job"} <= {name for each in ran for name in each.indexes}


async def test_the_next_batch_begins_where_the_last_one_ended(store: Store) -> None:
    policy = TrimPolicy(settled_before_ms={"succeeded": NOW_MS}, batch=100)
    (_, places), _ = await store.trim(policy)
    [last] = places.values()
    assert first_id_at(BEGIN_MS + 100) < last < first_id_at(BEGIN_MS + 110)
    (_, places), _ = await store.trim(policy, places)
    [last] = places.values()
    assert first_id_at(BEGIN_MS + 200) < last < first_id_at(BEGIN_MS + 220)


async def test_trimming_what_is_too_much_reads_the_batch(store: Store) -> None:
    (trimmed, _), ran = await store.trim(TrimPolicy(keep_count={"succeeded": 1000}, batch=100))
    assert trimmed.jobs == 100
    assert_by_index(ran, most=400)


async def test_trimming_by_a_jobs_own_retention_goes_by_its_time(store: Store) -> None:
    (trimmed, _), ran = await store.trim(TrimPolicy(batch=100))
    assert (trimmed.jobs, trimmed.keys) == (100, 100)
    assert_by_index(ran, most=400)
    assert {"jobs_keep", "keys_until"} <= {name for each in ran for name in each.indexes}


async def test_long_histories_are_found_by_their_length(store: Store) -> None:
    (trimmed, _), ran = await store.trim(TrimPolicy(keep_events=10, batch=50))
    assert trimmed.events == 50 * 13
    shortening = [each for each in ran if "jobs_long" in each.indexes]
    assert shortening
    assert_by_index(shortening, most=50 * 14)

"""Which files are opened at all: forward migrations, databases of the future, and those of other programs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import apsw
import msgspec
import pytest

from mainstay.errors import SchemaTooNew, SchemaTooOld, StoreError, StoreLocked
from mainstay.model import Options, QueueSettings
from mainstay.stores import Query
from mainstay.stores.sqlite import SqliteStore, schema
from mainstay.testing import VirtualClock
from tests.conformance.world import World
from tests.stores.sqlite.conftest import Spawn
from tests.stores.sqlite.older import older_file


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def raw(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """Run statements as another program would; the rows of the last."""
    db = apsw.Connection(str(path))
    rows: list[tuple[object, ...]] = []
    for statement in statements:
        rows = db.execute(statement).fetchall()
    db.close()
    return rows


async def some_jobs(path: Path) -> list[str]:
    clock = VirtualClock()
    world = World(SqliteStore(path, clock=clock), clock)
    ids = [(await world.submit()).id for _ in range(3)]
    await world.open("s1")
    await world.claim()
    await world.store.close()
    return ids


async def test_a_database_of_a_newer_version_is_refused_with_advice_and_left_alone(path: Path) -> None:
    await some_jobs(path)
    newer = schema.VERSION + 1
    raw(path, f"UPDATE facts SET value = '{newer}' WHERE name = 'compatible_from'", f"PRAGMA user_version = {newer}")
    before = digest(path)
    with pytest.raises(SchemaTooNew, match=f"has schema version {schema.VERSION + 1}.*upgrade Mainstay"):
        SqliteStore(path)
    assert digest(path) == before


@pytest.mark.parametrize("their_version", [0, 1, 99])
@pytest.mark.parametrize("journal", ["delete", "wal"])
async def test_a_database_of_another_program_is_refused_and_left_alone(
    path: Path, their_version: int, journal: str
) -> None:
    raw(path, f"PRAGMA journal_mode = {journal}", "CREATE TABLE theirs (x)", f"PRAGMA user_version = {their_version}")
    before = digest(path)
    with pytest.raises(StoreError, match="is an SQLite database, but not a Mainstay store; choose another file"):
        SqliteStore(path)
    assert digest(path) == before


async def test_an_empty_file_is_taken_for_a_new_database(path: Path) -> None:
    path.touch()
    await some_jobs(path)
    assert raw(path, "SELECT count(*) FROM jobs") == [(3,)]


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> str:
    """A version that is one migration ahead of this one."""
    step = (
        "CREATE TABLE notes (job_id TEXT PRIMARY KEY, status TEXT NOT NULL) STRICT;"
        "INSERT INTO notes SELECT id, status FROM jobs;"
    )
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, step))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    return step


async def test_a_forward_migration_keeps_every_row(path: Path, request: pytest.FixtureRequest) -> None:
    ids = await some_jobs(path)
    clock = VirtualClock()
    before = World(SqliteStore(path, clock=clock), clock)
    held = await before.dump()
    await before.store.close()

    request.getfixturevalue("next_version")
    after = World(SqliteStore(path, clock=clock), clock)

    assert await after.dump() == held
    await after.assert_sound()
    await after.store.close()
    assert raw(path, "PRAGMA user_version") == [(schema.VERSION,)]
    assert raw(path, "SELECT job_id, status FROM notes ORDER BY job_id") == [
        (ids[0], "running"),
        (ids[1], "pending"),
        (ids[2], "pending"),
    ]


async def test_a_new_database_gets_all_migrations_at_once(path: Path, next_version: str) -> None:
    await some_jobs(path)
    assert raw(path, "PRAGMA user_version") == [(schema.VERSION,)]
    assert raw(path, "SELECT count(*) FROM notes") == [(0,)]


async def test_a_migration_that_fails_leaves_the_old_version_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await some_jobs(path)
    with monkeypatch.context() as newer:
        newer.setattr(
            schema, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE notes (x); DELETE FROM jobs; SELECT no;")
        )
        newer.setattr(schema, "VERSION", schema.VERSION + 1)
        with pytest.raises((StoreError, apsw.SQLError)):
            SqliteStore(path)
    await _whole(path)


async def test_a_process_killed_inside_a_migration_leaves_the_old_version_whole(path: Path, spawn: Spawn) -> None:
    await some_jobs(path)
    child = spawn("migrate_and_hang", path, schema.VERSION)
    assert child.line() == "inside"
    child.kill()
    await _whole(path)


async def test_a_process_killed_while_it_makes_the_database_leaves_none_behind(path: Path, spawn: Spawn) -> None:
    child = spawn("migrate_and_hang", path, 0)
    assert child.line() == "inside"
    child.kill()
    await some_jobs(path)
    await _whole(path)


async def test_a_second_process_waits_until_the_database_is_made(path: Path, spawn: Spawn) -> None:
    maker = spawn("migrate_and_hang", path, 0)
    assert maker.line() == "inside"
    second = spawn("open_it", path)
    assert maker.ask() == "done"
    assert second.line() == "open"
    assert second.ask("insert") == "inserted"


async def test_a_process_that_hangs_while_it_makes_the_database_is_waited_for_only_so_long(
    path: Path, spawn: Spawn
) -> None:
    maker = spawn("migrate_and_hang", path, 0)
    assert maker.line() == "inside"
    with pytest.raises(StoreLocked, match="has been creating or migrating .* for more than 0.05 s"):
        SqliteStore(path, busy_timeout_s=0.05)
    maker.kill()
    await SqliteStore(path, busy_timeout_s=0.05).close()


async def _whole(path: Path) -> None:
    assert raw(path, "PRAGMA user_version") == [(schema.VERSION,)]
    assert raw(path, "SELECT count(*) FROM sqlite_schema WHERE name IN ('notes', 'extra')") == [(0,)]
    clock = VirtualClock()
    world = World(SqliteStore(path, clock=clock), clock)
    assert (await world.store.stats()).queues["default"].counts == {"pending": 2, "running": 1}
    await world.assert_sound()
    await world.store.close()


def to_version_8(path: Path) -> None:
    raw(path, "DROP TRIGGER sessions_standing", "ALTER TABLE sessions DROP COLUMN standing", "DROP TABLE claim_marks")
    raw(path, "PRAGMA user_version = 8")


def to_version_7(path: Path) -> None:
    to_version_8(path)
    raw(path, *(f"ALTER TABLE {name} DROP COLUMN more" for name in ("sessions", "queues")), "PRAGMA user_version = 7")


def to_version_6(path: Path) -> None:
    to_version_7(path)
    raw(path, "DROP INDEX jobs_routed", "DROP TABLE offers", "DROP TABLE routes", "PRAGMA user_version = 6")


def to_version_5(path: Path) -> None:
    to_version_6(path)
    raw(path, "DROP INDEX jobs_listed", "DROP INDEX jobs_status")
    raw(path, "CREATE INDEX jobs_status ON jobs (status, id) WHERE parent IS NULL", "PRAGMA user_version = 5")


def to_version_4(path: Path) -> None:
    to_version_5(path)
    columns = ("supervisor", "draining_ms", "draining_by")
    raw(path, "DROP INDEX jobs_kind", *(f"ALTER TABLE sessions DROP COLUMN {name}" for name in columns))
    raw(path, *(f"ALTER TABLE queues DROP COLUMN {name}" for name in ("set_by", "set_ms")))
    raw(path, "PRAGMA user_version = 4")


async def test_the_workers_of_a_database_of_version_4_can_be_drained_once_it_is_brought_up(path: Path) -> None:
    clock = VirtualClock()
    before = World(SqliteStore(path, clock=clock), clock)
    await before.open("s1")
    batch = await before.submit(kind="batch")
    await before.submit()
    await before.store.set_queue(QueueSettings(name="mail", paused=True, reason="moving"))
    await before.store.close()
    to_version_4(path)
    fourth = path.with_name("fourth.db")
    raw(fourth, *schema.MIGRATIONS[:4])
    shape = "SELECT name FROM sqlite_schema UNION ALL SELECT name FROM pragma_table_info('sessions') ORDER BY name"
    assert raw(path, shape) == raw(fourth, shape)

    world = World(SqliteStore(path, clock=clock), clock)

    [session] = await world.store.sessions()
    assert (session.supervisor, session.draining_ms, session.draining_by) == (0, None, "")
    assert await world.store.queues() == [QueueSettings(name="mail", paused=True, reason="moving")]
    assert await world.store.drain(["s1"], by="ann") == [True]
    assert [pulse.draining_by for pulse in await world.store.beat(["s1"])] == ["ann"]
    assert [job.id for job in (await world.store.find(Query(kind="batch"))).jobs] == [batch.id]
    await world.assert_sound()
    await world.store.close()


async def test_the_jobs_of_a_database_of_version_5_are_listed_once_it_is_brought_up(path: Path) -> None:
    ids = await some_jobs(path)
    to_version_5(path)
    fifth = path.with_name("fifth.db")
    raw(fifth, *schema.MIGRATIONS[:5])
    shape = "SELECT name, sql FROM sqlite_schema ORDER BY name"
    assert raw(path, shape) == raw(fifth, shape)

    clock = VirtualClock()
    world = World(SqliteStore(path, clock=clock), clock)

    assert raw(path, "PRAGMA user_version") == [(schema.VERSION,)]
    for query in (Query(), Query(queue="default"), Query(name="demo.task", status=("pending", "running"))):
        assert [job.id for job in (await world.store.find(query)).jobs] == ids[::-1]
    await world.assert_sound()
    await world.store.close()


async def test_the_sessions_of_a_database_of_version_8_are_not_standing_once_it_is_brought_up(path: Path) -> None:
    clock = VirtualClock()
    before = World(SqliteStore(path, clock=clock), clock)
    await before.open("s1")
    await before.submit()
    await before.store.close()
    to_version_8(path)
    eighth = path.with_name("eighth.db")
    raw(eighth, *schema.MIGRATIONS[:8])
    shape = "SELECT name FROM sqlite_schema UNION ALL SELECT name FROM pragma_table_info('sessions') ORDER BY name"
    assert raw(path, shape) == raw(eighth, shape)

    world = World(SqliteStore(path, clock=clock), clock)

    assert len(await world.store.claim(["default"], "s1", 1, mark="a")) == 1
    clock.advance(9)
    assert [late.cause for late in await world.store.overdue()] == ["session"]
    await world.reap()
    await world.assert_sound()
    await world.store.close()


async def test_a_database_of_version_1_is_brought_up_and_its_jobs_can_be_waited_for(path: Path) -> None:
    ids = await some_jobs(path)
    raw(path, "DROP TABLE waits", "DROP INDEX jobs_group", "ALTER TABLE jobs DROP COLUMN losses")
    raw(path, "DROP INDEX jobs_unit_status", "DROP INDEX jobs_oldest")
    to_version_4(path)
    raw(path, "PRAGMA user_version = 1")
    # options were shorter then
    short = msgspec.msgpack.encode(msgspec.msgpack.decode(msgspec.msgpack.encode(Options()))[:9])
    raw(path, f"UPDATE jobs SET options = x'{short.hex()}'")
    assert raw(path, "PRAGMA user_version") == [(1,)]
    first = path.with_name("first.db")
    raw(first, schema.MIGRATIONS[0])
    shape = "SELECT name FROM sqlite_schema UNION ALL SELECT name FROM pragma_table_info('jobs') ORDER BY name"
    assert raw(path, shape) == raw(first, shape)

    clock = VirtualClock()
    clock.advance(1)
    world = World(SqliteStore(path, clock=clock), clock)

    assert raw(path, "PRAGMA user_version") == [(schema.VERSION,)]
    old = await world.row(ids[0])
    assert (old.status, old.options, old.losses) == ("running", Options(), 0)
    job = await world.submit(after=[old])
    assert (await world.move(old, "succeeded", holder="s1")).outcome == "applied"
    assert (await world.row(job)).status == "pending"
    await world.assert_sound()
    await world.store.close()


@pytest.mark.parametrize("version", range(1, schema.VERSION))
async def test_a_file_of_an_older_version_can_be_looked_at_and_is_not_migrated(path: Path, version: int) -> None:
    older_file(path, version=version)
    raw(path, *_A_JOB)
    store = SqliteStore(path, migrates=False)
    world = World(store, VirtualClock())

    for query in (Query(), Query(status=("pending", "running")), Query(queue="default")):
        assert [job.name for job in (await store.find(query)).jobs] == ["demo.task"]
    [job] = await store.get([_ID])
    assert job is not None
    assert (job.losses, job.status) == (0, "pending")
    assert (await store.stats()).queues["default"].counts == {"pending": 1}
    assert await store.sessions() == await store.queues() == await store.awaited(_ID) == []
    assert await store.check() == []
    assert len(await store.audit()) == 1
    told = f"has schema version {version}, and this Mainstay writes version {schema.VERSION}.*mainstay store migrate"
    for writing in (store.check(repair=True), store.claim(["default"], "s1", 1), world.open("s1")):
        with pytest.raises(SchemaTooOld, match=told):
            await writing

    await store.close()
    assert raw(path, "PRAGMA user_version") == [(version,)]


async def test_a_program_that_works_brings_a_file_up_and_says_so(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    older_file(path, version=5)

    await SqliteStore(path).close()

    assert raw(path, "PRAGMA user_version") == [(schema.VERSION,)]
    assert f"was migrated from schema version 5 to {schema.VERSION}" in caplog.text


_ID = "0190a000-0000-7000-8000-000000000000"
_VALUES = {
    "id": f"'{_ID}'",
    "kind": "'task'",
    "name": "'demo.task'",
    "queue": "'default'",
    "options": f"x'{msgspec.msgpack.encode(Options()).hex()}'",
    "status": "'pending'",
    "version": "1",
    "due_ms": "1",
    "head": "zeroblob(32)",
    "trimmed_digest": "x''",
    "lane": "1",
    "payload": "x'80'",
    **dict.fromkeys(("priority", "token", "starts", "failures", "crashes", "releases"), "0"),
    **dict.fromkeys(("created_ms", "changed_ms", "extra_ms", "trimmed_seq", "rank"), "0"),
}
_A_JOB = (
    f"INSERT INTO jobs ({', '.join(_VALUES)}) VALUES ({', '.join(_VALUES.values())})",
    f"INSERT INTO events VALUES ('{_ID}', 1, 0, NULL, 'pending', 'ann', NULL, 0, '', NULL, zeroblob(32))",
    "INSERT INTO tallies VALUES ('default', 'pending', 1)",
)

"""Migrations: asked for, one at a time, and beside running workers."""

from __future__ import annotations

import asyncio

import pytest

from mainstay.errors import SchemaTooNew, SchemaTooOld, StoreError, StoreLocked
from mainstay.model import QueueSettings, Session
from mainstay.stores import Query, open_store
from mainstay.stores.postgres.schema import migration, versions
from mainstay.stores.postgres.schema.definition import MIGRATIONS, OUTSIDE, VERSION
from mainstay.stores.postgres.schema.migration import migrate, status
from tests.stores.postgres.stands import Stores, ask

#: all functions of the release before; the text is split at spaces
_RELEASE_5 = (
    "apply_plain beat bring_back bury check_submit claim clock close_session count_apart count_up cross_off "
    "depose drain forget_dead free_slots head_of hears incarnation insert_jobs is_gone lead leads "
    "listens_still lock_keys lock_of locked_again look_below low_byte lower_heads may_run msgpack "
    "msgpack_length msgpack_number new_id open_session overruns_ms raise_heads report report_at_once ring "
    "ring_at_commit settle_alike spread start_listening stop_listening submit submit_defaults take_key "
    "tell_at_commit time_text try_lock_key witness_of write_changes"
)


@pytest.fixture
def url(postgres_url: str) -> str:
    """A place that nothing was made in."""
    return postgres_url.replace("&auto_migrate=on", "")


@pytest.fixture
def schema(url: str) -> str:
    return url.partition("schema=")[2]


async def test_a_database_that_was_not_migrated_is_refused_with_the_command(url: str, schema: str) -> None:
    with pytest.raises(SchemaTooOld) as refused:
        await open_store(url)

    said = str(refused.value)
    assert f"schema '{schema}' of postgresql://owner@" in said
    assert f"this Mainstay needs version {VERSION}" in said
    assert f"?schema={schema}'" in said
    assert "mainstay store migrate 'postgresql://" in said
    assert ask(url, "SELECT to_regnamespace(%s)", schema) == [(None,)], "nothing was changed"


async def test_status_tells_before_and_after(url: str, schema: str, stores: Stores) -> None:
    before = await status(url)
    assert (before.version, before.known, before.current, before.schema) == (0, VERSION, False, schema)
    assert set(before.settings) == {"fsync", "synchronous_commit", "synchronous_standby_names", "full_page_writes"}

    done = await migrate(url)
    assert (done.before, done.after, done.steps, done.functions) == (0, VERSION, MIGRATIONS, True)
    world = await stores.open(url)
    await world.open("s1")
    await world.submit()

    after = await status(url)
    assert (after.version, after.current, after.jobs, after.events, after.sessions) == (VERSION, True, 1, 1, 1)
    assert after.bytes > 0


async def test_a_dry_run_says_what_it_would_do_and_does_nothing(url: str, schema: str) -> None:
    would = await migrate(url, dry_run=True)

    assert (would.before, would.after, would.steps) == (0, VERSION, MIGRATIONS)
    assert ask(url, "SELECT to_regnamespace(%s)", schema) == [(None,)]


async def test_several_who_migrate_at_once_do_it_once(url: str) -> None:
    done = await asyncio.gather(*(migrate(url) for _ in range(4)))

    assert {each.after for each in done} == {VERSION}
    assert (await status(url)).current


async def test_to_migrate_again_changes_nothing(url: str) -> None:
    await migrate(url)

    again = await migrate(url)

    assert (again.before, again.after, again.steps, again.functions) == (VERSION, VERSION, (), False)


async def test_a_newer_database_is_refused_with_both_versions(url: str, schema: str) -> None:
    await migrate(url)
    ask(url, f"UPDATE {schema}.facts SET value = '99' WHERE name IN ('version', 'compatible_from')")

    for opening in (open_store(url), open_store(f"{url}&auto_migrate=on"), migrate(url)):
        with pytest.raises(
            SchemaTooNew, match=f"has schema version 99, .*this Mainstay knows up to {VERSION}: upgrade"
        ):
            await opening


async def test_a_schema_of_somebody_elses_is_left_alone(url: str, schema: str) -> None:
    ask(url, f"CREATE SCHEMA {schema}")
    ask(url, f"CREATE TABLE {schema}.jobs (id integer)")

    with pytest.raises(StoreError, match="has tables of another program; choose another schema with"):
        await migrate(url)


async def test_a_database_of_version_1_gets_its_new_index_beside_running_work(
    url: str, schema: str, stores: Stores
) -> None:
    await migrate(url, migrations=MIGRATIONS[:1])
    assert (await status(url)).version == 1
    # what a migration leaves that was killed half way
    ask(url, f"CREATE INDEX jobs_unit_status ON {schema}.jobs (parent)")

    done = await migrate(url)

    assert (done.before, done.after, done.steps) == (1, VERSION, MIGRATIONS[1:])
    world = await stores.open(url)
    parent = await world.submit()
    await world.submit(parent=parent.id, unit="a")
    assert await world.store.unit_counts(parent.id) == {"pending": 1}
    [made] = ask(
        url, "SELECT indexdef FROM pg_indexes WHERE schemaname = %s AND indexname = 'jobs_unit_status'", schema
    )
    assert "(parent, status, id)" in str(made[0])
    await world.assert_sound()


async def test_a_database_of_version_2_lets_blocked_jobs_through_in_their_order(
    url: str, schema: str, stores: Stores
) -> None:
    await migrate(url, migrations=MIGRATIONS[:2])

    await migrate(url)

    world = await stores.open(url)
    assert await world.store.check() == [], "an index that was given up is not missed"
    blocked = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = %s AND indexname LIKE 'jobs_blocked%%'"
    [(name, made)] = ask(url, blocked, schema)
    assert (name, "(concurrency_key, queue, rank, due_ms, n)" in str(made)) == ("jobs_blocked_turn", True)


async def test_the_workers_of_a_database_of_version_3_can_be_drained_once_it_is_brought_up(
    url: str, schema: str, stores: Stores
) -> None:
    await migrate(url, migrations=MIGRATIONS[:3])
    # what that version called had the same arguments, and answered less
    told = "TABLE (session text, known boolean, cancelling text[])"
    ask(url, f"DROP FUNCTION {schema}.drain")
    for (beat,) in ask(url, _FUNCTIONS_NAMED, schema, "beat"):
        ask(url, f"DROP FUNCTION {beat}")
    ask(url, f"CREATE FUNCTION {schema}.{_BEAT_OF_RELEASE_5} RETURNS {told} LANGUAGE sql AS 'SELECT $1[1], true, $1'")
    ask(url, f"UPDATE {schema}.facts SET value = '2' WHERE name LIKE 'functions%%'")
    columns = "(id, worker, host, pid, started_ms, beat_ms, lease_s)"
    ask(url, f"INSERT INTO {schema}.sessions {columns} VALUES ('s1', '', '', 0, 0, 0, 8)")
    ask(url, f"INSERT INTO {schema}.queues (name, paused) VALUES ('mail', true)")

    done = await migrate(url)

    assert (done.before, done.after, done.functions) == (3, VERSION, True)
    world = await stores.open(url)
    [session] = await world.store.sessions()
    assert (session.supervisor, session.draining_ms, session.draining_by) == (0, None, "")
    assert await world.store.queues() == [QueueSettings(name="mail", paused=True)]
    assert await world.store.drain(["s1"], by="ann") == [True]
    assert [pulse.draining_by for pulse in await world.store.beat(["s1"])] == ["ann"]
    assert await world.store.check() == []
    kinds = "SELECT indexdef FROM pg_indexes WHERE schemaname = %s AND indexname = 'jobs_kind'"
    [(made,)] = ask(url, kinds, schema)
    assert "(kind, id) WHERE ((kind <> 'task'::text) AND (parent IS NULL))" in str(made)


async def test_the_jobs_of_a_database_of_version_5_are_listed_once_it_is_brought_up(
    url: str, schema: str, stores: Stores
) -> None:
    await migrate(url)
    before = await stores.open(url)
    await before.open("s1")
    held = await before.running(queue="mail")
    waiting = await before.submit(queue="mail")
    for table in ("sessions", "queues"):
        ask(url, f"ALTER TABLE {schema}.{table} DROP COLUMN more")
    ask(url, f"ALTER TABLE {schema}.sessions DROP COLUMN standing")
    ask(url, f"DROP TABLE {schema}.offers, {schema}.routes, {schema}.marks")
    ask(url, f"DROP INDEX {schema}.jobs_listed")
    ask(url, f"UPDATE {schema}.facts SET value = '5' WHERE name = 'version'")

    done = await migrate(url)

    assert (done.before, done.after) == (5, VERSION)
    world = await stores.open(url)
    assert [job.id for job in (await world.store.find(Query(queue="mail"))).jobs] == [waiting.id, held.id]
    assert await world.store.check() == []


async def test_workers_go_on_while_an_index_is_built_beside_them(url: str, schema: str, stores: Stores) -> None:
    await migrate(url)
    world = await stores.open(url)
    await world.open("s1")
    building = f"{OUTSIDE}\nCREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_extra ON mainstay.jobs (name)"
    migrating_ = asyncio.create_task(migrate(url, migrations=(*MIGRATIONS, building)))
    jobs = [await world.running() for _ in range(5)]
    done = await migrating_

    assert [(await world.move(job, "succeeded", holder="s1")).outcome for job in jobs] == ["applied"] * 5
    assert done.after == VERSION + 1
    found = ask(url, "SELECT indexname FROM pg_indexes WHERE schemaname = %s AND indexname = 'jobs_extra'", schema)
    assert found == [("jobs_extra",)]
    assert (await status(url)).version == VERSION + 1


async def test_a_migration_that_cannot_get_at_a_table_steps_back_so_that_workers_go_on(
    url: str, schema: str, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "_STEP_BACK_MS", 100)
    monkeypatch.setattr(migration, "_MOST_TRIES", 3)
    await migrate(url)
    world = await stores.open(url)
    await world.submit()

    async def change() -> None:
        await migrate(url, migrations=(*MIGRATIONS, "ALTER TABLE mainstay.jobs ADD COLUMN more integer"))

    import psycopg

    with psycopg.connect(url.partition("?")[0]) as reader:
        reader.execute(f"SELECT count(*) FROM {schema}.jobs")  # a transaction that stays open
        changing = asyncio.create_task(change())
        for _ in range(10):
            await world.submit()
        with pytest.raises(StoreLocked, match="could not be migrated: another session locks its tables"):
            await changing
    assert (await status(url)).version == VERSION
    await change()
    assert (await status(url)).version == VERSION + 1


async def test_a_step_that_fails_leaves_the_version_before(url: str) -> None:
    with pytest.raises(StoreError, match="the server refused"):
        await migrate(url, migrations=(*MIGRATIONS, "CREATE TABLE mainstay.more (id integer); SELECT nonsense"))

    found = await status(url)
    assert found.version == VERSION


async def test_a_database_that_is_not_there_is_named(url: str) -> None:
    with pytest.raises(StoreError, match="the database does not exist"):
        await status(url.replace("/postgres?", "/nowhere?"))


def of_release(n: int, *, fits: int) -> str:
    """Facts of functions that another release has made."""
    values = ", ".join(
        f"('{name}', '{value}')"
        for name, value in (("functions", "other"), ("functions_release", n), ("functions_fits", fits))
    )
    return f"facts VALUES {values} ON CONFLICT (name) DO UPDATE SET value = excluded.value"


async def test_functions_of_an_older_release_are_refused_with_the_command(url: str, schema: str) -> None:
    await migrate(url)
    ask(url, f"INSERT INTO {schema}.{of_release(versions.RELEASE - 1, fits=0)}")

    with pytest.raises(SchemaTooOld, match="has the functions of another Mainstay .* Run: mainstay store migrate"):
        await open_store(url)

    assert not (await status(url)).current
    assert (await migrate(url)).functions
    await (await open_store(url)).close()


async def test_functions_of_a_newer_release_stay_and_are_used_only_if_they_fit(url: str, schema: str) -> None:
    await migrate(url)
    ask(url, f"INSERT INTO {schema}.{of_release(versions.RELEASE + 1, fits=versions.RELEASE)}")
    for opening in (url, f"{url}&auto_migrate=on"):
        await (await open_store(opening)).close()
    assert not (await migrate(url)).functions
    assert ask(url, f"SELECT value FROM {schema}.facts WHERE name = 'functions'") == [("other",)], "it never goes back"

    ask(url, f"INSERT INTO {schema}.{of_release(versions.RELEASE + 2, fits=versions.RELEASE + 1)}")

    for refused in (open_store(url), open_store(f"{url}&auto_migrate=on"), migrate(url)):
        with pytest.raises(SchemaTooNew, match="has the functions of a newer Mainstay .*upgrade"):
            await refused


_REPORTED = "text[], text[], integer[], bigint[], text[], bytea[], text[], text[], bigint, bigint"
_BEAT = f"beat(text[], text[], text[], {_REPORTED})"
_BEAT_OF_RELEASE_5 = f"beat(text[], text[], {_REPORTED})"
_FUNCTIONS_NAMED = "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = %s::regnamespace AND proname = %s"


async def test_a_function_that_answers_otherwise_is_made_anew_and_running_programs_go_on(
    url: str, schema: str, stores: Stores
) -> None:
    await migrate(url)
    world = await stores.open(url)
    await world.open("s1")
    assert len(await world.store.beat(["s1"])) == 1
    # another release's: the same arguments, and another answer
    ask(url, f"DROP FUNCTION {schema}.{_BEAT}")
    answer = "TABLE (session text, known boolean, cancelling text[], draining_by text, assigned text[], more integer)"
    body = "$$ SELECT 's1', true, '{}'::text[], NULL, '{}'::text[], 1 $$"
    ask(url, f"CREATE FUNCTION {schema}.{_BEAT} RETURNS {answer} LANGUAGE sql AS {body}")
    ask(url, f"INSERT INTO {schema}.{of_release(versions.RELEASE - 1, fits=0)}")
    assert [pulse.known for pulse in await world.store.beat(["s1"])] == [True], "it is prepared again"

    assert (await migrate(url)).functions

    assert [pulse.known for pulse in await world.store.beat(["s1", "s2"])] == [True, False]


async def test_a_program_of_release_5_beats_and_sweeps_beside_newer_ones(url: str, schema: str, stores: Stores) -> None:
    await migrate(url)
    world = await stores.open(url)
    await world.store.open_session(Session(id="standing", standing=True, lease_s=1))
    await world.open("s1", lease_s=3600)
    silent = "beat_ms = beat_ms - 3600000"
    ask(url, f"UPDATE {schema}.sessions SET {silent} WHERE id = 'standing'")
    ask(url, f"UPDATE {schema}.incarnations SET since_ms = since_ms - 3600000")

    empty = "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', NULL, NULL"
    beats = ask(url, f"SELECT * FROM {schema}.beat('{{s1,s2}}', '{{cancelling}}', {empty})")
    ask(url, f"SELECT {schema}.bury(NULL, NULL)")

    assert beats == [("s1", True, [], None), ("s2", False, [], None)]
    assert [(session.id, session.dead) for session in await world.store.sessions()] == [
        ("standing", False),
        ("s1", False),
    ]


async def test_a_program_whose_function_is_gone_says_what_to_do(url: str, schema: str, stores: Stores) -> None:
    await migrate(url)
    world = await stores.open(url)
    ask(url, f"DROP FUNCTION {schema}.lead(text, text, bigint, bigint)")

    with pytest.raises(StoreError, match="lacks a function that this Mainstay calls .*mainstay store status"):
        await world.store.lead("leader", "s1", 60)


async def test_a_check_leaves_the_functions_of_a_newer_release_alone(url: str, schema: str, stores: Stores) -> None:
    await migrate(url)
    world = await stores.open(url)
    ask(url, f"DROP FUNCTION {schema}.write_changes")
    ask(url, f"INSERT INTO {schema}.{of_release(versions.RELEASE + 1, fits=versions.RELEASE)}")

    assert await world.store.check(repair=True) == []
    assert ask(url, "SELECT to_regproc(%s)", f"{schema}.write_changes") == [(None,)]


async def test_a_new_database_has_all_functions_of_the_release_before(url: str, schema: str) -> None:
    """Programs of that release compare them by name."""
    await migrate(url)

    rows = ask(url, "SELECT proname FROM pg_proc WHERE pronamespace = %s::regnamespace", schema)

    assert {name for (name,) in rows}.issuperset(_RELEASE_5.split())


async def test_of_the_function_that_users_call_there_is_one(url: str, schema: str) -> None:
    await migrate(url)
    ask(
        url,
        f"CREATE FUNCTION {schema}.submit(name text, extra integer DEFAULT 0) RETURNS uuid LANGUAGE sql "
        "AS 'SELECT NULL::uuid'",
    )
    ask(url, f"INSERT INTO {schema}.{of_release(versions.RELEASE - 1, fits=0)}")

    await migrate(url)

    [(job_id,)] = ask(url, f"SELECT {schema}.submit('mail')")
    assert job_id is not None


async def test_a_database_that_cannot_hold_every_text_is_refused(url: str) -> None:
    name = f"latin_{url.partition('schema=')[2]}"[:60]
    ask(url, f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    latin = url.replace("/postgres?", f"/{name}?")
    try:
        for refused in (migrate(latin), open_store(latin)):
            with pytest.raises(StoreError, match="has the encoding LATIN1, which cannot store every text"):
                await refused
    finally:
        ask(url, f"DROP DATABASE {name}")

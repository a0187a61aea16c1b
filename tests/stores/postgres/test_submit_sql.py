"""`submit` in SQL: the same job as Python would have submitted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import msgspec
import pytest
from hypothesis import given, strategies as st

from mainstay import App
from mainstay.control.check import check
from mainstay.control.options import OptionReader
from mainstay.errors import JobFailed
from mainstay.model import Job, Options, Settings
from mainstay.model.ids import check_id
from mainstay.stores import Query, open_store
from tests import places
from tests.app.working import working
from tests.stores.postgres.transactions import on_asyncpg, server

EDGES = [
    *(0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1),
    *(-1, -32, -33, -128, -129, -32768, -32769, -(2**31), -(2**31) - 1, -(2**63)),
    *(1.5, 1e-300, -2.25, True, False, None),
    *("x" * n for n in (0, 1, 31, 32, 255, 256, 65535, 65536)),
    *(list(range(n)) for n in (0, 15, 16, 65535, 65536)),
    *({str(i): i for i in range(n)} for n in (0, 15, 16, 17)),
    {"b": 1, "aa": 2, "a": {"z": None, "y": [True, False, "é"]}},
    'a "quoted" \\ \n\t\b\f\r\x01\x1f\x7f€😀',
]
_canonical = msgspec.msgpack.Encoder(order="deterministic").encode


class Sql:
    """A connection that knows nothing of Mainstay, to a database where it is set up."""

    def __init__(self, db: Any, url: str) -> None:
        self.db = db
        self.url = url
        self.schema = url.partition("schema=")[2].partition("&")[0]

    async def submit(self, arguments: str, *values: Any) -> str:
        return str(await self.db.fetchval(f"SELECT {self.schema}.submit({arguments})", *values))


@pytest.fixture
async def sql(postgres_url: str) -> AsyncIterator[Sql]:
    await (await open_store(postgres_url)).close()
    db = await asyncpg.connect(server(postgres_url))
    try:
        yield Sql(db, postgres_url)
    finally:
        await db.close()


@pytest.fixture
async def app(sql: Sql) -> AsyncIterator[App]:
    app = App(sql.url)

    @app.task(name="mail.send", queue="mail")
    async def send(to: str, *more: str, copies: int = 1) -> list[Any]:
        return [to, *more, copies]

    async with app:
        yield app
        report = await check(app.control.store)
        assert report.clean, report.remaining


async def job_of(app: App, job_id: str) -> Job:
    return await app.control.jobs.get(job_id)


async def test_a_worker_runs_it_with_arguments_by_name_and_by_place(sql: Sql, app: App) -> None:
    named = await sql.submit("""'mail.send', kwargs => '{"to": "a@b.c", "copies": 2}', queue => 'mail'""")
    placed = await sql.submit("""'mail.send', '["a@b.c", "d"]', '{"copies": 3}', 'mail'""")

    async with working(app):
        assert await app.handle(named).result("60s") == ["a@b.c", 2]
        assert await app.handle(placed).result("60s") == ["a@b.c", "d", 3]


async def test_arguments_that_do_not_fit_are_told_by_the_job(sql: Sql, app: App) -> None:
    wrong = await sql.submit("""'mail.send', '[]', '{"copies": 3}', 'mail'""")
    more = await sql.submit("""'mail.send', '["a"]', '{"to": "b"}', 'mail'""")

    async with working(app):
        with pytest.raises(JobFailed, match="mail.send"):
            await app.handle(wrong).result("60s")
        with pytest.raises(JobFailed, match="multiple values for argument 'to'"):
            await app.handle(more).result("60s")


async def test_a_trigger_submits_with_the_row_that_caused_it(sql: Sql, app: App) -> None:
    schema = sql.schema
    await sql.db.execute(f"""
        CREATE TABLE {schema}.orders (mail text);
        CREATE FUNCTION {schema}.confirm() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM {schema}.submit('mail.send', kwargs => jsonb_build_object('to', NEW.mail), queue => 'mail');
            RETURN NEW;
        END $$;
        CREATE TRIGGER confirmed AFTER INSERT ON {schema}.orders FOR EACH ROW EXECUTE FUNCTION {schema}.confirm();
    """)
    async with sql.db.transaction():
        await sql.db.execute(f"INSERT INTO {schema}.orders VALUES ('kept@b.c')")
    rolled_back = sql.db.transaction()
    await rolled_back.start()
    await sql.db.execute(f"INSERT INTO {schema}.orders VALUES ('lost@b.c')")
    await rolled_back.rollback()

    [job] = (await app.control.store.find(Query())).jobs
    async with working(app):
        assert await app.handle(job.id).result("60s") == ["kept@b.c", 1]


async def test_those_who_wait_hear_of_it_at_the_commit(sql: Sql, app: App) -> None:
    store = app.control.store
    async with store.wake(["queue:mail"]) as wake, on_asyncpg(sql.url) as transaction:
        await store.stats()
        await transaction.execute(f"SELECT {sql.schema}.submit('mail.send', '[\"a\"]', queue => 'mail')")
        assert not await wake.wait(0.05)
        await transaction.commit()
        assert await wake.wait(60)


async def test_it_is_the_job_that_python_would_have_submitted(sql: Sql, app: App) -> None:
    python = await (await app.tasks["mail.send"].submit(to="a@b.c")).job()
    ours = await job_of(app, await sql.submit("""'mail.send', kwargs => '{"to": "a@b.c"}', queue => 'mail'"""))

    check_id(ours.id)
    differ = {"id", "head", "created_ms", "changed_ms", "due_ms", "rank"}
    for field in Job.__struct_fields__:
        if field not in differ:
            assert getattr(ours, field) == getattr(python, field), field
    [event] = await app.control.jobs.events(ours.id)
    [other] = await app.control.jobs.events(python.id)
    assert (event.actor, other.actor) == ("sql:owner", "client")
    # what else Python seals, the server cannot: it does not write options as Python does
    assert event.data == {"payload_sha256": other.data["payload_sha256"]}
    assert (event.source, event.to) == (other.source, other.to)
    assert ours.rank - ours.due_ms == python.rank - python.due_ms == 0


async def test_the_defaults_are_those_of_the_settings() -> None:
    assert OptionReader(Settings()).plain.options == Options()


async def test_every_option_is_stored_as_python_stores_it(sql: Sql, app: App) -> None:
    options = {
        "queue": "slow",
        "key": "k",
        "priority": 7,
        "delay": "90s",
        "retries": 9,
        "timeout": "2m",
        "unique": "u",
        "concurrency_key": "c",
        "tags": ["a", "b"],
    }
    python = await app.control.jobs.get((await app.control.jobs.submit("mail.print", {}, **options)).id)
    await app.control.operations.cancel(python.id, actor="ann", reason="its unique key is wanted")
    ours = await job_of(
        app,
        await sql.submit(
            "'mail.print', queue => 'slow', key => 'l', priority => 7, delay => '90 seconds', retries => 9, "
            "timeout => '2 minutes', unique_key => 'u', concurrency_key => 'c', tags => '{a,b}'"
        ),
    )

    assert (ours.options, ours.queue, ours.priority) == (python.options, "slow", 7)
    assert (ours.unique_key, ours.concurrency_key, ours.key) == (python.unique_key, "c", "l")
    assert (ours.status, ours.due_ms - ours.created_ms, ours.lane) == ("scheduled", 90_000, 2)
    assert ours.rank - ours.due_ms == python.rank - python.due_ms
    assert ours.reason is not None
    assert ours.reason.startswith("waits until 2")


async def test_a_key_is_submitted_once(sql: Sql, app: App) -> None:
    submit = """'mail.send', '["a"]', key => $1"""
    first = await sql.submit(submit, "k")

    assert await sql.submit(submit, "k") == first
    assert await sql.submit(submit, "other") != first
    with pytest.raises(asyncpg.UniqueViolationError, match="idempotency key 'k' of mail.send was used before"):
        await sql.submit("""'mail.send', '["b"]', key => $1""", "k")


async def test_a_key_whose_time_is_over_may_be_used_again(sql: Sql, app: App) -> None:
    first = await sql.submit("'mail.send', key => 'k'")
    await sql.db.execute(f"UPDATE {sql.schema}.keys SET until_ms = 1")

    assert await sql.submit("""'mail.send', '["b"]', key => 'k'""") != first


async def test_a_unique_key_gives_back_the_job_that_holds_it(sql: Sql, app: App) -> None:
    first = await sql.submit("'mail.send', unique_key => 'u'")

    assert await sql.submit("'mail.send', unique_key => 'u', key => 'k'") == first
    await app.control.operations.cancel(first, actor="ann")
    second = await sql.submit("'mail.send', unique_key => 'u', key => 'k'")
    assert second != first
    assert (await app.control.jobs.submit("mail.send", {}, unique="u")).id == second


async def test_a_store_with_an_audit_key_refuses_it(postgres_url: str) -> None:
    await (await open_store(postgres_url, audit_key=b"secret")).close()
    db = await asyncpg.connect(server(postgres_url))
    try:
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="sealed with a key") as refused:
            await Sql(db, postgres_url).submit("'mail.send'")
        assert "submit from Python" in refused.value.hint
    finally:
        await db.close()


REFUSED = [
    ("NULL", "needs a name"),
    ("''", "'' is not a valid name"),
    ("'a b'", "'a b' is not a valid name"),
    ("repeat('x', 201)", "longer than 200"),
    ("'a', queue => 'a b'", "'a b' is not a valid queue"),
    ("'a', queue => NULL", "needs a name and a queue"),
    ("'a', args => '{}'", "args must be a JSON array"),
    ("'a', kwargs => '[]'", "kwargs a JSON object"),
    ("'a', args => NULL", "args must be a JSON array"),
    ("'a', key => ' '", "' ' is not a valid key"),
    ("'a', key => E'a\\nb'", "is not a valid key"),
    ("'a', tags => '{\"\"}'", "'' is not a valid tags"),
    ("'a', priority => 101", "priority from -100 to 100"),
    ("'a', delay => '-1s'", "no negative delay"),
    ("'a', timeout => '0s'", "timeout"),
    ("'a', args => '[18446744073709551616]'", "is too large to be stored"),
    ("'a', args => jsonb_build_array(repeat('x', 1048577))", "more than the limit of 1048576"),
]


async def test_what_python_would_refuse_is_refused(sql: Sql, app: App) -> None:
    for arguments, complaint in REFUSED:
        with pytest.raises(asyncpg.PostgresError, match=complaint):
            await sql.submit(arguments)


async def test_json_becomes_the_msgpack_that_python_makes(sql: Sql) -> None:
    for value in EDGES:
        made = await sql.db.fetchval(f"SELECT {sql.schema}.msgpack($1)", json.dumps(value))
        assert made == _canonical(value), f"{type(value).__name__} {str(value)[:20]}"


_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
_whole = st.integers(-(2**63), 2**64 - 1)
_data = st.recursive(
    st.none() | st.booleans() | _whole | _text,
    lambda inner: st.lists(inner) | st.dictionaries(_text, inner),
)


async def test_any_data_becomes_the_msgpack_that_python_makes(sql: Sql) -> None:
    loop = asyncio.get_running_loop()

    @given(_data)
    def examples(value: Any) -> None:
        asked = sql.db.fetchval(f"SELECT {sql.schema}.msgpack($1)", json.dumps(value))
        assert asyncio.run_coroutine_threadsafe(asked, loop).result() == _canonical(value)

    await asyncio.to_thread(examples)


async def test_odd_names_are_sealed_as_python_seals_them(postgres_url: str) -> None:
    """Who submitted stands in the sealed event, and roles may be called anything."""
    await (await open_store(postgres_url)).close()
    admin = await asyncpg.connect(server(postgres_url))
    sql = Sql(admin, postgres_url)
    role = f'o"dd\\ \té€ {sql.schema}'
    quoted = '"' + role.replace('"', '""') + '"'
    await admin.execute(f"CREATE ROLE {quoted} LOGIN SUPERUSER")
    try:
        db = await asyncpg.connect(server(places.server_url("postgresql")), user=role)
        job_id = await Sql(db, postgres_url).submit("'mail.send', delay => '1 hour'")
        await db.close()
        store = await open_store(postgres_url)
        try:
            [event] = await store.events(job_id)
            assert event.actor == f"sql:{role}"
            report = await check(store)
            assert report.clean, report.remaining
        finally:
            await store.close()
    finally:
        await admin.execute(f"DROP ROLE {quoted}")
        await admin.close()

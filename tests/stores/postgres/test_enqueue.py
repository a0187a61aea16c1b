"""Jobs that are submitted within a transaction of the user's own share its fate."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from mainstay import App, Draft, context
from mainstay.clock import Clock
from mainstay.control.check import check
from mainstay.errors import (
    Conflict,
    InvalidInput,
    KeyConflict,
    SchemaTooOld,
    StoreError,
    StoreLocked,
    UniqueClash,
    WrongAuditKey,
)
from mainstay.stores import Query
from mainstay.stores.postgres.schema.definition import VERSION
from mainstay.testing import VirtualClock
from tests.app.working import working
from tests.stores.postgres.transactions import ALL, ASYNC, SYNC, on_asyncpg, server

NOBODY = "01890000-0000-7000-8000-000000000000"


class Shop:
    """An app whose store is open, with one task."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.url = url
        self.app = App(url, **settings)

        @self.app.task(name="mail.send", queue="mail")
        async def send(to: str, copies: int = 1) -> int:
            return copies

        @self.app.task(name="mail.sum", queue="mail")
        async def total() -> int:
            return sum([each.result for each in await context().inputs()])

        self.send, self.total = send, total

    async def names(self) -> list[str]:
        page = await self.app.control.store.find(Query())
        return [job.name for job in page.jobs]

    async def assert_sound(self) -> None:
        report = await check(self.app.control.store)
        assert report.clean, report.remaining


@pytest.fixture
async def shop(postgres_url: str) -> AsyncIterator[Shop]:
    made = Shop(postgres_url)
    async with made.app:
        yield made
        await made.assert_sound()


# what shares its fate -------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ALL)
async def test_what_is_rolled_back_was_never_submitted_and_what_is_committed_was(shop: Shop, way: str) -> None:
    async with ALL[way](shop.url) as transaction:
        lost = await shop.send.options(key="k", tags=["x"]).within(transaction.connection).submit("a@b.c")
        assert lost.created
        assert await shop.names() == []
        await transaction.rollback()
    assert await shop.names() == []

    async with ALL[way](shop.url) as transaction:
        kept = await shop.send.options(key="k", tags=["x"]).within(transaction.connection).submit("a@b.c", copies=2)
        again = await shop.send.options(key="k", tags=["x"]).within(transaction.connection).submit("a@b.c", copies=2)
        await transaction.commit()

    job = await kept.job()
    assert (kept.created, again.created, again.id) == (True, False, kept.id)
    assert (job.status, job.queue, job.key, job.options.tags) == ("pending", "mail", "k", ("x",))
    [line] = await kept.story()
    assert line.endswith("new -> pending by client")


@pytest.mark.parametrize("way", SYNC)
async def test_sync_code_opens_nothing_and_starts_no_thread(postgres_url: str, way: str) -> None:
    shop = Shop(postgres_url)
    async with shop.app:
        pass  # sets the schema up
    before = {thread.ident for thread in threading.enumerate()}

    async with SYNC[way](shop.url) as transaction:
        single = shop.send.within(transaction.connection).submit_sync("a@b.c")
        many = shop.app.submit_many_sync([shop.send.job("b"), shop.send.job("c")], connection=transaction.connection)
        group = shop.app.group_sync([shop.send.job("d")], then=shop.total.job(), connection=transaction.connection)
        await transaction.commit()

    assert {thread.ident for thread in threading.enumerate()} <= before
    assert shop.app.client.connection.control is None
    async with shop.app:
        assert [await each.status() for each in (single, *many, *group.members)] == ["pending"] * 4
        assert await group.then.status() == "scheduled"
        await shop.assert_sound()


@pytest.mark.parametrize("way", ["asyncpg", "psycopg", "SQLAlchemy AsyncSession, asyncpg"])
async def test_a_worker_picks_it_up_at_the_commit(shop: Shop, way: str) -> None:
    store = shop.app.control.store
    async with store.wake(["queue:mail"]) as wake, ALL[way](shop.url) as transaction:
        await store.stats()  # a subscription is in force for what its store does next
        job = await shop.send.within(transaction.connection).submit("a@b.c", copies=3)
        assert not await wake.wait(0.05)
        await transaction.commit()
        assert await wake.wait(60)

    async with working(shop.app):
        assert await job.result("60s") == 3


async def test_groups_run_and_know_their_members(shop: Shop) -> None:
    async with on_asyncpg(shop.url) as transaction:
        members = [shop.send.job("a", copies=1), shop.send.job("b", copies=4)]
        then = shop.total.options(key="g").job()
        group = await shop.app.group(members, then=then, connection=transaction.connection)
        again = await shop.app.group(members, then=then, connection=transaction.connection)
        await transaction.commit()

    assert (again.then.id, again.then.created) == (group.then.id, False)
    assert [each.id for each in again.members] == [each.id for each in group.members]
    async with working(shop.app):
        assert await group.then.result("60s") == 5


async def test_many_are_submitted_in_chunks_of_one_transaction(shop: Shop) -> None:
    told: list[int] = []

    async def jobs() -> AsyncIterator[Any]:
        for n in range(5):
            yield shop.send.job(str(n))

    async with on_asyncpg(shop.url) as transaction:
        made = await shop.app.submit_many(jobs(), chunk=2, progress=told.append, connection=transaction.connection)
        with pytest.raises(InvalidInput) as failed:
            await shop.app.submit_many([shop.send.job("x"), 7], chunk=1, connection=transaction.connection)  # type: ignore[list-item]
        await transaction.commit()

    assert (len(made), told) == (5, [2, 4, 5])
    assert "the 1 jobs before this chunk are part of your transaction" in failed.value.__notes__[0]
    assert len(await shop.names()) == 6


# options ---------------------------------------------------------------------------------------------


async def test_hooks_and_codecs_apply(postgres_url: str) -> None:
    class Reversed:
        encode = decode = staticmethod(lambda data: data[::-1])

    shop = Shop(postgres_url, codec=Reversed())

    @shop.app.before_submit
    def traced(draft: Draft) -> None:
        draft.add_metadata(trace=str(draft.arguments["to"]))

    async with shop.app:
        async with on_asyncpg(shop.url) as transaction:
            job = await shop.send.within(transaction.connection).submit("a@b.c", copies=2)
            await transaction.commit()
        row = await job.job()
        assert row.options.metadata == {"trace": "a@b.c"}
        assert b"a@b.c" not in row.payload
        async with working(shop.app):
            assert await job.result("60s") == 2


async def test_a_delay_counts_from_the_server_s_clock(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    real_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() - 3_600_000_000_000)  # this machine is an hour late
    async with on_asyncpg(shop.url) as transaction:
        server_ms = await transaction.connection.fetchval("SELECT extract(epoch FROM clock_timestamp()) * 1000")
        job = await shop.send.options(delay=timedelta(hours=1)).within(transaction.connection).submit("a@b.c")
        await transaction.commit()

    row = await job.job()
    assert row.status == "scheduled"
    assert 3_600_000 <= row.due_ms - int(server_ms) < 3_660_000


async def test_a_clock_that_was_given_is_the_one_that_counts(postgres_url: str) -> None:
    clock: Clock = VirtualClock()
    shop = Shop(postgres_url, clock=clock)
    async with shop.app, on_asyncpg(shop.url) as transaction:
        job = await shop.send.within(transaction.connection).submit("a@b.c")
        await transaction.commit()
        assert (await job.job()).created_ms == clock.now_ms()


async def test_events_are_sealed_with_the_audit_key(postgres_url: str) -> None:
    shop = Shop(postgres_url, audit_key=b"secret")
    async with shop.app:
        async with on_asyncpg(shop.url) as transaction:
            await shop.send.options(key="k").within(transaction.connection).submit("a@b.c")
            other = Shop(postgres_url, audit_key=b"other")
            with pytest.raises(WrongAuditKey, match="another one is set"):
                await other.send.within(transaction.connection).submit("a@b.c")
            await transaction.commit()
        await shop.assert_sound()
        assert len(await shop.names()) == 1


@pytest.mark.parametrize("way", ["asyncpg", "psycopg", "SQLAlchemy AsyncConnection, asyncpg"])
async def test_a_refusal_leaves_the_transaction_as_it_was(shop: Shop, way: str) -> None:
    async with ALL[way](shop.url) as transaction:
        inside = transaction.connection
        await shop.send.options(key="k").within(inside).submit("a@b.c")
        await shop.send.options(unique="u").within(inside).submit("a@b.c")
        with pytest.raises(KeyConflict, match="^idempotency key 'k'"):
            await shop.send.options(key="k").within(inside).submit("other")
        with pytest.raises(UniqueClash):
            await shop.send.options(unique="u", on_clash="refuse").within(inside).submit("a@b.c")
        with pytest.raises(InvalidInput, match="needs its own transaction"):
            await shop.send.options(unique="u", on_clash="replace").within(inside).submit("a@b.c")
        with pytest.raises(InvalidInput, match="there is no job"):
            await shop.send.options(after=[NOBODY]).within(inside).submit("a@b.c")
        with pytest.raises(InvalidInput, match="copies"):
            await shop.send.within(inside).submit("a@b.c", copies="many")  # type: ignore[arg-type]
        await transaction.execute("SELECT 1")
        await transaction.commit()

    assert len(await shop.names()) == 2


@pytest.mark.parametrize(("ended", "status"), [("cancelled", "skipped"), ("succeeded", "pending")])
async def test_what_it_waits_for_may_have_settled_already(shop: Shop, ended: str, status: str) -> None:
    first = await shop.send.submit("first", copies=1)
    if ended == "cancelled":
        await first.cancel()
    else:
        async with working(shop.app):
            await first.result("60s")

    async with on_asyncpg(shop.url) as transaction:
        inside = transaction.connection
        second = shop.send.options(after=[first])
        [waits] = await shop.app.submit_many([second.job("second")], connection=inside)
        third = await shop.send.options(after=[waits]).within(inside).submit("third")
        await transaction.commit()

    assert await waits.status() == status
    assert await third.status() == ("skipped" if status == "skipped" else "scheduled")


async def test_what_it_waits_for_may_be_gone_with_only_its_key_left(shop: Shop) -> None:
    gone = await shop.send.options(key="k").submit("first")
    await shop.app.control.operations.delete(gone.id, actor="ann", reason="a test")

    async with on_asyncpg(shop.url) as transaction:
        members = [shop.send.options(key="k").job("first"), shop.send.job("second")]
        group = await shop.app.group(members, then=shop.total.job(), connection=transaction.connection)
        await transaction.commit()

    assert (group.members[0].id, group.members[0].created) == (gone.id, False)
    assert await group.then.status() == "skipped"


async def test_what_it_waits_for_may_settle_after_the_commit(shop: Shop) -> None:
    first = await shop.send.submit("first", copies=1)
    async with on_asyncpg(shop.url) as transaction:
        second = await shop.send.options(after=[first]).within(transaction.connection).submit("second", copies=2)
        await transaction.commit()

    async with working(shop.app):
        assert await second.result("60s") == 2


# others at the same time -------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_whoever_submits_with_the_same_key_waits_for_the_transaction_to_end(shop: Shop, ends: str) -> None:
    keyed = shop.send.options(key="k")
    async with on_asyncpg(shop.url) as mine, on_asyncpg(shop.url) as theirs:
        first = await keyed.within(mine.connection).submit("a@b.c")
        other = asyncio.ensure_future(keyed.within(theirs.connection).submit("a@b.c"))
        await _blocked(shop.url)
        await (mine.commit() if ends == "commit" else mine.rollback())
        second = await other
        await theirs.commit()

    assert (second.created, second.id == first.id) == ((False, True) if ends == "commit" else (True, False))


async def test_the_wait_is_bounded_and_the_transaction_goes_on(postgres_url: str) -> None:
    shop = Shop(f"{postgres_url}&lock_timeout=100ms")
    async with shop.app:
        async with on_asyncpg(shop.url) as mine, on_asyncpg(shop.url) as theirs:
            await shop.send.options(key="k").within(mine.connection).submit("a@b.c")
            with pytest.raises(StoreLocked, match="another transaction"):
                await shop.send.options(key="k").within(theirs.connection).submit("a@b.c")
            assert await theirs.connection.fetchval("SHOW lock_timeout") == "0"
            await shop.send.options(key="other").within(theirs.connection).submit("a@b.c")
            assert await theirs.connection.fetchval("SHOW lock_timeout") == "0"
            await theirs.commit()
        assert len(await shop.names()) == 1


async def test_a_key_that_the_transaction_cannot_see_is_told_as_such(shop: Shop) -> None:
    keyed = shop.send.options(key="k")
    seen = await shop.send.options(key="seen").submit("a@b.c")
    async with on_asyncpg(shop.url) as transaction:
        await transaction.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await transaction.connection.fetch("SELECT 1 FROM pg_class LIMIT 1")  # from here on it sees nothing new
        first = await keyed.submit("a@b.c")
        again = await shop.send.options(key="seen").within(transaction.connection).submit("a@b.c")
        assert (again.created, again.id) == (False, seen.id)

        with pytest.raises(Conflict, match="yours cannot see it \\(repeatable read\\).*Run your transaction again"):
            await keyed.within(transaction.connection).submit("a@b.c")

        await shop.send.within(transaction.connection).submit("b@b.c")
        await transaction.commit()
    assert first.created


async def test_nobody_who_works_waits_for_an_open_transaction(shop: Shop) -> None:
    async with on_asyncpg(shop.url) as transaction:
        await shop.send.options(key="k").within(transaction.connection).submit("a@b.c")

        # every shard of ours, whichever connection of the store is used
        counted = f"SELECT count(*) FROM {_schema(shop.url)}.tallies WHERE shard < 64"
        assert await transaction.connection.fetchval(counted) == 0
        async with working(shop.app):
            assert await (await shop.send.submit("b", copies=7)).result("60s") == 7
        await transaction.rollback()


async def _blocked(url: str) -> None:
    """Until somebody waits for somebody else's lock."""
    db = await asyncpg.connect(server(url))
    try:
        while not await db.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0.01)
    finally:
        await db.close()


def _schema(url: str) -> str:
    return url.partition("schema=")[2].partition("&")[0]


# what is refused ----------------------------------------------------------------------------------------


async def test_a_connection_without_a_transaction_is_refused(shop: Shop) -> None:
    url = server(shop.url)
    db = await asyncpg.connect(url)
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    async_engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"), isolation_level="AUTOCOMMIT")
    with psycopg.connect(url, autocommit=True) as plain, engine.connect() as connection:
        async with async_engine.connect() as async_connection:
            for each in (db, plain, connection, async_connection):
                with pytest.raises(InvalidInput, match="^connection: no transaction is open on it"):
                    await shop.send.within(each).submit("a@b.c")
        with plain.transaction():
            await shop.send.within(plain).submit("a@b.c")
    await db.close()
    engine.dispose()
    await async_engine.dispose()

    assert len(await shop.names()) == 1


async def test_what_is_no_connection_is_refused_by_its_name_with_what_there_is(shop: Shop) -> None:
    sqlite = create_engine("sqlite://")
    async with asyncpg.create_pool(server(shop.url), min_size=0) as pool:
        for given, complaint in (
            (
                7,
                "builtins.int is not supported; pass an asyncpg Connection, a psycopg Connection or AsyncConnection",
            ),
            (pool, r"asyncpg.pool.Pool \(a source of connections, not a connection\) is not supported"),
            (sqlite, r"sqlalchemy.engine.base.Engine \(a source of connections"),
        ):
            with pytest.raises(InvalidInput, match=complaint):
                await shop.send.within(given).submit("a@b.c")
    with sqlite.connect() as connection, pytest.raises(InvalidInput, match=r"SQLAlchemy uses sqlite\+pysqlite here"):
        await shop.send.within(connection).submit("a@b.c")


@pytest.mark.parametrize("way", ASYNC)
async def test_an_async_connection_in_sync_code_is_refused(shop: Shop, way: str) -> None:
    async with ASYNC[way](shop.url) as transaction:
        with pytest.raises(InvalidInput, match="write `await submit"):
            shop.send.within(transaction.connection).submit_sync("a@b.c")


@pytest.mark.parametrize("way", ["asyncpg", "psycopg", "SQLAlchemy Session"])
async def test_a_transaction_that_failed_before_is_told_as_such(shop: Shop, way: str) -> None:
    async with ALL[way](shop.url) as transaction:
        with pytest.raises(Exception, match="division by zero"):
            await transaction.execute("SELECT 1 / 0")
        with pytest.raises(StoreError, match="has already failed; roll it back"):
            await shop.send.within(transaction.connection).submit("a@b.c")
        await transaction.rollback()


@pytest.mark.parametrize("way", ["asyncpg", "psycopg", "SQLAlchemy Session"])
async def test_a_database_without_the_store_is_told_as_such(postgres_url: str, way: str) -> None:
    shop = Shop(postgres_url)
    async with ALL[way](shop.url) as transaction:
        with pytest.raises(StoreError, match="is not set up in the database of this connection"):
            await shop.send.within(transaction.connection).submit("a@b.c")
        await transaction.rollback()


async def test_a_store_of_another_version_is_refused(shop: Shop) -> None:
    async with on_asyncpg(shop.url) as transaction:
        await transaction.execute(f"UPDATE {_schema(shop.url)}.facts SET value = '0' WHERE name = 'version'")
        with pytest.raises(
            SchemaTooOld, match=f"of Mainstay yet, this Mainstay needs version {VERSION}.*mainstay store migrate"
        ):
            await shop.send.within(transaction.connection).submit("a@b.c")
        await transaction.rollback()


async def test_a_read_only_transaction_is_told_as_such(shop: Shop) -> None:
    engine = create_engine(server(shop.url).replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        connection.execute(text("SET TRANSACTION READ ONLY"))
        with pytest.raises(StoreError, match="cannot write"):
            shop.send.within(connection).submit_sync("a@b.c")
    engine.dispose()


# how safe it is -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("had", "asked", "has"),
    [
        ("off", "local", "local"),
        ("local", "replicated", "on"),
        ("on", "applied", "remote_apply"),
        ("remote_apply", "local", "remote_apply"),
        ("local", None, "local"),
    ],
)
async def test_the_commit_is_made_as_safe_as_was_asked_and_never_less(
    shop: Shop, had: str, asked: Any, has: str
) -> None:
    async with on_asyncpg(shop.url) as transaction:
        await transaction.execute(f"SET LOCAL synchronous_commit TO {had}")
        job = await shop.send.options(durability=asked).within(transaction.connection).submit("a@b.c")
        assert await transaction.connection.fetchval("SHOW synchronous_commit") == has
        await transaction.rollback()

    named = asked if has != had else f"as the server is configured (synchronous_commit={has})"
    assert job.durability.startswith(f"once your transaction is committed, {named}: ")


# which rights it takes --------------------------------------------------------------------------------------


async def test_a_role_with_the_rights_of_the_page_may_submit_and_another_is_told(shop: Shop) -> None:
    schema = _schema(shop.url)
    role = f"web_{schema}"
    admin = await asyncpg.connect(server(shop.url))
    await admin.execute(f"CREATE ROLE {role} LOGIN")
    web = await asyncpg.connect(server(shop.url), user=role)
    first = await shop.send.submit("first")
    try:
        async with web.transaction():
            with pytest.raises(
                StoreError, match="may not submit jobs .*; grant the privileges that docs/transactions.md lists"
            ):
                await shop.send.within(web).submit("a@b.c")
        for right in (
            f"USAGE ON SCHEMA {schema}",
            f"SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema}",
            f"USAGE ON ALL SEQUENCES IN SCHEMA {schema}",
        ):
            await admin.execute(f"GRANT {right} TO {role}")
        async with web.transaction():
            await shop.send.options(key="k", unique="u", tags=["x"], after=[first]).within(web).submit("a@b.c")
            await web.execute(f"SELECT {schema}.submit('mail.send', '[\"a\"]', key => 'l', tags => '{{x}}')")
        assert len(await shop.names()) == 3
    finally:
        await web.close()
        await admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await admin.close()

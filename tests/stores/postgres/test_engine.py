"""Statements and transactions: as few connections as asked for, sent again where that helps, refused in our words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import parse_qsl, urlsplit

import psycopg
import pytest

from mainstay.clock import SystemClock
from mainstay.errors import Conflict, StoreError, StoreLocked, StoreUnavailable
from mainstay.stores.postgres.connection.address import parse
from mainstay.stores.postgres.connection.engine import PostgresEngine, PostgresTx
from mainstay.stores.postgres.schema.migration import migrate
from servers import Proxy
from tests.stores.postgres.stands import Stores, ask


def engine_at(url: str) -> PostgresEngine:
    return PostgresEngine(parse(url, dict(parse_qsl(urlsplit(url).query))), SystemClock())


@pytest.fixture
async def engine(postgres_url: str) -> AsyncIterator[PostgresEngine]:
    await migrate(postgres_url)
    engine = engine_at(f"{postgres_url}&lock_timeout=300ms")
    await engine.call("CREATE TABLE mainstay.trial (id integer PRIMARY KEY, n integer)")
    await engine.call("INSERT INTO mainstay.trial VALUES (1, 0), (2, 0)")
    yield engine
    await engine.close()


async def test_it_never_has_more_connections_than_asked_for(postgres_url: str) -> None:
    await migrate(postgres_url)
    engine = engine_at(f"{postgres_url}&pool=2&application_name=counted")

    await asyncio.gather(*(engine.call("SELECT pg_sleep(0.01)", lasting=n % 2 == 0) for n in range(20)))

    [(n,)] = ask(postgres_url, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counted'")
    await engine.close()
    assert n == 2


@pytest.mark.parametrize(
    ("durability", "lasting", "level"),
    [("local", True, "local"), ("replicated", True, "on"), ("applied", True, "remote_apply"), (None, False, "off")],
)
async def test_a_commit_is_as_safe_as_asked_for(
    engine: PostgresEngine, durability: str, lasting: bool, level: str
) -> None:
    for _ in range(2):
        rows = await engine.call("SHOW synchronous_commit", lasting=lasting, durability=durability)  # type: ignore[arg-type]
        assert [row[0] for row in rows] == [level]

        async def shown(tx: PostgresTx) -> str:
            found: str = await tx.db.fetchval("SHOW synchronous_commit")
            return found

        assert await engine.transact(shown, lasting=lasting, durability=durability) == level  # type: ignore[arg-type]


async def test_transactions_that_wait_for_each_other_are_both_done_in_the_end(engine: PostgresEngine) -> None:
    engine = engine_at(f"{engine.address.dsn}?schema={engine.address.schema}")
    met = asyncio.Barrier(2)
    runs = 0

    async def both(first: int, second: int) -> None:
        waited = False

        async def run(tx: PostgresTx) -> None:
            nonlocal waited, runs
            runs += 1
            await tx.db.execute("UPDATE mainstay.trial SET n = n + 1 WHERE id = $1", first)
            if not waited:
                waited = True
                await met.wait()
            await tx.db.execute("UPDATE mainstay.trial SET n = n + 1 WHERE id = $1", second)

        await engine.transact(run)

    await asyncio.gather(both(1, 2), both(2, 1))
    found = [tuple(row) for row in await engine.call("SELECT n FROM mainstay.trial")]
    await engine.close()

    assert found == [(2,), (2,)]
    # more often, if it is back before the other has noticed that it was let through
    assert runs >= 3, "one of them lost, and was run again"


async def test_what_raises_is_undone_and_its_connection_stays_good(engine: PostgresEngine) -> None:
    async def run(tx: PostgresTx) -> None:
        await tx.db.execute("UPDATE mainstay.trial SET n = 9")
        raise Conflict("not today")

    with pytest.raises(Conflict, match="not today"):
        await engine.transact(run)

    assert {row[0] for row in await engine.call("SELECT n FROM mainstay.trial")} == {0}


async def test_somebody_elses_open_transaction_is_waited_for_no_longer_than_allowed(
    engine: PostgresEngine, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url.partition("?")[0]) as other:
        other.execute(f"UPDATE {engine.address.schema}.trial SET n = 1 WHERE id = 1")
        with pytest.raises(StoreLocked, match="another transaction on .* holds a lock that this call needs"):
            await engine.call("UPDATE mainstay.trial SET n = 2 WHERE id = 1")


async def test_a_statement_the_server_refuses_is_told_in_one_line_and_not_tried_again(engine: PostgresEngine) -> None:
    with pytest.raises(
        StoreError, match=r"the server refused the call \(.*duplicate key.*\); nothing of it was written"
    ):
        await engine.call("INSERT INTO mainstay.trial VALUES (1, 5)")


async def test_a_caller_that_is_cancelled_leaves_nothing_half_said(engine: PostgresEngine) -> None:
    slow = asyncio.create_task(engine.call("SELECT pg_sleep(5)"))
    await asyncio.sleep(0.05)
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow

    rows = await asyncio.gather(*(engine.call("SELECT $1::integer", n) for n in range(10)))
    assert [found[0][0] for found in rows] == list(range(10))


async def test_a_password_that_is_wrong_is_told_at_once_and_not_shown(postgres_url: str, stores: Stores) -> None:
    with pytest.raises(StoreError) as refused:
        await stores.open(postgres_url.replace("//owner@", "//nobody:secret@"))

    assert "refuses the login" in str(refused.value)
    assert "secret" not in str(refused.value)


async def test_a_server_that_refuses_to_talk_is_tried_as_often_as_asked(proxy: Proxy, stores: Stores) -> None:
    world = await stores.open(f"{proxy.url}&retries=3")
    proxy.refuse()
    proxy.cut()

    with pytest.raises(StoreUnavailable, match="does not answer after 4 tries"):
        await world.submit()

    proxy.accept()
    await world.submit()


async def test_the_time_is_the_servers_and_within_a_transaction_of_one_moment(engine: PostgresEngine) -> None:
    async def run(tx: PostgresTx) -> tuple[int, int]:
        return tx.now_ms, await tx.db.fetchval("SELECT mainstay.clock(NULL)")

    first, then = await engine.transact(run)

    assert 0 <= then - first < 1000
    assert abs(engine.clock.now_ms() - then) < 1000
    assert engine.given_ms is None


async def test_statements_that_a_pooler_forgot_are_told_as_such(engine: PostgresEngine) -> None:
    with pytest.raises(StoreError, match="A pooler shares the connection .*: add listen=off to the URL"):
        await engine.call("EXECUTE nowhere")


async def test_a_connection_that_waits_is_kept_by_the_server(engine: PostgresEngine) -> None:
    assert [row[0] for row in await engine.call("SHOW idle_session_timeout")] == ["0"]

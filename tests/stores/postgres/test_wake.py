"""Waking across processes: each store here is a process's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import psycopg
import pytest

from mainstay.stores import Query, Wake
from mainstay.stores.postgres.wake.subscriptions import PostgresWake, shared_channel
from servers import Postgres, Proxy
from tests.conformance.world import World
from tests.stores.postgres.stands import Stores, ask, postgres, until

LONG_S = 60.0
QUIET_S = 0.2


@pytest.fixture
async def others(postgres_url: str, stores: Stores) -> list[World]:
    return [await stores.open(postgres_url) for _ in range(3)]


async def known_as_waiting(world: World, topic: str, n: int) -> None:
    """Until the server knows that so many wait."""
    schema = postgres(world)._address.schema

    async def so_many() -> bool:
        sql = f"SELECT count(*) FROM {schema}.listeners WHERE topic = %s AND waiting"
        return ask(world.store.url, sql, topic) == [(n,)]

    await until(so_many)


async def closed(wakes: Iterable[Wake]) -> None:
    for wake in wakes:
        await wake.close()


async def test_a_job_submitted_elsewhere_wakes_one_who_waits(world: World, others: list[World]) -> None:
    wakes = [other.store.wake(["queue:default"]) for other in others]
    waiting = [asyncio.create_task(wake.wait(LONG_S)) for wake in wakes]
    await known_as_waiting(world, "queue:default", 3)

    await world.submit()

    done, idle = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    more, idle = await asyncio.wait(idle, timeout=QUIET_S)
    assert ([task.result() for task in done], more) == ([True], set())
    await world.store.insert([world.new(), world.new()])
    assert await asyncio.gather(*idle) == [True, True], "those who were not woken yet"
    await closed(wakes)


async def test_a_lone_job_wakes_one_who_waits_with_its_own_commit(world: World, others: list[World]) -> None:
    wakes = [other.store.wake(["queue:default"]) for other in others]
    waiting = [asyncio.create_task(wake.wait(LONG_S)) for wake in wakes]
    await known_as_waiting(world, "queue:default", 3)
    postgres(world)._board._closed = True  # as if it were killed right after its commit: it rings no more

    await world.submit()

    done, idle = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [True]
    await known_as_waiting(world, "queue:default", 2)
    await others[0].store.insert([others[0].new(), others[0].new()])
    assert await asyncio.gather(*idle) == [True, True]
    await closed(wakes)


async def test_commits_that_wake_do_not_wait_for_each_other(world: World, others: list[World]) -> None:
    gate = "SELECT pg_advisory_lock(hashtextextended('at commit', %s::regclass::oid::bigint))"
    async with others[0].store.wake(["queue:default"]) as wake:
        waiting = asyncio.create_task(wake.wait(LONG_S))
        await known_as_waiting(world, "queue:default", 1)
        with psycopg.connect(world.store.url.partition("?")[0], autocommit=True) as connection:
            connection.execute(gate, [f"{postgres(world)._address.schema}.listeners"])

            await world.submit()

            assert await waiting is True, "by the ring that follows"


async def test_a_commit_that_waits_for_a_replica_keeps_no_wake_of_others_back(
    own_server: Postgres, stores: Stores
) -> None:
    url = own_server.url()
    world, other = [await stores.open(f"{url}?auto_migrate=on") for _ in range(2)]
    async with other.store.wake(["queue:default"]) as wake:
        waiting = asyncio.create_task(wake.wait(LONG_S))
        await known_as_waiting(world, "queue:default", 1)
        ask(url, "ALTER SYSTEM SET synchronous_standby_names TO 'nobody'")
        ask(url, "SELECT pg_reload_conf()")
        inserting = asyncio.create_task(world.store.insert([world.new()], durability="replicated"))
        try:
            await until(lambda: _waits_for_a_replica(url))
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("SET synchronous_commit TO local; SET lock_timeout TO '1s'")
                connection.execute("NOTIFY anybody")
        finally:
            ask(url, "ALTER SYSTEM RESET synchronous_standby_names")
            ask(url, "SELECT pg_reload_conf()")
            await inserting
        assert await waiting is True, "by the ring that follows"


async def _waits_for_a_replica(url: str) -> bool:
    return ask(url, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == [(1,)]


async def test_those_who_wait_come_before_those_who_are_busy(world: World, others: list[World]) -> None:
    busy = [other.store.wake(["queue:default"]) for other in others[:2]]
    for other in others[:2]:
        await other.store.queues()  # registered by now
    async with others[2].store.wake(["queue:default"]) as waits:
        waiting = asyncio.create_task(waits.wait(LONG_S))
        await known_as_waiting(world, "queue:default", 1)

        await world.submit()

        assert await waiting is True
        assert await asyncio.gather(*(wake.wait(QUIET_S) for wake in busy)) == [False, False]
    await closed(busy)


async def test_a_job_that_settles_elsewhere_wakes_everybody_who_waits_for_it(world: World, others: list[World]) -> None:
    await world.open("s1")
    job = await world.running()
    wakes = [other.store.wake([f"job:{job.id}"]) for other in others]
    for other in others:
        assert (await other.row(job)).status == "running"

    await world.move(job, "succeeded", holder="s1")

    assert await asyncio.gather(*(wake.wait(LONG_S) for wake in wakes)) == [True] * 3
    await closed(wakes)


async def test_subscribe_then_read_misses_nothing(world: World, others: list[World]) -> None:
    [other, *_] = others
    for n in range(30):
        async with other.store.wake([f"queue:q{n}"]) as wake:
            submitting = asyncio.create_task(world.submit(queue=f"q{n}"))
            page = await other.store.find(Query(queue=f"q{n}"))
            assert page.jobs or await wake.wait(LONG_S)
            await submitting


async def test_a_process_that_is_gone_swallows_no_wakes(world: World, others: list[World]) -> None:
    schema = postgres(world)._address.schema
    # what a killed process leaves: a registration that nobody hears
    ask(
        world.store.url,
        f"INSERT INTO {schema}.listeners (until_ms, waiting, topic, listener) "
        "SELECT 4102444800000, true, 'queue:default', 'gone' || n FROM generate_series(1, 9) n",
    )
    async with others[0].store.wake(["queue:default"]) as wake:
        waiting = asyncio.create_task(wake.wait(LONG_S))
        await known_as_waiting(world, "queue:default", 10)

        await world.submit()

        assert await waiting is True


async def test_a_lost_line_is_made_again_and_everybody_looks_once(world: World, proxy: Proxy, stores: Stores) -> None:
    other = await stores.open(proxy.url)
    async with other.store.wake(["queue:default"]) as wake:
        await other.store.queues()
        proxy.cut()
        assert await wake.wait(LONG_S) is True, "something may have been missed"

        waiting = asyncio.create_task(wake.wait(LONG_S))
        await known_as_waiting(world, "queue:default", 1)
        await world.submit()
        assert await waiting is True


async def test_a_wake_that_was_not_looked_at_is_passed_on(world: World, others: list[World]) -> None:
    first, second, _ = others
    leaves = first.store.wake(["queue:default"])
    await first.store.queues()
    await world.submit()
    assert isinstance(leaves, PostgresWake)
    await until(lambda: has_been_rung(leaves))
    async with second.store.wake(["queue:default"]) as stays:
        await second.store.queues()

        await leaves.close()

        assert await stays.wait(LONG_S) is True


async def has_been_rung(wake: PostgresWake) -> bool:
    return bool(wake.rung)


async def test_a_transaction_of_the_users_own_wakes_by_the_shared_channel(world: World, others: list[World]) -> None:
    async with others[0].store.wake(["queue:default"]) as wake:
        await others[0].store.queues()
        channel = shared_channel(postgres(world)._address.schema)
        ask(world.store.url, "SELECT pg_notify(%s, 'default')", channel)
        assert await wake.wait(LONG_S) is True


async def test_a_store_that_closes_leaves_no_registration(world: World, postgres_url: str, stores: Stores) -> None:
    other = await stores.open(postgres_url)
    async with other.store.wake(["queue:default", "job:x"]):
        await other.store.queues()
        await other.store.close()

    assert ask(postgres_url, f"SELECT count(*) FROM {postgres(world)._address.schema}.listeners") == [(0,)]

"""Whoever lives is heard, whatever others in its process or in the database wait for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import psycopg
import pytest

from mainstay.errors import StoreLocked
from mainstay.model import Job, Progress, Session, Settings
from mainstay.stores import ClaimReport
from mainstay.stores.port import Key
from mainstay.stores.postgres.connection import timeouts
from mainstay.stores.postgres.connection.address import parse
from mainstay.stores.postgres.connection.pool import Db
from mainstay.stores.postgres.wake import listeners
from servers import Proxy
from tests.conformance.world import World
from tests.stores.postgres.stands import Stores, ask, postgres, until

#: much less than a call waits for a lock here, and long enough for a machine that is busy
AT_ONCE_S = 60.0
HOUR_S = 3600


@pytest.fixture
async def world(postgres_url: str, stores: Stores) -> AsyncIterator[World]:
    """A call that waits for a lock does so for longer than any limit of these tests."""
    world = await stores.open(f"{postgres_url}&lock_timeout=10m")
    yield world
    await world.assert_sound()


def schema_of(world: World) -> str:
    return postgres(world)._address.schema


def someone_else(url: str) -> psycopg.Connection:
    """Whose transaction stays open until it is left."""
    return psycopg.connect(url.partition("?")[0])


def test_the_times_leave_room_for_a_second_try() -> None:
    address, settings = parse("postgresql://db/jobs", {}), Settings()

    assert address.lock_timeout_s + settings.heartbeat_s < settings.lease_s
    assert settings.lease_s > timeouts.IDLE_S
    assert timeouts.GONE_S > timeouts.QUICK_S + timeouts.TRY_S


async def test_a_sweeper_that_stands_still_keeps_nobody_from_beating(
    world: World, postgres_url: str, stores: Stores
) -> None:
    await world.open("live", "silent")
    ask(postgres_url, f"UPDATE {schema_of(world)}.sessions SET lease_s = 0 WHERE id = 'silent'")
    with someone_else(postgres_url) as sweeper:
        [(buried,)] = sweeper.execute(f"SELECT {schema_of(world)}.bury(NULL)").fetchall()
        assert buried == ["silent"]

        async with asyncio.timeout(AT_ONCE_S):
            assert [pulse.known for pulse in await world.store.beat(["live"])] == [True]
            assert await world.store.overdue() == [], "another sweeper passes over what this one has"


async def test_a_sweep_holds_no_locks_between_its_statements(
    world: World, postgres_url: str, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.open("live", "silent")
    await world.running("silent")
    ask(postgres_url, f"UPDATE {schema_of(world)}.sessions SET lease_s = 0 WHERE id = 'silent'")
    sweeper = await stores.open(postgres_url)
    stopped, go_on, fetch = asyncio.Event(), asyncio.Event(), Db.fetch
    loop = asyncio.get_running_loop()

    async def stopping(db: Db, sql: str, *args: object) -> list[object]:
        if "holders" in sql:
            loop.call_soon_threadsafe(stopped.set)
            while not go_on.is_set():
                await asyncio.sleep(0.01)
        return await fetch(db, sql, *args)

    monkeypatch.setattr(Db, "fetch", stopping)
    sweeping = asyncio.create_task(sweeper.store.overdue())
    await stopped.wait()

    try:
        async with asyncio.timeout(AT_ONCE_S):
            assert [pulse.known for pulse in await world.store.beat(["live", "silent"])] == [True, False]
    finally:
        go_on.set()
    assert len(await sweeping) == 1
    await world.reap()


async def test_a_session_that_beats_while_it_is_looked_at_is_not_declared_dead(world: World, postgres_url: str) -> None:
    await world.open("s1")
    ask(postgres_url, f"UPDATE {schema_of(world)}.sessions SET lease_s = 0")
    with someone_else(postgres_url) as beating:
        beating.execute(f"UPDATE {schema_of(world)}.sessions SET lease_s = 3600")  # the next sweep finds it alive
        async with asyncio.timeout(AT_ONCE_S):
            await world.store.overdue()
    await world.store.overdue()

    assert [session.dead for session in await world.store.sessions()] == [False]


async def test_a_beat_does_not_wait_behind_other_calls_of_its_process(world: World, postgres_url: str) -> None:
    await world.open("s1")
    key = Key(scope="t", name="k", content=b"x" * 32, until_ms=world.clock.now_ms() + 10**8)
    with someone_else(postgres_url) as other:
        other.execute(f"SELECT {schema_of(world)}.submit('t', key => 'k')")
        waiting = [
            asyncio.create_task(world.store.insert([msgspec.structs.replace(world.new(name="t"), key=key)]))
            for _ in range(8)
        ]
        schema = schema_of(world)

        async def they_wait() -> bool:
            sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
            return ask(postgres_url, sql, f'%"{schema}"%') == [(4,)]

        await until(they_wait)
        async with asyncio.timeout(AT_ONCE_S):
            assert (await world.store.beat(["s1"]))[0].known
            assert (await world.store.lead("leader", "s1", HOUR_S)).holder == "s1"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_report_on_a_row_that_is_locked_is_kept_for_the_next_beat(world: World, postgres_url: str) -> None:
    await world.open("s1")
    awaited, free = await world.running(queue="a"), await world.running(queue="b")
    begun_ms = world.clock.now_ms()
    reports = [
        ClaimReport(
            job_id=job.id, session="s1", token=job.token, started_ms=begun_ms, progress=Progress(done=1, total=2)
        )
        for job in (awaited, free)
    ]
    with someone_else(postgres_url) as other:
        other.execute(f"SELECT FROM {schema_of(world)}.jobs WHERE id = %s FOR SHARE", (awaited.id,))
        async with asyncio.timeout(AT_ONCE_S):
            assert (await world.store.beat(["s1"], reports))[0].known
            assert (await world.store.beat(["s1"]))[0].known
        assert (await world.row(free)).started_ms == begun_ms
        assert (await world.row(awaited)).started_ms is None

    await world.store.beat(["s1"])

    row = await world.row(awaited)
    assert (row.started_ms, row.starts, row.progress) == (begun_ms, 1, Progress(done=1, total=2))


async def test_a_report_on_a_row_that_is_locked_holds_up_no_other(
    world: World, postgres_url: str, stores: Stores
) -> None:
    hasty = await stores.open(f"{postgres_url}&lock_timeout=200ms")
    await hasty.open("s1")
    awaited, free = await hasty.running(queue="a"), await hasty.running(queue="b")

    def done(job: Job, n: int, **more: Any) -> ClaimReport:
        return ClaimReport(job_id=job.id, session="s1", token=job.token, progress=Progress(done=n, total=9), **more)

    with someone_else(postgres_url) as other:
        other.execute(f"SELECT FROM {schema_of(world)}.jobs WHERE id = %s FOR SHARE", (awaited.id,))
        assert await hasty.store.report([done(awaited, 1), done(free, 1)]) == [True, True], "both are held"
        with pytest.raises(StoreLocked):
            await hasty.store.report([done(awaited, 2, checkpoint=b"x"), done(free, 2)])
        assert (await hasty.row(free)).progress == Progress(done=2, total=9)
        assert (await hasty.row(awaited)).progress is None

    await hasty.store.beat(["s1"])

    row = await hasty.row(awaited)
    assert (row.progress, row.checkpoint) == (Progress(done=1, total=9), None), (
        "the other was refused, and is the caller's"
    )


async def test_what_is_reported_later_is_not_overwritten_by_what_was_kept(world: World, postgres_url: str) -> None:
    await world.open("s1")
    job = await world.running()

    def said(n: int) -> ClaimReport:
        return ClaimReport(job_id=job.id, session="s1", token=job.token, checkpoint=b"%d" % n)

    started = ClaimReport(job_id=job.id, session="s1", token=job.token, started_ms=7)
    with someone_else(postgres_url) as other:
        other.execute(f"SELECT FROM {schema_of(world)}.jobs WHERE id = %s FOR SHARE", (job.id,))
        await world.store.beat(["s1"], [started, said(1)])
    assert await world.store.report([said(2)]) == [True]
    await world.store.beat(["s1"])

    row = await world.row(job)
    assert (row.started_ms, row.checkpoint) == (7, b"2")


async def test_a_beat_waits_for_no_subscription_and_a_read_not_for_long(
    world: World, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.open("s1")
    async with world.store.wake(["queue:default"]) as first:
        waiting = asyncio.create_task(first.wait(60))
        await world.store.queues()
        with someone_else(postgres_url) as other:
            other.execute(f"LOCK TABLE {schema_of(world)}.listeners IN ACCESS EXCLUSIVE MODE")
            async with world.store.wake(["job:x"]) as second:
                with monkeypatch.context() as longer:
                    longer.setattr(listeners, "GATE_S", 10 * AT_ONCE_S)
                    async with asyncio.timeout(AT_ONCE_S):
                        assert (await world.store.beat(["s1"]))[0].known
                async with asyncio.timeout(timeouts.GATE_S + AT_ONCE_S):
                    await world.store.queues()
                other.rollback()
                assert await second.wait(60), "once it is known, those who did not wait for that look again"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_those_who_are_being_woken_are_not_waited_for(world: World, postgres_url: str, stores: Stores) -> None:
    other = await stores.open(postgres_url)
    async with other.store.wake(["queue:default"]) as wake:
        await other.store.queues()
        with someone_else(postgres_url) as ringing:
            ringing.execute(f"SELECT FROM {schema_of(world)}.listeners FOR UPDATE")
            waiting = asyncio.create_task(wake.wait(AT_ONCE_S))
            async with asyncio.timeout(AT_ONCE_S):
                await world.submit()
                assert await waiting is True


async def test_a_session_that_is_back_in_time_after_an_outage_is_not_dead(
    world: World, proxy: Proxy, stores: Stores, postgres_url: str
) -> None:
    other = await stores.open(proxy.url)
    await other.store.open_session(Session(id="s1", pid=os.getpid(), lease_s=HOUR_S))
    lost = f"SELECT lost_ms IS NOT NULL FROM {schema_of(world)}.sessions WHERE id = 's1'"
    proxy.refuse()
    proxy.cut()

    async def is_noted() -> bool:
        # the clock of the judge stands still, so that the time it takes on a busy machine counts for nothing
        ask(postgres_url, f"UPDATE {schema_of(world)}.sessions SET lost_ms = NULL")
        await world.store.overdue()
        return ask(postgres_url, lost) == [(True,)]

    await until(is_noted)
    proxy.accept()

    async def is_held_again() -> bool:
        return ask(postgres_url, lost) == [(False,)]

    await until(is_held_again)
    await world.store.overdue()
    assert [session.dead for session in await world.store.sessions()] == [False]
    assert (await other.store.beat(["s1"]))[0].known

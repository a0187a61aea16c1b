"""Waking across stores, lost wires and dead listeners. The long timeouts are never waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mainstay.model import Session
from mainstay.stores import JobStore, open_store
from mainstay.testing import VirtualClock
from servers import Proxy, Redis
from tests.conformance.world import World
from tests.stores.redis.conftest import Plain

LONG_S = 60.0
QUIET_S = 0.1


@pytest.fixture
async def other(redis_url: str, world: World) -> AsyncIterator[JobStore]:
    """A second store on the same jobs, as another process has."""
    store = await open_store(redis_url, clock=world.clock)
    yield store
    await store.close()


async def asleep(plain: Plain, topic: str, n: int) -> None:
    """Wait until so many sleep there."""
    while plain("SCARD", f"l:{topic}") != n:
        await asyncio.sleep(0.001)


async def test_a_job_submitted_through_one_store_wakes_a_sleeper_of_another(
    world: World, other: JobStore, plain: Plain
) -> None:
    async with other.wake(["queue:default"]) as wake:
        waiting = asyncio.create_task(wake.wait(LONG_S))
        await asleep(plain, "queue:default", 1)
        await world.submit()
        assert await waiting is True


async def test_over_all_stores_no_more_are_woken_than_rows_got_ready(
    world: World, other: JobStore, plain: Plain
) -> None:
    wakes = [store.wake(["queue:default"]) for store in (world.store, other) for _ in range(3)]
    waiting = [asyncio.create_task(wake.wait(LONG_S)) for wake in wakes]
    await asleep(plain, "queue:default", 6)
    await world.store.insert([world.new() for _ in range(2)])
    done, idle = await asyncio.wait(waiting, timeout=QUIET_S)
    assert (len(done), len(idle)) == (2, 4)
    await world.store.insert([world.new() for _ in range(4)])
    assert all(await asyncio.gather(*idle))
    for wake in wakes:
        await wake.close()


async def test_a_dead_listener_swallows_no_wake(world: World, other: JobStore, plain: Plain) -> None:
    for name in ("killed", "crashed"):
        plain("SADD", "l:queue:default", f"{name} 1")
    async with other.wake(["queue:default"]) as wake:
        waiting = asyncio.create_task(wake.wait(LONG_S))
        await asleep(plain, "queue:default", 3)
        await world.submit()
        assert await waiting is True
    assert plain("EXISTS", "w:killed") == 0


@pytest.mark.parametrize("heard", [False, True])
async def test_one_that_was_chosen_and_goes_away_without_looking_passes_it_on(
    world: World, other: JobStore, plain: Plain, heard: bool
) -> None:
    listener = world.store._listener.name  # type: ignore[attr-defined]
    chosen, second = world.store.wake(["queue:default"]), other.wake(["queue:default"])
    waiting = [asyncio.create_task(wake.wait(LONG_S)) for wake in (chosen, second)]
    await asleep(plain, "queue:default", 2)
    if heard:
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        await asleep(plain, "queue:default", 1)
        plain("RPUSH", f"w:{listener}", f"{chosen.name} 1 default")  # type: ignore[attr-defined]
        while not chosen._rung_for:  # type: ignore[attr-defined]
            await asyncio.sleep(0.001)
    else:  # it was taken out, and the word is on its way
        assert plain("SREM", "l:queue:default", f"{listener} {chosen.name}") == 1  # type: ignore[attr-defined]

    await chosen.close()

    assert await waiting[1] is True
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    await second.close()


async def test_one_that_was_chosen_times_out_and_goes_away_passes_it_on(
    world: World, other: JobStore, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = world.store._listener  # type: ignore[attr-defined]
    first, second = world.store.wake(["queue:default"]), other.wake(["queue:default"])
    waiting = asyncio.create_task(second.wait(LONG_S))
    await asleep(plain, "queue:default", 1)
    monkeypatch.setattr(listener, "_deliver", lambda _: None)  # its process is slow to read its list
    waits = asyncio.create_task(first.wait(QUIET_S))
    await asleep(plain, "queue:default", 2)
    assert plain("SREM", "l:queue:default", f"{listener.name} {first.name}") == 1  # type: ignore[attr-defined]

    assert await waits is False
    await first.close()

    assert await waiting is True
    await second.close()


async def test_one_that_was_chosen_and_timed_out_looks_before_it_sleeps_again(world: World, plain: Plain) -> None:
    listener = world.store._listener.name  # type: ignore[attr-defined]
    async with world.store.wake(["queue:default"]) as wake:
        waits = asyncio.create_task(wake.wait(QUIET_S))
        await asleep(plain, "queue:default", 1)
        plain("SREM", "l:queue:default", f"{listener} {wake.name}")  # type: ignore[attr-defined]
        assert await waits is False
        await world.store.due(["default"])
        assert await wake.wait(LONG_S) is True


async def test_one_that_was_passed_over_is_woken_by_whatever_its_store_does_next(world: World, plain: Plain) -> None:
    listener = world.store._listener.name  # type: ignore[attr-defined]
    async with world.store.wake(["queue:default"]) as wake:
        waits = asyncio.create_task(wake.wait(LONG_S))
        await asleep(plain, "queue:default", 1)
        plain("DEL", f"ear:{listener}")
        await world.submit()  # finds nobody alive
        async with world.store.wake(["queue:other"]):
            assert await waits is True


async def test_what_the_dead_slept_for_goes_by_itself(world: World, plain: Plain) -> None:
    async with world.store.wake(["queue:default"]) as wake:
        waits = asyncio.create_task(wake.wait(LONG_S))
        await asleep(plain, "queue:default", 1)
        assert int(plain("PTTL", "l:queue:default")) > 0  # type: ignore[call-overload]
        await world.submit()
        assert await waits is True


async def test_what_nobody_watches_costs_no_key(world: World, plain: Plain) -> None:
    await world.open("s1")
    job = await world.running()
    async with world.store.wake([f"job:{job.id}", "session:s1"]):
        while plain("EXISTS", f"l:job:{job.id}") == 0:
            await asyncio.sleep(0.001)
    while plain("EXISTS", f"l:job:{job.id}") == 1:
        await asyncio.sleep(0.001)
    await world.move(job, "succeeded", holder="s1")
    assert not [name for name in plain.names() if name.startswith("l:")]


async def test_after_a_cut_everybody_is_woken_once(tmp_path: Path) -> None:
    server = Redis(tmp_path)
    with Proxy.before(f"{server.url()}?prefix=mainstay") as proxy:
        store = await open_store(proxy.url, clock=VirtualClock())
        plain = Plain(f"{server.url()}?prefix=mainstay")
        wakes = [store.wake(["queue:a"]), store.wake(["job:x"])]
        waiting = [asyncio.create_task(wake.wait(LONG_S)) for wake in wakes]
        await asleep(plain, "queue:a", 1)
        while plain.client.info("clients")["blocked_clients"] != 1:  # type: ignore[index]
            await asyncio.sleep(0.001)
        proxy.cut()
        assert await asyncio.gather(*waiting) == [True, True]
        assert await wakes[1].wait(QUIET_S) is False
        for wake in wakes:
            await wake.close()
        await store.close()
    server.stop()


async def test_a_store_leaves_no_ear_behind(redis_url: str, plain: Plain) -> None:
    store = await open_store(redis_url)
    async with store.wake(["queue:a", "job:x"]) as wake:
        assert await wake.wait(0.01) is False
    await store.close()
    assert {name for name in plain.names() if name.partition(":")[0] in ("l", "w", "ear")} == set()


async def test_sleepers_resume_by_themselves_when_the_server_is_restarted(tmp_path: Path) -> None:
    """With all its keys gone, too: nothing but the listeners themselves knows that they sleep."""
    server = Redis(tmp_path)
    store = await open_store(f"{server.url()}?retries=50")
    async with store.wake(["queue:default"]) as wake:
        waiting = asyncio.create_task(wake.wait(LONG_S))
        admin = Plain(f"{server.url()}?prefix=mainstay")
        await asleep(admin, "queue:default", 1)
        server.kill()
        server.start()
        assert await waiting is True
        inserted = asyncio.Event()

        async def woken() -> None:
            while await wake.wait(LONG_S):  # a restart may wake more than once
                if inserted.is_set():
                    return

        again = asyncio.create_task(woken())
        await asleep(Plain(f"{server.url()}?prefix=mainstay"), "queue:default", 1)
        inserted.set()
        world = World(store, VirtualClock())
        await store.insert([world.new()])
        await asyncio.wait_for(again, LONG_S / 2)
    await store.close()
    server.stop()


async def test_a_long_restart_does_not_take_jobs_from_the_living(tmp_path: Path) -> None:
    """While the server was away nobody could beat: silence counts from the time it is back."""
    server = Redis(tmp_path, appendonly="yes", appendfsync="always")
    store = await open_store(f"{server.url()}?retries=50")
    await store.open_session(Session(id="s1", lease_s=60))
    admin = Plain(f"{server.url()}?prefix=mainstay")
    # as if it had been away for an hour
    seconds, _ = admin.client.time()
    admin("HSET", "s:s1", "beat_ms", seconds * 1000 - 3_600_000)
    server.kill()
    server.start()
    assert await store.overdue() == []
    assert [session.dead for session in await store.sessions()] == [False]
    await store.close()
    server.stop()


async def test_a_store_closes_though_its_listener_did_not_hear_that_it_should_stop(
    redis_url: str, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancellation may be lost that comes just as an answer does."""
    store = await open_store(redis_url)
    server = store._listener._server  # type: ignore[attr-defined]
    listening = server.listening
    lost = asyncio.Event()
    asked: list[str] = []

    async def hard_of_hearing(blocks_s: float) -> Any:
        wire = await listening(blocks_s)
        ask = wire.ask

        async def once(*command: Any) -> Any:
            asked.append(command[0])
            try:
                return await ask(*command)
            except asyncio.CancelledError:
                if lost.is_set():
                    raise
                lost.set()
                return None

        wire.ask = once
        return wire

    monkeypatch.setattr(server, "listening", hard_of_hearing)
    async with store.wake(["queue:a"]) as wake:
        waiting = asyncio.create_task(wake.wait(LONG_S))
        await asleep(plain, "queue:a", 1)
        plain("RPUSH", f"w:{store._listener.name}", f"{wake.name} 0 a")  # type: ignore[attr-defined]
        assert await waiting is True
        while asked.count("BLMPOP") < 2:  # until it listens again, and can be cancelled there
            await asyncio.sleep(0.001)
    await asyncio.wait_for(store.close(), LONG_S)
    assert lost.is_set()


async def test_a_wake_that_came_late_does_not_leave_its_sleeper_asleep_while_it_is_up(
    redis_url: str, plain: Plain
) -> None:
    """Others would be passed over for one that is busy."""
    store = await open_store(redis_url)
    async with store.wake(["queue:a"]) as wake:
        waiting = asyncio.create_task(wake.wait(LONG_S))
        await asleep(plain, "queue:a", 1)
        # of an earlier sleep: the queue has not taken it out this time
        plain("RPUSH", f"w:{store._listener.name}", f"{wake.name} 0 a")  # type: ignore[attr-defined]
        assert await waiting is True
        await asleep(plain, "queue:a", 0)
    await store.close()


async def test_one_that_a_wake_has_taken_out_sleeps_again_and_is_woken_again(
    world: World, other: JobStore, plain: Plain
) -> None:
    async with other.wake(["queue:default"]) as wake:
        for _ in range(3):
            waiting = asyncio.create_task(wake.wait(LONG_S))
            await asleep(plain, "queue:default", 1)
            await world.submit()
            assert await waiting is True
            assert plain("SCARD", "l:queue:default") == 0

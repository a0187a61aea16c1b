"""Plain commands, whose answers are what a script would see; and histories, read as far as they are asked for."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay.lifecycle import Event, Move
from mainstay.stores import TrimPolicy
from mainstay.stores.redis import RedisStore, base
from mainstay.stores.redis.rows import readable_event
from tests.conformance.world import World
from tests.stores.redis.conftest import Plain


async def ask(world: World, command: str, name: str, *args: str | int) -> Any:
    store = world.store
    assert isinstance(store, RedisStore)
    return await store._home.run(lambda: store._base.call(command, name, *args))


async def test_an_answer_is_as_the_server_gave_it(world: World) -> None:
    """A transaction sends answers back to be compared, on the server, with the same question asked anew."""
    await ask(world, "ZADD", "scores", 1000, "a")
    await ask(world, "HSET", "fields", "a", "1", "b", "2")

    assert await ask(world, "ZSCORE", "scores", "a") == b"1000"
    assert await ask(world, "ZSCORE", "scores", "b") is None
    assert await ask(world, "ZRANGE", "scores", 0, -1, "WITHSCORES") == [b"a", b"1000"]
    assert await ask(world, "HGETALL", "fields") == [b"a", b"1", b"b", b"2"]
    assert await ask(world, "SMEMBERS", "none") == []


async def test_a_part_of_a_long_history_is_all_that_is_read_of_it(
    world: World, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.open("s1")
    job = await world.submit()
    for at in range(30):
        job = await world.row(job)
        await world.move(job, Move(to=job.status, flag="note", reason=str(at)))
    await world.claim()
    whole = await world.store.events(job.id)
    assert [event.seq for event in whole] == list(range(1, 33))
    read: list[bytes] = []

    def counted(job_id: str, stored: bytes) -> Event:
        read.append(stored)
        return readable_event(job_id, stored)

    monkeypatch.setattr(base, "readable_event", counted)
    for trimmed in (0, 10):
        if trimmed:
            await world.store.trim(TrimPolicy(keep_events=32 - trimmed))
        for after in (0, 5, 10, 15, 30, 31, 32, 40):
            for limit in (1, 3, 100):
                read.clear()
                found = await world.store.events(job.id, after=after, limit=limit)
                assert found == [event for event in whole if event.seq > max(after, trimmed)][:limit]
                assert len(read) <= limit


async def test_of_a_history_with_a_hole_everything_behind_an_event_is_found(world: World, plain: Plain) -> None:
    job = await world.submit()
    for at in range(6):
        job = await world.row(job)
        await world.move(job, Move(to=job.status, flag="note", reason=str(at)))
    lost = plain("LINDEX", f"e:{job.id}", 2)
    assert isinstance(lost, bytes)
    plain("LREM", f"e:{job.id}", 1, lost)
    assert [event.seq for event in await world.store.events(job.id, after=4)] == [5, 6, 7]
    assert [event.seq for event in await world.store.events(job.id, after=1, limit=2)] == [2, 4]

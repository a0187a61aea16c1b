"""A server whose memory is full: it takes no new jobs, says so, and lets those that are there come to an end."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay.errors import StoreFull
from mainstay.model import Session
from mainstay.stores import TrimPolicy, open_store
from mainstay.testing import VirtualClock
from servers import Redis
from tests.conformance.world import World
from tests.stores.redis.conftest import Plain


async def test_a_full_server_refuses_new_jobs_and_lets_the_others_end(tmp_path: Path) -> None:
    server = Redis(tmp_path, maxmemory_policy="noeviction")
    clock = VirtualClock()
    world = World(await open_store(server.url(), clock=clock), clock)
    await world.store.open_session(Session(id="s1", lease_s=1000))
    job = await world.running()
    admin = Plain(f"{server.url()}?prefix=mainstay").client
    admin.config_set("maxmemory", admin.info("memory")["used_memory"] - 1)

    with pytest.raises(StoreFull, match="no memory left"):
        await world.store.insert([world.new(payload=bytes(100_000))])

    assert [pulse.known for pulse in await world.store.beat(["s1"])] == [True]
    assert (await world.move(job, "succeeded", holder="s1")).outcome == "applied"
    clock.advance(10)
    trimmed = await world.store.trim(TrimPolicy(settled_before_ms={"succeeded": clock.now_ms()}))
    assert trimmed.jobs == 1
    await world.assert_sound()
    admin.config_set("maxmemory", 0)
    await world.submit()
    await world.store.close()
    server.stop()

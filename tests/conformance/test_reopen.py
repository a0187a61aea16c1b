"""What was acknowledged is there after opening the store again."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay.model import QueueSettings, Schedule
from mainstay.stores import InsertResult
from mainstay.testing import VirtualClock
from tests.conformance.adapters import ADAPTERS, Adapter
from tests.conformance.world import World

PERSISTENT = [adapter for adapter in ADAPTERS if adapter.persistent]


@pytest.mark.parametrize("adapter", PERSISTENT, ids=lambda adapter: adapter.name, indirect=True)
async def test_everything_acknowledged_is_there_again(adapter: Adapter, tmp_path: Path) -> None:
    world = World(await adapter.open(tmp_path, VirtualClock()), VirtualClock())
    await world.open("s1", "s2")
    await world.store.set_limit("k", 1)
    await world.store.set_queue(QueueSettings(name="mail", paused=True, reason="moving"))
    await world.store.put_schedule(Schedule(name="nightly", spec=b"x"))
    await world.store.tick("nightly", 5, [world.new(queue="night")])
    lead = await world.store.lead("main", "s1", 3600)
    ghost = await world.running()
    await world.move(ghost, "failed", "pending")
    await world.claim("s2", queues=["own"])
    await world.move(ghost, "succeeded", holder="s1")
    keyed = await world.submit(key="k1")
    before = await world.dump()
    await world.store.close()

    again = World(await adapter.open(tmp_path, world.clock), world.clock)
    try:
        after = await again.dump()
        for part in ("rows", "events", "refusals", "queues", "limits", "schedules"):
            assert after[part] == before[part]
        assert after["stats"].queues == before["stats"].queues
        assert await again.store.tick("nightly", 5, [again.new()]) is None
        assert (await again.store.lead("main", "s1", 3600)).epoch == lead.epoch
        again.clock.advance(1)
        assert await again.store.insert([again.new(key="k1")]) == [InsertResult(keyed.id, False, "key")]
        await again.assert_sound()
    finally:
        await again.store.close()

"""A worker whose endings lose against others' commits tries again; they are no failures of the jobs."""

from __future__ import annotations

import random

from mainstay.control import Control
from mainstay.worker.ledger import Ledger
from tests.stores.registry.conftest import Join


async def test_an_ending_that_came_too_late_too_often_is_written_later(join: Join) -> None:
    async def at_once(_: float) -> None:
        """Waits are not what is tested."""

    quicker, _ = await join()
    world, way = await join(sleep=at_once)
    await world.open("s1")
    job = await world.running()
    lost = 0

    async def come_first(call: str, key: str) -> None:
        nonlocal lost
        if call == "create" and lost < 7:  # one more than a call tries
            lost += 1
            await quicker.submit()

    way.before = come_first
    control = Control(world.store)
    ledger = Ledger(control, rng=random.Random(1))
    ledger.start()
    ledger.add(control.attempts.ends.success(job))
    await ledger.flush()
    await ledger.stop()

    assert lost == 7
    assert await world.story(job) == ["pending", "running", "succeeded"]

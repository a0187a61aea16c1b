"""Node jobs in virtual time while hosts crash: real engines, leads and duties."""

from __future__ import annotations

import asyncio
import random

import pytest

from mainstay import App, Node, NodeHandle, NodeResult
from mainstay.control.check import check
from mainstay.node.spec import LEADER
from mainstay.stores import Query
from mainstay.stores.memory import MemoryStore
from mainstay.testing import LoopClock, VirtualLoop, run_virtual
from tests.node.engines import AppNode

NAMES = ("n1", "n2", "n3")


class World:
    """Three hosts with a node each, and a store."""

    def __init__(self, seed: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.store = MemoryStore(LoopClock(loop))
        self.app = App("memory:")
        self.seed = seed
        self.starts = 0
        self.nodes: dict[str, AppNode] = {}

    async def start(self, name: str) -> None:
        self.starts += 1
        host = self.loop.host(f"{name} {self.starts}")
        self.nodes[name] = AppNode(self.app, self.store, name, seed=self.seed + self.starts, host=host)
        await self.nodes[name].begin()


async def _story(seed: int, crash_at_s: float, *, back_after_s: float) -> None:
    world = World(seed)

    class Compact:
        async def local(self, node: Node) -> str:
            await asyncio.sleep(1.0)
            return node.name

        async def leader(self, results: list[NodeResult]) -> int:
            await asyncio.sleep(1.0)
            return len(results)

    job = world.app.node_job(name="compact", on_no_quorum="wait")(Compact)
    with world.app.using(world.store):
        for name in NAMES:
            await world.start(name)
        await asyncio.sleep(3)
        handle: NodeHandle = await job.submit()
        await asyncio.sleep(crash_at_s)
        victim = _leading(world)
        world.nodes[victim].crash()  # noticed when its lease is over
        await asyncio.sleep(back_after_s)
        await world.start(victim)
        result = await handle.result("10m")
        assert result.quorum_reached
        units = (await world.store.find(Query(parent=handle.id), limit=50)).jobs
        (leader,) = [unit for unit in units if unit.unit == LEADER]
        ends = [event for event in await world.store.events(leader.id) if event.to == "succeeded"]
        assert len(ends) == 1
        assert (await check(world.store)).violations == ()


def _leading(world: World) -> str:
    """The node that leads now, or the first one."""
    return next((name for name, node in world.nodes.items() if node.leads), "n1")


@pytest.mark.parametrize("seed", range(20))
def test_a_job_outlives_the_crash_of_its_leader_at_any_moment(seed: int) -> None:
    rng = random.Random(seed)
    story = _story(seed, rng.uniform(0.0, 3.0), back_after_s=rng.choice([0.5, 5.0, 30.0]))
    run_virtual(story, seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_a_rolling_restart_passes_units_on_to_the_next_session_within_seconds(seed: int) -> None:
    """The next session of a node is up before the earlier one drains and gives its unit back."""

    async def story() -> None:
        world = World(seed)
        loop = asyncio.get_running_loop()

        class Compact:
            async def local(self, node: Node) -> str:
                await asyncio.sleep(5.0)
                return node.name

            async def leader(self, results: list[NodeResult]) -> int:
                await asyncio.sleep(5.0)
                return len(results)

        job = world.app.node_job(name="compact", quorum="all", on_no_quorum="wait")(Compact)
        with world.app.using(world.store):
            for name in NAMES:
                await world.start(name)
            await asyncio.sleep(3)
            handle: NodeHandle = await job.submit()
            await asyncio.sleep(1)
            began_s = loop.time()
            for name in NAMES:
                old = world.nodes[name]
                await world.start(name)
                await old.stop()  # a second of grace: the unit does not end within it
            result = await handle.result("10m")
            assert result.succeeded == NAMES
            # three restarts, a handover of the lead after each, both phases again
            assert loop.time() - began_s < 3 * 6 + 2 * 5 + 5

    run_virtual(story(), seed=seed)

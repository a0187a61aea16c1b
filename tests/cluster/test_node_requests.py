"""What a node answers to managers, and its sessions as the placement of a manager sees them."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any, cast

from mainstay.bus import MemoryBusNetwork
from mainstay.cluster.liveness_settings import LivenessSettings
from mainstay.cluster.members_service import MembersService
from mainstay.cluster.node_config import NodeConfig
from mainstay.cluster.node_heart import NodeHeart
from mainstay.cluster.node_output import NodeOutput
from mainstay.cluster.node_worker import _answer
from mainstay.control import MemberSessions
from mainstay.model import Session
from mainstay.testing import MemoryStore, VirtualClock
from mainstay.worker import Supervisor, WorkerOptions


def config() -> NodeConfig:
    options = WorkerOptions(target="x:app", node="n1", name="n1", joined=True)
    return NodeConfig(url="nats://127.0.0.1:9/test", options=options, incarnation="abc", parent=os.getpid())


async def test_a_node_answers_a_ping_with_its_incarnation() -> None:
    network, clock = MemoryBusNetwork(), VirtualClock()
    supervisor, bus = Supervisor(config().options), network.client("node.n1")
    answering = asyncio.create_task(_answer(bus, config(), supervisor, NodeOutput(bus, "n1", "")))
    await asyncio.sleep(0)
    members = MembersService(
        network.client("manager.m1"),
        MemoryStore(clock),
        manager="m1",
        leading=lambda: None,
        clock=clock,
        rng=random.Random(1),
    )

    found = await members._ping("n1")

    assert found is not None
    assert (found.answered, found.incarnation) == (True, "abc")
    answering.cancel()


async def test_a_node_goes_on_beating_after_a_beat_that_failed() -> None:
    network = MemoryBusNetwork()
    beats = await network.client("manager.m1").subscribe("control.beat.*")

    class Failing:
        """The load of a machine cannot be read, once."""

        sessions: tuple[str, ...] = ()
        is_stopping = False
        looks = 0

        def isolate(self, **_: float) -> None: ...

        def rejoin(self) -> None: ...

        @property
        def running(self) -> list[str]:
            self.looks += 1
            if self.looks == 1:
                raise ValueError("as planned")
            return []

    heart = NodeHeart(
        network.client("node.n1"), config(), cast("Any", Failing()), settings=LivenessSettings(beat_s=0.001)
    )
    beating = asyncio.create_task(heart.run())
    async with asyncio.timeout(5):
        await anext(beats)
    beating.cancel()


async def test_the_sessions_of_nodes_have_the_beats_that_managers_heard() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    for name in ("heard", "away", "unknown"):
        await store.open_session(Session(id=name, worker=name, node=name, standing=True))
    await store.open_session(Session(id="direct", worker="direct", lease_s=8.0))
    heard = {"heard": 2.0, "away": 11.0}
    seen = MemberSessions(store, lambda: heard, away_s=10.0, degraded=lambda: ["heard"])

    lease_ms = clock.lease_ms()
    live = {each.id for each in await seen.sessions() if lease_ms - each.beat_ms <= each.lease_s * 1000}

    assert live == {"heard", "direct"}
    assert [each.id for each in await seen.sessions() if each.degraded] == ["heard"]
    assert all(not each.dead for each in await seen.sessions())

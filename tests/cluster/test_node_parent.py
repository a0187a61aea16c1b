"""The parent of a node's worker: which ends are final, a request to stop at any moment, and its report."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable

import msgspec
import pytest

from mainstay.bus import Bus, MemoryBusNetwork
from mainstay.cluster import node_parent
from mainstay.cluster.member_messages import MemberEnvelope, NodeEnd
from mainstay.cluster.node_config import FORCED_END, NodeConfig
from mainstay.cluster.node_parent import NodeParent
from mainstay.testing import run_virtual
from mainstay.worker import FORCED, STOPPED, UNFIT, WorkerOptions


class ScriptedWorker:
    """A worker that ends with this code, or when it gets a signal."""

    def __init__(self, code: int | None) -> None:
        self.returncode = code
        self.signals: list[int] = []
        self._ended = asyncio.Event()
        if code is not None:
            self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, signal: int) -> None:
        self.signals.append(signal)
        self.returncode = STOPPED
        self._ended.set()


class ParentWorld:
    """A parent whose workers are scripted, one code for each start."""

    def __init__(self, *codes: int | None, while_starting: Callable[[NodeParent], None] = lambda _: None) -> None:
        self.started: list[ScriptedWorker] = []
        self._codes = iter(codes)
        self._network = MemoryBusNetwork()
        self._while_starting = while_starting
        options = WorkerOptions(target="shop:app", name="n1", node="n1")
        config = NodeConfig(url="nats://127.0.0.1:1/shop", options=options, incarnation="", parent=0)
        self.parent = NodeParent(config, start=self._start, connect=self._connect, rng=random.Random(1), pid=1)

    async def _start(self, config: NodeConfig) -> ScriptedWorker:
        self._while_starting(self.parent)
        self.started.append(ScriptedWorker(next(self._codes)))
        return self.started[-1]

    def connect_to(self, network: MemoryBusNetwork) -> None:
        self._network = network

    async def _connect(self) -> Bus:
        return self._network.client("node.n1")


@pytest.mark.parametrize(
    ("ends", "code"),
    [([STOPPED], STOPPED), ([UNFIT], UNFIT), ([FORCED_END], FORCED), ([1, -9, STOPPED], STOPPED)],
    ids=["drained", "unfit", "drained by force", "an error, then killed, then drained"],
)
def test_a_worker_is_started_again_unless_its_end_is_final(ends: list[int], code: int) -> None:
    async def scenario() -> tuple[int, int]:
        world = ParentWorld(*ends)
        return await world.parent.run(), len(world.started)

    assert run_virtual(scenario(), seed=1) == (code, len(ends))


def test_a_request_to_stop_reaches_a_worker_that_is_just_started() -> None:
    async def scenario() -> tuple[int, list[int]]:
        world = ParentWorld(None, while_starting=lambda parent: parent.stop(signal.SIGTERM))
        return await world.parent.run(), world.started[0].signals

    assert run_virtual(scenario(), seed=1) == (STOPPED, [signal.SIGTERM])


def test_a_request_to_stop_between_two_workers_starts_none() -> None:
    async def scenario() -> tuple[int, int]:
        world = ParentWorld(-9, STOPPED)
        running = asyncio.ensure_future(world.parent.run())
        while not world.started:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        world.parent.stop(signal.SIGTERM)
        return await running, len(world.started)

    assert run_virtual(scenario(), seed=1) == (STOPPED, 1)


async def test_the_end_of_a_worker_is_reported_to_another_manager_if_the_first_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_parent, "_REPORT_S", 0.05)
    monkeypatch.setattr(node_parent, "_REPORT_PAUSE_S", 0.0)
    network = MemoryBusNetwork()
    frozen = await network.client("manager.m1").subscribe("control.ended.*", group="managers")
    alive = network.client("manager.m2")
    reports = await alive.subscribe("control.ended.*", group="managers")
    world = ParentWorld(7, STOPPED)
    world.connect_to(network)
    running = asyncio.create_task(world.parent.run())

    async with asyncio.timeout(20):
        message = await anext(reports)
    assert message.reply is not None
    await alive.publish(message.reply, b"")
    world.parent.stop(signal.SIGTERM)
    await running

    assert frozen.waiting >= 1
    end = msgspec.msgpack.decode(msgspec.msgpack.decode(message.body, type=MemberEnvelope).a, type=NodeEnd)
    assert end.how == "its worker exited with code 7"

"""A node that runs slices: a real engine whose store is behind a manager in memory, and a leader written by hand."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from mainstay import App
from mainstay.bundles import BundleService
from mainstay.bus import MemoryBusNetwork
from mainstay.clock import SystemClock
from mainstay.control import Control
from mainstay.lifecycle import Move
from mainstay.load.engine.messages import StartInstant, Values, WorkflowsDone
from mainstay.load.fleet.messages import (
    CommandAccepted,
    CommandPending,
    PrepareSlice,
    ReleaseSlice,
    SliceCommand,
    SliceOrder,
    StartSlice,
    command_subject,
    decode_answer,
    encode,
)
from mainstay.load.fleet.slice_handler import SliceHandler
from mainstay.load.fleet.spec import SLICE, SliceCall, slice_id, slice_unit
from mainstay.load.generator_process import GeneratorLost, Limits
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.run_spec import RunOrder
from mainstay.load.stats.model import Window
from mainstay.model import PLACE_QUEUE, IdSource, Job, Session
from mainstay.outputs import open_blobs
from mainstay.stores import Change
from mainstay.stores.remote import RemoteStore, StoreService
from mainstay.testing import FaultyStore, MemoryStore, StoreFaults, new_job
from mainstay.worker import Engine, EngineProcess, WorkerOptions
from mainstay.worker.node_cores import NodeCores
from mainstay.worker.program import placed_offer_of
from tests.load.trials import GET, written

OURS = {"cluster": "test", "environment": "default"}
VERSION = "1.2.3"


class ScriptedGenerators:
    """Generators that do what the test wants."""

    def __init__(self, processes: int, on_window: Callable[[Window], None], **_: Any) -> None:
        self.processes = processes
        self.on_window = on_window
        self.asked: list[str] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stopped = asyncio.Event()
        self.killed = asyncio.Event()
        self.deaf = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        while self.deaf and not self.killed.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.killed.wait()
        self.asked.append("ended")

    async def prepare(self, order: RunOrder) -> None:
        self.asked.append("prepared")

    async def set_up(self, workflows: Sequence[str], shared: object, *, calls: int) -> Values:
        return Values()

    async def go(
        self, workflows: Sequence[str], shared: object, *, longest_s: float, drain_s: float, start: StartInstant
    ) -> tuple[list[WorkflowsDone], GeneratorLost | None]:
        self.asked.append("go")
        await self.stopped.wait()
        return [WorkflowsDone(workflows={}, took=1.0, loaded=1.0)], None

    def stop(self, *, hurry: bool) -> None:
        self.stopped.set()

    def give_up(self) -> None:
        self.stopped.set()

    def kill(self) -> None:
        self.asked.append("killed")
        self.killed.set()

    async def collect_provided(self, workflows: Sequence[str], *, calls: int) -> Values:
        return Values()

    async def tear_down(self, workflows: Sequence[str], *, calls: int) -> Values:
        return Values()


class SliceWorld:
    """A store behind a manager, the bundles of that manager, and nodes. Slices are assigned by the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = SystemClock()
        self.store = MemoryStore(self.clock)
        self.client = Control(self.store, rng=random.Random(7))
        self.network = MemoryBusNetwork()
        self.job = ""
        self._commanders: dict[tuple[str, int, int], Commander] = {}
        self._ids = IdSource(random.Random(8))

    async def submit(self) -> str:
        new = new_job(self.clock, self._ids, name="shop", kind="load", queue="@lead")
        await self.store.insert([new])
        self.job = new.job.id
        return self.job

    async def slice(self, number: int = 0, *, cores: int = 1, **more: Any) -> str:
        """A slice that waits to be placed."""
        if not self.job:
            await self.submit()
        call = SliceCall(job=self.job, round=1, number=number, of=number + 1, cores=cores, **more)
        new = new_job(
            self.clock,
            self._ids,
            name=SLICE,
            kind="load",
            queue=PLACE_QUEUE,
            parent=self.job,
            unit=slice_unit(1, number),
            payload=msgspec.msgpack.encode(call),
        )
        await self.store.insert([new])
        return new.job.id

    async def row(self, unit: str) -> Job:
        (row,) = await self.store.get([unit])
        assert row is not None
        return row

    async def assign(self, unit: str, node: SliceNode) -> Job:
        row = await self.row(unit)
        now_ms = self.clock.now_ms()
        fields = {
            "token": row.token + 1,
            "session": node.engine.session.id,
            "claimed_ms": now_ms,
            "expires_ms": now_ms + 20_000,
        }
        return await self.move(unit, Move(to="dispatched", reason="assigned", fields=fields))

    async def move(self, unit: str, *moves: Move) -> Job:
        change = Change(before=await self.row(unit), moves=moves, actor="placement", at_ms=self.clock.now_ms())
        (result,) = await self.store.apply([change], together=True)
        assert result.outcome == "applied", result
        assert result.job is not None
        return result.job

    async def placed(self, node: SliceNode, number: int = 0, **more: Any) -> str:
        unit = await self.slice(number, **more)
        await self.assign(unit, node)
        return unit

    async def until(self, unit: str, *statuses: str, within_s: float = 10.0) -> Job:
        async with asyncio.timeout(within_s):
            while (row := await self.row(unit)).status not in statuses:
                await asyncio.sleep(0.01)
            return row

    def commander(self, number: int, *, node: str = "n1", token: int = 1) -> Commander:
        """The leader of a slice: the same one every time."""
        return self._commanders.setdefault((node, number, token), Commander(self, node, number, token))


class SliceNode:
    """A node: its engine, and what its supervisor does for it."""

    def __init__(self, world: SliceWorld, name: str, *, cores: int, scripted: bool, **settings: Any) -> None:
        self.world = world
        self.name = name
        self.runners: list[ScriptedGenerators] = []
        self.folders: list[Path | None] = []
        self.app = App("memory:", rng=random.Random(f"app {name}"), **settings)
        self.app.use_worker(
            WorkerOptions(target="", name=name, node=name, cores=cores, cache=str(world.folder / "cache"))
        )
        self.handler: SliceHandler = self.app.part("load").placed_handlers[SLICE]
        if scripted:
            self.handler.runner = self._scripted
        self.remote = RemoteStore(
            world.network.client(f"node.{name}"), role="node", name=name, version=VERSION, answer_s=1.0, **OURS
        )
        self.faults = StoreFaults()
        self.link = FaultyStore(self.remote, rng=random.Random(1), faults=self.faults)
        self.engine: Engine
        self.cores = NodeCores(cores)
        self._beats: asyncio.Task[None]

    def _scripted(self, folder: Path | None) -> Any:
        self.folders.append(folder)

        def make(*given: Any, **named: Any) -> ScriptedGenerators:
            self.runners.append(ScriptedGenerators(*given, **named))
            return self.runners[-1]

        return make

    async def start(self) -> None:
        await self.remote.open()
        self._using = contextlib.ExitStack()
        control = self._using.enter_context(self.app.using(self.link))
        self.control = control
        self.engine = Engine(
            self.app,
            control,
            await self.open_session(),
            queues=(),
            concurrency=1,
            process=EngineProcess(open_session=self.open_session, on_retire=lambda _: None, cores=self.cores),
            rng=random.Random(f"engine {self.name}"),
        )
        self.engine.start()
        self._beats = asyncio.create_task(self._beat())

    async def open_session(self) -> Session:
        offer = placed_offer_of(self.app, cores=self.cores.total)
        return await self.control.claims.open_session(worker=self.name, node=self.name, offer=offer)

    async def _beat(self) -> None:
        while not self.engine.stopped.is_set():
            with contextlib.suppress(Exception):
                (pulse,) = await self.control.claims.beat([self.engine.session.id])
                await self.engine.pulsed(
                    pulse.session, known=pulse.known, cancelling=pulse.cancelling, assigned=pulse.assigned
                )
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        if not self.engine.stopped.is_set():
            self.engine.drain(0.0)
        await self.engine.stopped.wait()
        self._beats.cancel()
        await asyncio.wait([self._beats])
        self._using.close()
        await self.remote.close()


class Commander:
    """A leader without a mind of its own."""

    def __init__(self, world: SliceWorld, node: str, number: int, token: int) -> None:
        self.world = world
        self.bus = world.network.client("leader")
        self.node = node
        self.number = number
        self.token = token
        self._numbers = 0

    async def ask(self, order: SliceOrder, *, within_s: float = 20.0) -> Any:
        """Give an order until it is executed."""
        self._numbers += 1
        job = self.world.job
        command = SliceCommand(job=job, slice=self.number, token=self.token, epoch=1, number=self._numbers, order=order)
        async with asyncio.timeout(within_s):
            while True:
                with contextlib.suppress(Exception):
                    body = await self.bus.request(command_subject(self.node, job, self.number), encode(command), 2.0)
                    answer = decode_answer(body)
                    if answer != CommandPending():
                        return answer
                await asyncio.sleep(0.02)

    async def prepare(self, *, processes: int = 1, order: RunOrder | None = None) -> None:
        order = order or planned(self.world.folder)
        assert await self.ask(prepared(order, processes)) == CommandAccepted()

    async def go(self, go: int = 1) -> None:
        loop = asyncio.get_running_loop()
        start = StartSlice(
            go=go,
            workflows=["Shop"],
            shared={},
            at_s=loop.time() + 0.3,
            wall=self.world.clock.now_ms() / 1000 + 0.3,
            longest_s=60.0,
            drain_s=5.0,
        )
        assert await self.ask(start) == CommandAccepted()

    async def release(self, lost: str = "") -> None:
        assert await self.ask(ReleaseSlice(lost=lost)) == CommandAccepted()


def prepared(order: RunOrder, processes: int = 1) -> PrepareSlice:
    return PrepareSlice(order=order, limits=Limits(), processes=processes, first=0, of=processes)


def planned(folder: Path, **options: Any) -> RunOrder:
    return PlannedRun(written(folder, GET), LoadOptions(**{"processes": 1, **options})).order()


@contextlib.asynccontextmanager
async def slice_world(folder: Path) -> AsyncIterator[SliceWorld]:
    world = SliceWorld(folder)
    blobs = await open_blobs("memory:")
    bus = world.network.client("manager.m1")
    service = StoreService(world.store, bus, manager="m1", cluster=OURS["cluster"], version=VERSION)
    await service.start()
    async with BundleService(blobs, bus, name="m1", **OURS):
        yield world
    await service.stop()
    await blobs.close()
    await world.store.close()


@contextlib.asynccontextmanager
async def slice_node(
    world: SliceWorld, name: str = "n1", *, cores: int = 2, scripted: bool = True, **settings: Any
) -> AsyncIterator[SliceNode]:
    node = SliceNode(world, name, cores=cores, scripted=scripted, **settings)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


__all__ = [
    "Commander",
    "ScriptedGenerators",
    "SliceNode",
    "SliceWorld",
    "planned",
    "prepared",
    "slice_id",
    "slice_node",
    "slice_world",
]

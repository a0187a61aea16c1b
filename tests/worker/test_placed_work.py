"""Placed work in virtual time: real engines on the memory store; a hand-written leader assigns units."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from mainstay.control import Control
from mainstay.control.payload import encoded
from mainstay.errors import InvalidInput, StoreUnavailable
from mainstay.lifecycle import Move
from mainstay.model import PLACE_QUEUE, IdSource, Job, Session
from mainstay.stores import Change, JobStore, Wake
from mainstay.stores.memory import MemoryStore
from mainstay.testing import FaultyStore, LoopClock, SimulatedHost, StoreFaults, VirtualLoop, new_job, run_virtual
from mainstay.worker import Engine, EngineProcess
from mainstay.worker.node_cores import NodeCores
from tests.stores.remote.managers import FirstAnswersLost, remote_of, service_of
from tests.worker.program import LIMIT, Stage

#: how long a node has to confirm what it was assigned
WINDOW_S = 20.0
BEAT_S = 2.0


class Link(FaultyStore):
    """The connection of a node. With `deaf`, it gets no wakes."""

    deaf = False

    def wake(self, topics: Sequence[str]) -> Wake:
        return super().wake(["nothing"] if self.deaf else topics)


class NodeHost:
    """A node: its engine, and what its supervisor does for it."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        concurrency: int,
        deaf: bool,
        store: JobStore | None = None,
        queues: tuple[str, ...] = (),
    ) -> None:
        self.world = world
        self.name = name
        self.stage = Stage()
        self.link = Link(store or world.store, rng=random.Random(f"link {name}"))
        self.link.deaf = deaf
        self.control = Control(self.link, rng=random.Random(f"control {name}"))
        self.host: SimulatedHost = world.loop.host(name)
        self.sessions: list[Session] = []
        self.begun: list[tuple[str, int]] = []
        """what ran here: the name of the unit and the time"""
        self.ended: list[tuple[str, float]] = []
        self.engine: Engine
        self._concurrency = concurrency
        self._queues = queues
        self.cores = NodeCores()
        self.stage.act(self.work, "loop")
        self.stage.act(self.stubborn, "loop")

    async def work(self, unit: str, seconds: float = 0.0) -> str:
        self.begun.append((unit, round(self.world.loop.time())))
        try:
            await asyncio.sleep(seconds)
        finally:
            self.ended.append((unit, self.world.loop.time()))
        return unit

    async def stubborn(self, unit: str) -> None:
        self.begun.append((unit, round(self.world.loop.time())))
        try:
            await asyncio.sleep(1e9)
        except asyncio.CancelledError:
            await asyncio.sleep(1.0)
            raise

    async def open_session(self) -> Session:
        session = await self.control.claims.open_session(worker="w", node=self.name, labels={"zone": "a"})
        self.sessions.append(session)
        return session

    async def begin(self, *, start: bool = True) -> None:
        async def boot() -> None:
            session = await self.open_session()
            self.engine = Engine(
                self.stage,
                self.control,
                session,
                queues=self._queues,
                concurrency=self._concurrency,
                process=EngineProcess(open_session=self.open_session, on_retire=lambda _: None, cores=self.cores),
                rng=random.Random(f"engine {self.name}"),
            )
            if start:
                self.engine.start()

        await self.host.start(boot())
        self.host.start(self._beat())

    async def _beat(self) -> None:
        while not self.engine.stopped.is_set():
            await asyncio.sleep(BEAT_S)
            try:
                (pulse,) = await self.control.claims.beat([self.engine.session.id])
            except Exception:  # noqa: BLE001 - tries again with the next beat, as a supervisor does
                continue
            await self.engine.pulsed(
                pulse.session, known=pulse.known, cancelling=pulse.cancelling, assigned=pulse.assigned
            )

    @property
    def session(self) -> str:
        return self.engine.session.id

    async def drained(self, grace_s: float) -> None:
        async def drain() -> None:
            self.engine.drain(grace_s)

        await self.host.start(drain())
        await self.engine.stopped.wait()


class World:
    """A store, a leader written by hand, and nodes."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.clock = LoopClock(loop)
        self.store = MemoryStore(self.clock)
        self.client = Control(self.store, rng=random.Random(7))
        self.ids = IdSource(random.Random(8))
        self._parent: str | None = None

    async def node(
        self,
        name: str = "n1",
        *,
        concurrency: int = 2,
        deaf: bool = False,
        start: bool = True,
        store: JobStore | None = None,
        queues: tuple[str, ...] = (),
    ) -> NodeHost:
        host = NodeHost(self, name, concurrency=concurrency, deaf=deaf, store=store, queues=queues)
        await host.begin(start=start)
        return host

    async def unit(self, name: str = "work", **arguments: Any) -> str:
        """A pending unit in the queue of placed work."""
        if self._parent is None:
            parent = new_job(self.clock, self.ids, name="crew", queue=PLACE_QUEUE)
            await self.store.insert([parent])
            self._parent = parent.job.id
        payload = encoded(arguments, field="payload", limit=LIMIT)
        unit = new_job(self.clock, self.ids, name=name, queue=PLACE_QUEUE, parent=self._parent, payload=payload)
        await self.store.insert([unit])
        return unit.job.id

    async def move(self, unit: str, move: Move) -> Job:
        row = await self.row(unit)
        change = Change(before=row, moves=(move,), actor="placement", at_ms=self.clock.now_ms())
        (result,) = await self.store.apply([change], together=True)
        assert result.outcome == "applied", result
        assert result.job is not None
        return result.job

    async def assign(self, unit: str, session: str) -> Job:
        row = await self.row(unit)
        now_ms = self.clock.now_ms()
        fields = {
            "token": row.token + 1,
            "session": session,
            "claimed_ms": now_ms,
            "expires_ms": now_ms + round(WINDOW_S * 1000),
        }
        return await self.move(unit, Move(to="dispatched", reason="assigned", fields=fields))

    async def placed(self, node: NodeHost, name: str = "work", **arguments: Any) -> str:
        unit = await self.unit(name, **arguments)
        await self.assign(unit, node.session)
        return unit

    async def row(self, unit: str) -> Job:
        (row,) = await self.store.get([unit])
        assert row is not None
        return row

    async def path(self, unit: str) -> list[str]:
        return [event.to for event in await self.store.events(unit) if event.flag != "note"]

    async def until(self, unit: str, status: str, *, within_s: float) -> Job:
        ends_s = self.loop.time() + within_s
        while (row := await self.row(unit)).status != status:
            assert self.loop.time() < ends_s, f"still {row.status} after {within_s} s: {row.reason}"
            await asyncio.sleep(0.01)
        return row


def story(seed: int = 0) -> Callable[[Callable[[World], Awaitable[None]]], None]:
    """Run a coroutine with a world in virtual time."""

    def run(main: Callable[[World], Awaitable[None]]) -> None:
        async def go() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            await main(World(loop))

        run_virtual(go(), seed=seed)

    return run


SEEDS = pytest.mark.parametrize("seed", range(5))


@SEEDS
def test_an_assigned_unit_is_confirmed_at_once_run_and_ended(seed: int) -> None:
    @story(seed)
    async def _(world: World) -> None:
        node = await world.node()
        unit = await world.placed(node, unit="a", seconds=1.0)

        running = await world.until(unit, "running", within_s=0.05)
        assert (running.session, running.token, running.expires_ms) == (node.session, 1, None)
        done = await world.until(unit, "succeeded", within_s=1.1)
        assert (done.starts, done.releases) == (1, 0)
        assert await world.path(unit) == ["pending", "dispatched", "running", "succeeded"]


def test_a_unit_that_was_assigned_before_the_engine_listens_is_found_at_its_start() -> None:
    @story()
    async def _(world: World) -> None:
        node = await world.node(start=False)
        unit = await world.placed(node, unit="a")

        async def start() -> None:
            node.engine.start()

        await node.host.start(start())
        await world.until(unit, "succeeded", within_s=0.05)


def test_a_lost_wake_is_found_with_the_next_heartbeat() -> None:
    @story()
    async def _(world: World) -> None:
        node = await world.node(deaf=True)
        await asyncio.sleep(0.5)
        unit = await world.placed(node, unit="a")
        await world.until(unit, "succeeded", within_s=BEAT_S + 0.1)


def test_the_audit_takes_a_dispatched_row_as_an_assignment() -> None:
    @story()
    async def _(world: World) -> None:
        node = await world.node(deaf=True)
        node.link.beat = _never_answers  # type: ignore[method-assign]
        await asyncio.sleep(0.5)
        unit = await world.placed(node, unit="a")
        await world.until(unit, "succeeded", within_s=5.1)
        assert await world.path(unit) == ["pending", "dispatched", "running", "succeeded"]


def test_an_assignment_that_cannot_be_confirmed_for_a_while_is_not_given_back_by_the_audit() -> None:
    @story()
    async def _(world: World) -> None:
        node = await world.node()
        get, away = node.link.get, True

        async def unreadable(ids: Sequence[str]) -> Any:
            if away:
                raise StoreUnavailable("as planned")
            return await get(ids)

        node.link.get = unreadable  # type: ignore[method-assign]
        unit = await world.placed(node, unit="a")
        await asyncio.sleep(17)
        assert (await world.row(unit)).status == "dispatched"
        away = False
        await world.until(unit, "succeeded", within_s=11)
        assert await world.path(unit) == ["pending", "dispatched", "running", "succeeded"]


async def _never_answers(*_: object) -> Any:
    await asyncio.Event().wait()


def test_a_node_engine_claims_from_no_queue() -> None:
    @story()
    async def _(world: World) -> None:
        await world.node()
        job = await world.client.jobs.submit("work", {"unit": "plain"})
        await asyncio.sleep(30)
        assert (await world.client.jobs.get(job.id)).status == "pending"


@SEEDS
def test_many_wakes_for_one_assignment_start_it_once(seed: int) -> None:
    @story(seed)
    async def _(world: World) -> None:
        node = await world.node()
        node.link.faults = StoreFaults(delay_s=0.5)
        unit = await world.placed(node, unit="a", seconds=5.0)
        pulses = [node.engine.pulsed(node.session, known=True, cancelling=(), assigned=[unit]) for _ in range(5)]
        await asyncio.gather(*pulses)
        for _ in range(3):
            await asyncio.sleep(0.3)
            await node.engine.pulsed(node.session, known=True, cancelling=(), assigned=[unit])

        await world.until(unit, "succeeded", within_s=10)
        assert [name for name, _ in node.begun] == ["a"]


@SEEDS
@pytest.mark.parametrize("lost", ["lost_calls", "lost_answers"])
def test_a_confirmation_that_is_lost_is_sent_again_and_the_unit_runs_once(seed: int, lost: str) -> None:
    @story(seed)
    async def _(world: World) -> None:
        node = await world.node()
        apply, losses = node.link.apply, 2

        async def lossy(changes: Any, **options: Any) -> Any:
            nonlocal losses
            if losses and any(move.to == "running" for change in changes for move in change.moves):
                losses -= 1
                node.link.faults = StoreFaults(**{lost: 1.0})
                try:
                    return await apply(changes, **options)
                finally:
                    node.link.faults = StoreFaults()
            return await apply(changes, **options)

        node.link.apply = lossy  # type: ignore[method-assign]
        unit = await world.placed(node, unit="a", seconds=3.0)

        await world.until(unit, "succeeded", within_s=WINDOW_S)
        assert [name for name, _ in node.begun] == ["a"]
        assert await world.path(unit) == ["pending", "dispatched", "running", "succeeded"]


@SEEDS
@pytest.mark.parametrize("name", ["work", "stubborn"])
def test_a_unit_that_is_cancelled_stops_within_a_second_of_the_wake(seed: int, name: str) -> None:
    @story(seed)
    async def _(world: World) -> None:
        node = await world.node()
        arguments = {"seconds": 1e6} if name == "work" else {}
        unit = await world.placed(node, name, unit="a", **arguments)
        await world.until(unit, "running", within_s=0.1)
        await asyncio.sleep(3.3)
        await world.move(unit, Move(to="cancelled", reason="its job was cancelled", fields={"session": None}))

        await asyncio.sleep(0.05)
        assert all(run.cause for run in node.engine.running)
        await asyncio.sleep(1.0)
        assert node.engine.held == 0
        assert (await world.row(unit)).status == "cancelled"


def test_a_confirmation_that_a_node_sent_to_two_managers_begins_its_unit() -> None:
    @story()
    async def _(world: World) -> None:
        network = FirstAnswersLost("apply")
        services = [service_of(world.store, network, name) for name in ("m1", "m2")]
        for service in services:
            await service.start()
        node = await world.node(store=await remote_of(network, world.clock).open())
        unit = await world.placed(node, unit="a", seconds=10.0)

        await world.until(unit, "succeeded", within_s=20.0)

        assert node.begun == [("a", 3)]  # the second manager answered after 2.5 s
        assert await world.path(unit) == ["pending", "dispatched", "running", "succeeded"]
        for service in services:
            await service.stop()


def test_a_lost_wake_for_a_cancelled_unit_is_made_good_with_the_next_heartbeat() -> None:
    @story()
    async def _(world: World) -> None:
        node = await world.node(deaf=True)
        await asyncio.sleep(0.5)
        unit = await world.placed(node, unit="a", seconds=1e6)
        await world.until(unit, "running", within_s=BEAT_S + 0.1)
        await world.move(unit, Move(to="cancelled", fields={"session": None}))
        await asyncio.sleep(BEAT_S + 0.1)
        assert node.engine.held == 0


def test_a_unit_that_is_cancelled_during_a_drain_stops_before_the_grace_is_over() -> None:
    @story()
    async def _(world: World) -> None:
        node = await world.node()
        unit = await world.placed(node, unit="a", seconds=1e6)
        await world.until(unit, "running", within_s=0.1)
        draining = asyncio.create_task(node.drained(300.0))
        await asyncio.sleep(1)
        await world.move(unit, Move(to="cancelled", fields={"session": None}))
        async with asyncio.timeout(BEAT_S + 0.5):
            await draining


def test_a_unit_that_is_cancelled_while_it_waits_for_a_slot_never_begins() -> None:
    @story()
    async def _(world: World) -> None:
        node = await world.node(concurrency=1)
        first = await world.placed(node, unit="first", seconds=10.0)
        second = await world.placed(node, unit="second")
        await world.until(second, "running", within_s=0.1)
        await world.move(second, Move(to="cancelled", fields={"session": None}))

        await world.until(first, "succeeded", within_s=11)
        await asyncio.sleep(5)
        assert [name for name, _ in node.begun] == ["first"]


def test_a_unit_without_a_free_slot_waits_for_one_and_is_not_given_back() -> None:
    @story()
    async def _(world: World) -> None:
        node = await world.node(concurrency=1)
        first = await world.placed(node, unit="first", seconds=60.0)
        second = await world.placed(node, unit="second")
        third = await world.placed(node, unit="third")

        await world.until(first, "succeeded", within_s=61)
        await world.until(third, "succeeded", within_s=0.1)
        assert node.begun == [("first", 0), ("second", 60), ("third", 60)]
        assert (await world.row(second)).releases == 0


def test_a_unit_of_an_unknown_job_is_given_back_for_a_while_with_the_reason() -> None:
    @story()
    async def _(world: World) -> None:
        node = await world.node()
        unit = await world.placed(node, "unheard_of")

        row = await world.until(unit, "pending", within_s=0.1)
        assert "unheard_of" in (row.reason or "")
        assert (row.releases, row.session) == (1, None)
        assert row.due_ms == world.clock.now_ms() + 30_000 - (world.clock.now_ms() - row.changed_ms)
        assert await world.path(unit) == ["pending", "dispatched", "pending"]


@SEEDS
def test_a_drain_gives_back_what_has_not_begun_and_lets_the_rest_finish(seed: int) -> None:
    @story(seed)
    async def _(world: World) -> None:
        node = await world.node(concurrency=1)
        first = await world.placed(node, unit="first", seconds=8.0)
        waiting = await world.placed(node, unit="waiting")
        await world.until(waiting, "running", within_s=0.1)
        draining = asyncio.create_task(node.drained(30.0))
        await asyncio.sleep(0.05)

        row = await world.row(waiting)
        assert (row.status, row.session) == ("pending", None)
        (session,) = await world.store.sessions()
        assert session.is_draining
        assert session.draining_by == session.id

        # the leader did not know it yet
        late = await world.placed(node, unit="late")
        row = await world.until(late, "pending", within_s=BEAT_S + 0.1)
        assert "takes no more work" in (row.reason or "")
        await draining
        assert (await world.row(first)).status == "succeeded"
        assert [name for name, _ in node.begun] == ["first"]


def test_a_drain_gives_back_what_is_assigned_and_not_confirmed() -> None:
    @story()
    async def _(world: World) -> None:
        node = await world.node(deaf=True)
        await asyncio.sleep(0.5)
        unit = await world.placed(node, unit="a")
        await node.drained(0.0)

        row = await world.row(unit)
        assert (row.status, row.session, row.releases, row.losses) == ("pending", None, 1, 0)
        assert node.begun == []


def test_a_drain_does_not_wait_for_a_store_that_is_away() -> None:
    @story()
    async def _(world: World) -> None:
        node = await world.node()
        await asyncio.sleep(0.5)
        node.link.faults = StoreFaults(unavailable=True)
        began_s = world.loop.time()
        await node.drained(0.0)
        assert world.loop.time() - began_s < 3.0


def test_a_unit_that_does_not_finish_within_the_grace_is_given_back() -> None:
    @story()
    async def _(world: World) -> None:
        node = await world.node()
        unit = await world.placed(node, unit="a", seconds=1e6)
        await world.until(unit, "running", within_s=0.1)
        await node.drained(5.0)
        row = await world.row(unit)
        assert (row.status, row.session) == ("pending", None)


@SEEDS
def test_a_lost_session_is_followed_by_one_with_the_same_node_name(seed: int) -> None:
    @story(seed)
    async def _(world: World) -> None:
        node = await world.node()
        unit = await world.placed(node, unit="a", seconds=100.0)
        await world.until(unit, "running", within_s=0.1)
        node.host.freeze()
        await asyncio.sleep(60)
        while (await world.row(unit)).status != "pending":
            await world.client.sweeper.sweep()
            await asyncio.sleep(1)
        node.host.thaw()
        await asyncio.sleep(BEAT_S + 1)

        first, second = node.sessions
        assert (second.node, second.labels) == (first.node, first.labels) == ("n1", {"zone": "a"})
        assert node.session == second.id
        assert node.engine.held == 0
        await world.assign(unit, second.id)
        assert (await world.until(unit, "running", within_s=0.1)).token == 2
        done = await world.until(unit, "succeeded", within_s=101)
        assert done.losses == 1


@SEEDS
def test_a_node_that_is_mute_past_its_window_starts_nothing_when_it_is_back(seed: int) -> None:
    @story(seed)
    async def _(world: World) -> None:
        node = await world.node("n1")
        other = await world.node("n2")
        node.link.faults = StoreFaults(lost_calls=1.0)
        for each in (node, other):
            each.host.start(_keep_alive(world, each))
        unit = await world.placed(node, unit="a", seconds=1.0)
        await asyncio.sleep(WINDOW_S - 1)
        await world.client.sweeper.sweep()
        assert (await world.row(unit)).status == "dispatched"
        await asyncio.sleep(1.5)
        await world.client.sweeper.sweep()
        row = await world.row(unit)
        assert (row.status, row.releases, row.losses) == ("pending", 1, 0)
        await world.assign(unit, other.session)
        node.link.faults = StoreFaults()
        await asyncio.sleep(10)

        assert (await world.row(unit)).status == "succeeded"
        assert (node.begun, [name for name, _ in other.begun]) == ([], ["a"])


async def _keep_alive(world: World, node: NodeHost) -> None:
    """What another connection of the node does: its session stays alive."""
    while True:
        await world.store.beat([node.sessions[0].id])
        await asyncio.sleep(1)


def test_the_engine_of_a_node_may_claim_from_queues_too() -> None:
    @story()
    async def _(world: World) -> None:
        node = await world.node(start=False)
        node.engine.queues = ("default",)

        async def start() -> None:
            node.engine.start()

        await node.host.start(start())
        job = await world.client.jobs.submit("work", {"unit": "plain"})
        unit = await world.placed(node, unit="placed")
        await asyncio.sleep(1)
        assert (await world.client.jobs.get(job.id)).status == "succeeded"
        assert (await world.row(unit)).status == "succeeded"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node": "rack 7"}, "node: 'rack 7' is not 1 to 64 of letters"),
        ({"node": "n" * 65}, "node: 'nnnn.* is not 1 to 64 of letters"),
        ({"node": "n", "labels": {"a b": "c"}}, "labels: 'a b' is not 1 to 64"),
        ({"node": "n", "labels": {"zone": ""}}, "labels.zone: '' is not 1 to 64"),
        ({"labels": {"zone": "a"}}, "labels: belong to a node"),
    ],
)
def test_a_bad_node_or_label_is_refused_by_field(options: dict[str, Any], message: str) -> None:
    async def main() -> None:
        with pytest.raises(InvalidInput, match=f"^{message}"):
            await Control(MemoryStore()).claims.open_session(**options)

    run_virtual(main())


def test_a_row_without_a_holder_cannot_be_confirmed() -> None:
    @story()
    async def _(world: World) -> None:
        unit = await world.unit(unit="a")
        with pytest.raises(InvalidInput, match="^rows: .* is pending and has no holder"):
            await world.client.claims.confirm([await world.row(unit)])

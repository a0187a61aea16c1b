"""The loops of a supervisor, on a store that comes and goes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest

from mainstay.control import Control
from mainstay.errors import StoreLocked
from mainstay.model import Settings
from mainstay.stores import ClaimReport, Overdue, Pulse
from mainstay.testing import MemoryStore
from mainstay.worker import heartbeat
from mainstay.worker.engine_record import EngineRecord
from mainstay.worker.heartbeat import SupervisorLoops
from mainstay.worker.recorder import Recorder

FAST = Settings.of(heartbeat="20ms", lease="200ms", sweep="10ms")


class Fickle(MemoryStore):
    """A store whose parts can be away."""

    beats_fail = False
    reports_fail = False
    sweeps_hang = False
    looks = 0

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    async def beat(self, sessions: Sequence[str], reports: Sequence[ClaimReport] = ()) -> list[Pulse]:
        if self.beats_fail:
            raise StoreLocked("somebody keeps it locked")
        return await super().beat(sessions, reports)

    async def report(self, reports: Sequence[ClaimReport]) -> list[bool]:
        self.batches.append(len(reports))
        if self.reports_fail:
            raise StoreLocked("somebody keeps it locked")
        return await super().report(reports)

    async def overdue(self, limit: int = 100) -> list[Overdue]:
        self.looks += 1
        if self.sweeps_hang:
            await asyncio.Event().wait()
        return await super().overdue(limit)


class World:
    """A supervisor's loops, and one engine that lives."""

    def __init__(self, recorder: Recorder) -> None:
        self.store = Fickle()
        self.control = Control(self.store, settings=FAST)
        self.engine = EngineRecord(0.0)
        self.engine.process = SimpleNamespace(  # type: ignore[assignment]
            recorder=recorder, pid=7, send=lambda message: None, ended=asyncio.get_running_loop().create_future()
        )
        self.asked: list[str] = []
        self.keeper = SupervisorLoops(
            self.control, lambda: [self.engine], rng=random.Random(1), on_drain=self.asked.append
        )
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self.engine.session = (await self.control.claims.open_session()).id
        self.tasks = [asyncio.create_task(loop) for loop in (self.keeper.beat(), self.keeper.sweep())]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)

    async def beaten_ms(self) -> int:
        (session,) = await self.store.sessions()
        assert not session.dead
        return session.beat_ms


async def until(condition: Callable[[], bool]) -> None:
    """Come back once something is so that sends no event. The test's own timeout is the net."""
    while not condition():
        await asyncio.sleep(0.001)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder.create(3)
    yield made
    made.close()


async def test_whoever_cannot_beat_does_not_judge_the_silence_of_others(recorder: Recorder) -> None:
    world = World(recorder)
    await world.start()
    await world.keeper.swept.wait()
    world.store.beats_fail = True
    await asyncio.sleep(5 * FAST.lease_s)  # the silence itself is what is tested

    before = await world.beaten_ms()
    world.store.beats_fail = False

    while await world.beaten_ms() == before:
        await asyncio.sleep(0.001)
    looks = world.store.looks
    await until(lambda: world.store.looks > looks)
    assert await world.beaten_ms() > before
    await world.stop()


async def test_a_sweep_that_hangs_does_not_stop_the_heartbeat(recorder: Recorder) -> None:
    world = World(recorder)
    world.store.sweeps_hang = True
    await world.start()
    await until(lambda: world.store.looks == 1)
    before = await world.beaten_ms()

    while await world.beaten_ms() - before < FAST.lease_s * 1000:
        await asyncio.sleep(0.001)

    assert world.store.looks == 1
    await world.stop()


async def test_a_session_that_took_longer_than_a_lease_to_start_is_not_swept_by_its_own_worker(
    recorder: Recorder,
) -> None:
    world = World(recorder)
    world.engine.session = (await world.control.claims.open_session()).id
    before = await world.beaten_ms()
    await asyncio.sleep(2 * FAST.lease_s)  # the silence itself is what is tested
    world.tasks = [asyncio.create_task(world.keeper.sweep())]
    await asyncio.sleep(0)
    assert world.store.looks == 0

    world.tasks.append(asyncio.create_task(world.keeper.beat()))
    await world.keeper.swept.wait()

    assert await world.beaten_ms() > before
    await world.stop()


async def test_a_sweep_lets_a_reap_go_first_once(recorder: Recorder) -> None:
    world = World(recorder)
    world.engine.process.ended.set_result(-9)  # dead and not reaped
    await world.start()
    await asyncio.sleep(0)
    assert world.store.looks == 0

    await world.keeper.swept.wait()

    assert world.store.looks == 1
    await world.stop()


async def test_what_lasts_is_stored_as_begun_without_a_beat_and_once(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "MARK_S", 0.01)
    world = World(recorder)
    session = world.engine.session = (await world.control.claims.open_session()).id
    for _ in range(3):
        await world.control.jobs.submit("demo")
    jobs = await world.control.claims.claim(["default"], session, 3)
    for slot, job in enumerate(jobs):
        recorder.begin(slot, job.id, token=job.token, started_ms=world.store.clock.now_ms(), deadline_ms=0)
    world.store.reports_fail = True
    world.tasks = [asyncio.create_task(world.keeper.mark())]
    await asyncio.sleep(0)  # it has had a look: what ends before the next one is not worth a write
    recorder.end(2)

    await until(lambda: len(world.store.batches) == 2)
    world.store.reports_fail = False
    while [(await world.control.jobs.get(job.id)).started_ms is not None for job in jobs] != [True, True, False]:
        await asyncio.sleep(0.001)

    assert set(world.store.batches) == {2}
    sent = len(world.store.batches)
    await asyncio.sleep(0.05)  # that nothing more is sent is what is tested
    assert len(world.store.batches) == sent
    await world.stop()


async def test_who_asked_an_engine_to_drain_is_told_with_the_next_beat(recorder: Recorder) -> None:
    world = World(recorder)
    await world.start()
    before = await world.beaten_ms()
    while await world.beaten_ms() == before:
        await asyncio.sleep(0.001)
    assert world.asked == []

    await world.control.operations.drain(world.engine.session or "", actor="ann")

    await until(lambda: bool(world.asked))
    assert set(world.asked) == {"ann"}
    await world.stop()

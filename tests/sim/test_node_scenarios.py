"""Scripted faults around the placement leader, in virtual time: who leads, what is written, and what runs twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from mainstay.control import Control
from mainstay.errors import InvalidTransition, NotLeader
from mainstay.lifecycle import Event
from mainstay.model import Job, Leadership
from mainstay.node import NodeJobResult
from mainstay.stores import AnyChange, ChangeResult, Query, Written
from mainstay.stores.memory import MemoryStore
from mainstay.testing import StoreFaults, VirtualLoop, run_virtual
from sim.nodes import NodesWorld

pytestmark = pytest.mark.usefixtures("quiet")

#: the longest takeover: a lease and two seconds, with the way of a call
LEASE_S, LOOK_S = 10.0, 2.0
MOST_COMMITS = 60


class RecordingStore(MemoryStore):
    """Keeps the refusals of writes of earlier leaders."""

    refused: list[NotLeader]

    async def apply(
        self, changes: Sequence[AnyChange], *, lead: Leadership | None = None, together: bool = False
    ) -> list[ChangeResult]:
        try:
            return await super().apply(changes, lead=lead, together=together)
        except NotLeader as refusal:
            self.refused.append(refusal)
            raise


class Scene(NodesWorld):
    """Three nodes, of which one leads, and a script instead of clients and chance."""

    def __init__(self, seed: int = 0) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        super().__init__(loop, seed)
        self.store: RecordingStore = RecordingStore(self.clock)
        self.store.refused = []
        self.store.observer = self._observe
        self._delay_s = 0.01
        self.control = Control(self.store, rng=self.rng("script"))
        self.commits = 0
        """writes about jobs and units so far"""
        self.moves: list[tuple[str, str]] = []
        """what each write moved, in their order"""
        self.on_commit: Callable[[int, Sequence[Written]], None] | None = None

    def _observe(self, written: Sequence[Written]) -> None:
        self._check_writes(written)
        self.commits += 1
        self.moves += [(after.id, event.to) for _, after, events in written for event in events if event.flag != "note"]
        if self.on_commit is not None:
            self.on_commit(self.commits, written)

    async def begin(self) -> str:
        """Start the nodes; returns the host that leads."""
        for name in self.servers:
            self.start_server(name)
        await self.until(lambda: self.leader() is not None)
        await asyncio.sleep(1)
        found = self.leader()
        assert found is not None
        return found

    def current(self) -> Leadership | None:
        return self.store._leaders.current("placement")

    def leader(self) -> str | None:
        """The host that leads by the store."""
        return next((name for name in self.servers if self.epoch_led_by(name) is not None), None)

    async def submit(self, job: Any, seconds: float = 1.0) -> str:
        request = job.job(seconds=seconds, fails=False).request()
        return (await self.control.jobs.submit_request(request)).id

    async def job(self, job_id: str) -> Job:
        return await self.control.jobs.get(job_id)

    async def units(self, job_id: str) -> dict[str, Job]:
        return {unit.unit or "": unit for unit in (await self.store.find(Query(parent=job_id), limit=50)).jobs}

    async def events(self, row: Job) -> list[Event]:
        return [event for event in await self.store.events(row.id) if event.flag != "note"]

    async def until(self, holds: Callable[[], bool], *, within_s: float = 300.0) -> float:
        """Wait until something holds; returns after how many seconds it did."""
        began_s = self.loop.time()
        while not holds():
            assert self.loop.time() - began_s < within_s, f"not within {within_s} s"
            await asyncio.sleep(0.05)
        return self.loop.time() - began_s

    async def until_settled(self, job_id: str, *, within_s: float = 300.0) -> Job:
        rows = self.store._rows.jobs
        await self.until(lambda: rows[job_id].settled_ms is not None, within_s=within_s)
        return await self.job(job_id)

    async def end(self) -> None:
        """Whatever happened, the rules of the world hold, and each unit has ended once."""
        await self.verify()
        for row in list(self.store._rows.jobs.values()):
            ends = [event for event in await self.events(row) if event.to in ("succeeded", "cancelled", "skipped")]
            assert len(ends) == 1, f"{row.unit or row.id} ended as {[event.to for event in ends]}"

    def result(self, job: Job) -> NodeJobResult:
        found: NodeJobResult = self.compact.returns.unpack(job.result, job_id=job.id)
        return found


def play(story: Callable[[Scene], Awaitable[Any]], seed: int = 0) -> Any:
    async def main() -> Any:
        scene = Scene(seed)
        with scene.app.using(scene.store):
            return await story(scene)

    return run_virtual(main(), seed=seed)


# the leader is paused, cut off, or without its store ------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_write_of_a_leader_that_was_paused_for_a_minute_within_it_is_refused(seed: int) -> None:
    async def story(scene: Scene) -> None:
        paused = await scene.begin()
        before = scene.current()
        gate, host = scene.gates[paused], scene.hosts[paused]
        gate.hold()
        job_id = await scene.submit(scene.compact)
        await scene.until(lambda: gate.waiting > 0)
        host.freeze()
        took_s = await scene.until(lambda: scene.leader() not in (None, paused))
        assert took_s <= LEASE_S + LOOK_S
        job = await scene.until_settled(job_id)
        successor = scene.current()
        await asyncio.sleep(60 - took_s)
        assert scene.store.refused == []
        gate.release()
        await asyncio.sleep(1)
        assert before is not None
        assert successor is not None
        assert [refusal.epoch for refusal in scene.store.refused] == [successor.epoch]
        assert successor.epoch > before.epoch
        host.thaw()
        await asyncio.sleep(30)
        assert scene.epoch_led_by(paused) is None
        assert (await scene.job(job_id)).version == job.version
        assert job.status == "succeeded"
        await scene.end()

    play(story, seed)


@pytest.mark.parametrize("phase", ["before a job", "local", "leader"])
def test_a_leader_that_is_cut_off_is_replaced_and_its_return_changes_nothing(phase: str) -> None:
    async def story(scene: Scene) -> None:
        cut = await scene.begin()
        job_id = "" if phase == "before a job" else await scene.submit(scene.compact, seconds=4.0)
        if job_id:
            status = "running" if phase == "local" else "finalizing"
            await scene.until(lambda: scene.store._rows.jobs[job_id].status == status)
            await asyncio.sleep(1)
        scene.links[cut].faults = StoreFaults(unavailable=True)
        took_s = await scene.until(lambda: scene.leader() not in (None, cut))
        assert took_s <= LEASE_S + LOOK_S
        job_id = job_id or await scene.submit(scene.compact, seconds=4.0)
        await asyncio.sleep(20)
        lead = scene.current()
        scene.links[cut].faults = StoreFaults(delay_s=0.01)
        job = await scene.until_settled(job_id)
        await asyncio.sleep(30)
        now = scene.current()
        assert now is not None
        assert lead is not None
        assert (now.holder, now.epoch) == (lead.holder, lead.epoch)
        assert job.status == "succeeded"
        await scene.end()

    play(story)


@pytest.mark.parametrize("offset_s", [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
def test_a_store_that_is_away_for_six_seconds_costs_neither_the_leader_nor_a_run(offset_s: float) -> None:
    async def story(scene: Scene) -> None:
        await scene.begin()
        before = scene.current()
        job_id = await scene.submit(scene.compact, seconds=30.0)
        await asyncio.sleep(5 + offset_s)
        for link in scene.links.values():
            link.faults = StoreFaults(unavailable=True)
        await asyncio.sleep(6)
        for link in scene.links.values():
            link.faults = StoreFaults(delay_s=0.01)
        job = await scene.until_settled(job_id)
        now = scene.current()
        assert now is not None
        assert before is not None
        assert (now.holder, now.epoch) == (before.holder, before.epoch)
        assert job.status == "succeeded"
        for unit in (await scene.units(job_id)).values():
            assert [event.to for event in await scene.events(unit)] == ["pending", "dispatched", "running", "succeeded"]
            assert unit.token == 1
        await scene.end()

    play(story)


# the leader dies after each commit ------------------------------------------------------------------


async def _killed_after(scene: Scene, job: str, at: int) -> bool:
    """Kill the leader right after the commit with this number; False: the job had ended before."""
    await scene.begin()
    declared = getattr(scene, job)
    start = scene.commits
    killed: list[str] = []

    def kill(number: int, _: Sequence[Written]) -> None:
        name = scene.leader()
        if number == start + at and name is not None:
            killed.append(name)
            scene.hosts[name].crash()

    scene.on_commit = kill
    job_id = await scene.submit(declared)
    rows = scene.store._rows.jobs
    await scene.until(lambda: bool(killed) or rows[job_id].settled_ms is not None)
    if not killed:
        return False
    await asyncio.sleep(3)
    scene.start_server(killed[0])
    ended = await scene.until_settled(job_id)
    assert ended.status == "succeeded"
    units = await scene.units(job_id)
    if declared is not scene.collect:
        given = msgspec.msgpack.decode(units["leader"].payload)["ended"]
        assert scene.result(ended).value.nodes == given
    await scene.end()
    return True


@pytest.mark.parametrize("job", ["compact", "rotate", "collect"])
def test_a_job_outlives_its_leader_after_every_commit(job: str) -> None:
    for at in range(1, MOST_COMMITS):

        async def story(scene: Scene, at: int = at) -> bool:
            return await _killed_after(scene, job, at)

        if not play(story, seed=at):
            assert at > 4
            return
    raise AssertionError("the job does not end")


@pytest.mark.parametrize("seed", range(3))
def test_a_leader_that_dies_between_the_phases_is_followed_by_one_with_the_same_results(seed: int) -> None:
    async def story(scene: Scene) -> None:
        first = await scene.begin()
        begun: list[list[str]] = []

        def kill(_: int, written: Sequence[Written]) -> None:
            for before, after, _events in written:
                if after.unit == "leader" and before is None:
                    begun.append(msgspec.msgpack.decode(after.payload)["ended"])
                    scene.hosts[first].crash()

        scene.on_commit = kill
        job_id = await scene.submit(scene.compact)
        job = await scene.until_settled(job_id)
        assert len(begun) == 1
        assert scene.result(job).value.nodes == begun[0]
        assert [found for found, _ in scene.phases] == [job_id], "the leader phase ran twice"
        scene.start_server(first)
        await scene.end()

    play(story, seed)


# cancel ---------------------------------------------------------------------------------------------


async def _cancelled_after(scene: Scene, at: int, *, leader_dies: bool) -> bool:
    """Cancel right after the commit with this number; False: the job had ended before."""
    await scene.begin()
    start, cancels = scene.commits, []
    killed: list[str] = []
    job_id = ""

    async def cancel() -> None:
        scene.cancelled.add(job_id)
        try:
            await scene.control.operations.cancel(job_id, actor="script")
        except InvalidTransition:
            assert (await scene.job(job_id)).status == "succeeded"

    def act(number: int, _: Sequence[Written]) -> None:
        name = scene.leader()
        if number != start + at or name is None:
            return
        cancels.append(scene.loop.create_task(cancel()))
        if leader_dies:
            killed.append(name)
            scene.hosts[name].crash()

    scene.on_commit = act
    job_id = await scene.submit(scene.compact)
    rows = scene.store._rows.jobs
    await scene.until(lambda: bool(cancels) or rows[job_id].settled_ms is not None)
    if not cancels:
        return False
    await cancels[0]
    for name in killed:
        scene.start_server(name)
    job = await scene.until_settled(job_id, within_s=60)
    assert job.status in ("cancelled", "succeeded")
    await asyncio.sleep(5)
    await scene.end()
    # in the order of the writes: hosts reckon the time differently
    moves = [to for row_id, to in scene.moves if row_id == job_id or to == "dispatched"]
    asked = next((place for place, to in enumerate(moves) if to in ("cancelling", "cancelled")), len(moves))
    assert "dispatched" not in moves[asked:]
    assert all(unit.settled_ms is not None for unit in (await scene.units(job_id)).values())
    return True


@pytest.mark.parametrize("leader_dies", [False, True])
def test_a_cancel_after_any_commit_ends_in_one_state_and_nothing_is_assigned_after_it(*, leader_dies: bool) -> None:
    for at in range(1, MOST_COMMITS):

        async def story(scene: Scene, at: int = at) -> bool:
            return await _cancelled_after(scene, at, leader_dies=leader_dies)

        if not play(story, seed=at):
            assert at > 10
            return
    raise AssertionError("the job does not end")


# wakes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_lost_wakes_are_made_good_within_a_beat(seed: int) -> None:
    async def story(scene: Scene) -> None:
        await scene.begin()
        scene.store._notify = lambda _: None
        await asyncio.sleep(scene.rng("wait").uniform(0, 5))
        job_id = await scene.submit(scene.compact)
        job = await scene.until_settled(job_id)
        [submitted, started, *_] = await scene.events(job)
        assert started.at_ms - submitted.at_ms <= 2_200
        for unit in (await scene.units(job_id)).values():
            times = {event.to: event.at_ms for event in await scene.events(unit)}
            assert times["running"] - times["dispatched"] <= 2_200
        assert job.status == "succeeded"
        await scene.end()

    play(story, seed)

"""Work that only supervises processes of its own, in virtual time: it needs no slot of its engine."""

from __future__ import annotations

import asyncio

import pytest

from mainstay.control.payload import encoded
from mainstay.model import PLACE_QUEUE
from mainstay.testing import new_job
from mainstay.worker import GiveBack, context
from mainstay.worker.engine_record import EngineRecord
from mainstay.worker.recorder import Recorder
from tests.worker.program import LIMIT, Act
from tests.worker.test_placed_work import NodeHost, World, story

SEEDS = pytest.mark.parametrize("seed", range(3))


def guarded(node: NodeHost) -> asyncio.Event:
    """Give the node such work, under the name `guard`. It ends when the event is set."""
    ends = asyncio.Event()

    async def guard(unit: str) -> str:
        node.begun.append((unit, round(node.world.loop.time())))
        await ends.wait()
        return unit

    async def picky(unit: str) -> str:
        raise GiveBack("not enough cores")

    for function in (guard, picky):
        act = node.stage.acts[function.__name__] = Act(function, "loop")
        act.supervises = True  # type: ignore[attr-defined]
    return ends


@SEEDS
def test_it_begins_at_once_although_every_slot_is_taken(seed: int) -> None:
    @story(seed)
    async def _(world: World) -> None:
        node = await world.node(concurrency=1)
        ends = guarded(node)
        long = await world.placed(node, unit="long", seconds=60.0)
        await world.until(long, "running", within_s=1.0)

        units = [await world.placed(node, "guard", unit=name) for name in ("a", "b")]

        for unit in units:
            await world.until(unit, "running", within_s=1.0)
        await asyncio.sleep(1.0)
        assert {name for name, _ in node.begun} == {"long", "a", "b"}
        ends.set()
        for unit in units:
            await world.until(unit, "succeeded", within_s=1.0)


@SEEDS
def test_it_takes_no_slot_from_other_work(seed: int) -> None:
    @story(seed)
    async def _(world: World) -> None:
        node = await world.node(concurrency=1)
        ends = guarded(node)
        first = await world.placed(node, "guard", unit="guard")
        await world.until(first, "running", within_s=1.0)

        for name in ("a", "b"):
            unit = await world.placed(node, unit=name, seconds=1.0)
            await world.until(unit, "succeeded", within_s=3.0)

        assert (await world.row(first)).status == "running"
        ends.set()
        await world.until(first, "succeeded", within_s=1.0)


@SEEDS
def test_what_it_gives_back_is_pending_again_with_its_reason(seed: int) -> None:
    @story(seed)
    async def _(world: World) -> None:
        node = await world.node()
        guarded(node)
        unit = await world.placed(node, "picky", unit="a")

        row = await world.until(unit, "pending", within_s=1.0)

        assert (row.reason, row.releases, row.failures, row.queue) == ("not enough cores", 1, 0, PLACE_QUEUE)


@SEEDS
def test_a_deaf_one_is_left_behind_and_its_engine_takes_no_more_work(seed: int) -> None:
    @story(seed)
    async def _(world: World) -> None:
        node = await world.node()

        async def deaf(unit: str) -> None:
            while True:
                try:
                    await asyncio.sleep(1e9)
                except asyncio.CancelledError:
                    continue

        act = node.stage.acts["deaf"] = Act(deaf, "loop")
        act.supervises = True  # type: ignore[attr-defined]
        unit = await world.placed(node, "deaf", unit="a")
        await world.until(unit, "running", within_s=1.0)

        await world.client.operations.force(unit, "cancelled", actor="ann", reason="a test")
        await asyncio.sleep((await world.row(unit)).options.grace_s + 5.0)

        assert node.engine.left_behind == 1
        again = await world.placed(node, unit="b")
        await world.until(again, "pending", within_s=5.0)


def test_the_supervisor_stores_no_start_for_it_and_blames_it_for_no_death() -> None:
    class Ours:
        def __init__(self) -> None:
            self.recorder = Recorder.within_process(2)

    engine = EngineRecord(0.0)
    engine.process = Ours()  # type: ignore[assignment]
    engine.session = "n1.1"
    ids = ["01a1e20f-5355-7137-b2a7-4de452e6b59d", "01a1e20f-5355-7137-b2a7-4de452e6b59e"]
    engine.process.recorder.begin(0, ids[0], token=1, started_ms=5, deadline_ms=0)
    engine.process.recorder.begin(1, ids[1], token=1, started_ms=0, deadline_ms=0, apart=True)

    assert [mark.job_id for mark in engine.marks()] == ids[:1]
    assert [entry.job_id for entry in engine.running()] == ids


@SEEDS
def test_it_may_also_be_claimed_and_then_runs_beside_what_has_slots(seed: int) -> None:
    @story(seed)
    async def _(world: World) -> None:
        node = await world.node(concurrency=1, queues=("runs",))
        ends = guarded(node)
        jobs: list[str] = []
        for losses in (0, 0, 9):  # a job that was lost so often runs alone, but this one runs no code in its engine
            payload = encoded({"unit": f"lost {losses}"}, field="payload", limit=LIMIT)
            new = new_job(world.clock, world.ids, name="guard", queue="runs", payload=payload, losses=losses)
            await world.store.insert([new])
            jobs.append(new.job.id)

        for job in jobs:
            await world.until(job, "running", within_s=2.0)
        ends.set()
        for job in jobs:
            await world.until(job, "succeeded", within_s=1.0)


# cores ------------------------------------------------------------------------------------------------


async def plain(world: World, count: int) -> list[str]:
    """Jobs of 1 s that any engine of the queue may claim."""
    payload = encoded({"unit": "plain", "seconds": 1.0}, field="payload", limit=LIMIT)
    new = [new_job(world.clock, world.ids, name="work", queue="runs", payload=payload) for _ in range(count)]
    await world.store.insert(new)
    return [each.job.id for each in new]


async def at_once(world: World, jobs: list[str]) -> int:
    """How many of these jobs run together at most, until all have ended."""
    most = 0
    while True:
        statuses = [(await world.row(job)).status for job in jobs]
        most = max(most, statuses.count("running"))
        if statuses.count("succeeded") == len(jobs):
            return most
        await asyncio.sleep(0.1)


@pytest.mark.parametrize(("elsewhere", "most"), [(0, 4), (1, 3), (2, 2), (3, 1)])
def test_an_engine_runs_as_large_a_part_of_its_jobs_as_cores_are_free(elsewhere: int, most: int) -> None:
    @story()
    async def _(world: World) -> None:
        node = await world.node(concurrency=4, queues=("runs",))
        node.cores.total = 4
        node.engine.cores_elsewhere(elsewhere)
        await asyncio.sleep(1.0)  # its first claim has been answered

        assert await at_once(world, await plain(world, 8)) == most


@SEEDS
def test_an_engine_claims_again_as_soon_as_cores_are_free(seed: int) -> None:
    @story(seed)
    async def _(world: World) -> None:
        node = await world.node(concurrency=4, queues=("runs",))
        node.cores.total = 4
        node.engine.cores_elsewhere(4)
        await asyncio.sleep(1.0)  # its first claim has been answered
        jobs = await plain(world, 4)
        await asyncio.sleep(30.0)
        assert {(await world.row(job)).status for job in jobs} == {"pending"}

        node.engine.cores_elsewhere(0)

        for job in jobs:
            await world.until(job, "succeeded", within_s=2.0)


def test_work_that_needs_more_cores_than_are_free_is_given_back_and_the_end_of_others_frees_theirs() -> None:
    @story()
    async def _(world: World) -> None:
        node = await world.node()
        node.cores.total = 4

        async def needs(unit: str, cores: int, seconds: float = 0.0) -> str:
            context().link.take_cores(cores)
            await asyncio.sleep(seconds)
            return unit

        act = node.stage.acts["needs"] = Act(needs, "loop")
        act.supervises = True  # type: ignore[attr-defined]
        first = await world.placed(node, "needs", unit="a", cores=3, seconds=2.0)
        await world.until(first, "running", within_s=1.0)
        refused = await world.placed(node, "needs", unit="b", cores=2)
        row = await world.until(refused, "pending", within_s=1.0)
        await world.until(first, "succeeded", within_s=3.0)
        await world.assign(refused, node.session)

        await world.until(refused, "succeeded", within_s=1.0)
        assert row.reason == "it needs 2 cores; 1 of 4 on this node are free"

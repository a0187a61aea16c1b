"""Assignments of slices as the rows in a store say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import msgspec
import pytest

from mainstay.control import Control, JobRequest, OptionReader, assign_unit, lose_unit
from mainstay.lifecycle import Move
from mainstay.load.fleet.messages import SliceEnd, encode
from mainstay.load.fleet.saved_run import StoredSlice, stored_slices
from mainstay.load.fleet.settings import FleetMember
from mainstay.load.fleet.spec import SLICE, SliceCall, slice_id, slice_unit
from mainstay.load.fleet.stored_assignments import StoredAssignments
from mainstay.load.generator_process import GeneratorLost
from mainstay.model import PLACE_QUEUE, Job, Session, Settings
from mainstay.stores import Change
from mainstay.testing import FaultyStore, MemoryStore, StoreFaults, VirtualClock

POLL_S = 0.005


class PlacedSlices:
    """The slices of a job, whose rows a test moves."""

    def __init__(self) -> None:
        self.store = MemoryStore(clock=VirtualClock())
        self.control = Control(self.store)
        self.sessions: dict[str, Session] = {}
        self.slices: list[StoredSlice] = []

    async def open(self, slices: int = 1) -> PlacedSlices:
        for name in ("n1", "n2"):
            self.sessions[name] = await self.control.claims.open_session(worker=name, node=name)
        job = await self.control.jobs.submit("shop")
        plan = OptionReader(Settings()).read({})
        requests = []
        for number in range(slices):
            call = SliceCall(job=job.id, round=1, number=number, of=slices, cores=2)
            unit = msgspec.structs.replace(plan, queue=PLACE_QUEUE, parent=job.id, unit=slice_unit(1, number))
            payload = msgspec.Raw(msgspec.msgpack.encode(call))
            requests.append(JobRequest(SLICE, payload, unit, id=slice_id(job.id, 1, number)))
        await self.store.insert(self.control.jobs.new_jobs(requests, actor="leader"))
        self.slices = stored_slices([await self.row(request.id or "") for request in requests])
        return self

    async def row(self, row_id: str = "") -> Job:
        [row] = await self.store.get([row_id or self.slices[0].row.id])
        assert row is not None
        return row

    async def move(self, *moves: Move) -> None:
        change = Change(before=await self.row(), moves=moves, actor="test", at_ms=self.store.clock.now_ms())
        [result] = await self.store.apply([change])
        assert result.outcome == "applied", result

    async def assign(self, node: str) -> None:
        await self.move(*assign_unit(await self.row(), self.sessions[node], now_ms=self.store.clock.now_ms()))

    async def confirm(self) -> None:
        await self.move(Move(to="running", reason="confirmed by its node"))

    def assignments(self) -> StoredAssignments:
        return StoredAssignments(self.control, self.slices, actor="m1", rng=random.Random(5), poll_s=POLL_S)


@pytest.fixture
async def placed() -> AsyncIterator[PlacedSlices]:
    opened = await PlacedSlices().open()
    yield opened
    await opened.store.close()


async def test_a_slice_is_assigned_when_its_node_has_confirmed(placed: PlacedSlices) -> None:
    async with placed.assignments() as assignments:
        waiting = asyncio.ensure_future(assignments.after(0, 0))
        await placed.assign("n1")
        done, _ = await asyncio.wait({waiting}, timeout=5 * POLL_S)
        assert not done

        await placed.confirm()

        assert await waiting == FleetMember(node="n1", processes=2, token=1)


async def test_a_successor_of_the_leader_learns_the_name_of_a_node_that_has_a_slice_already(
    placed: PlacedSlices,
) -> None:
    await placed.assign("n1")
    await placed.confirm()
    placed.slices = stored_slices([await placed.row()])

    async with placed.assignments() as assignments:
        assert await assignments.after(0, 0) == FleetMember(node="n1", processes=2, token=1)


async def test_an_assignment_is_over_when_its_node_was_lost_and_the_next_one_has_another_token(
    placed: PlacedSlices,
) -> None:
    await placed.assign("n1")
    await placed.confirm()
    async with placed.assignments() as assignments:
        over = asyncio.ensure_future(assignments.over(0, 1))

        await placed.move(*lose_unit(await placed.row(), "its worker died"))
        assert await over == "its worker died"
        await placed.assign("n2")
        await placed.confirm()

        assert await assignments.after(0, 1) == FleetMember(node="n2", processes=2, token=2)


async def test_a_slice_that_is_given_up_is_taken_from_its_node(placed: PlacedSlices) -> None:
    await placed.assign("n1")
    await placed.confirm()
    async with placed.assignments() as assignments:
        await assignments.give_up(0, 1, "it does not answer its leader")

        assert await assignments.over(0, 1) == "it does not answer its leader"
    row = await placed.row()
    assert (row.status, row.session, row.losses, row.failures) == ("pending", None, 1, 0)


async def test_a_slice_is_given_up_as_soon_as_the_store_is_back(placed: PlacedSlices) -> None:
    await placed.assign("n1")
    await placed.confirm()
    away = FaultyStore(placed.store, rng=random.Random(1), faults=StoreFaults(unavailable=True))
    placed.control = Control(away)
    async with placed.assignments() as assignments:
        giving_up = asyncio.ensure_future(assignments.give_up(0, 1, "it does not answer its leader"))
        await asyncio.sleep(0.05)
        assert not giving_up.done()

        away.faults = StoreFaults()
        await giving_up

    assert (await placed.row()).status == "pending"


async def test_the_end_that_a_node_has_stored_is_found_by_its_assignment(placed: PlacedSlices) -> None:
    end = SliceEnd(go=2, token=1, reports=[], loss="", isolated=False, windows=0, total=None)
    await placed.assign("n1")
    await placed.confirm()
    async with placed.assignments() as assignments:
        assert await assignments.end_of(0, 1) is None
        for body in (b"\xc1", encode(end)):
            claims = placed.control.claims
            [kept] = await claims.report([claims.progress(await placed.row(), 1, checkpoint=body)])
            assert kept

        assert await assignments.end_of(0, 1) == end
        assert await assignments.end_of(0, 2) is None


async def test_only_the_named_assignment_is_given_up(placed: PlacedSlices) -> None:
    await placed.assign("n1")
    await placed.confirm()
    async with placed.assignments() as assignments:
        await assignments.give_up(0, 7, "late")
    assert (await placed.row()).status == "running"


async def test_a_slice_that_will_never_be_assigned_is_named_with_the_reason(placed: PlacedSlices) -> None:
    async with placed.assignments() as assignments:
        waiting = asyncio.ensure_future(assignments.after(0, 0))
        await placed.move(Move(to="cancelled", reason="the job is cancelled"))

        with pytest.raises(GeneratorLost, match="slice 0 is cancelled: the job is cancelled"):
            await waiting

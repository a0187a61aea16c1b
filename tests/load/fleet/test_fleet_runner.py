"""The leader of a fleet, piece by piece: what it opens it closes, and what it has recorded it finds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainstay.bus import BusMessage, MemoryBusNetwork, Subscription
from mainstay.clock import SystemClock
from mainstay.errors import BusError
from mainstay.load.engine.messages import Values
from mainstay.load.fleet import FleetRecord, FleetRunner, FleetSettings
from mainstay.load.fleet.fleet_context import FleetContext
from mainstay.load.fleet.fleet_reports import FleetReports
from mainstay.load.fleet.led_slice import LedSlice
from mainstay.load.fleet.once_orders import OnceOrders
from mainstay.load.fleet.record import GoRecord, LostPart
from mainstay.load.fleet.settings import FleetMember
from mainstay.load.fleet.slice_merger import SliceMerger
from mainstay.load.generator_process import Limits
from mainstay.load.stats.model import SliceReport


class NoAssignments:
    """No slice has a machine."""

    def waiting(self, number: int) -> str:
        return f"slice {number} waits for a free core"


async def stored(_: FleetRecord) -> None:
    """The store takes everything."""


def context(record: FleetRecord) -> FleetContext:
    assignments: Any = NoAssignments()
    return FleetContext(
        bus=MemoryBusNetwork().client("leader"),
        job="job-1",
        epoch=1,
        assignments=assignments,
        record=record,
        save=stored,
        on_loss="replace",
        limits=Limits(),
        settings=FleetSettings(),
        clock=SystemClock(),
        steady=lambda: 0.0,
        merger=SliceMerger(1, lambda _: None, hold_s=0.25, now=lambda: 0.0),
    )


async def test_a_leader_that_cannot_listen_leaves_nothing_on_the_bus() -> None:
    bus: Any = MemoryBusNetwork().client("leader")
    opened: list[Subscription[BusMessage]] = []
    subscribe = bus.subscribe

    async def once(*given: Any, **named: Any) -> Subscription[BusMessage]:
        if opened:
            raise BusError("the bus is away")
        opened.append(await subscribe(*given, **named))
        return opened[-1]

    bus.subscribe = once
    assignments: Any = NoAssignments()
    runner = FleetRunner(
        1,
        lambda _: None,
        bus=bus,
        job="job-1",
        slices=[1],
        assignments=assignments,
        epoch=1,
        record=FleetRecord(),
        save=stored,
    )
    before = asyncio.all_tasks()

    with pytest.raises(BusError, match="the bus is away"):
        await runner.__aenter__()

    assert asyncio.all_tasks() == before
    with pytest.raises(StopAsyncIteration):
        await anext(opened[0])


async def test_what_another_assignment_of_a_slice_has_torn_down_says_nothing_of_what_this_one_had_set_up() -> None:
    record = FleetRecord(
        asked={"set_up/1": (0, 1), "set_up/2": (0, 2), "tear_down/0/2": (0, 2)},
        answers={"set_up/1": Values(), "set_up/2": Values(), "tear_down/0/2": Values()},
    )
    fleet = context(record)
    once = OnceOrders(fleet, [LedSlice(fleet, 0, 1, first=0, of=1)])
    await once.set_up(["Shop"], {}, calls=1)
    await once.set_up(["Checkout"], {}, calls=1)

    torn_down = await once.tear_down(["Shop", "Checkout"], calls=1)

    assert torn_down.failed == {
        "Shop": "the machine that set it up was lost (slice 0: slice 0 waits for a free core)",
    }


class NotedGo:
    """A go in one slice, which counts how often its sum was made."""

    def __init__(self, number: int, size: int) -> None:
        self.part = LostPart(
            go=1,
            report=SliceReport(slice=number, token=1, node="n" * size, processes=1),
            total=None,
        )
        self.noted = 0

    def note(self) -> LostPart:
        self.noted += 1
        return self.part


async def test_the_sums_of_a_large_run_are_not_made_again_and_again_to_be_thrown_away() -> None:
    earlier = NotedGo(0, 5).part
    record = FleetRecord(
        gos=[GoRecord(go=1, workflows=["Shop"], wall=0.0, tokens=[1] * 9, nodes=["n"] * 9)], received=[earlier]
    )
    fleet = context(record)
    gos: list[Any] = [NotedGo(number, 100_000) for number in range(9)]
    reports = FleetReports(fleet, [])
    reports.begin(gos)

    for _ in range(20):
        reports.note()

    assert record.received == [earlier]
    assert [one.noted for one in gos] == [1, 1, 1, 0, 0, 0, 0, 0, 0]


async def test_a_slice_has_its_processes_among_those_of_the_run() -> None:
    fleet = context(FleetRecord())
    own = LedSlice(fleet, 1, 3, first=4, of=9)

    link = own._linked(FleetMember(node="n1", processes=3))

    assert link.processes == own.numbers == range(4, 7)

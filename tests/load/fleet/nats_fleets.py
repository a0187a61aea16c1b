"""Fleets on this machine: services with real generator processes behind a real nats-server."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from mainstay.bus import Bus
from mainstay.bus.nats import connect_nats
from mainstay.load.fleet import FleetMember, FleetRecord, FleetRunner, FleetSettings, SliceService
from mainstay.load.fleet.messages import SliceEnd
from mainstay.load.generators import Generators
from mainstay.load.runner import MakeRunner
from servers.nats import NatsCore
from servers.server import folder
from tests.bus.adapters import ANY_USER

JOB = "job-1"
#: a busy machine may need a while to hear an order
PATIENT = FleetSettings(ahead_s=1.0)


class FixedAssignments:
    """Placement that never changes (`mainstay.load.fleet.SliceAssignments`)."""

    def __init__(self, members: Sequence[FleetMember]) -> None:
        self._members = members

    async def after(self, number: int, token: int) -> FleetMember:
        if self._members[number].token <= token:
            await asyncio.Event().wait()
        return self._members[number]

    async def over(self, number: int, token: int) -> str:
        await asyncio.Event().wait()
        return f"{number} {token}"

    async def give_up(self, number: int, token: int, why: str) -> None:
        pass

    async def end_of(self, number: int, token: int) -> SliceEnd | None:
        del number, token
        return None

    def waiting(self, number: int) -> str:
        return f"slice {number} waits"


async def not_stored(_: FleetRecord) -> None:
    """No leader follows."""


@asynccontextmanager
async def nats_fleet(processes: Sequence[int]) -> AsyncIterator[MakeRunner]:
    """Makes the leaders of a fleet whose members have these numbers of processes. Its services end with its leader."""
    members = [FleetMember(node=f"node-{number}", processes=count) for number, count in enumerate(processes)]
    with folder("fleet-") as place, NatsCore(place, ANY_USER) as server:
        buses: list[Bus] = []

        async def connect(name: str) -> Bus:
            buses.append(await connect_nats(server.url("all"), name=name, timeout_s=20))
            return buses[-1]

        services = [
            SliceService(await connect(member.node), Generators, job=JOB, number=number, node=member.node)
            for number, member in enumerate(members)
        ]
        serving = [asyncio.ensure_future(service.run()) for service in services]
        try:
            yield functools.partial(
                FleetRunner,
                bus=await connect("leader"),
                job=JOB,
                slices=processes,
                assignments=FixedAssignments(members),
                epoch=1,
                record=FleetRecord(),
                save=not_stored,
                settings=PATIENT,
            )
            await asyncio.gather(*serving)
        finally:
            for service in serving:
                service.cancel()
            await asyncio.wait(serving)
            for bus in buses:
                await bus.close()

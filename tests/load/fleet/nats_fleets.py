"""Fleets on this machine: services with real generator processes behind a real nats-server."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from mainstay.bus import Bus
from mainstay.bus.nats import connect_nats
from mainstay.load.fleet import FleetMember, FleetRunner, FleetSettings, SliceService
from mainstay.load.generators import Generators
from mainstay.load.runner import MakeRunner
from servers.nats import NatsCore
from servers.server import folder
from tests.bus.adapters import ANY_USER

JOB = "job-1"
#: a busy machine may need a while to hear an order
PATIENT = FleetSettings(ahead_s=1.0)


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
            asyncio.ensure_future(SliceService(await connect(member.node), Generators, job=JOB, number=number).run())
            for number, member in enumerate(members)
        ]
        try:
            yield functools.partial(
                FleetRunner, bus=await connect("leader"), job=JOB, members=members, settings=PATIENT
            )
            await asyncio.gather(*services)
        finally:
            for service in services:
                service.cancel()
            await asyncio.wait(services)
            for bus in buses:
                await bus.close()

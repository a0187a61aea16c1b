"""A fleet in simulation: members on hosts of their own behind a faulty bus, with simulated generators."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from mainstay.load.fleet import FleetMember, FleetRunner, FleetSettings, SliceService
from mainstay.load.stats.model import Window
from mainstay.testing import BusFaults, FaultyBusNetwork, LoopClock, SimulatedHost, VirtualLoop

from .load_runner import SimulatedRunner, SimulatedTarget

#: the host of the leader
LEADER = "leader"


class SimulatedMember:
    """One machine of the fleet: its service, and the runners that it made. `clock_s` is how far its steady clock is
    from that of the leader."""

    def __init__(self, fleet: SimulatedFleet, number: int, member: FleetMember, clock_s: float) -> None:
        self.number = number
        self.node = member.node
        self.token = member.token
        self.host: SimulatedHost = fleet.loop.host(member.node)
        self.runners: list[SimulatedRunner] = []
        self.released = asyncio.Event()
        self._fleet = fleet
        self.service = SliceService(
            fleet.network.client(f"{member.node}.{number}", host=member.node),
            self._make,
            job=fleet.job,
            number=number,
            token=member.token,
            settings=fleet.settings,
            steady=lambda: fleet.loop.time() + clock_s,
        )
        self.host.start(self._serve())

    async def _serve(self) -> None:
        await self.service.run()
        self.released.set()

    def _make(self, *given: Any, **named: Any) -> SimulatedRunner:
        fleet = self._fleet
        runner = SimulatedRunner(
            *given,
            **{**named, **fleet.traits.get(self.number, {})},
            loop=fleet.loop,
            clock=fleet.clock,
            target=fleet.targets[self.number],
        )
        self.runners.append(runner)
        return runner

    @property
    def is_loading(self) -> bool:
        """Whether any generator is alive and under load."""
        return any(one.is_loading for runner in self.runners for one in runner.generators)

    def crash(self) -> None:
        """Power off."""
        for runner in self.runners:
            runner.kill()
        self.host.crash()


class SimulatedFleet:
    """Members, and the leader that `make` makes: a `mainstay.load.runner.MakeRunner`. Each member has a target of its
    own, so that it is known who sent what. `traits` are options of the runners, by member."""

    def __init__(
        self,
        loop: VirtualLoop,
        processes: Sequence[int],
        *,
        seed: int = 0,
        faults: BusFaults | None = None,
        settings: FleetSettings | None = None,
        clocks_s: Sequence[float] = (),
        traits: dict[int, dict[str, Any]] | None = None,
        absent: Sequence[int] = (),
    ) -> None:
        self.loop = loop
        self.job = "job-1"
        self.clock = LoopClock(loop)
        self.settings = settings or FleetSettings()
        self.network = FaultyBusNetwork(rng=random.Random(seed), faults=faults)
        self.targets = [SimulatedTarget() for _ in processes]
        self.traits = traits or {}
        self.leaders: list[FleetRunner] = []
        self.plan = [FleetMember(node=f"node-{at}", processes=count) for at, count in enumerate(processes)]
        offsets_s = list(clocks_s) or [1000.0 * number for number in range(len(processes))]
        self.members = {
            number: SimulatedMember(self, number, member, offsets_s[number])
            for number, member in enumerate(self.plan)
            if number not in absent
        }

    def make(self, processes: int, on_window: Callable[[Window], None], **named: Any) -> FleetRunner:
        self.leaders.append(
            FleetRunner(
                processes,
                on_window,
                **named,
                bus=self.network.client(f"{LEADER}.{len(self.leaders)}", host=LEADER),
                job=self.job,
                members=self.plan,
                settings=self.settings,
                clock=self.clock,
            )
        )
        return self.leaders[-1]

    @property
    def sent(self) -> int:
        """What all targets counted."""
        return sum(target.total for target in self.targets)

    def cut(self, number: int, *, to: bool = True, back: bool = True) -> None:
        """Cut a member off: what the leader sends to it, or what it sends."""
        node = self.members[number].node
        if to:
            self.network.cut(LEADER, node)
        if back:
            self.network.cut(node, LEADER)

    def join(self, number: int) -> None:
        node = self.members[number].node
        self.network.join(LEADER, node)
        self.network.join(node, LEADER)

    async def released(self) -> None:
        """Wait until the services of all live members have ended."""
        await asyncio.gather(*(member.released.wait() for member in self.members.values() if member.host.alive))


__all__ = ["LEADER", "SimulatedFleet", "SimulatedMember"]

"""A fleet in simulation: members on hosts of their own behind a faulty bus, with simulated generators, and placement
that gives a lost slice to another host."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from mainstay.load.fleet import FleetMember, FleetRecord, FleetRunner, FleetSettings, SliceService
from mainstay.load.fleet.messages import SliceEnd
from mainstay.load.fleet.spec import OnLoss
from mainstay.load.generator_process import GeneratorLost
from mainstay.load.stats.model import Window
from mainstay.testing import BusFaults, FaultyBusNetwork, LoopClock, SimulatedHost, VirtualLoop

from .load_runner import SimulatedCode, SimulatedRunner, SimulatedTarget

#: the host of the first leader
LEADER = "leader"
#: a silent node is closed
_CLOSED_S = 25.0


class SimulatedAssignments:
    """Placement (`mainstay.load.fleet.SliceAssignments`): a slice whose assignment is over gets another host after
    `replace_s`, at most `budget` times."""

    def __init__(self, fleet: SimulatedFleet, *, replace_s: float, budget: int) -> None:
        self.ended: dict[tuple[int, int], str] = {}
        """by slice and token: why it is over"""
        self.given_up: list[tuple[int, int, str]] = []
        """what leaders took away from a node"""
        self._fleet = fleet
        self._replace_s = replace_s
        self._budget = budget
        self._current: dict[int, FleetMember] = {}
        self._never: dict[int, str] = {}
        self._changed = asyncio.Event()

    async def after(self, number: int, token: int) -> FleetMember:
        while True:
            member = self._current.get(number)
            if member is not None and member.token > token:
                return member
            if number in self._never:
                raise GeneratorLost(self._never[number])
            await self._changed.wait()

    async def over(self, number: int, token: int) -> str:
        while (number, token) not in self.ended:
            await self._changed.wait()
        return self.ended[number, token]

    async def give_up(self, number: int, token: int, why: str) -> None:
        self.given_up.append((number, token, why))
        self.end(number, token, f"the leader gave it up ({why})")

    async def end_of(self, number: int, token: int) -> SliceEnd | None:
        ends = [end for member in self._fleet.all_members for end in member.ends if member.number == number]
        return next((end for end in reversed(ends) if end.token == token), None)

    def waiting(self, number: int) -> str:
        return f"slice {number} waits for a free core"

    # what happens to it -----------------------------------------------------------------------------

    def assign(self, number: int, member: FleetMember) -> None:
        self._current[number] = member
        self._change()

    def end(self, number: int, token: int, why: str, *, again: bool = True) -> None:
        """An assignment is over; `again`: the slice is not done."""
        if (number, token) in self.ended:
            return
        self.ended[number, token] = why
        member = self._current.pop(number)
        assert member.token == token
        if again and token > self._budget:
            self._never[number] = f"slice {number} was lost {token} times"
        elif again:
            asyncio.get_running_loop().call_later(self._replace_s, self._fleet.place, number, token + 1)
        self._change()

    def _change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


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
        self.starts = 0
        """how often its load began, as it would be stored"""
        self.ends: list[SliceEnd] = []
        """of its loads, as they would be stored"""
        self._fleet = fleet
        self.service = SliceService(
            fleet.network.client(f"{member.node}.{number}", host=member.node),
            self._make,
            job=fleet.job,
            number=number,
            node=member.node,
            token=member.token,
            settings=fleet.settings,
            steady=lambda: fleet.loop.time() + clock_s,
            on_start=self._note_start,
            on_end=self._note_end,
        )
        self._clock_s = clock_s
        self.host.start(self._serve())

    async def _serve(self) -> None:
        outcome = await self.service.run()
        self.released.set()
        self._fleet.assignments.end(self.number, self.token, outcome.lost or "it is done", again=bool(outcome.lost))

    async def _note_start(self) -> None:
        self.starts += 1

    async def _note_end(self, end: SliceEnd) -> None:
        self.ends.append(end)

    def _make(self, *given: Any, until: Callable[[], float], **named: Any) -> SimulatedRunner:
        fleet = self._fleet
        runner = SimulatedRunner(
            *given,
            **{**named, **fleet.traits.get(self.number, {})},
            until=lambda: until() - self._clock_s,
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

    def freeze(self) -> None:
        """Suspend the machine, with its generators."""
        for host in self._hosts():
            host.freeze()

    def thaw(self) -> None:
        for host in self._hosts():
            host.thaw()

    def _hosts(self) -> list[SimulatedHost]:
        return [self.host, *(one.host for runner in self.runners for one in runner.generators)]


class SimulatedFleet:
    """Members, and the leaders that `make` makes, one after the other: a `mainstay.load.runner.MakeRunner`. Each slice
    has a target of its own, so that it is known who sent what. `traits` are options of the runners, by slice."""

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
        unplaced: Sequence[int] = (),
        on_loss: OnLoss = "replace",
        replace_s: float = 2.0,
        budget: int = 20,
        save_s: float = 0.02,
        code: SimulatedCode | None = None,
    ) -> None:
        """`absent`: slices whose machines never begin. `unplaced`: slices that have no machine until `place`. `code`:
        that of the test."""
        self.loop = loop
        self.job = "job-1"
        self.clock = LoopClock(loop)
        self.settings = settings or FleetSettings()
        self.network = FaultyBusNetwork(rng=random.Random(seed), faults=faults)
        self.code = code or SimulatedCode()
        self.targets = [SimulatedTarget(code=self.code) for _ in processes]
        self.traits = traits or {}
        self.on_loss = on_loss
        self.save_s = save_s
        self.on_saved: Callable[[FleetRecord], None] = lambda _: None
        """called when a record was stored, before its leader knows"""
        self.stored = msgspec.msgpack.encode(FleetRecord())
        """the record, as the store has it"""
        self.stored_by = 0
        """the epoch of the newest leader: the store refuses others"""
        self.leaders: list[FleetRunner] = []
        self.processes = list(processes)
        self.assignments = SimulatedAssignments(self, replace_s=replace_s, budget=budget)
        self.members: dict[int, SimulatedMember] = {}
        """by slice: the newest"""
        self.all_members: list[SimulatedMember] = []
        self._clocks_s = list(clocks_s) or [1000.0 * number for number in range(len(processes))]
        self._nodes = 0
        self._leader_hosts: list[str] = []
        for number in range(len(processes)):
            if number in unplaced:
                self._nodes += 1
            else:
                self.place(number, 1, absent=number in absent)

    @property
    def record(self) -> FleetRecord:
        return msgspec.msgpack.decode(self.stored, type=FleetRecord)

    def place(self, number: int, token: int, *, absent: bool = False) -> None:
        """Give a slice to a new host."""
        member = FleetMember(node=f"node-{self._nodes}", processes=self.processes[number], token=token)
        self._nodes += 1
        self.assignments.assign(number, member)
        if not absent:
            self.members[number] = SimulatedMember(self, number, member, self._clocks_s[number] + 7.0 * (token - 1))
            self.all_members.append(self.members[number])

    def make(self, processes: int, on_window: Callable[[Window], None], **named: Any) -> FleetRunner:
        """A leader, on the host that runs this."""
        epoch = self.stored_by = len(self.leaders) + 1
        host = self.loop.running_host.name if self.loop.running_host is not None else LEADER
        self._leader_hosts.append(host)

        async def save(record: FleetRecord) -> None:
            encoded = msgspec.msgpack.encode(record)
            await asyncio.sleep(self.save_s)
            if self.stored_by != epoch:
                raise PermissionError("the claim belongs to another leader")
            self.stored = encoded
            self.on_saved(record)

        self.leaders.append(
            FleetRunner(
                processes,
                on_window,
                **named,
                bus=self.network.client(f"{host}.{epoch}", host=host),
                job=self.job,
                slices=self.processes,
                assignments=self.assignments,
                epoch=epoch,
                record=self.record,
                save=save,
                on_loss=self.on_loss,
                settings=self.settings,
                clock=self.clock,
            )
        )
        return self.leaders[-1]

    @property
    def sent(self) -> int:
        """What all targets counted."""
        return sum(target.total for target in self.targets)

    @property
    def is_loading(self) -> bool:
        return any(member.is_loading for member in self.all_members)

    # faults -----------------------------------------------------------------------------------------

    def cut(self, number: int, *, to: bool = True, back: bool = True, closes: bool = False) -> None:
        """Cut a member off: what leaders send to it, or what it sends. `closes`: from placement too, which counts it as
        lost after 25 s."""
        member = self.members[number]
        for leader in {LEADER, *self._leader_hosts}:
            if to:
                self.network.cut(leader, member.node)
            if back:
                self.network.cut(member.node, leader)
        if closes:
            why = f"its node {member.node} was silent for 25 s"
            self.loop.call_later(_CLOSED_S, self.assignments.end, number, member.token, why)

    def join(self, number: int) -> None:
        node = self.members[number].node
        for leader in {LEADER, *self._leader_hosts}:
            self.network.join(leader, node)
            self.network.join(node, leader)

    def crash(self, number: int, *, proven_s: float = 0.5) -> None:
        """Power off a member. A process of its host saw its end, and reports it."""
        member = self.members[number]
        member.crash()
        self.loop.call_later(proven_s, self.assignments.end, number, member.token, f"its node {member.node} has ended")

    async def released(self) -> None:
        """Wait until the services of all live members have ended."""
        await asyncio.gather(*(member.released.wait() for member in self.all_members if member.host.alive))


__all__ = ["LEADER", "SimulatedAssignments", "SimulatedFleet", "SimulatedMember"]

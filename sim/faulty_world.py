"""What every world has: hosts with links to one store, and faults that happen to them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from mainstay.control import Control
from mainstay.control.check import check
from mainstay.errors import StoreUnavailable
from mainstay.model import Job, Leadership
from mainstay.stores import AnyChange, ChangeResult, Query, StoreProxy
from mainstay.stores.memory import MemoryStore
from mainstay.testing import FaultyStore, LoopClock, SimulatedHost, StoreFaults, VirtualLoop
from mainstay.worker.engine import Engine

from .faults import Fault, draw_faults
from .runs import FAULTS_UNTIL_S, Violation

R = TypeVar("R")

HEAL_S = 600.0
"""how long after the faults everything may take to settle"""


class FaultyWorld(ABC):
    """Servers that run and clients that ask, around one store. A subclass says what they do, and what must hold."""

    faults_until_s = FAULTS_UNTIL_S
    """faults are over by then"""
    servers: Sequence[str]
    """hosts that work; a crashed one comes back as a new one"""
    clients: Sequence[str]
    """hosts that submit and cancel; they freeze and lose calls, but they do not crash: a client that is gone asks
    nothing more"""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.loop = loop
        self.clock = LoopClock(loop)
        self.store = MemoryStore(self.clock)
        self.hosts: dict[str, SimulatedHost] = {}
        self.links: dict[str, FaultyStore] = {}
        self.gates: dict[str, Gate] = {}
        self.started = 0
        """how many servers were started so far"""
        self._seed = seed
        self._outage = False
        self._delay_s = self.rng("weather").choice([0.01, 0.01, 0.5])
        """how long a call or an answer may take without a fault"""
        self._trace: list[str] = []

    @classmethod
    def host_names(cls) -> Sequence[str]:
        return (*cls.servers, *cls.clients)

    @classmethod
    def draw(cls, rng: random.Random, count: int) -> list[Fault]:
        return draw_faults(rng, cls.host_names(), count=count, until_s=cls.faults_until_s)

    def trace(self) -> list[str]:
        return self._trace

    def note(self, line: str) -> None:
        self._trace.append(f"{self.loop.true_s:9.3f} {line}")

    def rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self._seed} {purpose}")

    # what a subclass says -----------------------------------------------------------------------

    @abstractmethod
    async def serve(self, name: str) -> None:
        """What a server does until it crashes."""

    @abstractmethod
    async def ask(self, name: str) -> None:
        """What a client does."""

    @abstractmethod
    async def verify(self) -> None:
        """Raise a `Violation` if the settled jobs are not as they must be."""

    # the run ------------------------------------------------------------------------------------

    async def run(self, faults: Sequence[Fault]) -> None:
        for name in self.servers:
            self.start_server(name)
        asked = [self._start_client(name) for name in self.clients]
        begun = asyncio.gather(*(self._inflict(fault) for fault in faults))
        await asyncio.sleep(self.faults_until_s)
        await begun
        self.note("healed")
        await self._until_settled(asked)
        await self.verify()
        report = await check(self.store)
        if not report.clean:
            raise Violation(f"the check found {report.remaining[:3]}")

    def start_server(self, name: str) -> None:
        self.started += 1
        host = self.hosts[name] = self.machine(name)
        host.start(self.serve(name))

    def _start_client(self, name: str) -> asyncio.Task[None]:
        host = self.hosts[name] = self.machine(name)
        return host.start(self.ask(name))

    def machine(self, name: str) -> SimulatedHost:
        """A machine that has just started."""
        return self.loop.host(name)

    def link(self, name: str) -> FaultyStore:
        """The connection of a host to the store; a new host has a new one."""
        gate = self.gates[name] = Gate(self.store)
        made = FaultyStore(gate, rng=self.rng(f"link {name} {self.started}"), faults=self._weather())
        self.links[name] = made
        return made

    def _weather(self) -> StoreFaults:
        return StoreFaults(delay_s=self._delay_s, unavailable=self._outage)

    # faults -------------------------------------------------------------------------------------

    async def _inflict(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at_s)
        self.note(f"fault {fault}")
        match fault.kind:
            case "crash":
                await self._crash(fault)
            case "freeze":
                await self._freeze(fault)
            case "outage":
                await self._cut_everybody(fault)
            case "paused":
                await self._pause_in_write(fault)
            case "cut":
                await self._spoil(fault, StoreFaults(delay_s=0.01, unavailable=True))
            case "lost_calls":
                await self._spoil(fault, StoreFaults(delay_s=0.05, lost_calls=0.5))
            case "lost_answers":
                await self._spoil(fault, StoreFaults(delay_s=0.05, lost_answers=0.5))
            case "slow":
                await self._spoil(fault, StoreFaults(delay_s=3.0))
            case "stuck":
                # longer than a lease: a write that was sent in time arrives when its sender has lost what it was for
                await self._spoil(fault, StoreFaults(delay_s=30.0, calls=("apply",)))

    async def _crash(self, fault: Fault) -> None:
        host = self.hosts[fault.host]
        if fault.host in self.clients or not host.alive:
            return
        host.crash()
        await asyncio.sleep(fault.for_s)
        self.start_server(fault.host)

    async def _freeze(self, fault: Fault) -> None:
        host = self.hosts[fault.host]
        if host.frozen or not host.alive:
            return
        host.freeze()
        await asyncio.sleep(fault.for_s)
        if host.alive:
            host.thaw()

    async def _pause_in_write(self, fault: Fault) -> None:
        """The host is frozen right after it has sent a write, which arrives much later: if the host led, just after
        another took over."""
        gate, host, ends_s = self.gates[fault.host], self.hosts[fault.host], self.loop.true_s + fault.for_s
        drawn = self.rng(f"pause {fault}")
        gate.hold()
        while not gate.waiting and self.loop.true_s < ends_s:  # noqa: ASYNC110 - a wait costs nothing here
            await asyncio.sleep(0.01)
        if gate.waiting and host.alive and not host.frozen:
            host.freeze()
            epoch = self.epoch_led_by(fault.host)
            while self.loop.true_s < ends_s and self.epoch_led_by(fault.host) == epoch:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            await asyncio.sleep(drawn.uniform(0, 0.1))
            gate.release()
            await asyncio.sleep(max(0.0, ends_s - self.loop.true_s))
            if host.alive:
                host.thaw()
        gate.release()

    def epoch_led_by(self, host: str) -> int | None:
        """The epoch in which a session of this host leads the placement; None: none of them does."""
        lead = self.store._leaders.current("placement")  # noqa: SLF001 - the world sees everything
        session = None if lead is None else self.store._sessions.get(lead.holder)  # noqa: SLF001 - as above
        return lead.epoch if lead is not None and session is not None and session.host == host else None

    async def _cut_everybody(self, fault: Fault) -> None:
        self._outage = True
        for link in self.links.values():
            link.faults = self._weather()
        await asyncio.sleep(fault.for_s)
        self._outage = False
        for link in self.links.values():
            link.faults = self._weather()

    async def _spoil(self, fault: Fault, faults: StoreFaults) -> None:
        self.links[fault.host].faults = faults
        await asyncio.sleep(fault.for_s)
        # of a host that crashed in between, the connection is a new one already
        self.links[fault.host].faults = self._weather()

    # settled ------------------------------------------------------------------------------------

    async def _until_settled(self, clients: Sequence[asyncio.Task[None]]) -> None:
        try:
            async with asyncio.timeout(HEAL_S):
                await asyncio.gather(*clients)
                while not await self._all_settled():  # noqa: ASYNC110 - a wait costs nothing here
                    await asyncio.sleep(1)
        except TimeoutError:
            left = [f"{row.id} {row.status} {row.reason}" for row in await self.rows() if row.settled_ms is None]
            raise Violation(f"not settled {HEAL_S:.0f} s after the last fault: {left[:3]}") from None

    async def _all_settled(self) -> bool:
        return all(row.settled_ms is not None for row in await self.rows())

    async def rows(self) -> list[Job]:
        return (await self.store.find(Query(), limit=1000)).jobs


class Gate(StoreProxy):
    """Holds writes up between a host and the store."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self._open = asyncio.Event()
        self._open.set()
        self.waiting = 0
        """writes that are held up"""

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def apply(
        self, changes: Sequence[AnyChange], *, lead: Leadership | None = None, together: bool = False
    ) -> list[ChangeResult]:
        if not self._open.is_set():
            self.waiting += 1
            await self._open.wait()
            self.waiting -= 1
        return await self._store.apply(changes, lead=lead, together=together)


class EngineKeeper:
    """Does for an engine what a supervisor would: heartbeats and sweeps."""

    def __init__(self, control: Control, engine: Engine, rng: random.Random) -> None:
        self._control = control
        self._engine = engine
        self._rng = rng

    async def beat(self) -> None:
        while True:
            with contextlib.suppress(StoreUnavailable):
                for pulse in await self._control.claims.beat([self._engine.session.id]):
                    await self._engine.pulsed(
                        pulse.session, known=pulse.known, cancelling=pulse.cancelling, assigned=pulse.assigned
                    )
            await asyncio.sleep(self._control.settings.heartbeat_s)

    async def sweep(self) -> None:
        while True:
            await asyncio.sleep(self._control.settings.sweep_s * self._rng.uniform(0.75, 1.25))
            with contextlib.suppress(StoreUnavailable):
                await self._control.sweeper.sweep()


async def insist(call: Callable[[], Awaitable[R]]) -> R:
    """Call until the store answers."""
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(1)

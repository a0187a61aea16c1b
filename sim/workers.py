"""The world of direct workers: clients submit, cancel and ask again; workers claim, run, beat and sweep.

The engines, control, lifecycle and the rules of the memory store are the real ones. What a supervisor does for an
engine (beat, sweep, lead) is done here by `_WorkerHost`: that is cheap. `supervised` has real supervisors.

What must hold:

- a submit that was answered is stored, and a key stands for one job, whoever asked how often (linearizable per key);
- after the faults every job settles: it succeeds, or it was cancelled, or its budget of losses is spent;
- a job succeeds at most once, and the result is that of the attempt with the last token;
- the store's own check finds nothing, and no two sessions lead in one epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from mainstay import App
from mainstay.control import Control
from mainstay.control.check import check
from mainstay.errors import InvalidTransition, MainstayError, StoreUnavailable
from mainstay.model import Leadership
from mainstay.stores import Query
from mainstay.stores.memory import MemoryStore
from mainstay.testing import FaultyStore, LoopClock, SimulatedHost, StoreFaults, VirtualLoop
from mainstay.worker import context
from mainstay.worker.engine import Engine, EngineProcess
from mainstay.worker.program import offer_of

from .faults import Fault
from .linearizability import Operation, is_linearizable
from .runs import FAULTS_UNTIL_S, Violation

R = TypeVar("R")

WORKERS = ("w1", "w2", "w3")
CLIENTS = ("c1", "c2")
SUBMITS = 12
"""by each client"""
HEAL_S = 600.0
"""how long after the faults everything may take to settle"""


class WorkersWorld:
    """Three workers, two clients, one store."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self._loop = loop
        self._seed = seed
        self.clock = LoopClock(loop)
        self.store = MemoryStore(self.clock)
        self.app = App("memory:", retries=3, crash_budget=3)
        self.hosts: dict[str, SimulatedHost] = {}
        self.links: dict[str, FaultyStore] = {}
        self.outage = False
        self._started = 0
        self._trace: list[str] = []
        self.submits: dict[str, list[Operation[str, str]]] = {}
        """by key: who asked for what, and which job was the answer"""
        self.cancelled: set[str] = set()
        """jobs that a client wanted to cancel"""
        self.leads: dict[int, str] = {}
        """by epoch: the session that led"""

        self.work = self.declare(self.app)

    def declare(self, app: App) -> Any:
        """The task of this world, in an app."""

        @app.task(name="work")
        async def work(seconds: float, fails: int) -> str:
            job = context().job
            self.note(f"run {job.id} token {job.token}")
            await asyncio.sleep(seconds)
            if job.failures < fails:
                raise ConnectionError("as planned")
            return f"{job.id} {job.token}"

        return work

    @classmethod
    def host_names(cls) -> Sequence[str]:
        return (*WORKERS, *CLIENTS)

    def trace(self) -> list[str]:
        return self._trace

    def note(self, line: str) -> None:
        self._trace.append(f"{self._loop.time():9.3f} {line}")

    def rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self._seed} {purpose}")

    # the run ------------------------------------------------------------------------------------

    async def run(self, faults: Sequence[Fault]) -> None:
        for name in WORKERS:
            self._start_worker(name)
        clients = [self._start_client(name) for name in CLIENTS]
        begun = asyncio.gather(*(self._inflict(fault) for fault in faults))
        await asyncio.sleep(FAULTS_UNTIL_S)
        await begun
        self.note("healed")
        await self._until_settled([client for client in clients if client is not None])
        await self._verify()

    def _start_worker(self, name: str) -> None:
        self._started += 1
        host = self.hosts[name] = self._loop.host(name)
        host.start(_WorkerHost(self, name, self._started).run())

    def _start_client(self, name: str) -> asyncio.Task[None]:
        host = self.hosts[name] = self._loop.host(name)
        return host.start(_Client(self, name).run())

    def link(self, name: str) -> FaultyStore:
        """The connection of a host to the store; a new host has a new one."""
        made = FaultyStore(self.store, rng=self.rng(f"link {name} {self._started}"), faults=self._weather())
        self.links[name] = made
        return made

    def _weather(self) -> StoreFaults:
        return StoreFaults(delay_s=0.01, unavailable=self.outage)

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
            case "lost_calls":
                await self._spoil(fault, StoreFaults(delay_s=0.05, lost_calls=0.5))
            case "lost_answers":
                await self._spoil(fault, StoreFaults(delay_s=0.05, lost_answers=0.5))
            case "slow":
                await self._spoil(fault, StoreFaults(delay_s=3.0))

    async def _crash(self, fault: Fault) -> None:
        host = self.hosts[fault.host]
        if fault.host in CLIENTS or not host.alive:
            return  # a client that is gone asks nothing more: nothing to see
        host.crash()
        await asyncio.sleep(fault.for_s)
        self._start_worker(fault.host)

    async def _freeze(self, fault: Fault) -> None:
        host = self.hosts[fault.host]
        if host.frozen or not host.alive:
            return
        host.freeze()
        await asyncio.sleep(fault.for_s)
        if host.alive:
            host.thaw()

    async def _cut_everybody(self, fault: Fault) -> None:
        self.outage = True
        for link in self.links.values():
            link.faults = self._weather()
        await asyncio.sleep(fault.for_s)
        self.outage = False
        for link in self.links.values():
            link.faults = self._weather()

    async def _spoil(self, fault: Fault, faults: StoreFaults) -> None:
        self.links[fault.host].faults = faults
        await asyncio.sleep(fault.for_s)
        # of a host that crashed in between, the connection is a new one already
        self.links[fault.host].faults = self._weather()

    # verdict ------------------------------------------------------------------------------------

    async def _until_settled(self, clients: Sequence[asyncio.Task[None]]) -> None:
        try:
            async with asyncio.timeout(HEAL_S):
                await asyncio.gather(*clients)
                while not await self._all_settled():  # noqa: ASYNC110 - a wait costs nothing here
                    await asyncio.sleep(1)
        except TimeoutError:
            left = [f"{row.id} {row.status} {row.reason}" for row in await self._rows() if row.settled_ms is None]
            raise Violation(f"not settled {HEAL_S:.0f} s after the last fault: {left[:3]}") from None

    async def _all_settled(self) -> bool:
        return all(row.settled_ms is not None for row in await self._rows())

    async def _rows(self) -> list[Any]:
        return (await self.store.find(Query(), limit=1000)).jobs

    async def _verify(self) -> None:
        rows = {row.id: row for row in await self._rows()}
        for key, history in self.submits.items():
            _check_key(key, history, rows)
        for row in rows.values():
            await self._check_job(row)
        report = await check(self.store)
        if not report.clean:
            raise Violation(f"the check found {report.remaining[:3]}")

    async def _check_job(self, row: Any) -> None:
        events = await self.store.events(row.id)
        successes = [event for event in events if event.to == "succeeded"]
        if len(successes) > 1:
            raise Violation(f"{row.id} succeeded {len(successes)} times")
        if row.status == "succeeded":
            if f"{row.id} {row.token}".encode() not in row.result:
                raise Violation(f"{row.id} has the result of another attempt than the one with token {row.token}")
        elif row.status == "quarantined":
            if max(row.losses, row.crashes) < self.app.settings.crash_budget:
                raise Violation(f"{row.id} was given up after {row.losses} losses, {row.crashes} crashes: {row.error}")
        elif row.status != "cancelled" or row.id not in self.cancelled:
            raise Violation(f"{row.id} ended {row.status}, which no client asked for")

    def led(self, lead: Leadership) -> None:
        if self.leads.setdefault(lead.epoch, lead.holder) != lead.holder:
            raise Violation(f"two sessions led in epoch {lead.epoch}")


def _check_key(key: str, history: Sequence[Operation[str, str]], rows: dict[str, Any]) -> None:
    answers = {operation.answer for operation in history if operation.answer is not None}
    if lost := answers - rows.keys():
        raise Violation(f"the submit of {key} was answered with {lost}, which is not stored")
    # whichever was stored first is the job of the key: later submits get the same id
    known = sorted(answers)[:1]

    def submit(state: str, _request: str) -> tuple[str, str]:
        state = state or (known[0] if known else "unknown")
        return state, state

    if not is_linearizable(history, submit, ""):
        raise Violation(f"the key {key} stands for several jobs: {sorted(answers)}")


class _WorkerHost:
    """One worker: an engine, and what its supervisor would do for it."""

    def __init__(self, world: WorkersWorld, name: str, number: int) -> None:
        self._world = world
        self._name = name
        self._rng = world.rng(f"worker {name} {number}")
        self._control = Control(world.link(name), settings=world.app.settings, rng=self._rng)
        self._engine: Engine

    async def run(self) -> None:
        world, control = self._world, self._control
        session = await self._open_session()
        self._engine = Engine(
            world.app,
            control,
            session,
            queues=["default"],
            concurrency=3,
            process=EngineProcess(open_session=self._open_session),
            rng=self._rng,
        )
        self._engine.start()
        await asyncio.gather(self._beat(), self._sweep(), self._lead())

    async def _open_session(self) -> Any:
        return await _insist(
            lambda: self._control.claims.open_session(
                worker=self._name, host=self._name, offer=offer_of(self._world.app, ["default"])
            )
        )

    async def _beat(self) -> None:
        while True:
            with contextlib.suppress(StoreUnavailable):
                for pulse in await self._control.claims.beat([self._engine.session.id]):
                    await self._engine.pulsed(pulse.session, known=pulse.known, cancelling=pulse.cancelling)
            await asyncio.sleep(self._control.settings.heartbeat_s)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._control.settings.sweep_s * self._rng.uniform(0.75, 1.25))
            with contextlib.suppress(StoreUnavailable):
                await self._control.sweeper.sweep()

    async def _lead(self) -> None:
        """Compete for the lead, as the duties do."""
        while True:
            await asyncio.sleep(self._rng.uniform(1, 3))
            with contextlib.suppress(MainstayError):
                self._world.led(await self._control.store.lead("leader", self._engine.session.id, 10.0))


class _Client:
    """Submits jobs under keys, some of which the other client uses, too. Asks again when it got no answer. Cancels
    some."""

    def __init__(self, world: WorkersWorld, name: str) -> None:
        self._world = world
        self._name = name
        self._rng = world.rng(f"client {name}")
        self._control = Control(world.link(name), settings=world.app.settings, rng=self._rng)

    async def run(self) -> None:
        for number in range(SUBMITS):
            await asyncio.sleep(self._rng.uniform(0, 2 * FAULTS_UNTIL_S / SUBMITS))
            owner = self._name if self._rng.random() < 0.7 else "both"
            job_id = await self._submit(f"{owner}-{number}", number)
            if self._rng.random() < 0.2:
                await self._cancel(job_id)

    async def _submit(self, key: str, number: int) -> str:
        # the content of a key is the same, whichever client asks
        drawn = random.Random(number)
        call = self._world.work.options(key=key).job(round(drawn.uniform(0, 12), 2), drawn.choice([0, 0, 0, 1]))
        history = self._world.submits.setdefault(key, [])
        loop = asyncio.get_running_loop()
        while True:
            called_s = loop.time()
            try:
                submitted = await self._control.jobs.submit_request(call)
            except StoreUnavailable:
                history.append(Operation(key, called_s))
                await asyncio.sleep(self._rng.uniform(0.1, 2))
            else:
                history.append(Operation(key, called_s, submitted.id, loop.time()))
                self._world.note(f"{self._name} submitted {key} as {submitted.id}")
                return submitted.id

    async def _cancel(self, job_id: str) -> None:
        await asyncio.sleep(self._rng.uniform(0, 5))
        self._world.cancelled.add(job_id)
        with contextlib.suppress(InvalidTransition):  # it has ended otherwise
            await _insist(lambda: self._control.operations.cancel(job_id, actor=self._name))


async def _insist(call: Callable[[], Awaitable[R]]) -> R:
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(1)

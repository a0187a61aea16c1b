"""The world of a cluster: managers around one store, nodes and clients that reach it over a bus only.

Everything but the bus, the processes and the store is real: `Manager` with its membership, its calls and its leads;
`NodeParent`, `NodeHeart`, `Supervisor` and engines on nodes; `RemoteStore` of nodes and clients. The bus delays, loses,
repeats and reorders, is cut one way or both, and disconnects what it does not hear.

What must hold at every moment:

- what `nodes` checks: one session leads in an epoch, every write of a leader carries the current one, a job settles
  once, tokens grow;
- a job, or a unit, runs at one place. The processes of a frozen machine run no code; when they go on they stop within
  `STOPS_S`;
- no session is closed whose node beats, is answered, and knows the session.

And in the end, when the faults are over: every submit that was answered is stored and a key stands for one job, every
job is settled for a reason that a client or a budget gave, all managers see all nodes active, the nodes drain and leave
no session, and the store's own check finds nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from mainstay import App
from mainstay.bus import Bus, MemoryBus
from mainstay.cluster.liveness_settings import LivenessSettings
from mainstay.cluster.manager import Manager
from mainstay.control import Control, JobRequest
from mainstay.errors import InvalidTransition, MainstayError, StoreUnavailable
from mainstay.model import Job, Leadership
from mainstay.node import LeaderRun, Node, NodeResult
from mainstay.stores import ClaimReport, Page, Query
from mainstay.stores.memory import MemoryStore
from mainstay.stores.remote import MAINSTAY_VERSION, RemoteStore
from mainstay.testing import (
    BusFaults,
    FaultyBusNetwork,
    FaultyStore,
    HostClock,
    LoopClock,
    SimulatedHost,
    VirtualLoop,
)
from mainstay.worker import context

from .bus_weather import BusWeather
from .cluster_hosts import CLUSTER, ManagerMachine, NodeMachine, WorkerOfNode
from .faults import BusFaultKind, Fault, FaultKind
from .faulty_world import Gate, insist
from .floods import flood_with_reads
from .linearizability import Operation
from .nodes import SKEW_S, NodesWorld, Phase
from .run_places import RunPlace, RunPlaces
from .runs import Violation
from .workers import check_key

#: how long work may go on after its machine was frozen, or after its node was isolated
STOPS_S = 6.0
#: when the bus gives up a connection that says nothing
_UNHEARD_S = 5.0
#: how long after the healing the managers may take to agree about the nodes
_AGREE_S = 180.0
_LOOK_S = 1.0
#: the longest fault leaves this much time before it or after it
_BEFORE_S = 5.0
#: what a machine may show when it starts, and by how much it may be fast or slow: by 100 us in a second
_UPTIME_S, _DRIFT = 1e5, 1e-4

_MANAGER_FAULTS: dict[FaultKind | BusFaultKind, tuple[int, float]] = {
    "crash": (4, 20.0),
    "freeze": (4, 40.0),
    "cut": (3, 30.0),
    "lost_calls": (1, 15.0),
    "lost_answers": (2, 15.0),
    "slow": (1, 20.0),
    "paused": (3, 45.0),
}
_NODE_FAULTS: dict[FaultKind | BusFaultKind, tuple[int, float]] = {"crash": (6, 30.0), "freeze": (4, 45.0)}
_BUS_FAULTS: dict[FaultKind | BusFaultKind, tuple[int, float]] = {
    "deaf": (3, 60.0),
    "mute": (3, 60.0),
    "one_way": (3, 60.0),
    "unplugged": (3, 60.0),
    "split": (8, 70.0),
    "lossy": (3, 40.0),
    "bus_outage": (1, 45.0),
    "flood": (2, 4.0),
    "outage": (1, 20.0),
}


class ClusterWorld(NodesWorld):
    """Three managers, three nodes, two clients, one store, one bus."""

    managers: Sequence[str] = ("m1", "m2", "m3")
    nodes: Sequence[str] = ("n1", "n2", "n3")
    servers: Sequence[str] = (*managers, *nodes)
    clients: Sequence[str] = ("c1", "c2")
    submits = 10
    """by each client"""
    task_s: Sequence[float] = (2.0, 12.0, 90.0, 90.0)
    """how long tasks take at most: one of these"""
    cancelled_part = 0.15
    """of the jobs that are submitted"""
    cores = 4
    """of each node"""
    notices_s = _LOOK_S
    """how long the bus takes to notice that a process has ended"""
    faults_until_s = 100.0

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        super().__init__(loop, seed)
        self.liveness = LivenessSettings()
        self.version = MAINSTAY_VERSION
        """of what is started from now on"""
        self.starts = 0
        calm = BusFaults(latency_s=0.001, jitter_s=self.rng("bus").choice([0.002, 0.002, 0.3]))
        self.network = FaultyBusNetwork(rng=self.rng("network"))
        self.weather = BusWeather(self.network, self.host_names(), calm)
        self.places = RunPlaces(loop)
        self.stale: dict[str, dict[str, Job]] = {}
        """by host: the rows as the replica has them that it reads from; those that are not in it are new"""
        self.submitted: dict[str, list[Operation[str, str]]] = {}
        """by key: the submits, and which job was the answer"""
        self.manager_machines: dict[str, ManagerMachine] = {}
        self.node_machines: dict[str, NodeMachine] = {}
        self.closed_sessions: list[str] = []
        """those that a leader has closed, in order"""
        self._thawed_s: dict[str, float] = {}
        self._clients_of: dict[MemoryBus, SimulatedHost] = {}
        self._disks: Path

    @classmethod
    def draw(cls, rng: random.Random, count: int) -> list[Fault]:
        return sorted((cls._drawn(rng) for _ in range(count)), key=lambda fault: (fault.at_s, fault.host, fault.kind))

    @classmethod
    def _drawn(cls, rng: random.Random) -> Fault:
        kinds, hosts = rng.choice(
            [
                (_MANAGER_FAULTS, cls.managers),
                (_NODE_FAULTS, cls.nodes),
                (_BUS_FAULTS, cls.nodes),
                (_BUS_FAULTS, cls.host_names()),
            ]
        )
        [kind] = rng.choices(list(kinds), [weight for weight, _ in kinds.values()])
        for_s = round(rng.uniform(0.05, 1) * min(kinds[kind][1], cls.faults_until_s - _BEFORE_S), 2)
        host = rng.choice(list(hosts))
        if kind in ("outage", "bus_outage") or (kind == "lossy" and rng.random() < 0.5):
            host = ""
        elif kind == "one_way":
            host = ">".join(rng.sample([*cls.servers], 2))
        elif kind == "split":
            managers = rng.sample([*cls.managers], rng.randint(0, len(cls.managers) - 1))
            nodes = rng.sample([*cls.nodes], rng.randint(1, len(cls.nodes) - 1))
            host = "+".join(sorted([*managers, *nodes]))
        return Fault(kind, host, round(rng.uniform(0, cls.faults_until_s - for_s), 2), for_s)

    async def run(self, faults: Sequence[Fault]) -> None:
        with tempfile.TemporaryDirectory(prefix="mainstay-sim-") as folder:
            self._disks = Path(folder)
            looking = asyncio.create_task(self._look())
            await super().run(faults)
            await self._until_agreed()
            await self._drain()
            looking.cancel()

    # the machines -------------------------------------------------------------------------------

    def start_server(self, name: str) -> None:
        self.started += 1
        if name in self.managers:
            manager = self.manager_machines[name] = ManagerMachine(self, name, self.started, version=self.version)
            self.hosts[name] = manager.host
        else:
            disk = self._disks / name
            node = self.node_machines[name] = NodeMachine(self, name, self.started, disk, version=self.version)
            self.hosts[name] = node.host

    def machine(self, name: str) -> SimulatedHost:
        """A machine that has just started, with a steady clock of its own."""
        began_s = self.rng(f"uptime {name} {self.started}").uniform(0, _UPTIME_S)
        rate = 1 + self.rng(f"drift {name}").uniform(-_DRIFT, _DRIFT)
        return self.loop.host(name, clock=HostClock(began_s=began_s, rate=rate))

    def labels_of(self, node: str) -> dict[str, str]:
        """The labels of a node."""
        del node
        return {}

    def prepare_manager(self, manager: Manager) -> None:
        """Called with each manager before it starts."""

    def link(self, name: str) -> FaultyStore:
        made = super().link(name)
        self.gates[name] = closing = _WatchedGate(self.store, self, name)
        watched = FaultyStore(closing, rng=self.rng(f"link {name} {self.started}"), faults=made.faults)
        watched.clock = LoopClock(self.loop, skew_s=self.rng(f"skew {name}").uniform(-SKEW_S, SKEW_S))
        self.links[name] = watched
        return watched

    def client(self, name: str, host: str) -> Any:
        """A connection to the bus, of the process whose code runs now."""
        made = self.network.client(name, host=host)
        process = self.loop.running_host
        if process is not None:
            self._clients_of[made] = process
        if self.weather.is_unplugged(name):
            self.network.disconnect(name)
        return made

    async def remote(self, role: str, name: str, *, url: str = "", version: str | None = None) -> RemoteStore:
        """The store through a manager."""
        self.starts += 1
        bus: Bus = self.client(f"{role}.{name}", name)
        store = RemoteStore(
            bus,
            role=role,
            name=name,
            cluster=CLUSTER,
            version=version or self.version,
            rng=self.rng(f"remote {role} {name} {self.starts}"),
            steady=lambda: self.loop.time() * 1000,
            url=url,
            owns_bus=True,
        )
        try:
            return await store.open()
        except MainstayError:
            await store.close()
            raise

    async def ask(self, name: str) -> None:
        await ClusterUser(self, name).run()

    # the work -----------------------------------------------------------------------------------

    def declare(self, app: App) -> tuple[Any, Any, Any]:
        """The work of this world, in an app: two tasks and two node jobs."""
        world = self

        @app.task(name="work")
        async def work(seconds: float, fails: int) -> str:
            job = context().job
            with world.at_work(job.id, job.token):
                await asyncio.sleep(seconds)
            if job.failures < fails:
                raise ConnectionError("as planned")
            return f"{job.id} {job.token}"

        @app.task(name="clings")
        async def clings(seconds: float, fails: int) -> str:
            del fails
            job = context().job
            ends_s = world.loop.true_s + seconds
            with world.at_work(job.id, job.token):
                while (left_s := ends_s - world.loop.true_s) > 0:
                    with contextlib.suppress(asyncio.CancelledError):  # as a thread, which cannot be stopped
                        await asyncio.sleep(left_s)
            return f"{job.id} {job.token}"

        @app.node_job(name="compact", quorum="majority", on_no_quorum="proceed", stragglers="20s", retries=2)
        class Compact:
            async def local(self, node: Node, seconds: float, fails: bool) -> str:
                with world.at_work(f"{node.job_id} {node.name}", node.token):
                    await asyncio.sleep(seconds * world.rng(f"{node.job_id} {node.name}").random())
                if fails and node.name == "n1":
                    raise ConnectionError("as planned")
                return node.name

            async def leader(self, results: list[NodeResult], run: LeaderRun, seconds: float, fails: bool) -> Phase:
                del fails
                with world.at_work(f"{run.job_id} leader", run.token):
                    await asyncio.sleep(seconds)
                world.phases.append((run.job_id, run.token))
                return Phase(run.token, [result.node for result in results])

        self.work, self.clings = work, clings
        return Compact, None, None

    @contextmanager
    def at_work(self, work: str, token: int) -> Iterator[None]:
        """A run, which must be the only one of its work."""
        host = self.loop.running_host
        assert host is not None
        self.note(f"run {work[-12:]} token {token} on {host.name}")
        with self.places.at(work, token, host) as others:
            for other in others:
                self._doubled(other, RunPlace(work, token, host, self.loop.true_s))
            yield

    def went_on(self, machine: str) -> bool:
        """Whether a machine stood still, and has not yet had the time to learn what it lost."""
        return self.loop.true_s - self._thawed_s.get(machine, -STOPS_S) < STOPS_S

    def may_not_know(self, run: RunPlace) -> bool:
        """Whether a run goes on which was lost while its machine stood still."""
        return self.went_on(run.host.name.partition("/")[0])

    def _doubled(self, one: RunPlace, other: RunPlace) -> None:
        """Two runs of the same work go on."""
        if self.may_not_know(one) or self.may_not_know(other):
            return
        self.found(
            f"{one.work} runs at {one.host.name} with token {one.token} since {one.since_s:.1f} s, "
            f"and at {other.host.name} with token {other.token}"
        )

    def found(self, text: str) -> None:
        self.broken.append(text)
        self.note(f"VIOLATION {text}")

    async def _look(self) -> None:
        """Look at everything every second."""
        looks = round(_LOOK_S / self.notices_s)
        for number in itertools.count(1):
            await asyncio.sleep(self.notices_s)
            if number % looks == 0:
                self.look()
            for client, process in list(self._clients_of.items()):
                if not process.alive:  # the bus notices that its connection is closed
                    del self._clients_of[client]
                    await client.close()

    def look(self) -> None:
        """Check what must hold at every moment."""
        for one, other in self.places.doubled():
            self._doubled(one, other)
        current = self.store._leaders.current("placement")  # noqa: SLF001 - the world sees everything
        if current is not None:
            self.led(current)

    def was_saved(self, job_ids: Sequence[str]) -> None:
        """Claims of these jobs have saved something with them."""

    def cancel_was_answered(self, job_id: str) -> None:
        """A client knows that a job will stop."""
        self.note(f"the cancel of {job_id[-4:]} is answered")

    def will_close(self, session: str, lead: Leadership) -> None:
        """A leader closes a session of a node."""
        self.closed_sessions.append(session)
        self.note(f"{lead.holder[:9]} closes {session[:9]} in epoch {lead.epoch}")
        current = self.store._leaders.current("placement")  # noqa: SLF001 - the world sees everything
        if current is None or (current.epoch, current.holder) != (lead.epoch, lead.holder):
            return  # the store refuses it
        stored = self.store._sessions.get(session)  # noqa: SLF001 - as above
        machine = self.node_machines.get("" if stored is None else stored.worker)
        worker = None if machine is None else machine.worker
        if machine is None or worker is None or worker.returncode is not None or not worker.host.alive:
            return
        paused = (
            worker.host.frozen or self.loop.true_s - self._thawed_s.get(machine.name, -1e9) < self.liveness.closed_s
        )
        unanswered = worker.is_isolated or worker.is_unheard
        if not paused and session in worker.supervisor.sessions and not unanswered:
            self.found(f"{lead.holder} closed {session}, although {machine.name} beats and is answered")

    # faults -------------------------------------------------------------------------------------

    async def _inflict(self, fault: Fault) -> None:
        if fault.kind in ("deaf", "mute", "one_way", "split", "bus_outage"):
            await asyncio.sleep(fault.at_s)
            self.note(f"fault {fault}")
            pairs = self.weather.pairs(fault.kind, fault.host)
            self.weather.cut(pairs)
            await asyncio.sleep(fault.for_s)
            self.weather.join(pairs)
        elif fault.kind in ("lossy", "unplugged"):
            await asyncio.sleep(fault.at_s)
            self.note(f"fault {fault}")
            change = self.weather.spoil if fault.kind == "lossy" else self.weather.unplug
            at = fault.host if fault.kind == "lossy" else self._client_name(fault.host)
            change(at, 1)
            await asyncio.sleep(fault.for_s)
            change(at, -1)
        elif fault.kind == "flood":
            await asyncio.sleep(fault.at_s)
            self.note(f"fault {fault}")
            await self.flood(fault.host, fault.for_s)
        else:
            await super()._inflict(fault)

    async def flood(self, host: str, for_s: float) -> None:
        """A host asks or sends more than it may."""
        await flood_with_reads(self, host, for_s)

    def _client_name(self, host: str) -> str:
        role = "manager" if host in self.managers else "node" if host in self.nodes else "operator"
        return f"{role}.{host}"

    async def _crash(self, fault: Fault) -> None:
        if fault.host in self.managers:
            await super()._crash(fault)
            return
        machine = self.node_machines[fault.host]
        drawn = self.rng(f"crash {fault}")
        worker, part = machine.worker, drawn.random()
        if part < 0.35 and worker is not None and worker.processes.running:
            process = drawn.choice(worker.processes.running)
            self.note(f"kill {process.host.name}")
            process.kill()
        elif part < 0.7 and worker is not None and worker.host.alive:
            self.note(f"kill {worker.host.name}")
            worker.kill()
        elif machine.host.alive:
            self.note(f"power off {machine.name}")
            machine.crash()
            await asyncio.sleep(fault.for_s)
            self.start_server(fault.host)

    async def _freeze(self, fault: Fault) -> None:
        await self._stand_still(fault.host, fault.for_s, self.rng(f"freeze {fault}").random() < 0.3)

    async def _stand_still(self, name: str, for_s: float, one_engine: bool = False) -> None:
        """Freeze a machine, or one engine of a node. The bus gives up what it does not hear."""
        hosts = [self.hosts[name]]
        if name in self.nodes:
            hosts = self.node_machines[name].hosts
            worker = self.node_machines[name].worker
            if one_engine and worker is not None and worker.processes.running:
                hosts = [worker.processes.running[0].host]
        hosts = [host for host in hosts if host.alive and not host.frozen]
        for host in hosts:
            host.freeze()
        whole = not one_engine and hosts
        await asyncio.sleep(min(for_s, _UNHEARD_S))
        unheard = for_s > _UNHEARD_S and whole
        if unheard:
            self.weather.unplug(self._client_name(name), 1)
        await asyncio.sleep(max(0.0, for_s - _UNHEARD_S))
        if unheard:
            self.weather.unplug(self._client_name(name), -1)
        if hosts:
            self._thawed_s[name] = self.loop.true_s
        for host in hosts:
            if host.alive:
                host.thaw()

    # in the end ---------------------------------------------------------------------------------

    async def verify(self) -> None:
        rows = {row.id: row for row in await self.rows()}
        for key, history in self.submitted.items():
            check_key(key, history, rows)
        await super().verify()

    async def _check_job(self, job: Job, units: Sequence[Job]) -> None:
        if job.kind != "task":
            await super()._check_job(job, units)
            return
        events = await self.store.events(job.id)
        if sum(event.to == "succeeded" for event in events) > 1:
            raise Violation(f"{job.id} succeeded more than once")
        if job.status == "succeeded":
            if f"{job.id} {job.token}".encode() not in (job.result or b""):
                raise Violation(f"{job.id} has the result of another attempt than the one with token {job.token}")
        elif job.status == "quarantined":
            if max(job.losses, job.crashes) < self.app.settings.crash_budget:
                raise Violation(f"{job.id} was given up after {job.losses} losses, {job.crashes} crashes: {job.error}")
        elif job.status != "cancelled" or job.id not in self.cancelled:
            raise Violation(f"{job.id} ended {job.status}, which no client asked for: {job.reason} {job.error}")

    def disagreement(self) -> str:
        """What a manager sees otherwise than it is; empty: all of them see all nodes active."""
        for name, machine in self.manager_machines.items():
            seen = {} if machine.manager is None else {node.name: node for node in machine.manager.members.nodes()}
            for node in self.nodes:
                if node not in seen or seen[node].state != "active":
                    return f"{name} sees {node} {seen[node].state if node in seen else 'not at all'}"
        return ""

    async def _until_agreed(self) -> None:
        ends_s = self.loop.true_s + _AGREE_S
        while text := self.disagreement() or self._kept_ends():
            if self.loop.true_s > ends_s:
                raise Violation(f"{_AGREE_S:.0f} s after all was settled, {text}")
            await asyncio.sleep(_LOOK_S)

    def _kept_ends(self) -> str:
        """The ends of jobs that nodes keep for the store; empty: there are none."""
        kept = [path.name for path in self._disks.rglob("*.ndjson")]
        return f"kept ends were not written: {kept}" if kept else ""

    async def _drain(self) -> None:
        """Stop all nodes, and look for what they leave."""
        codes = await asyncio.gather(*(self.node_machines[name].stop() for name in self.nodes))
        if any(codes):
            raise Violation(f"the nodes ended with {codes}")
        for name in self.nodes:
            worker = self.node_machines[name].worker
            if worker is not None and worker.processes.running:
                raise Violation(f"{worker.processes.running} outlive their node")
        if text := self._kept_ends():
            raise Violation(text)
        for _ in range(60):
            left = [each.id for each in await self.store.sessions() if each.standing and not each.dead]
            if not left:
                return
            await asyncio.sleep(1)
        raise Violation(f"sessions without a node: {left}")


class BigClusterWorld(ClusterWorld):
    """More managers and nodes."""

    managers = ("m1", "m2", "m3", "m4", "m5")
    nodes = tuple(f"n{number:02}" for number in range(1, 13))
    servers = (*managers, *nodes)
    clients = ("c1", "c2", "c3", "c4")
    submits = 12


class ClusterUser:
    """Submits tasks and node jobs as an operator, asks again when it got no answer, and cancels some."""

    def __init__(self, world: ClusterWorld, name: str) -> None:
        self.world = world
        self.name = name
        self._rng = world.rng(f"client {name}")

    async def run(self) -> None:
        world = self.world
        store = await insist(lambda: world.remote("operator", self.name))
        self.control = Control(store, settings=world.app.settings, rng=self._rng)
        for number in range(world.submits):
            await asyncio.sleep(self.pause_s())
            job_id = await self._submit(f"{self.name}-{number}", self.request(number))
            if self._rng.random() < world.cancelled_part:
                await self._cancel(job_id)

    def pause_s(self) -> float:
        """How long it waits before the next submit."""
        return self._rng.uniform(0, 1.5 * self.world.faults_until_s / self.world.submits)

    def request(self, number: int) -> JobRequest:
        """What it submits as its next job."""
        key = f"{self.name}-{number}"
        drawn = self.world.rng(f"request {key}")
        longest_s = drawn.choice(self.world.task_s)
        seconds = round(drawn.uniform(0, longest_s), 2)
        if drawn.random() < 0.25:
            options = self.world.compact.options(key=key)
            request: JobRequest = options.job(seconds=min(seconds, 8.0), fails=drawn.random() < 0.2).request()
            return request
        task = self.world.clings if drawn.random() < 0.25 else self.world.work
        call: JobRequest = task.options(key=key).job(seconds, drawn.choice([0, 0, 0, 1]))
        return call

    async def _submit(self, key: str, request: JobRequest) -> str:
        history = self.world.submitted.setdefault(key, [])
        loop = self.world.loop
        while True:
            called_s = loop.true_s
            try:
                submitted = await self.control.jobs.submit_request(request)
            except StoreUnavailable:
                history.append(Operation(key, called_s))
                await asyncio.sleep(self._rng.uniform(0.1, 2))
            else:
                history.append(Operation(key, called_s, submitted.id, loop.true_s))
                self.world.note(f"{self.name} submitted {key} as {submitted.id}")
                return submitted.id

    async def _cancel(self, job_id: str) -> None:
        await asyncio.sleep(self._rng.uniform(0, self._rng.choice([0.2, 8.0])))
        self.world.cancelled.add(job_id)
        with contextlib.suppress(InvalidTransition):  # it has ended otherwise
            await insist(lambda: self.control.operations.cancel(job_id, actor=self.name))
            self.world.cancel_was_answered(job_id)


class _WatchedGate(Gate):
    """Shows the world which sessions leaders close, and what claims save."""

    def __init__(self, store: MemoryStore, world: ClusterWorld, host: str) -> None:
        super().__init__(store)
        self._world = world
        self._host = host

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return [row and self._stale(row) for row in await self._store.get(ids)]

    async def find(self, query: Query, **options: Any) -> Page:
        page = await self._store.find(query, **options)
        return msgspec.structs.replace(page, jobs=[self._stale(row) for row in page.jobs])

    def _stale(self, row: Job) -> Job:
        return self._world.stale.get(self._host, {}).get(row.id, row)

    async def close_session(self, session: str, *, lead: Leadership | None = None) -> None:
        if lead is not None:
            self._world.will_close(session, lead)
        await self._store.close_session(session, lead=lead)

    async def report(self, reports: Sequence[ClaimReport]) -> list[bool]:
        kept = await self._store.report(reports)
        self._world.was_saved([report.job_id for report, is_kept in zip(reports, kept, strict=True) if is_kept])
        return kept


__all__ = ["STOPS_S", "BigClusterWorld", "ClusterUser", "ClusterWorld", "WorkerOfNode"]

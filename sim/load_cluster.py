"""The world of load runs: a cluster whose clients also submit load tests on its nodes.

All but the generators and their target is real: the managers that place the slices and lead the runs, the handler of
slices in the engines of nodes, and the messages between them. Generators are processes on the machine of their engine:
they die and freeze with it. The target counts what each assignment of each slice sends.

What must hold at every moment, beyond what `cluster` checks:

- a core of a node has one slice: no node has more generators than cores, and no assignment makes it hold more;
- a generator process, by its number in the run, is under load at one place, and its load is never above its plan;
- no load begins after a cancel was answered;
- all slices of a workflow have the same context: what its setup and the workflows before it have returned;
- the number of requests that a run shows never falls, unless a successor of the leader cannot ask a slice.

And in the end: every run is settled for a reason; a run that finished counts what the target counted, slice by slice,
and tells each loss; no generator, no open slice and no held core is left.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from mainstay import App
from mainstay.cluster.manager import Manager
from mainstay.control import JobRequest
from mainstay.load.fleet.fleet_reports import start_skew_s
from mainstay.load.fleet.fleet_work import FleetWork, fleet_options_of
from mainstay.load.fleet.saved_run import saved_run_of
from mainstay.load.fleet.slice_handler import SliceHandler
from mainstay.load.fleet.spec import SLICE, SliceCall
from mainstay.load.handler import summary_of
from mainstay.load.runner import MakeSliceRunner
from mainstay.load.stats.model import Header, Moment, SliceReport, Summary
from mainstay.load.stream import StreamOutput
from mainstay.model import Job
from mainstay.stores import Query
from mainstay.task import Sealer
from mainstay.testing import SimulatedHost, VirtualLoop
from mainstay.worker import context

from .cluster import ClusterUser, ClusterWorld
from .faults import Fault
from .floods import flood_with_windows
from .load_ledger import AssignmentLoad, RunLedger, SliceKey
from .load_plans import drawn_options, load_request
from .load_runner import SimulatedGenerator, SimulatedRunner
from .run_places import RunPlace
from .runs import Violation

#: a run hears of its cancel at once, or with the next beat of its leader; an order to go that is under way then begins
_CANCEL_S = 2.0
#: by how much clocks may drift apart between two measurements
_CLOCK_S = 0.002
#: how a run ends whose leader was lost while it stopped the run
_DIED = "its worker died while stopping it"
#: after the end of all runs, for nodes to end what is left of their slices
_LEFT_S = 30.0
_HELD = ("dispatched", "running")


class ShownHeader(msgspec.Struct):
    """The claim of the job by the leader that made the summary."""

    token: int


class ShownRun(msgspec.Struct):
    """What a stored summary shows to those who look at a run."""

    requests: int
    header: ShownHeader


class _Shown(NamedTuple):
    """What a run showed, and when."""

    start: tuple[int, int, int]
    leader: int
    requests: int


class UnrecordedStream(StreamOutput):
    """The recording of a run that nobody reads: it writes no file."""

    async def start(self, header: Header) -> None:
        del header

    def add(self, moment: Moment) -> None:
        del moment

    async def stop(self, summary: Summary) -> None:
        del summary


class LoadClusterWorld(ClusterWorld):
    """Three managers, four nodes of four cores, two clients, one store, one bus."""

    nodes: Sequence[str] = ("n1", "n2", "n3", "n4")
    servers: Sequence[str] = (*ClusterWorld.managers, *nodes)
    zones: Sequence[str] = ("a", "b")
    submits = 4
    task_s = (2.0, 12.0, 30.0)
    cancelled_part = 0.3
    faults_until_s = 50.0
    notices_s = 0.1

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.ledgers: dict[str, RunLedger] = {}
        """by job: the load runs that were assigned"""
        self.generators: dict[str, list[SimulatedGenerator]] = {}
        """by node: those that were alive when it was last looked"""
        self.cancel_answered_s: dict[str, float] = {}
        """by job: when a client knew that it will stop"""
        self.handlers: list[tuple[SimulatedHost, SliceHandler]] = []
        """of the engines that were started"""
        self.gone: list[tuple[str, int]] = []
        """each order to go, when it was stored: the job and the number of the go"""
        self._shown: dict[str, _Shown] = {}
        self._seconds = 0
        super().__init__(loop, seed)

    # the machines -------------------------------------------------------------------------------

    def labels_of(self, node: str) -> dict[str, str]:
        return {"zone": self.zones[int(node.removeprefix("n")) % len(self.zones)]}

    def prepare_manager(self, manager: Manager) -> None:
        work = manager.leading_jobs._program.work("load", "any")  # noqa: SLF001 - the world sees everything
        assert isinstance(work, FleetWork)
        work.record = UnrecordedStream
        work._host = msgspec.structs.replace(work._host, folder=Path)  # noqa: SLF001 - as above

    def declare(self, app: App) -> tuple[Any, Any, Any]:
        engine = self.loop.running_host
        if engine is not None:
            handler = app.work("load", SLICE)
            assert isinstance(handler, SliceHandler)
            handler.runner = self._slice_runner
            self.handlers.append((engine, handler))
        return super().declare(app)

    def _slice_runner(self, folder: Path | None) -> MakeSliceRunner:
        """The generators of the slice whose handler runs now."""
        del folder
        job, host = context().job, self.loop.running_host
        assert host is not None
        call, node = msgspec.msgpack.decode(job.payload, type=SliceCall), host.name.partition("/")[0]
        ledger = self._ledger(call.job)

        def enter(process: int) -> AbstractContextManager[None]:
            return self._under_load(ledger, SliceKey(call.round, call.number, job.token), process)

        def make(processes: int, *given: Any, of: int | None = None, **named: Any) -> SimulatedRunner:
            total = processes if of is None else of
            target: AssignmentLoad = ledger.assignment(call, job.token, host, total, enter)
            runner = SimulatedRunner(processes, *given, of=of, **named, loop=self.loop, clock=self.clock, target=target)
            self.generators.setdefault(node, []).extend(runner.generators)
            self._check_cores(node)
            return runner

        return make

    def _ledger(self, job_id: str) -> RunLedger:
        if job_id not in self.ledgers:
            options = fleet_options_of(self.row_of(job_id).payload)
            self.ledgers[job_id] = RunLedger(job_id, options, self.loop, broken=self.found, went_on=self.went_on)
        return self.ledgers[job_id]

    @contextmanager
    def _under_load(self, ledger: RunLedger, key: SliceKey, process: int) -> Iterator[None]:
        answered_s = self.cancel_answered_s.get(ledger.job)
        if answered_s is not None and self.loop.true_s > answered_s + _CANCEL_S:
            self.found(f"load of {ledger.job} {key} began {self.loop.true_s - answered_s:.1f} s after it was cancelled")
        with self.at_work(f"{ledger.job} process {process}", 1_000 * key.round + key.token):
            yield

    def may_not_know(self, run: RunPlace) -> bool:
        # a generator looks at its clock before it sends
        return " process " not in run.work and super().may_not_know(run)

    async def ask(self, name: str) -> None:
        await LoadUser(self, name).run()

    def cancel_was_answered(self, job_id: str) -> None:
        super().cancel_was_answered(job_id)
        self.cancel_answered_s.setdefault(job_id, self.loop.true_s)

    # at every moment ----------------------------------------------------------------------------

    def row_of(self, job_id: str) -> Job:
        return self.store._rows.jobs[job_id]  # noqa: SLF001 - the world sees everything

    def look(self) -> None:
        super().look()
        for node in self.generators:
            self._check_cores(node)
        for ledger in self.ledgers.values():
            ledger.check_users()
        second = int(self.loop.true_s)
        while self._seconds < second:
            for ledger in self.ledgers.values():
                ledger.check_second(self._seconds)
            self._seconds += 1

    def _check_cores(self, node: str) -> None:
        alive = self.generators[node] = [each for each in self.generators[node] if each.host.alive]
        if len(alive) > self.cores:
            self.found(f"{node} has {len(alive)} generators on its {self.cores} cores")

    def was_saved(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            job = self.store._rows.jobs.get(job_id)  # noqa: SLF001 - as above
            if job is not None and job.kind == "load" and job.parent is None and job.checkpoint is not None:
                self._check_shown(job)

    def _check_shown(self, job: Job) -> None:
        saved = saved_run_of(job)
        if saved is None:
            return
        self.gone += [(job.id, go.go) for go in saved.fleet.gos if (job.id, go.go) not in self.gone]
        summary = msgspec.msgpack.decode(saved.summary, type=ShownRun | None)
        if summary is None:
            return
        start, before = (job.failures, saved.restarts, saved.fleet.round), self._shown.get(job.id)
        if before is not None and before.leader == summary.header.token:
            start = before.start  # a run that is started again shows what it had, until it has more
        self._shown[job.id] = _Shown(start, summary.header.token, summary.requests)
        if before is None or before.start != start or summary.requests >= before.requests:
            return
        # what only the former leader had of a slice that has died, or does not answer, is unknown
        if summary.header.token == before.leader or not self._has_unknown(job):
            self.found(f"{job.id} showed {before.requests} requests, and then {summary.requests}")

    def _has_unknown(self, job: Job) -> bool:
        """Whether the leader of a run cannot ask all of its slices."""
        ledger, leader = self._ledger(job.id), self.leader_of(job.id)
        nodes = {each.node for each in ledger.assignments.values()}
        away = [
            node
            for node in nodes
            if self.weather.is_unplugged(self._client_name(node))
            or self.hosts[node].frozen
            or self.went_on(node)
            or not (self.weather.is_heard(node, leader) and self.weather.is_heard(leader, node))
        ]
        ended = any(not each.engine.alive for each in ledger.assignments.values())
        rows = self.store._rows.jobs.values()  # noqa: SLF001 - the world sees everything
        lost = any(row.losses or row.failures for row in rows if row.parent == job.id)
        return bool(away) or ended or lost

    def _check_assignment(self, before: Job, after: Job) -> None:
        if after.name != SLICE:
            super()._check_assignment(before, after)
            return
        job = self.row_of(after.parent or "")
        if job.settled_ms is not None or job.status == "cancelling":
            raise Violation(f"{after.unit} of {job.id} was assigned while the job was {job.status}")
        if after.token != before.token + 1:
            raise Violation(f"{after.unit} of {job.id} was assigned under token {after.token} after {before.token}")
        session = self.store._sessions.get(after.session or "")  # noqa: SLF001 - the world sees everything
        if session is None or session.dead:
            raise Violation(f"{after.unit} of {job.id} was assigned to the session {after.session}, which is closed")
        wanted = fleet_options_of(job.payload).demand.labels
        if any(session.labels.get(name) != value for name, value in wanted.items()):
            raise Violation(f"{after.unit} of {job.id} wants {wanted}, and {session.node} has {session.labels}")
        rows = self.store._rows.jobs.values()  # noqa: SLF001 - as above
        held = [row for row in rows if row.name == SLICE and row.session == session.id and row.status in _HELD]
        cores = sum(_call(row).cores for row in held)
        if cores > self.cores:
            raise Violation(f"{session.node} has {self.cores} cores, and slices with {cores}: {[r.id for r in held]}")

    # faults -------------------------------------------------------------------------------------

    @classmethod
    def _drawn(cls, rng: random.Random) -> Fault:
        if rng.random() >= 0.25:
            return super()._drawn(rng)
        kind = rng.choice(["generator", "generator", "engine", "leader", "at_go"])
        for_s = round(rng.uniform(1, 15), 2)
        host = "" if kind in ("leader", "at_go") else rng.choice(list(cls.nodes))
        return Fault(kind, host, round(rng.uniform(0, cls.faults_until_s - for_s), 2), for_s)

    async def _inflict(self, fault: Fault) -> None:
        if fault.kind not in ("generator", "engine", "leader", "at_go"):
            await super()._inflict(fault)
            return
        await asyncio.sleep(fault.at_s)
        self.note(f"fault {fault}")
        drawn = self.rng(f"load fault {fault}")
        if fault.kind == "generator":
            alive = [each for each in self.generators.get(fault.host, []) if each.host.alive and not each.host.frozen]
            if alive:
                drawn.choice(alive).kill()
        elif fault.kind == "engine":
            worker = self.node_machines[fault.host].worker
            if worker is not None and worker.processes.running:
                drawn.choice(worker.processes.running).kill()
        else:
            await self._crash_leader(fault, drawn)

    async def flood(self, host: str, for_s: float) -> None:
        if host not in self.nodes:
            await super().flood(host, for_s)
            return
        jobs = [job for job in self.ledgers if self.row_of(job).settled_ms is None]
        await flood_with_windows(self, host, jobs, for_s)

    def had_slice(self, node: str, job: str, number: int) -> bool:
        """Whether a node has a slice, or had it: of its own slices a node may say what it likes."""
        rows = self.store._rows.jobs.values()  # noqa: SLF001 - the world sees everything
        held = [
            row
            for row in rows
            if row.parent == job and row.name == SLICE and (row.session or "").startswith(f"{node}.")
        ]
        served = [key.number for key, each in self.ledgers[job].assignments.items() if each.node == node]
        return number in served or any(_call(row).number == number for row in held)

    async def _crash_leader(self, fault: Fault, drawn: random.Random) -> None:
        """Power off the manager that leads a run: some run, or the next one that goes."""
        ends_s, gone = self.loop.true_s + fault.for_s, len(self.gone)
        while fault.kind == "at_go" and len(self.gone) == gone and self.loop.true_s < ends_s:  # noqa: ASYNC110 - costs nothing
            await asyncio.sleep(0.02)
        await asyncio.sleep(drawn.uniform(0, drawn.choice([0.1, 1.0, 4.0])))
        led = {job: leader for job in self.ledgers if (leader := self.leader_of(job))}
        if fault.kind == "at_go" and len(self.gone) > gone:
            led = {job: led[job] for job in [self.gone[-1][0]] if job in led}
        if led:
            name = led[drawn.choice(sorted(led))]
            self.hosts[name].crash()
            await asyncio.sleep(max(1.0, ends_s - self.loop.true_s))
            self.start_server(name)

    def leader_of(self, job_id: str) -> str:
        """The manager that leads a run; empty: none does."""
        job = self.row_of(job_id)
        session = self.store._sessions.get(job.session or "")  # noqa: SLF001 - the world sees everything
        return (
            ""
            if session is None or job.settled_ms is not None or not self.hosts[session.worker].alive
            else session.worker
        )

    # in the end ---------------------------------------------------------------------------------

    async def _check_job(self, job: Job, units: Sequence[Job]) -> None:
        if job.kind != "load":
            await super()._check_job(job, units)
            return
        if job.id in self.ledgers:
            self.ledgers[job.id].check_contexts()
        ended = [event.to for event in await self.store.events(job.id) if event.to in ("succeeded", "failed")]
        if len(ended) > 1:
            raise Violation(f"{job.id} settled as {ended}")
        if self.ledgers.get(job.id) is not None and self.ledgers[job.id].rounds:
            self.check_totals(job)
        if job.status == "cancelled":
            if job.id not in self.cancelled:
                raise Violation(f"{job.id} was cancelled, which no client asked for: {job.reason}")
        elif job.status == "succeeded":
            if job.id not in self.ledgers:
                raise Violation(f"{job.id} succeeded without a load")
        elif job.status != "failed" or job.error is None or job.error.code != "load_failed":
            raise Violation(f"{job.id} ended {job.status}: {job.reason} {job.error}")
        elif not self.faulty:
            raise Violation(f"{job.id} failed although no node was lost: {job.error.message}")

    faulty = True
    """whether there were faults for which a run may fail: those of managers are none"""

    def check_totals(self, job: Job) -> None:
        """What a run reports that its leader has ended is what the target has counted, slice by slice."""
        summary = summary_of(job, Sealer(None))
        ledger = self.ledgers[job.id]
        round_ = ledger.rounds[-1]
        sent = {key: each.total for key, each in ledger.assignments.items() if key.round == round_}
        if _DIED in (job.reason or "") and (summary is None or summary.verdict == "lost"):
            # nothing leads a run on that is being stopped: it has the numbers that were saved on the way, and says so
            if summary is not None and summary.requests > sum(sent.values()):
                raise Violation(f"{job.id} counts {summary.requests} requests, and the target {sum(sent.values())}")
            return
        if summary is None:
            raise Violation(f"{job.id} reports nothing")
        reports = {SliceKey(round_, one.slice, one.token): one for one in summary.slices}
        for key, calls in sorted(sent.items()):
            self._check_slice(job.id, key, calls, reports.get(key))
        if sum(one.requests for one in reports.values()) != summary.requests:
            told = [one.requests for one in reports.values()]
            raise Violation(f"{job.id} counts {summary.requests} requests, and its slices {told}")
        if summary.requests > sum(sent.values()):
            raise Violation(f"{job.id} counts {summary.requests} requests, and the target {sum(sent.values())}")
        self._check_start(job.id, reports)
        losses = [one for one in reports.values() if one.loss]
        if losses and summary.trust.ok:
            raise Violation(f"{job.id} lost {losses}, and says that its numbers can be trusted")

    def _check_start(self, job_id: str, reports: dict[SliceKey, SliceReport]) -> None:
        """A run of one layer says how far apart its slices began, or more."""
        ledger = self.ledgers[job_id]
        if len(ledger.options.spec.plan.workflows) > 1:
            return
        [workflow] = ledger.options.spec.plan.workflows
        # of a lost one it is not known how late it was
        together = [key for key, one in reports.items() if not (one.begin_s or one.loss) and one.windows]
        skew_s, told_s = ledger.start_skew_s(together, workflow), start_skew_s(list(reports.values()))
        if skew_s > told_s + _CLOCK_S:
            raise Violation(f"{job_id}: its slices began {skew_s:.4f} s apart, and it says {told_s:.4f} s")

    def _check_slice(self, job_id: str, key: SliceKey, calls: int, report: SliceReport | None) -> None:
        if report is None:
            if calls:
                raise Violation(f"{job_id} does not report {key}, which made {calls} calls")
        elif report.loss and report.requests > calls:
            raise Violation(f"{job_id} reports {report.requests} requests of {key}, which made {calls}")
        elif not report.loss and report.requests != calls:
            raise Violation(
                f"{job_id} reports {report.requests} requests of {key}, which made {calls}; it was not lost"
            )

    async def run(self, faults: Sequence[Fault]) -> None:
        self.faulty = any(
            fault.kind not in ("leader", "at_go") and not (fault.kind == "crash" and fault.host in self.managers)
            for fault in faults
        )
        await super().run(faults)

    async def verify(self) -> None:
        await super().verify()
        await self.check_nothing_left()

    async def check_nothing_left(self) -> None:
        """No generator, no core that is held, no slice that is open."""
        ends_s = self.loop.true_s + _LEFT_S
        while text := await self._left():
            if self.loop.true_s > ends_s:
                raise Violation(f"{_LEFT_S:.0f} s after all runs have ended, {text}")
            await asyncio.sleep(1)

    async def _left(self) -> str:
        for node, generators in self.generators.items():
            if alive := [each.host for each in generators if each.host.alive]:
                return f"{node} has {alive}"
        for host, handler in self.handlers:
            if host.alive and handler._serving:  # noqa: SLF001 - the world sees everything
                return f"{host.name} serves {handler._serving}"  # noqa: SLF001 - as above
        for job in self.ledgers:
            units = (await self.store.find(Query(parent=job), limit=1000)).jobs
            if held := [unit.unit for unit in units if unit.settled_ms is None]:
                return f"{held} of {job} are open"
        return ""


class LoadUser(ClusterUser):
    """Submits load runs, too, often some at once, and cancels some of them at any moment."""

    def pause_s(self) -> float:
        return self._rng.choice([0.5, 1.0]) * super().pause_s() if self._rng.random() < 0.6 else 0.0

    def request(self, number: int) -> JobRequest:
        key = f"{self.name}-{number}"
        drawn = self.world.rng(f"load {key}")
        if drawn.random() < 0.3:
            return super().request(number)
        options = drawn_options(drawn, zones=tuple(LoadClusterWorld.zones))
        return load_request(self.control, options, key=key)


def _call(row: Job) -> SliceCall:
    return msgspec.msgpack.decode(row.payload, type=SliceCall)


__all__ = ["LoadClusterWorld", "LoadUser"]

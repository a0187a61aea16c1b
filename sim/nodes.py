"""The world of node jobs: clients submit and cancel them; nodes run them, and one of the nodes leads.

The engines, their leads, control, the placement duty, the lifecycle and the rules of the memory store are the real
ones. What a supervisor does for an engine (beat, sweep) is done here by `_NodeHost`. Each host reckons the time of the
store by itself, and is wrong by some milliseconds.

What must hold at every write:

- one session leads in an epoch, epochs grow, and every write of a leader carries the current one;
- a unit is assigned to an open session of its own node only, under the next token, and only while its job runs;
- a job settles once, and nothing is assigned after it was cancelled or settled.

And in the end, when the faults are over:

- every job is settled: it succeeded, or it was cancelled by a client, or its budgets are spent;
- a job that succeeded has its quorum, or says that it has none; its leader phase counts once, and the result is that of
  the claim with the last token, made of the results of the nodes that had ended;
- no unit is left open, and the store's own check finds nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec

from mainstay import App
from mainstay.control import Control, JobRequest
from mainstay.errors import InvalidTransition
from mainstay.lifecycle import Event
from mainstay.model import Job, Leadership, Session
from mainstay.node import LeaderRun, Node, NodeJobResult, NodeResult
from mainstay.node.spec import call_of
from mainstay.stores import InsertResult, Query, Written
from mainstay.testing import FaultyStore, LoopClock, VirtualLoop
from mainstay.worker.engine import Engine, EngineProcess
from mainstay.worker.leads import Leads
from mainstay.worker.program import placed_offer_of

from .faults import Fault
from .faulty_world import EngineKeeper, FaultyWorld, insist
from .runs import FAULTS_UNTIL_S, Violation

#: by how much a host may be wrong about the time of the store
SKEW_S = 0.02
#: what a job may say when it failed, besides the errors of its own code
_SPENT = ("no_quorum", "leader_failed", "nodes_failed")


class Phase(msgspec.Struct):
    """The result of a leader phase."""

    token: int
    nodes: list[str]


class NodesWorld(FaultyWorld):
    """Three nodes, two clients, one store."""

    servers: Sequence[str] = ("n1", "n2", "n3")
    clients: Sequence[str] = ("c1", "c2")
    submits = 5
    """by each client"""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        super().__init__(loop, seed)
        self.store.observer = self._check_writes
        self.app = App("memory:", rng=self.rng("app"), retries=3, crash_budget=3)
        self.cancelled: set[str] = set()
        """jobs that a client wanted to cancel"""
        self.epochs: dict[int, str] = {}
        """by epoch: the session that led `placement`"""
        self.phases: list[tuple[str, int]] = []
        """the leader phases that ran to their end: the job and the fencing token"""
        self.broken: list[str] = []
        """what was found wrong while the world ran"""
        self.compact, self.rotate, self.collect = self.declare(self.app)

    async def run(self, faults: Sequence[Fault]) -> None:
        with self.app.using(self.store):  # a leader phase reads the results of the nodes
            await super().run(faults)

    def declare(self, app: App) -> tuple[Any, Any, Any]:
        """The jobs of this world, in an app."""
        return _declare(self, app)

    async def serve(self, name: str) -> None:
        await _NodeHost(self, name, self.started).run()

    async def ask(self, name: str) -> None:
        await _NodeClient(self, name).run()

    def host_link(self, name: str) -> FaultyStore:
        """A link with the time as the host reckons it."""
        made = self.link(name)
        made.clock = LoopClock(self.loop, skew_s=self.rng(f"skew {name}").uniform(-SKEW_S, SKEW_S))
        return made

    # at every write -----------------------------------------------------------------------------

    def _check_writes(self, written: Sequence[Written]) -> None:
        for before, after, events in written:
            try:
                self._check_write(before, after, events)
            except Violation as error:
                self.broken.append(str(error))
                self.note(f"VIOLATION {error}")

    def _check_write(self, before: Job | None, after: Job, events: Sequence[Event]) -> None:
        for event in events:
            self.note(f"{after.unit or 'job'} {after.id[-4:]} {event.to} token {event.token} {event.reason or ''}")
            self._check_epoch(after, event)
        if before is None:
            return
        withdrawn = after.status == "cancelled" and after.id in self.cancelled  # a failed job may be, by an operator
        if before.settled_ms is not None and after.status != before.status and not withdrawn:
            raise Violation(f"{after.id} was {before.status}, and then {after.status}")
        if after.token < before.token:
            raise Violation(f"{after.id} had token {before.token}, and then {after.token}")
        if after.status == "dispatched" and before.status != "dispatched":
            self._check_assignment(before, after)

    def _check_epoch(self, after: Job, event: Event) -> None:
        epoch = _epoch_of(event)
        if epoch is None:
            return
        current = self.store._leaders.current("placement")  # noqa: SLF001 - the world sees everything
        if current is None or (current.epoch, current.holder) != (epoch, event.actor):
            raise Violation(f"{event.actor} wrote {event.to} of {after.id} in epoch {epoch}, which is over: {current}")

    def _check_assignment(self, before: Job, after: Job) -> None:
        parent = self.store._rows.jobs[after.parent or ""]  # noqa: SLF001 - as above
        if parent.status not in ("running", "finalizing"):
            raise Violation(f"{after.unit} of {parent.id} was assigned while the job was {parent.status}")
        if after.token != before.token + 1:
            raise Violation(f"{after.unit} of {parent.id} was assigned under token {after.token} after {before.token}")
        session = self.store._sessions.get(after.session or "")  # noqa: SLF001 - as above
        if session is None or session.dead:
            raise Violation(f"{after.unit} of {parent.id} was assigned to the session {after.session}, which is closed")
        node = (after.unit or "").removeprefix("node/")
        if node not in ("leader", session.node):
            raise Violation(f"the unit of {node} of {parent.id} was assigned to {session.node}")

    def led(self, lead: Leadership) -> None:
        """Called by a host that was given or shown the leadership."""
        if lead.holder and self.epochs.setdefault(lead.epoch, lead.holder) != lead.holder:
            self.broken.append(f"{lead.holder} and {self.epochs[lead.epoch]} led in epoch {lead.epoch}")

    # in the end ---------------------------------------------------------------------------------

    async def verify(self) -> None:
        if self.broken:
            raise Violation(self.broken[0])
        await self._until_units_settled()
        if self.broken:
            raise Violation(self.broken[0])
        for job in await self.rows():
            units = (await self.store.find(Query(parent=job.id), limit=1000)).jobs
            await self._check_job(job, units)

    async def _until_units_settled(self) -> None:
        """The last units of a job that was settled without a leader are cancelled by the next one."""
        for _ in range(600):
            rows = [row for row in self.store._rows.jobs.values() if row.settled_ms is None]  # noqa: SLF001 - as above
            if not rows:
                return
            await asyncio.sleep(1)
        raise Violation(f"units are open although their jobs are settled: {rows[:3]}")

    async def _check_job(self, job: Job, units: Sequence[Job]) -> None:
        settled = [event.to for event in await self.store.events(job.id) if event.to in ("succeeded", "failed")]
        if len(settled) > 1:
            raise Violation(f"{job.id} settled as {settled}")
        if job.status == "succeeded":
            self._check_success(job, units)
        elif job.status == "cancelled":
            if job.id not in self.cancelled:
                raise Violation(f"{job.id} was cancelled, which no client asked for")
        elif job.status != "failed" or job.error is None or job.error.code not in _SPENT:
            raise Violation(f"{job.id} ended {job.status}: {job.reason} {job.error}")

    def _check_success(self, job: Job, units: Sequence[Job]) -> None:
        declared = {"compact": self.compact, "rotate": self.rotate, "collect": self.collect}[job.name]
        result: NodeJobResult = declared.returns.unpack(job.result, job_id=job.id)
        reached = sum(1 for unit in units if unit.unit != "leader" and unit.status == "succeeded")
        if reached < result.quorum_needed and not result.warnings:
            raise Violation(f"{job.id} succeeded on {reached} nodes of {result.quorum_needed} without a warning")
        leaders = [unit for unit in units if unit.unit == "leader"]
        if len(leaders) != (job.name != "collect"):
            raise Violation(f"{job.id} ({job.name}) has {len(leaders)} leader phases")
        if leaders and result.value.token % 1_000_000 != leaders[0].token:
            raise Violation(f"{job.id} has the result of token {result.value.token}, the last is {leaders[0].token}")
        if leaders and (job.id, result.value.token) not in self.phases:
            raise Violation(f"{job.id} succeeded, but no leader phase with its token ran to the end")
        if leaders and result.value.nodes != list(call_of(leaders[0].payload).ended):
            raise Violation(f"the leader phase of {job.id} got the results of {result.value.nodes}")


class BigNodesWorld(NodesWorld):
    """More nodes than any write touches at once, and more jobs at a time."""

    servers: Sequence[str] = tuple(f"n{number:02}" for number in range(1, 21))
    clients: Sequence[str] = ("c1", "c2", "c3", "c4")
    submits = 8


def _declare(world: NodesWorld, app: App) -> tuple[Any, Any, Any]:
    """The jobs of the world: with both phases, with the leader phase only, with the local phase only."""

    @app.node_job(name="compact", quorum="majority", on_no_quorum="proceed", stragglers="20s", retries=2)
    class Compact:
        async def local(self, node: Node, seconds: float, fails: bool) -> str:
            world.note(f"local {node.job_id[-4:]} on {node.name} token {node.token}")
            await asyncio.sleep(seconds * world.rng(f"{node.job_id} {node.name}").random())
            if fails and node.name == "n1":
                raise ConnectionError("as planned")
            return node.name

        async def leader(self, results: list[NodeResult], run: LeaderRun, seconds: float, fails: bool) -> Phase:
            del fails
            return await _finish(world, run, results, seconds)

    @app.node_job(name="rotate", retries=2)
    class Rotate:
        async def leader(self, results: list[NodeResult], run: LeaderRun, seconds: float, fails: bool) -> Phase:
            del fails
            return await _finish(world, run, results, seconds)

    @app.node_job(name="collect", quorum="majority", on_no_quorum="wait", stragglers="10s", deadline="4m", retries=2)
    class Collect:
        async def local(self, node: Node, seconds: float, fails: bool) -> str:
            del fails
            await asyncio.sleep(seconds)
            return node.name

    return Compact, Rotate, Collect


async def _finish(world: NodesWorld, run: LeaderRun, results: list[NodeResult], seconds: float) -> Phase:
    world.note(f"leader {run.job_id[-4:]} token {run.token} begins")
    await asyncio.sleep(seconds)
    world.phases.append((run.job_id, run.token))
    world.note(f"leader {run.job_id[-4:]} token {run.token} ends")
    return Phase(run.token, [result.node for result in results])


def _epoch_of(event: Event) -> int | None:
    details = msgspec.json.decode(event.details) if event.details else {}
    return details.get("epoch")


class _NodeHost:
    """One node: its engine with the leads it competes for, and what its supervisor would do for it."""

    def __init__(self, world: NodesWorld, name: str, number: int) -> None:
        self._world = world
        self._name = name
        self._rng = world.rng(f"node {name} {number}")
        self._control = Control(world.host_link(name), settings=world.app.settings, rng=self._rng)
        self._leads = Leads(world.app, self._control)
        self._engine: Engine

    async def run(self) -> None:
        world, control = self._world, self._control
        session = await self._open_session()
        self._engine = Engine(
            world.app,
            control,
            session,
            queues=(),
            concurrency=3,
            process=EngineProcess(open_session=self._reopen_session),
            rng=self._rng,
        )
        self._engine.start()
        await self._leads.start(session)
        keeper = EngineKeeper(control, self._engine, self._rng)
        await asyncio.gather(keeper.beat(), keeper.sweep(), self._watch_lead())

    async def _open_session(self) -> Session:
        return await insist(
            lambda: self._control.claims.open_session(
                worker=self._name,
                host=self._name,
                node=self._name,
                labels={"zone": "a"},
                offer=placed_offer_of(self._world.app),
            )
        )

    async def _reopen_session(self) -> Session:
        session = await self._open_session()
        await self._leads.start(session)
        return session

    async def _watch_lead(self) -> None:
        """Look who leads, as an operator would."""
        while True:
            await asyncio.sleep(self._rng.uniform(1, 3))
            current = self._world.store._leaders.current("placement")  # noqa: SLF001 - the world sees everything
            if current is not None:
                self._world.led(current)


class _NodeClient:
    """Submits node jobs, asks again when it got no answer, and cancels some."""

    def __init__(self, world: NodesWorld, name: str) -> None:
        self._world = world
        self._name = name
        self._rng = world.rng(f"client {name}")
        self._control = Control(world.host_link(name), settings=world.app.settings, rng=self._rng)

    async def run(self) -> None:
        world = self._world
        for number in range(world.submits):
            await asyncio.sleep(self._rng.uniform(0, 2 * FAULTS_UNTIL_S / world.submits))
            job = self._rng.choice([world.compact, world.rotate, world.collect])
            seconds, fails = round(self._rng.uniform(0, 8), 2), self._rng.random() < 0.2
            request = job.options(key=f"{self._name}-{number}").job(seconds=seconds, fails=fails).request()
            submitted = await self._submit(request)
            world.note(f"{self._name} submitted {job.name} as {submitted.id}")
            if self._rng.random() < 0.25:
                await self._cancel(submitted.id)

    async def _submit(self, request: JobRequest) -> InsertResult:
        return await insist(lambda: self._control.jobs.submit_request(request))

    async def _cancel(self, job_id: str) -> None:
        # some at once, while the job begins
        await asyncio.sleep(self._rng.uniform(0, self._rng.choice([0.2, 6.0])))
        self._world.cancelled.add(job_id)
        with contextlib.suppress(InvalidTransition):  # it has ended otherwise
            await insist(lambda: self._control.operations.cancel(job_id, actor=self._name))

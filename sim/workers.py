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
from collections.abc import Sequence
from typing import Any, TypeVar

from mainstay import App
from mainstay.control import Control
from mainstay.errors import InvalidTransition, MainstayError, StoreUnavailable
from mainstay.model import Leadership
from mainstay.testing import VirtualLoop
from mainstay.worker import context
from mainstay.worker.engine import Engine, EngineProcess
from mainstay.worker.program import offer_of

from .faulty_world import EngineKeeper, FaultyWorld, insist
from .linearizability import Operation, is_linearizable
from .runs import FAULTS_UNTIL_S, Violation

R = TypeVar("R")

SUBMITS = 12
"""by each client"""


class WorkersWorld(FaultyWorld):
    """Three workers, two clients, one store."""

    servers = ("w1", "w2", "w3")
    clients = ("c1", "c2")

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        super().__init__(loop, seed)
        self.app = App("memory:", rng=self.rng("app"), retries=3, crash_budget=3)
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

    async def serve(self, name: str) -> None:
        await _WorkerHost(self, name, self.started).run()

    async def ask(self, name: str) -> None:
        await _Client(self, name).run()

    async def verify(self) -> None:
        rows = {row.id: row for row in await self.rows()}
        for key, history in self.submits.items():
            check_key(key, history, rows)
        for row in rows.values():
            await self._check_job(row)

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


def check_key(key: str, history: Sequence[Operation[str, str]], rows: dict[str, Any]) -> None:
    """Raise a `Violation` if an answered submit is not stored, or if the key stands for several jobs."""
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
        keeper = EngineKeeper(control, self._engine, self._rng)
        await asyncio.gather(keeper.beat(), keeper.sweep(), self._lead())

    async def _open_session(self) -> Any:
        return await insist(
            lambda: self._control.claims.open_session(
                worker=self._name, host=self._name, offer=offer_of(self._world.app, ["default"])
            )
        )

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
            await insist(lambda: self._control.operations.cancel(job_id, actor=self._name))

"""Runs, nodes and a manager on a store in virtual time: real duties, and slices whose work a test does by hand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import msgspec

from mainstay.control import Completion, Control, Failure, JobRequest, OptionReader
from mainstay.lifecycle import Move
from mainstay.load.kind import KIND, SLICE
from mainstay.load.placement import CoreDemand, OnLoss, RunDemand, RunPlacementDuty, SliceCall
from mainstay.model import LEAD_QUEUE, ErrorInfo, Job, Leadership, Offer, Session, Settings, route_of
from mainstay.stores import Change, JobStore, Query
from mainstay.testing import VirtualClock

MANY = 10_000
ROUTE = route_of(KIND.name, SLICE)


class SliceNode:
    """A node: its session, and the slices that it runs when it is asked."""

    def __init__(self, store: JobStore, name: str, number: int = 1) -> None:
        self.store = store
        self.control = Control(store, rng=random.Random(number))
        self.name = name
        self.id = f"{name}.{number:032x}"

    async def open(self, cores: int = 8, labels: Mapping[str, str] | None = None, **fields: object) -> SliceNode:
        clock = self.store.clock
        session = Session(
            id=self.id,
            node=self.name,
            started_ms=clock.now_ms(),
            beat_ms=clock.lease_ms(),
            labels=labels or {},
            offer=Offer(tasks={ROUTE: {}}, cores=cores),
        )
        await self.store.open_session(msgspec.structs.replace(session, **fields))
        return self

    async def assigned(self) -> list[Job]:
        [pulse] = await self.store.beat([self.id])
        return [row for row in await self.store.get(pulse.assigned) if row is not None]

    async def confirm(self) -> list[Job]:
        """Confirm what is assigned to it."""
        at_ms = self.store.clock.now_ms()
        move = Move(to="running")
        rows = await self.assigned()
        changes = [Change(before=row, moves=(move,), actor=self.id, at_ms=at_ms, holder=self.id) for row in rows]
        results = await self.store.apply(changes)
        return [result.job for result in results if result.outcome == "applied" and result.job is not None]

    async def start(self, rows: list[Job]) -> None:
        """Their load begins."""
        await self.control.claims.start(rows)

    async def give_back(self, rows: list[Job], reason: str = "no free cores") -> None:
        await self.control.attempts.release(rows, reason=reason)

    async def finish(self, rows: list[Job]) -> None:
        await self.control.attempts.complete([Completion(row, None) for row in rows])

    async def fail(self, rows: list[Job], message: str = "a generator died") -> None:
        await self.control.attempts.fail([Failure(row, ErrorInfo(type="Error", message=message)) for row in rows])

    async def die(self) -> None:
        """Its process ends, and its session is closed."""
        await self.store.close_session(self.id)
        await self.control.sweeper.sweep()


class Cluster:
    """A store with a manager that leads runs and, if asked, places them."""

    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.control = Control(store, rng=random.Random(5))
        self.manager = f"manager.{1:032x}"
        self.nodes: dict[str, SliceNode] = {}
        self.duty = RunPlacementDuty(self.control)

    async def open(self, *cores: int) -> Cluster:
        await self.join(self.manager)
        for number, each in enumerate(cores, 1):
            await self.node(f"n{number}", each)
        return self

    async def join(self, session: str) -> None:
        now = Session(id=session, started_ms=self.store.clock.now_ms(), beat_ms=self.store.clock.lease_ms())
        await self.store.open_session(now)

    async def node(self, name: str, cores: int = 8, *, number: int = 1, **fields: object) -> SliceNode:
        self.nodes[name] = await SliceNode(self.store, name, number).open(cores, **fields)  # type: ignore[arg-type]
        return self.nodes[name]

    async def lead(self, session: str = "") -> Leadership:
        return await self.store.lead("placement", session or self.manager, 10.0)

    async def place(self, duty: RunPlacementDuty | None = None) -> None:
        """One round of the leader."""
        await (duty or self.duty).round(await self.lead())

    async def submit(
        self,
        *,
        share: str = "auto",
        on_loss: OnLoss = "replace",
        priority: int = 0,
        queue_deadline: str | None = None,
        code: str = "c0de",
        modules: Mapping[str, str] | None = None,
        **demand: object,
    ) -> str:
        """Submit a run and have the manager claim it: it waits for cores then. Returns its id."""
        wants = RunDemand(
            demand=CoreDemand(share=share, **{"most": MANY, **demand}),  # type: ignore[arg-type]
            code=code,
            modules=modules or {},
            on_loss=on_loss,
        )
        options = {"kind": KIND.name, "priority": priority, "queue_deadline": queue_deadline, "timeout": "off"}
        plan = msgspec.structs.replace(OptionReader(Settings()).read(options), queue=LEAD_QUEUE)
        payload = msgspec.Raw(msgspec.msgpack.encode(wants))
        job = await self.control.jobs.submit_request(JobRequest("shop", payload, plan))
        await self.give_back(job.id)
        return job.id

    async def claimed(self) -> list[Job]:
        """The jobs that the manager claims now."""
        return await self.control.claims.claim([LEAD_QUEUE], self.manager, 10)

    async def give_back(self, job_id: str) -> None:
        """Claim all jobs. One of them waits for cores; the others are led on."""
        for job in await self.claimed():
            if job.id == job_id:
                await self.control.drivers.await_placement(job)

    async def job(self, job_id: str) -> Job:
        [job] = await self.store.get([job_id])
        assert job is not None
        return job

    async def slices(self, job_id: str) -> list[Job]:
        rows = (await self.store.find(Query(parent=job_id), limit=500)).jobs
        return sorted(rows, key=lambda row: (_call(row).round, _call(row).number))

    async def where(self, job_id: str) -> dict[str, int]:
        """The cores that a run holds, by node."""
        held: Counter[str] = Counter()
        for row in await self.slices(job_id):
            if row.settled_ms is None and row.session is not None:
                held[row.session.split(".")[0]] += _call(row).cores
        return dict(held)

    async def confirm(self) -> list[Job]:
        return [row for node in self.nodes.values() for row in await node.confirm()]

    async def beat(self) -> None:
        await self.store.beat([self.manager, *(node.id for node in self.nodes.values())])

    def pass_time(self, seconds: float) -> None:
        assert isinstance(self.store.clock, VirtualClock)
        self.store.clock.advance(seconds)


def _call(row: Job) -> SliceCall:
    return msgspec.msgpack.decode(row.payload, type=SliceCall)


calls = _call

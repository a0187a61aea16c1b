"""Nodes and leaders on a store in virtual time: real duties, and nodes whose work a test does by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec

from mainstay.control import Completion, Control, Failure, OptionReader
from mainstay.lifecycle import Move
from mainstay.model import ErrorInfo, Job, Leadership, Offer, Session, Settings
from mainstay.node.placement_duty import PlacementDuty
from mainstay.node.results import NodeJobResult
from mainstay.node.spec import KIND, NodePolicy, NodeSpec
from mainstay.stores import Change, JobStore, Query
from mainstay.task import Sealer
from mainstay.testing import VirtualClock

TASKS: Mapping[str, Mapping[str, Any]] = {"node:compact:local": {}, "node:compact:leader": {}}


class FakeNode:
    """A node: its session, and the placed work that it does when it is asked."""

    def __init__(self, store: JobStore, name: str, number: int = 1) -> None:
        self.store = store
        self.control = Control(store, rng=random.Random(number))
        self.name = name
        self.id = f"{name}.{number:032x}"
        self.done: list[Job] = []
        """the units whose end was accepted"""

    async def open(self, tasks: Mapping[str, Mapping[str, Any]] = TASKS, **fields: Any) -> FakeNode:
        clock = self.store.clock
        await self.store.open_session(
            Session(
                id=self.id,
                node=self.name,
                started_ms=clock.now_ms(),
                beat_ms=clock.lease_ms(),
                offer=Offer(tasks=tasks),
                **fields,
            )
        )
        return self

    async def confirmed(self) -> list[Job]:
        """Confirm what is assigned to it."""
        [pulse] = await self.store.beat([self.id])
        return await self.confirm([row for row in await self.store.get(pulse.assigned) if row is not None])

    async def confirm(self, rows: list[Job]) -> list[Job]:
        move = Move(to="running")
        at_ms = self.store.clock.now_ms()
        changes = [Change(before=row, moves=(move,), actor=self.id, at_ms=at_ms, holder=self.id) for row in rows]
        results = await self.store.apply(changes)
        return [result.job for result in results if result.outcome == "applied" and result.job is not None]

    async def work(self) -> int:
        """Confirm and complete what is assigned to it; how many units."""
        return await self.complete(await self.confirmed())

    async def complete(self, rows: list[Job]) -> int:
        outcomes = await self.control.attempts.complete([Completion(row, f"{row.unit} by {self.name}") for row in rows])
        accepted = [row for row, outcome in zip(rows, outcomes, strict=True) if outcome.outcome == "applied"]
        self.done += accepted
        return len(accepted)

    async def complete_with(self, rows: list[Job], result: Any) -> None:
        """Complete units with a result."""
        await self.control.attempts.complete([Completion(row, result) for row in rows])

    async def fail(self, rows: list[Job], message: str = "it broke", *, retryable: bool | None = False) -> None:
        error = ErrorInfo(type="Error", message=message, retryable=retryable)
        await self.control.attempts.fail([Failure(row, error) for row in rows])

    def duty(self, store: JobStore | None = None) -> PlacementDuty:
        control = self.control if store is None else Control(store, rng=random.Random(3))
        return PlacementDuty(control, self.id, Sealer(None))

    async def lead(self) -> Leadership:
        return await self.store.lead("placement", self.id, 10.0)


async def submit(
    store: JobStore,
    policy: NodePolicy | None = None,
    *,
    seed: int = 7,
    arguments: Mapping[str, Any] | None = None,
    unit_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> str:
    """Submit a node job; returns its id."""
    control = Control(store, rng=random.Random(seed))
    plan = OptionReader(Settings()).read(dict(unit_options or {"retries": 0}))
    spec = NodeSpec(
        policy=policy or NodePolicy(), plan=plan, arguments=msgspec.Raw(msgspec.msgpack.encode(arguments or {}))
    )
    payload = msgspec.Raw(msgspec.msgpack.encode(spec))
    return (await control.jobs.submit("compact", payload, kind=KIND, **{"timeout": "off", **options})).id


async def units_of(store: JobStore, job_id: str) -> dict[str, Job]:
    return {row.unit or "": row for row in (await store.find(Query(parent=job_id), limit=500)).jobs}


async def job_of(store: JobStore, job_id: str) -> Job:
    [job] = await store.get([job_id])
    assert job is not None
    return job


async def result_of(store: JobStore, job_id: str) -> NodeJobResult:
    job = await job_of(store, job_id)
    assert job.result is not None
    return msgspec.msgpack.decode(job.result, type=NodeJobResult)


def pass_time(store: JobStore, seconds: float) -> None:
    assert isinstance(store.clock, VirtualClock)
    store.clock.advance(seconds)

"""Submit a load test to the nodes of a cluster over its bus: its code first, then the job."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from ...bundles import BundleClient, publish_bundle
from ...control import Control, InsertResult, JobRequest, Plan
from ...errors import DurabilityUnknown, InvalidInput, StoreError, StoreUnavailable
from ...model import LEAD_QUEUE
from ...stores import Durability, JobStore, Query
from ...stores.remote import manager_connection
from ..kind import KIND
from ..placement import core_nodes, demand_problem
from ..planned_run import PlannedRun
from .demand import FleetDemand
from .submission_steps import (
    AskBundleLimits,
    AskCoreProblem,
    BlockingCall,
    FleetRequest,
    PublishCode,
    SubmissionPause,
    SubmissionStep,
    submission,
)

#: a submit whose answer was lost is sent again with the same key
_TRIES = 4

Sleep = Callable[[float], Awaitable[None]]


def run_job(request: FleetRequest, name: str, plan: Plan) -> JobRequest:
    """The request for control, with these options of the job. The wait for cores begins when the job is due."""
    plan = msgspec.structs.replace(plan, queue=LEAD_QUEUE)
    if request.wait_s is not None:
        plan = msgspec.structs.replace(plan, start_within_ms=round(request.wait_s * 1000))
    payload = msgspec.Raw(msgspec.msgpack.encode(request.options))
    return JobRequest(name, payload, plan, content=request.content)


async def core_problem(store: JobStore, ask: AskCoreProblem) -> str:
    """Why the nodes of a store could never give these cores; empty: they could, if they were free, or the run was
    submitted before."""
    problem = demand_problem(ask.cores, core_nodes(await store.sessions(), lease_ms=store.clock.lease_ms()))
    return "" if problem and await is_submitted(store, ask.name, ask.key) else problem


async def is_submitted(store: JobStore, name: str, key: str | None) -> bool:
    """Whether there is a run with this key. Nodes and bundles may have gone since; a caller that repeats the request
    because its answer was lost gets the run nevertheless."""
    if key is None:
        return False
    query = Query(kind=KIND.name, queue=LEAD_QUEUE, name=name, key=key, value_bytes=0)
    return bool((await store.find(query, limit=1)).jobs)


class FleetSubmitter:
    """Submits planned runs through the managers of a cluster."""

    def __init__(
        self,
        control: Control,
        *,
        by: str = "client",
        on_note: Callable[[str], None] = lambda _: None,
        rng: random.Random | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`control` works on the store behind the managers. `on_note` takes what the user should know meanwhile: a
        warning, or what is waited for."""
        connection = manager_connection(control.store)
        if connection is None:
            rule = "needs a cluster, and this store is not behind the managers of one"
            raise InvalidInput("nodes", f"{rule}; use its URL, remote+tls://..., or run_on_cluster(..., cluster=URL)")
        self._control = control
        self._by = by
        self._note = on_note
        self._rng = rng or random.Random()
        self._sleep = sleep
        self._bundles = BundleClient(
            connection.bus,
            **msgspec.structs.asdict(connection.caller),
            rng=rng,
            sleep=sleep,
        )

    async def prepare(
        self, planned: PlannedRun, demand: FleetDemand, *, key: str | None = None, durability: Durability | None = None
    ) -> FleetRequest:
        """Check everything, wait for nodes that are still starting, and publish the code."""
        store = self._control.store
        if durability is not None:
            store.durability_of(durability)
        steps = submission(planned, demand, key=key, now_s=lambda: store.clock.now_ms() / 1000, on_note=self._note)
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._carried_out(step))
        except StopIteration as done:
            request: FleetRequest = done.value
            return request

    async def _carried_out(self, step: SubmissionStep) -> Any:
        match step:
            case AskBundleLimits():
                return await self._bundles.limits()
            case AskCoreProblem():
                return await core_problem(self._control.store, step)
            case BlockingCall(call):
                return await asyncio.to_thread(call)
            case PublishCode(bundle, limits):
                return await publish_bundle(self._bundles, bundle, by=self._by, limits=limits, sleep=self._sleep)
            case SubmissionPause(pause_s):
                return await self._sleep(pause_s)

    async def insert(self, request: JobRequest) -> InsertResult:
        """Insert the job. It has a key, so it is sent again if no answer came. Raises `DurabilityUnknown` if none came
        at all."""
        job, durability = self._control.jobs.prepare(request)
        turn = 1
        while True:
            try:
                [inserted] = await self._control.jobs.insert([job], durability)
            except StoreUnavailable as error:
                if turn == _TRIES:
                    raise DurabilityUnknown(job.job.id, await self._reached(job.job.id), error) from error
            else:
                return inserted
            await self._sleep(2.0 ** (turn - 1) * self._rng.uniform(0.5, 1.0))
            turn += 1

    async def _reached(self, job_id: str) -> Durability | Literal[""]:
        """The level that an unconfirmed insert is known to have reached."""
        try:
            [row] = await self._control.store.get([job_id])
        except StoreError:
            return ""
        return "" if row is None else "local"


__all__ = ["FleetSubmitter", "core_problem", "is_submitted", "run_job"]

"""Submit a load test to the nodes of a cluster: its code first, then the job. Everything that can be known to fail is
refused before anything is sent.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from ...bundles import BundleClient, BundleLimits, publish_bundle
from ...clock import duration_text
from ...control import Control, InsertResult, JobRequest
from ...errors import InvalidInput, StoreUnavailable
from ...stores import Durability
from ...stores.remote import manager_connection
from ..placement import CoreDemand, core_nodes, demand_problem
from ..planned_run import PlannedRun
from .code import LoadCode, load_code, sends_code
from .demand import FleetDemand, core_demand
from .spec import FleetOptions

#: a submit whose answer was lost is sent again with the same key
_TRIES = 4
#: what is left at least of the wait for cores, once the code was sent
_LEAST_WAIT_MS = 5_000
#: how often the nodes are looked at that are still starting
_LOOK_S = 1.0

Sleep = Callable[[float], Awaitable[None]]


class FleetPayload(NamedTuple):
    """A run on nodes as its job has it."""

    options: FleetOptions
    content: bytes
    """what an idempotency key stands for: the same for each submit of the same run"""

    @property
    def encoded(self) -> bytes:
        return msgspec.msgpack.encode(self.options)


def fleet_payload(planned: PlannedRun, demand: FleetDemand, code: LoadCode, cores: CoreDemand) -> FleetPayload:
    """The payload of the job. Pure."""
    spec = planned.spec()
    spec = msgspec.structs.replace(spec, order=msgspec.structs.replace(spec.order, source=code.source))
    options = FleetOptions(
        **msgspec.structs.asdict(planned.options),
        demand=cores,
        spec=spec,
        code="" if code.bundle is None else code.bundle.digest,
        modules=code.modules,
        on_loss=demand.on_loss,
    )
    # the wait ends at another time with each submit
    lasting = msgspec.structs.replace(options, demand=msgspec.structs.replace(cores, start_by_ms=None))
    return FleetPayload(options, msgspec.msgpack.encode(lasting))


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
        self, planned: PlannedRun, demand: FleetDemand, *, durability: Durability | None = None
    ) -> FleetPayload:
        """Check everything, wait for nodes that are still starting, and publish the code."""
        store = self._control.store
        cores = core_demand(demand, planned, now_ms=store.clock.now_ms())
        if durability is not None:
            store.durability_of(durability)
        # an installed test needs no managers that keep bundles
        limits = await self._bundles.limits() if sends_code(planned, demand) else BundleLimits()
        code = await asyncio.to_thread(load_code, planned, demand, limits)
        for note in code.notes:
            self._note(f"warning: {note}")
        await self._await_nodes(cores, demand.wait_s)
        if code.bundle is not None:
            await publish_bundle(self._bundles, code.bundle, by=self._by, limits=limits, sleep=self._sleep)
        if cores.start_by_ms is not None:
            # the code was sent when the time was nearly over: a moment is left for cores that are free
            least_ms = store.clock.now_ms() + _LEAST_WAIT_MS
            cores = msgspec.structs.replace(cores, start_by_ms=max(cores.start_by_ms, least_ms))
        return fleet_payload(planned, demand, code, cores)

    async def _await_nodes(self, cores: CoreDemand, wait_s: float) -> None:
        """Return as soon as the nodes could give these cores if they were free."""
        store = self._control.store
        until_ms, noted = store.clock.now_ms() + wait_s * 1000, ""
        while problem := await self._problem(cores):
            if not wait_s or store.clock.now_ms() >= until_ms:
                waited = f" after {duration_text(wait_s)}" if wait_s else "; if nodes are still starting, add a wait"
                raise InvalidInput("nodes" if cores.processes is None else "cores", f"{problem}{waited}")
            if problem != noted:
                self._note(f"waiting for nodes: {problem}")
                noted = problem
            await self._sleep(_LOOK_S)

    async def _problem(self, cores: CoreDemand) -> str:
        store = self._control.store
        return demand_problem(cores, core_nodes(await store.sessions(), lease_ms=store.clock.lease_ms()))

    async def insert(self, request: JobRequest) -> InsertResult:
        """Insert the job. It has a key, so it is sent again if no answer came."""
        for turn in range(1, _TRIES + 1):
            try:
                return await self._control.jobs.submit_request(request)
            except StoreUnavailable:
                if turn == _TRIES:
                    raise
            await self._sleep(2.0 ** (turn - 1) * self._rng.uniform(0.5, 1.0))
        raise AssertionError("the loop returns or raises")


__all__ = ["FleetPayload", "FleetSubmitter", "fleet_payload"]

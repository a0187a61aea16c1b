"""A run on nodes, its leader, and servers of its cluster, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec

from mainstay.bundles import BundleClient
from mainstay.bus import Bus, MemoryBusNetwork
from mainstay.client import AsyncClient
from mainstay.control import Completion, Control, JobRequest
from mainstay.control.explain import ClusterFacts
from mainstay.load.fleet.live import BusOutput
from mainstay.load.stats.model import Moment, Summary
from mainstay.model import LEAD_QUEUE, Job
from mainstay.stores.remote import MAINSTAY_VERSION, ManagerConnection, RemoteCaller, RemoteStore, StoreService
from mainstay.testing import MemoryStore
from mainstay.web import ClusterRow
from tests.load.cli.moments import header
from tests.web.client.conftest import BASE
from tests.web.conftest import Server, serving
from tests.web.live.listening import listening

HEADER = header("browse")


class BusOnlyCluster:
    """A cluster of which a server has the bus."""

    bundles: BundleClient | None = None

    def __init__(self, network: MemoryBusNetwork, name: str) -> None:
        caller = RemoteCaller(role="operator", name=name, cluster="local", environment="default")
        self.connection = ManagerConnection(network.client(f"operator.{name}"), caller)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.connection.bus.close()

    def metrics(self) -> Iterable[ClusterRow]:
        return ()

    async def facts(self) -> ClusterFacts | None:
        return None


class LedRun:
    """A run that is led, and was begun."""

    def __init__(self, network: MemoryBusNetwork, store: MemoryStore, job: Job) -> None:
        self.network = network
        self.store = store
        self.control = Control(store)
        self.job = job
        self.live: BusOutput
        self.buses: list[Bus] = []
        self.path = f"/api/v1/loads/{job.id}/stream"

    async def lead(self) -> None:
        """A manager claims the job, and leads it. The one before has given it back."""
        if self.job.session is not None:
            await self.control.attempts.release([self.job], reason="its manager stops")
        session = await self.control.claims.open_session(worker="m1", lease_s=1e6)
        (self.job,) = await self.control.claims.claim([LEAD_QUEUE], session.id, 1)
        await self.control.claims.start([self.job])
        bus = self.network.client(f"manager.m{self.job.token}")
        self.buses.append(bus)
        self.live = BusOutput(bus, self.job.id, epoch=self.job.token)
        await self.live.start(HEADER)

    async def pass_on(self, moments: Iterable[Moment]) -> None:
        """The load goes on; nothing is lost on the way."""
        for number, moment in enumerate(moments):
            self.live.add(moment)
            if number % 20 == 19:
                await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def end(self) -> None:
        """It ends by itself."""
        summary = Summary(header=HEADER, elapsed_s=1.0, requests=1, failed=0, rate=1.0, iterations=1, users=1)
        await self.live.stop(summary)
        result = msgspec.Raw(msgspec.msgpack.encode(summary))
        await self.control.attempts.complete([Completion(self.job, result)])

    @contextlib.asynccontextmanager
    async def operator(self, name: str) -> AsyncIterator[Control]:
        """An operator, who has the bus and no store."""
        ours = {"cluster": "local", "environment": "default"}
        service = StoreService(
            self.store, self.network.client("manager.store"), manager="store", version=MAINSTAY_VERSION, **ours
        )
        await service.start()
        bus = self.network.client(f"operator.{name}")
        remote = RemoteStore(bus, role="operator", name=name, version=MAINSTAY_VERSION, rng=random.Random(1), **ours)
        await remote.open()
        try:
            yield Control(remote)
        finally:
            await remote.close()
            await service.stop()

    @contextlib.asynccontextmanager
    async def server(self, name: str, **options: Any) -> AsyncIterator[Server]:
        """A server of the cluster."""
        cluster = BusOnlyCluster(self.network, name)
        async with serving(store=self.store, cluster=cluster, snapshot_s=0.02, **options) as found:
            yield found


@contextlib.asynccontextmanager
async def led_run(payload: Any = None) -> AsyncIterator[LedRun]:
    store = MemoryStore()
    control = Control(store)
    plan = msgspec.structs.replace(control.jobs.plan(kind="load", retries=0), queue=LEAD_QUEUE)
    found = await control.jobs.submit_request(JobRequest("shop", payload or {}, plan))
    run = LedRun(MemoryBusNetwork(), store, await control.jobs.get(found.id))
    await run.lead()
    try:
        yield run
    finally:
        for bus in run.buses:
            await bus.close()


class StreamingTransport(httpx.AsyncBaseTransport):
    """Speaks to an app in this process, and passes on a stream while it is sent."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._whole = httpx.ASGITransport(app)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/stream"):
            return await self._whole.handle_async_request(request)
        mark = request.headers.get("last-event-id")
        target = request.url.raw_path.decode()
        stack = contextlib.AsyncExitStack()
        listener = await stack.enter_async_context(listening(self._app, target, last=mark))
        first = await listener.chunk()
        return httpx.Response(listener.status, headers=listener.headers, stream=_Body(first, listener, stack))


class _Body(httpx.AsyncByteStream):
    def __init__(self, first: bytes | None, listener: Any, stack: contextlib.AsyncExitStack) -> None:
        self._first, self._listener, self._stack = first, listener, stack

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunk = self._first
        while chunk is not None:
            yield chunk
            chunk = await self._listener.chunk()

    async def aclose(self) -> None:
        await self._stack.aclose()


def streaming_client(server: Server, **options: Any) -> AsyncClient:
    return AsyncClient(BASE, transport=StreamingTransport(server.app), **options)

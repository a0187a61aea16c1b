"""A cluster that runs load tests, as a command or a script reaches it: over its bus, or through a server of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from ..control import JobRequest, Plan
from ..errors import ServerUnreachable, StoreUnavailable
from ..kinds import part
from .app_methods import LoadMethods
from .fleet import FleetDemand
from .fleet.run_source import BusRunSource, HttpRunSource, RunSource
from .planned_run import PlannedRun
from .sources import LoadTest

#: how the addresses of servers begin
HTTP = ("http://", "https://")


class PreparedRun(NamedTuple):
    """A run that was checked, and whose code was sent."""

    key: str
    """submits with it are one job"""
    request: Any
    """what its cluster needs to submit it"""


class SubmittedRun(Protocol):
    """The handle of a job: of an app, or of a client."""

    @property
    def id(self) -> str: ...
    @property
    def created(self) -> bool: ...
    @property
    def durability(self) -> str: ...


class RunCluster(Protocol):
    """Is entered first."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def prepare(
        self,
        planned: PlannedRun,
        demand: FleetDemand,
        options: Mapping[str, Any],
        *,
        by: str,
        on_note: Callable[[str], None],
    ) -> PreparedRun:
        """Check a run, wait for nodes that are still starting, and send its code. There is no job yet."""
        ...

    async def insert(self, run: PreparedRun) -> SubmittedRun:
        """Submit a prepared run. `StoreUnavailable`: it may have been submitted."""
        ...

    def source(self, job_id: str) -> RunSource:
        """A submitted run, for its follower."""
        ...


class BusCluster:
    """The cluster whose store an app has."""

    def __init__(self, app: LoadMethods) -> None:
        self._app = app

    async def __aenter__(self) -> Self:
        await self._app.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._app.__aexit__(kind, error, trace)

    async def prepare(
        self,
        planned: PlannedRun,
        demand: FleetDemand,
        options: Mapping[str, Any],
        *,
        by: str,
        on_note: Callable[[str], None],
    ) -> PreparedRun:
        request = await self._app.loads.prepare_on_nodes(planned, demand, options, by=by, on_note=on_note)
        return PreparedRun(request.options.key or "" if isinstance(request.options, Plan) else "", request)

    async def insert(self, run: PreparedRun) -> SubmittedRun:
        request: JobRequest = run.request
        return await self._app.loads.insert_on_nodes(request)

    def source(self, job_id: str) -> RunSource:
        return BusRunSource(self._app.control, job_id)


class HttpCluster:
    """The cluster of a server: of `mainstay serve --cluster`, `manager --serve` or `cluster up`. The token is that of
    the environment, MAINSTAY_TOKEN."""

    def __init__(self, url: str) -> None:
        # by name: the client is a layer above
        self._client = part("mainstay.client:AsyncClient")(url)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def prepare(
        self,
        planned: PlannedRun,
        demand: FleetDemand,
        options: Mapping[str, Any],
        *,
        by: str,
        on_note: Callable[[str], None],
    ) -> PreparedRun:
        # the server knows who asks, by the token
        del by
        given = {"key": secrets.token_hex(16), **options}
        request = await self._client.loads.prepare(planned, demand, key=options.get("key"), on_note=on_note)
        return PreparedRun(given["key"], (request, given))

    async def insert(self, run: PreparedRun) -> SubmittedRun:
        request, options = run.request
        try:
            handle: SubmittedRun = await self._client.loads.insert(request, **options)
        except ServerUnreachable as error:
            raise StoreUnavailable(str(error)) from error
        return handle

    def source(self, job_id: str) -> RunSource:
        return HttpRunSource(self._client, job_id)


def run_cluster(place: str, test: LoadTest, app_of: Callable[[LoadTest, str], LoadMethods]) -> RunCluster:
    """The cluster at the address of a server, or behind the URL of its store."""
    return HttpCluster(place) if place.startswith(HTTP) else BusCluster(app_of(test, place))


__all__ = ["HTTP", "BusCluster", "HttpCluster", "PreparedRun", "RunCluster", "SubmittedRun", "run_cluster"]

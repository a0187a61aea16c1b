"""What load tests add to an app: `app.load` and `app.submit_load`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from ..worker import AppBase
from .declarations import DEFAULT_QUEUE

if TYPE_CHECKING:
    from ..task import AppClient, Handle, SubmitOptions
    from .declarations import Loads
    from .fleet import FleetDemand
    from .plan import LoadOptions
    from .sources import LoadTest
    from .stats.model import Summary
    from .workflow import Workflow


class LoadMethods(AppBase):
    """The methods of an app that concern load tests."""

    client: AppClient

    @property
    def loads(self) -> Loads:
        """Its load tests."""
        loads: Loads = self.part("load")
        return loads

    def load(
        self, *workflows: type[Workflow] | LoadTest, name: str | None = None, queue: str = DEFAULT_QUEUE
    ) -> LoadTest:
        """Declare a load test of some workflows, which run together: `app.load(Shop, Search)`. Its name is that of the
        first workflow unless `name` is given. A worker of this app runs the jobs that are submitted for it."""
        return self.loads.declare(workflows, name=name, queue=queue)

    async def submit_load(
        self,
        test: LoadTest | str,
        load: LoadOptions | None = None,
        *,
        nodes: int | FleetDemand | None = None,
        **options: Unpack[SubmitOptions],
    ) -> Handle[Summary]:
        """Submit a run of a load test. `load` overrides values of the classes: `LoadOptions(vus=500)`; the others
        are those of every submit. The result is a `Summary`; a run that misses a threshold fails.

        With `nodes`, the run is spread over nodes of the cluster whose store this app has, and its code is sent there:
        `nodes=8`, or `nodes=FleetDemand(8, share="high")`."""
        from .plan import LoadOptions  # noqa: PLC0415 - an extra

        planned = self.loads.plan(test, load or LoadOptions())
        if nodes is None:
            return await self.loads.submit(planned, options)
        from .fleet import FleetDemand  # noqa: PLC0415 - an extra

        demand = nodes if isinstance(nodes, FleetDemand) else FleetDemand(nodes)
        return await self.loads.submit_on_nodes(planned, demand, options)

    def submit_load_sync(
        self,
        test: LoadTest | str,
        load: LoadOptions | None = None,
        *,
        nodes: int | FleetDemand | None = None,
        **options: Unpack[SubmitOptions],
    ) -> Handle[Summary]:
        """`submit_load`, for code without an event loop."""
        return self.client.run(lambda: self.submit_load(test, load, nodes=nodes, **options), what="submit_load_sync")

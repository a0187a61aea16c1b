"""What nodes that only beat cost the manager that leads: real managers with hundreds of nodes, in simulated time.

    python -m sim --world leader      make sim WORLD=leader

The processor time is that of all callbacks of the leader's host, in this process: what a manager spends beside its
sockets. How it grows can be tested by the number of functions that they call, which is the same in every run.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import sys
import time
from collections.abc import Sequence

import msgspec

from mainstay.bus import Bus
from mainstay.cluster.liveness_settings import LivenessSettings
from mainstay.cluster.manager import Manager, ManagerOptions
from mainstay.cluster.manager_load import LoadSample
from mainstay.cluster.status import NodeBeat
from mainstay.errors import BusError
from mainstay.model import Offer, Session
from mainstay.stores.memory import MemoryStore
from mainstay.testing import BusFaults, FaultyBusNetwork, LoopClock, SimulatedHost, VirtualLoop
from mainstay.testing.virtual_loop import HostCall

#: the sizes of clusters that are compared
CLUSTER_SIZES = (250, 500, 1000)
#: how long a cluster is measured, in simulated seconds
MEASURED_S = 20.0
_MANAGERS = ("m1", "m2", "m3")
_CORES = 8
#: how long managers and nodes may take to find each other
_READY_S = 60.0


class LeaderCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the leader of a cluster did in some simulated seconds."""

    nodes: int
    seconds: float
    cpu_s: float
    callbacks: int
    calls: int
    """of functions; 0: they were not counted, which takes time itself"""

    @property
    def cpu_us(self) -> float:
        """Microseconds of a processor for each node and second."""
        return 1e6 * self.cpu_s / self.nodes / self.seconds

    @property
    def callbacks_each(self) -> float:
        """For each node and second."""
        return self.callbacks / self.nodes / self.seconds

    @property
    def calls_each(self) -> float:
        """For each node and second."""
        return self.calls / self.nodes / self.seconds


class CostLoop(VirtualLoop):
    """Measures the callbacks of one host. `counts`: it counts the functions that they call, instead of the time."""

    def __init__(self, seed: int, *, counts: bool) -> None:
        super().__init__(seed)
        self.measured: SimulatedHost | None = None
        self.cpu_s = 0.0
        self.callbacks = 0
        self.calls = 0
        self._counts = counts

    def _step(self, handle: HostCall) -> None:
        if self.measured is None or handle.host is not self.measured:
            super()._step(handle)
            return
        self.callbacks += 1
        began_s = time.process_time()
        if self._counts:
            sys.setprofile(self._count)
        try:
            super()._step(handle)
        finally:
            sys.setprofile(None)
            self.cpu_s += time.process_time() - began_s

    def _count(self, frame: object, event: str, argument: object) -> None:
        del frame, argument
        self.calls += event in ("call", "c_call")


class CostCluster:
    """Three managers on hosts of their own, and nodes that beat as real ones do, with nothing to run."""

    def __init__(self, loop: CostLoop, nodes: int) -> None:
        self.loop = loop
        self.nodes = nodes
        self.store = MemoryStore(LoopClock(loop))
        self.network = FaultyBusNetwork(rng=random.Random(1), faults=BusFaults(latency_s=0.001, jitter_s=0.001))
        self.managers: dict[str, Manager] = {}
        self.hosts = {name: loop.host(name) for name in _MANAGERS}
        self._liveness = LivenessSettings()

    async def run(self, seconds: float) -> LeaderCost:
        """Start all, wait until every manager sees every node, and measure."""
        for name, host in self.hosts.items():
            host.start(self._manage(name))
        beating = [asyncio.create_task(self._beat(f"n{number:04}")) for number in range(self.nodes)]
        async with asyncio.timeout(_READY_S):
            while not self._is_ready():  # noqa: ASYNC110 - a wait costs nothing here
                await asyncio.sleep(1)
        loop = self.loop
        loop.measured = self.hosts[next(name for name, manager in self.managers.items() if manager.leading)]
        await asyncio.sleep(seconds)
        loop.measured = None
        for task in beating:
            task.cancel()
        return LeaderCost(
            nodes=self.nodes, seconds=seconds, cpu_s=loop.cpu_s, callbacks=loop.callbacks, calls=loop.calls
        )

    def _is_ready(self) -> bool:
        managers = self.managers.values()
        return (
            len(managers) == len(_MANAGERS)
            and sum(manager.leading for manager in managers) == 1
            and all(len(manager.members.active_sessions()) == self.nodes for manager in managers)
        )

    async def _manage(self, name: str) -> None:
        bus = self.network.client(f"manager.{name}", host=name)
        options, rng = ManagerOptions(name=name), random.Random(name)
        manager = Manager(
            self.store,
            bus,
            options,
            liveness=self._liveness,
            rng=rng,
            host=name,
            pid=1,
            # not the load of the machine that runs the simulation
            sample_load=lambda late_s: LoadSample(0.0, 0.0, late_s),
        )
        await manager.start()
        self.managers[name] = manager

    async def _beat(self, node: str) -> None:
        """What the parent, the worker and the engine of an idle node send."""
        rng, beat_s = random.Random(node), self._liveness.beat_s
        session = Session(
            id=f"{node}.{rng.getrandbits(128):032x}",
            worker=node,
            host=node,
            node=node,
            standing=True,
            started_ms=self.store.clock.now_ms(),
            beat_ms=self.store.clock.lease_ms(),
            offer=Offer(queues=("default",), tasks={"work": {}}),
        )
        await self.store.open_session(session)
        bus: Bus = self.network.client(f"node.{node}", host=node)
        await asyncio.sleep(rng.uniform(0, beat_s))
        number = 0
        while True:
            number += 1
            beat = NodeBeat(
                node=node,
                number=number,
                incarnation="a",
                sessions=(session.id,),
                host=node,
                pid=1,
                cores=_CORES,
                cpu=0.01,
                memory=0.1,
            )
            with contextlib.suppress(BusError):
                await bus.request(f"control.beat.{node}", msgspec.msgpack.encode(beat), beat_s)
            await asyncio.sleep(beat_s)


def measure(nodes: int, *, seconds: float = MEASURED_S, counts: bool = False) -> LeaderCost:
    """The cost of the leader of this many nodes."""
    loop = CostLoop(1, counts=counts)
    # the collector would call what others have left, at any moment
    gc.collect()
    gc.disable()
    try:
        return loop.run_until_complete(CostCluster(loop, nodes).run(seconds))
    finally:
        loop.close()
        gc.enable()


def cost_lines(costs: Sequence[LeaderCost]) -> list[str]:
    """A table of costs.

    >>> cost = LeaderCost(nodes=250, seconds=10.0, cpu_s=0.5, callbacks=5000, calls=0)
    >>> print(*cost_lines([cost, cost]), sep="\\n")
       nodes   us a node and second   callbacks a node and second   of a core
         250                  200.0                           2.0        5.0%
         250                  200.0                           2.0        5.0%
    """
    lines = [f"{'nodes':>8}{'us a node and second':>23}{'callbacks a node and second':>30}{'of a core':>12}"]
    for cost in costs:
        share = f"{100 * cost.cpu_s / cost.seconds:.1f}%"
        lines.append(f"{cost.nodes:>8}{cost.cpu_us:>23.1f}{cost.callbacks_each:>30.1f}{share:>12}")
    return lines


__all__ = ["CLUSTER_SIZES", "CostCluster", "CostLoop", "LeaderCost", "cost_lines", "measure"]

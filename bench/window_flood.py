"""How soon a manager answers heartbeats and cancels while statistics flood it, beside the same while it is idle.

A manager with SQLite runs in a process of its own, on a real bus, and in that process a reader that adds up the windows
of a run, as the leader of the run does. Another process publishes windows at a steady rate. Idle turns and turns under
the flood alternate, and each pair gives a ratio.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

import servers
from mainstay.cluster.address import parse_address
from mainstay.cluster.manager_program import ManagerConfig
from mainstay.cluster.nats_server import LocalNats
from mainstay.cluster.status import NodeBeat
from mainstay.control import Control, JobRequest
from mainstay.errors import BusError
from mainstay.stores.remote import MAINSTAY_VERSION, RemoteStore

from .queues import Tell
from .runs import Run, begun

SCENARIOS = ("window_flood",)
#: heartbeats and cancels under the flood take at most this many times as long as with an idle manager
GOAL = 2.0

_CLUSTER = "bench"
_NODE = "steady"
_READY_S = 30.0
_BEAT_S = 2.0
_WARM = 20
#: a line that is there already is read within this time
_OLD_S = 0.005
#: between two calls: a manager that serves one caller without a pause is not idle
_PAUSE_S = 0.005


class FloodSizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is done."""

    rounds: int = 7
    calls: int = 300
    """heartbeats, and cancels, of one turn"""
    rate: int = 10_000
    """windows a second, each in a message of its own"""


class FloodTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn measured, in milliseconds."""

    beat_ms: float
    """the median"""
    beat_p95_ms: float
    cancel_ms: float
    """the median"""
    cancel_p95_ms: float
    sent_a_second: float = 0.0
    taken_a_second: float = 0.0
    """windows that were added up"""
    dropped_a_second: float = 0.0
    """that the full queue of the reader dropped"""


class FloodRound(msgspec.Struct, frozen=True, kw_only=True):
    """An idle turn, and one under the flood."""

    idle: FloodTurn
    flooded: FloodTurn

    @property
    def beats(self) -> float:
        return self.flooded.beat_ms / self.idle.beat_ms

    @property
    def cancels(self) -> float:
        return self.flooded.cancel_ms / self.idle.cancel_ms


class FloodReport(Run, kw_only=True):
    """The results of a run, as they are kept."""

    sizes: FloodSizes
    load_after: float = 0.0
    """the load average at the end; what was measured is in it"""
    trouble: list[str] = msgspec.field(default_factory=list)
    rounds: list[FloodRound] = msgspec.field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Of the medians of both over the rounds, the worse one."""
        if not self.rounds:
            return math.inf
        return max(
            statistics.median(each.beats for each in self.rounds),
            statistics.median(each.cancels for each in self.rounds),
        )

    @property
    def met(self) -> bool:
        return self.ratio <= GOAL


class Counts(NamedTuple):
    """What a process has counted since it began."""

    at_s: float
    counts: list[int]


def measure(scenarios: Sequence[str], sizes: FloodSizes, tell: Tell) -> FloodReport:
    """Run the rounds."""
    del scenarios  # there is one
    began_s = time.monotonic()
    with servers.folder("mainstay-bench-") as folder:
        report = FloodReport(**begun(folder), sizes=sizes)
        try:
            asyncio.run(_measure(folder, sizes, report, tell))
        except (BusError, TimeoutError) as error:
            report.trouble.append(f"{type(error).__name__}: {error}")
    report.took_s = round(time.monotonic() - began_s, 1)
    report.load_after = round(os.getloadavg()[0], 1)
    return report


async def _measure(folder: Path, sizes: FloodSizes, report: FloodReport, tell: Tell) -> None:
    async with FloodedManager.start(folder) as manager:
        await manager.turn(_WARM)
        for number in range(sizes.rounds):
            tell(f"flood: round {number + 1} of {sizes.rounds}")
            if number % 2:
                flooded = await manager.flooded_turn(sizes)
                idle = await manager.turn(sizes.calls)
            else:
                idle = await manager.turn(sizes.calls)
                flooded = await manager.flooded_turn(sizes)
            report.rounds.append(FloodRound(idle=idle, flooded=flooded))


class FloodedManager:
    """A manager in a process of its own, with a node and an operator that measure. `start` makes it."""

    def __init__(self, url: str, node: RemoteStore, operator: RemoteStore, numbers: asyncio.StreamReader) -> None:
        self._url = url
        self._node = node
        self._numbers = numbers
        self._session = ""
        self.control = Control(operator)

    @classmethod
    @contextlib.asynccontextmanager
    async def start(cls, folder: Path) -> AsyncIterator[FloodedManager]:
        """Start the bus and the manager; both end with the block."""
        async with contextlib.AsyncExitStack() as stack:
            bus = await LocalNats.start(folder)
            stack.push_async_callback(bus.stop)
            config = ManagerConfig(
                url=f"{bus.url('manager')}/{_CLUSTER}",
                store=f"sqlite:///{folder}/jobs.db",
                name="m1",
                parent=os.getpid(),
                log_level="error",
            )
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.window_flood_manager"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            stack.push_async_callback(_end, process)
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(msgspec.json.encode(config))
            process.stdin.close()
            async with asyncio.timeout(_READY_S):
                await process.stdout.readline()
            node, operator = [
                await stack.enter_async_context(_store(f"{bus.url(role)}/{_CLUSTER}", role))
                for role in ("node", "operator")
            ]
            manager = cls(f"{bus.url('node')}/{_CLUSTER}", node, operator, process.stdout)
            manager._session = (await Control(node).claims.open_session(worker=_NODE, node=_NODE)).id
            heart = asyncio.create_task(manager._present())
            stack.callback(heart.cancel)
            yield manager

    async def _present(self) -> None:
        """What the program of a node publishes. The session of one that is not heard is closed."""
        for number in itertools.count(1):
            beat = NodeBeat(node=_NODE, number=number, incarnation="bench", sessions=(self._session,), cores=1)
            await self._node.bus.publish(f"control.beat.{_NODE}", msgspec.msgpack.encode(beat))
            await asyncio.sleep(_BEAT_S)

    async def beat(self) -> None:
        """One heartbeat."""
        (pulse,) = await self._node.beat([self._session])
        assert pulse.known

    async def cancel(self, job: str) -> None:
        """Cancel a job that waits."""
        assert (await self.control.operations.cancel(job, actor="bench")).status == "cancelled"

    async def waiting(self, jobs: int) -> list[str]:
        """Submit jobs that nothing runs."""
        made = await self.control.jobs.submit_many([JobRequest("noop", {"n": n}, {}) for n in range(jobs)])
        return [each.id for each in made]

    async def turn(self, calls: int) -> FloodTurn:
        """Heartbeats and cancels in turns, one at a time."""
        beats, cancels = [], []
        for job in await self.waiting(calls):
            beats.append(await _took_ms(self.beat()))
            cancels.append(await _took_ms(self.cancel(job)))
        return FloodTurn(
            beat_ms=round(statistics.median(beats), 3),
            beat_p95_ms=round(_p95(beats), 3),
            cancel_ms=round(statistics.median(cancels), 3),
            cancel_p95_ms=round(_p95(cancels), 3),
        )

    async def flooded_turn(self, sizes: FloodSizes) -> FloodTurn:
        """The same while windows arrive."""
        async with self.flood(sizes.rate) as sender:
            before, sent_before = await self.counts(), await sender()
            found = await self.turn(sizes.calls)
            after, sent_after = await self.counts(), await sender()
        (sent,), (taken, dropped) = _rates(sent_before, sent_after), _rates(before, after)
        return msgspec.structs.replace(found, sent_a_second=sent, taken_a_second=taken, dropped_a_second=dropped)

    async def counts(self) -> Counts:
        """Windows that the reader has taken, and that its queue has dropped."""
        return await _newest(self._numbers)

    @contextlib.asynccontextmanager
    async def flood(self, rate: int) -> AsyncIterator[Callable[[], Awaitable[Counts]]]:
        """Windows arrive within this block; the call gives how many were sent."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.window_flood_sender", self._url, str(rate)), stdout=asyncio.subprocess.PIPE
        )
        lines = process.stdout
        assert lines is not None

        try:
            async with asyncio.timeout(_READY_S):
                await lines.readline()
            yield lambda: _newest(lines)
        finally:
            await _end(process)


@contextlib.asynccontextmanager
async def _store(url: str, role: str) -> AsyncIterator[RemoteStore]:
    bus = await parse_address(url).connect("node" if role == "node" else "operator", _NODE, timeout_s=_READY_S)
    store = RemoteStore(bus, role=role, name=_NODE, cluster=_CLUSTER, version=MAINSTAY_VERSION, owns_bus=True)
    try:
        yield await store.open()
    finally:
        await store.close()


async def _newest(lines: asyncio.StreamReader) -> Counts:
    """The next line that is printed; those that wait are old."""
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(_OLD_S):
                await lines.readline()
    at_s, *counts = (await lines.readline()).split()
    return Counts(float(at_s), [int(each) for each in counts])


def _rates(before: Counts, after: Counts) -> list[float]:
    took_s = after.at_s - before.at_s
    return [round((then - first) / took_s, 1) for first, then in zip(before.counts, after.counts, strict=True)]


async def _took_ms(call: Awaitable[None]) -> float:
    await asyncio.sleep(_PAUSE_S)
    began_s = time.perf_counter()
    await call
    return (time.perf_counter() - began_s) * 1000


def _p95(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=20)[-1] if len(times) > 1 else times[0]


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    await process.wait()

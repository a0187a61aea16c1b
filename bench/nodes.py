"""Node jobs on three real nodes, over SQLite and over PostgreSQL: how soon nodes begin, how soon one that is gone is
noticed and replaced as the leader, and how many jobs a second they run. All settings are the defaults.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import msgspec

import servers
from mainstay import App, NodeHandle
from mainstay.stores import JobStore, Query, open_store
from servers import Postgres, ServerMissing

from .node_work import FOLDER, declare
from .queues import Tell
from .runs import Run, begun
from .stands import family
from .web_server import percentile

SCENARIOS = ("nodes_wake", "nodes_rate", "nodes_faults")
STORES = ("sqlite", "postgresql")
NODES = ("n1", "n2", "n3")
#: goals, in seconds
WAKE_P50_S, WAKE_P99_S = 0.050, 0.250
TAKEOVER_S = 2.0
#: leases of the lead and of a session
LEAD_LEASE_S, SESSION_LEASE_S = 10.0, 8.0

_ROOT = Path(__file__).resolve().parent.parent
_LEADS = re.compile(r" leading lead=placement session=\S+ epoch=(\d+)")
_PATIENCE_S = 120.0
_AT_ONCE = 20


class NodesFailed(Exception):
    """The nodes did not do what was waited for."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is done."""

    wakes: int = 300
    """Jobs, one after the other: each wakes every node."""
    jobs: int = 300
    """Jobs for the rate."""
    kills: int = 5
    stops: int = 5
    freezes: int = 2


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """How long something took, in seconds, each time."""

    store: str
    what: str
    seconds: list[float]
    goal_p50_s: float | None = None
    goal_s: float | None = None
    """for p99; of few samples, for the longest"""

    @property
    def p50_s(self) -> float:
        return percentile(self.seconds, 0.5)

    @property
    def p99_s(self) -> float:
        return percentile(self.seconds, 0.99)

    @property
    def met(self) -> bool:
        soon = self.goal_p50_s is None or self.p50_s <= self.goal_p50_s
        return soon and (self.goal_s is None or self.p99_s <= self.goal_s)


class NodeRate(msgspec.Struct, frozen=True, kw_only=True):
    """Node jobs that were worked off."""

    store: str
    jobs: int
    took_s: float

    @property
    def a_second(self) -> float:
        return self.jobs / self.took_s


class Report(Run, kw_only=True):
    """The results of a run, as they are kept."""

    sizes: Sizes
    load_after: float = 0.0
    """The load average at the end; the nodes themselves are in it."""
    skipped: dict[str, str] = msgspec.field(default_factory=dict)
    trouble: list[str] = msgspec.field(default_factory=list)
    waits: list[Waits] = msgspec.field(default_factory=list)
    rates: list[NodeRate] = msgspec.field(default_factory=list)


def measure(scenarios: Sequence[str], sizes: Sizes, tell: Tell) -> Report:
    """Run the scenarios. What cannot be set up is skipped, with the reason."""
    began_s = time.monotonic()
    with servers.folder("mainstay-bench-") as folder:
        report = Report(**begun(folder), sizes=sizes)
        for store in STORES:
            place = folder / store
            place.mkdir(mode=0o755)
            try:
                with _opened(store, place, report) as url:
                    asyncio.run(_measure(store, url, place, scenarios, report, tell))
            except ServerMissing as error:
                report.skipped[store] = str(error)
            except NodesFailed as error:
                report.trouble.append(f"{store}: {error}")
    report.took_s = round(time.monotonic() - began_s, 1)
    report.load_after = round(os.getloadavg()[0], 1)
    return report


async def _measure(store: str, url: str, place: Path, scenarios: Sequence[str], report: Report, tell: Tell) -> None:
    sizes = report.sizes
    async with _nodes(url, place) as nodes:
        if "nodes_wake" in scenarios:
            tell(f"nodes: wake-ups, {store}")
            report.waits.append(await _wakes(nodes, store, sizes.wakes))
        if "nodes_rate" in scenarios:
            tell(f"nodes: {sizes.jobs} jobs, {store}")
            report.rates.append(await _rate(nodes, store, sizes.jobs))
        if "nodes_faults" in scenarios:
            report.waits += await _faults(nodes, store, sizes, tell)


async def _wakes(nodes: _Nodes, store: str, jobs: int) -> Waits:
    """From the call of submit to the begin of `local` on each node. The nodes are idle before each job."""
    waits: list[float] = []
    for _ in range(jobs):
        asked_s = time.monotonic()
        handle = await nodes.job.submit()
        await handle.result(timeout="1m")
        waits += [at_s - asked_s for at_s in nodes.begun(handle.id).values()]
    return Waits(
        store=store,
        what="wake-up: submit to the begin of local",
        seconds=_rounded(waits),
        goal_p50_s=WAKE_P50_S,
        goal_s=WAKE_P99_S,
    )


async def _rate(nodes: _Nodes, store: str, jobs: int) -> NodeRate:
    """Jobs that are submitted at once, until the last has ended."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one() -> None:
        async with gate:
            handle = await nodes.job.submit()
            await handle.result(timeout="5m")

    began_s = time.monotonic()
    await asyncio.gather(*(one() for _ in range(jobs)))
    return NodeRate(store=store, jobs=jobs, took_s=round(time.monotonic() - began_s, 3))


# -- nodes that go ------------------------------------------------------------------------------


class _Fault(msgspec.Struct, frozen=True):
    """One way to lose the leader."""

    name: str
    times: int
    takeover_goal_s: float
    detection_goal_s: float | None


async def _faults(nodes: _Nodes, store: str, sizes: Sizes, tell: Tell) -> list[Waits]:
    """The leader's worker goes while a job runs on all nodes: when does another node lead, and when is its unit taken
    back? Both count from the signal."""
    found = []
    for fault in (
        _Fault("killed (SIGKILL)", sizes.kills, TAKEOVER_S, TAKEOVER_S),
        _Fault("frozen (SIGSTOP)", sizes.freezes, LEAD_LEASE_S + TAKEOVER_S, SESSION_LEASE_S + TAKEOVER_S),
        _Fault("stopped (SIGTERM)", sizes.stops, TAKEOVER_S, None),
    ):
        takeovers, detections = [], []
        for number in range(fault.times):
            tell(f"nodes: the leader is {fault.name}, {number + 1} of {fault.times}, {store}")
            takeover_s, detection_s = await _lose_leader(nodes, fault, f"{fault.name}-{number}".partition(" ")[0])
            takeovers.append(takeover_s)
            if detection_s is not None:
                detections.append(detection_s)
        if takeovers:
            goal_s = fault.takeover_goal_s
            what = f"takeover of placement, leader {fault.name}"
            found.append(Waits(store=store, what=what, seconds=_rounded(takeovers), goal_s=goal_s))
        if detections:
            what = f"detection, node {fault.name}"
            found.append(Waits(store=store, what=what, seconds=_rounded(detections), goal_s=fault.detection_goal_s))
    return found


async def _lose_leader(nodes: _Nodes, fault: _Fault, gate: str) -> tuple[float, float | None]:
    leader, epoch = await nodes.leader()
    handle = await nodes.job.submit(gate=(name := f"{gate}-{epoch}"))
    await nodes.all_begun(handle)
    detection_s: float | None = None
    if fault.name.startswith("stopped"):
        asked_s = time.monotonic()
        nodes.signal(leader, signal.SIGTERM, everyone=False)
    elif fault.name.startswith("killed"):
        asked_s = time.monotonic()
        nodes.signal(leader, signal.SIGKILL)
    else:
        asked_s = await nodes.freeze(leader)
    asked_ms = round((time.time() - (time.monotonic() - asked_s)) * 1000)
    _, _, seen_s = await nodes.leads_after(epoch)
    if fault.detection_goal_s is not None:
        detection_s = (await nodes.taken_back_ms(handle, leader) - asked_ms) / 1000
    (nodes.folder / name).touch()
    await handle.result(timeout="1m")
    nodes.end(leader)
    await nodes.start(leader)
    return seen_s - asked_s, detection_s


class _Nodes:
    """Three workers, and a client that submits to them."""

    def __init__(self, url: str, folder: Path, store: JobStore) -> None:
        self.folder = folder
        self.store = store
        self._url = url
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, Path] = {}
        self._started = 0
        self._app = App(url)
        self.job = declare(self._app)

    async def close(self) -> None:
        for name in list(self._processes):
            self.end(name)
        await self._app.close()

    async def start(self, name: str) -> None:
        """Start a node; returns when it can get work."""
        pid = self._spawn(name)

        async def is_up() -> bool:
            return any(each.node == name and f"-{pid}." in each.id for each in await self.store.sessions())

        await self._until(is_up, f"node {name} is up")

    def _spawn(self, name: str) -> int:
        self._started += 1
        self._logs[name] = log = self.folder / f"{name}-{self._started}.log"
        command = [sys.executable, "-m", "mainstay", "worker", "bench.node_work:app", "--node", name]
        with log.open("wb") as file:
            self._processes[name] = subprocess.Popen(
                command,
                env={**os.environ, "MAINSTAY_STORE": self._url, FOLDER: str(self.folder)},
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        return self._processes[name].pid

    def end(self, name: str) -> None:
        """Whatever state its processes are in, they are gone afterwards."""
        process = self._processes.pop(name)
        self.signal_process(process, signal.SIGKILL)
        process.wait()

    def signal(self, name: str, number: signal.Signals, *, everyone: bool = True) -> None:
        if everyone:
            self.signal_process(self._processes[name], number)
        else:
            self._processes[name].send_signal(number)

    def signal_process(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        if process.poll() is not None:
            return
        for pid in family({process.pid}):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def freeze(self, name: str) -> float:
        """Stop all processes of a node; returns when it was. One that is stopped with the turn to write to SQLite would
        keep it from all others: it goes on for a moment and is stopped again."""
        while True:
            at_s = time.monotonic()
            self.signal(name, signal.SIGSTOP)
            writing = asyncio.ensure_future(self.store.beat([]))
            await asyncio.wait([writing], timeout=1.0)
            if writing.done():
                writing.result()
                return at_s
            self.signal(name, signal.SIGCONT)
            await writing

    def begun(self, job_id: str) -> dict[str, float]:
        """When each node began a job."""
        lines = (self.folder / "begun").read_text().splitlines() if (self.folder / "begun").exists() else []
        return {node: float(at) for at, node, job in (line.split() for line in lines) if job == job_id}

    async def all_begun(self, handle: NodeHandle) -> None:
        """Wait until a job runs on all nodes, and the store knows it."""

        async def is_begun() -> bool:
            page = await self.store.find(Query(parent=handle.id), cursor=None, limit=10)
            return sum(unit.started_ms is not None for unit in page.jobs) == len(NODES)

        await self._until(is_begun, "all nodes have begun")

    async def taken_back_ms(self, handle: NodeHandle, node: str) -> int:
        """When the unit of a node was taken from its session."""
        found: list[int] = []

        async def is_taken() -> bool:
            page = await self.store.find(Query(parent=handle.id), cursor=None, limit=10)
            [unit] = [unit for unit in page.jobs if unit.unit == f"node/{node}"]
            found.extend(event.at_ms for event in await self.store.events(unit.id) if event.source == "running")
            return bool(found)

        await self._until(is_taken, f"the unit of {node} is taken back")
        return found[0]

    async def leader(self) -> tuple[str, int]:
        node, epoch, _ = await self.leads_after(0)
        return node, epoch

    async def leads_after(self, epoch: int) -> tuple[str, int, float]:
        """Wait for the leader of a later epoch: its node, its epoch, and when it was seen in its log."""
        latest: list[tuple[int, str]] = []

        async def is_seen() -> bool:
            latest.extend(
                (int(found[1]), node)
                for node, log in self._logs.items()
                for found in _LEADS.finditer(log.read_text())
                if int(found[1]) > epoch
            )
            return bool(latest)

        await self._until(is_seen, f"a node leads after epoch {epoch}")
        later, node = max(latest)
        return node, later, time.monotonic()

    async def _until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        ends_s = time.monotonic() + _PATIENCE_S
        while not await holds():
            if time.monotonic() > ends_s:
                logs = "\n".join(log.read_text()[-500:] for log in self._logs.values())
                raise NodesFailed(f"not after {_PATIENCE_S:g} s: {what}\n{logs}")
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def _nodes(url: str, folder: Path) -> AsyncIterator[_Nodes]:
    store = await open_store(url)
    nodes = _Nodes(url, folder, store)
    try:
        for name in NODES:
            await nodes.start(name)
        await nodes.leader()
        yield nodes
    finally:
        await nodes.close()
        await store.close()


@contextlib.contextmanager
def _opened(store: str, place: Path, report: Report) -> Iterator[str]:
    """An empty store, as durable as it is by default."""
    if store == "sqlite":
        yield f"sqlite:///{place}/jobs.db"
        return
    server = Postgres(place)
    try:
        report.versions["postgresql"] = server.version
        yield f"{server.database('jobs')}?auto_migrate=on"
    finally:
        server.stop()


def _rounded(seconds: list[float]) -> list[float]:
    return [round(value, 4) for value in seconds]

"""What live streams cost a server, and how late they are.

A server of its own process, clients on raw sockets in this one, and jobs that are moved beside both, in the store. How
late a client hears of a move is by the clock of the machine. All of it shares the machine, so what is told of the
server is its processor time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import msgspec

from mainstay.control import Control
from mainstay.stores import open_store

from .web_server import ServeFailed, Serving, percentile

_PAUSE_S = 0.7
_BETWEEN_S = 0.05
_PATIENCE_S = 60


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """Clients on streams of one kind."""

    store: str
    what: str
    clients: int
    heard: int
    """Moves, or submits, by all of them."""
    missed: int
    """Clients that did not hear of all."""
    p50_ms: float
    p99_ms: float
    end_p99_ms: float | None = None
    """Of the ends of jobs, which a store tells by itself."""
    cpu_share: float
    """Of one core, while they listened."""
    memory_mb: float


class Vanished(msgspec.Struct, frozen=True, kw_only=True):
    """Clients that came and went without a word."""

    store: str
    clients: int
    memory_before_mb: float
    memory_after_mb: float
    files_before: int
    files_after: int


#: how long connections that were answered may take to be closed
_CLOSING_S = 5.0


class _Snapshot(msgspec.Struct):
    counts: dict[str, int]


class _Event(msgspec.Struct):
    to: str
    at_ms: float


_snapshot = msgspec.json.Decoder(_Snapshot).decode
_event = msgspec.json.Decoder(_Event).decode


class Client:
    """One that listens, and notes how late what it hears is. `begun` has when each job was submitted."""

    def __init__(self, port: int, path: str, begun: list[float]) -> None:
        self._port = port
        self._path = path
        self._begun = begun
        self._before: int | None = None
        self.told = 0
        """Of the submitted jobs, those that it has heard of."""
        self.late_ms: dict[str, list[float]] = {"moves": [], "ends": []}
        self.ready = asyncio.Event()
        self.all_told = asyncio.Event()
        self.wanted: int | None = None
        """Jobs that it waits for."""

    async def listen(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 22)
        try:
            host = f"127.0.0.1:{self._port}"
            writer.write(f"GET {self._path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode())
            name = b""
            async for line in reader:
                if line.startswith(b"event: "):
                    name = line[7:].strip()
                elif line.startswith(b"data: "):
                    if name == b"end":
                        return
                    self._hear(name, line[6:])
        finally:
            writer.transport.abort()

    def _hear(self, name: bytes, data: bytes) -> None:
        if name == b"snapshot":
            self._count(sum(_snapshot(data).counts.values()))
        elif name == b"event" and self.ready.is_set():
            event = _event(data)
            self.late_ms["ends" if event.to == "cancelled" else "moves"].append(time.time() * 1000 - event.at_ms)
        elif name == b"job":
            self.ready.set()

    def _count(self, jobs: int) -> None:
        if self._before is None:
            self._before = jobs
            self.ready.set()
        now_s = time.perf_counter()
        fresh = self._begun[self.told : jobs - self._before]
        self.late_ms["moves"] += [(now_s - began_s) * 1000 for began_s in fresh]
        self.told += len(fresh)
        if self.wanted is not None and self.told >= self.wanted:
            self.all_told.set()


class _Cost:
    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._cpu_s, self._at_s = serving.used()[0], time.perf_counter()

    def share(self) -> float:
        return (self._serving.used()[0] - self._cpu_s) / (time.perf_counter() - self._at_s)


@contextlib.asynccontextmanager
async def _listening(
    serving: Serving, paths: list[str], begun: list[float]
) -> AsyncIterator[tuple[list[Client], list[asyncio.Task[None]]]]:
    clients = [Client(serving.port, path, begun) for path in paths]
    tasks = [asyncio.create_task(client.listen()) for client in clients]
    try:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await asyncio.gather(*(client.ready.wait() for client in clients))
        except TimeoutError:
            deaf = sum(not client.ready.is_set() for client in clients)
            raise ServeFailed(f"{deaf} of {len(paths)} clients heard nothing within {_PATIENCE_S} s") from None
        yield clients, tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def measure(
    serving: Serving, store: str, url: str, clients: int, jobs: int, moves: int, tell: Callable[[str], object]
) -> tuple[list[Streamed], Vanished]:
    """All kinds of streams on one server. `jobs` are submitted while the overview is watched, and each
    job that is followed is moved so often."""
    opened = await open_store(url)
    try:
        control = Control(opened)
        found = []
        tell(f"web: {clients} clients on the overview, {store}")
        found.append(await _overview(control, serving, store, clients, jobs))
        for same in (False, True):
            tell(f"web: {clients} clients on {'one job' if same else 'a job each'}, {store}")
            found.append(await _on_jobs(control, serving, store, clients, moves, same=same))
        tell(f"web: clients that vanish, {store}")
        return found, await _vanish(serving, store, clients)
    finally:
        await opened.close()


async def _overview(control: Control, serving: Serving, store: str, n: int, jobs: int) -> Streamed:
    begun: list[float] = []
    async with _listening(serving, ["/api/v1/stream"] * n, begun) as (clients, _):
        cost = _Cost(serving)
        for client in clients:
            client.wanted = jobs
        for _ in range(jobs):
            begun.append(time.perf_counter())
            await control.jobs.submit("bench")
            await asyncio.sleep(_BETWEEN_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await asyncio.gather(*(client.all_told.wait() for client in clients))
        share, memory_mb = cost.share(), serving.memory_mb()
    late = [ms for client in clients for ms in client.late_ms["moves"]]
    return Streamed(
        store=store,
        what="the overview",
        clients=n,
        heard=len(late),
        missed=sum(client.told < jobs for client in clients),
        p50_ms=percentile(late, 0.5),
        p99_ms=percentile(late, 0.99),
        cpu_share=share,
        memory_mb=memory_mb,
    )


async def _on_jobs(control: Control, serving: Serving, store: str, n: int, times: int, *, same: bool) -> Streamed:
    ids = [(await control.jobs.submit("bench")).id for _ in range(1 if same else n)]
    paths = [f"/api/v1/jobs/{ids[k % len(ids)]}/stream" for k in range(n)]
    async with _listening(serving, paths, []) as (clients, tasks):
        cost = _Cost(serving)
        for number in range(times):
            for job_id in ids:
                await control.operations.set_priority(job_id, number + 1, actor="bench")
            await asyncio.sleep(_PAUSE_S)
        for job_id in ids:
            await control.operations.cancel(job_id, actor="bench")
        await asyncio.wait(tasks, timeout=_PATIENCE_S)
        share, memory_mb = cost.share(), serving.memory_mb()
    moves, ends = ([ms for client in clients for ms in client.late_ms[kind]] for kind in ("moves", "ends"))
    return Streamed(
        store=store,
        what="one job, all of them" if same else "a job each",
        clients=n,
        heard=len(moves) + len(ends),
        missed=sum(len(each.late_ms["moves"]) != times or len(each.late_ms["ends"]) != 1 for each in clients),
        p50_ms=percentile(moves, 0.5),
        p99_ms=percentile(moves, 0.99),
        end_p99_ms=percentile(ends, 0.99),
        cpu_share=share,
        memory_mb=memory_mb,
    )


def _until_closed(serving: Serving, files: int) -> None:
    """The last connections are answered and about to be closed; another process tells nobody when they are."""
    ends = time.monotonic() + _CLOSING_S
    while serving.files() > files and time.monotonic() < ends:
        time.sleep(0.05)


async def _vanish(serving: Serving, store: str, n: int) -> Vanished:
    memory_mb, files = serving.memory_mb(), serving.files()
    for _ in range(5):
        async with _listening(serving, ["/api/v1/stream"] * n, []):
            pass
    # they are noticed one by one: it waits until none is open
    await asyncio.to_thread(serving.answered)
    await asyncio.to_thread(_until_closed, serving, files)
    return Vanished(
        store=store,
        clients=5 * n,
        memory_before_mb=memory_mb,
        memory_after_mb=serving.memory_mb(),
        files_before=files,
        files_after=serving.files(),
    )

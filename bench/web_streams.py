"""What live streams cost a server, and how late they are: `python -m bench.web_streams`.

A server of its own process, clients on raw sockets in this one, and jobs that are moved beside both, in the store. How
late a client hears of a move is by the clock of the machine: from when the move was made until its event is here. All
of it shares the machine, so what is told of the server is its processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec

from mainstay.control import Control
from mainstay.stores import open_store

_TICKS = os.sysconf("SC_CLK_TCK")
_ROUNDS = 5


class Client:
    """One that listens, and notes how late what it hears is."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._path = path
        self.heard: dict[str, int] = {}
        self.late_ms: dict[str, list[float]] = {"moves": [], "ends": []}
        self.bytes = 0
        self.ready = asyncio.Event()

    async def listen(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 22)
        try:
            host = f"127.0.0.1:{self._port}"
            writer.write(f"GET {self._path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode())
            name = ""
            async for line in reader:
                self.bytes += len(line)
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    self._hear(name, line[6:])
                    if name == "end":
                        return
        finally:
            writer.transport.abort()

    def _hear(self, name: str, data: bytes) -> None:
        self.heard[name] = self.heard.get(name, 0) + 1
        if name in ("job", "snapshot", "page"):
            self.ready.set()
        if name == "event" and self.ready.is_set():
            told = msgspec.json.decode(data)
            kind = "ends" if told["to"] == "cancelled" else "moves"
            self.late_ms[kind].append(time.time() * 1000 - told["at_ms"])


class Cost:
    """What a process has used."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu_s, self._at_s = self._cpu(), time.perf_counter()

    def told(self) -> str:
        took_s = time.perf_counter() - self._at_s
        share = (self._cpu() - self._cpu_s) / took_s * 100
        return (
            f"server: {share:.0f} % of a core over {took_s:.0f} s, {self.memory_mb():.0f} MB, {self.files()} files open"
        )

    def memory_mb(self) -> float:
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def files(self) -> int:
        return len(os.listdir(f"/proc/{self._pid}/fd"))

    def _cpu(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


@contextlib.contextmanager
def served(url: str) -> Iterator[tuple[int, int]]:
    """A server of its own; its process and port."""
    command = [sys.executable, "-m", "mainstay", "serve", "--store", url, "--port", "0", "--rate", "0", "--json"]
    with subprocess.Popen([*command, "--log-level", "warning"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            yield process.pid, int(told["url"].rpartition(":")[2])
        finally:
            process.send_signal(signal.SIGTERM)


@contextlib.asynccontextmanager
async def listening(port: int, paths: list[str]) -> Any:
    clients = [Client(port, path) for path in paths]
    tasks = [asyncio.create_task(client.listen()) for client in clients]
    await asyncio.wait_for(asyncio.gather(*(client.ready.wait() for client in clients)), 60)
    try:
        yield clients, tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def overviews(control: Control, port: int, pid: int, n: int) -> None:
    async with listening(port, ["/api/v1/stream"] * n) as (clients, _):
        cost = Cost(pid)
        for _ in range(10):
            for _ in range(20):
                await control.submit("send")
            await asyncio.sleep(1)
        heard = sum(client.heard["snapshot"] for client in clients)
        size = sum(client.bytes for client in clients) / heard
        print(f"{n} on the overview: {heard} snapshots of {size:,.0f} bytes; {cost.told()}", flush=True)


async def one_each(control: Control, port: int, pid: int, n: int, *, same: bool) -> None:
    ids = [(await control.submit("send")).id for _ in range(1 if same else n)]
    paths = [f"/api/v1/jobs/{ids[k % len(ids)]}/stream" for k in range(n)]
    async with listening(port, paths) as (clients, tasks):
        cost = Cost(pid)
        for number in range(_ROUNDS):
            for job_id in ids:
                await control.set_priority(job_id, number + 1, actor="bench")
            await asyncio.sleep(0.7)
        for job_id in ids:
            await control.cancel(job_id, actor="bench")
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
        told = cost.told()
    what = "on one job" if same else "each on a job of its own"
    missed = sum(client.heard["event"] != _ROUNDS + 2 for client in clients)
    print(f"{n} {what}: {missed} of them missed an event; {told}")
    for kind in ("moves", "ends"):
        late = sorted(ms for client in clients for ms in client.late_ms[kind])
        if late:
            p50, p99 = late[len(late) // 2], late[int(len(late) * 0.99)]
            print(
                f"  {kind:<6} heard after {p50:6.0f} ms (half of them), {p99:6.0f} ms (99 %), {late[-1]:6.0f} ms (all)"
            )


async def vanish(port: int, pid: int, n: int) -> None:
    before = Cost(pid)
    memory_mb, files = before.memory_mb(), before.files()
    for _ in range(5):
        async with listening(port, ["/api/v1/stream"] * n):
            pass
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        # they are noticed one by one, and this request is open itself
        while "mainstay_http_open_requests 1.0" not in (await client.get("/metrics")).text:
            pass
    after = Cost(pid)
    print(
        f"{5 * n} came and vanished: {memory_mb:.0f} MB before, {after.memory_mb():.0f} MB after; "
        f"{files} files open before, {after.files()} after"
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--store", help="of jobs; without it, a new file of SQLite")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        url = given.store or f"sqlite:///{place}/jobs.db"
        store = await open_store(url)
        control = Control(store)
        with served(url) as (pid, port):
            print(Cost(pid).told().partition(", ")[2].join(("at rest: ", "")), flush=True)
            await overviews(control, port, pid, given.clients)
            await one_each(control, port, pid, given.clients, same=False)
            await one_each(control, port, pid, given.clients, same=True)
            await vanish(port, pid, given.clients)
        await store.close()


if __name__ == "__main__":
    asyncio.run(main())

"""What an answer survives, shown on servers that are killed in the middle of the work.

A killed server loses nothing that it had given to the system: its writes are in the system's cache, and only a power
cut takes those. So what is shown here is, for each setting,

- `always`: every write was synced before it was answered. The server's own system calls are traced, its file is cut
  back to what had been synced (which is what a power cut may leave), and all that was answered is still there;
- `everysec`: with a disk that is slow to sync, the server answers and keeps the write in its own memory for up to two
  seconds: a kill takes it. No file is touched;
- no append-only file: a kill takes everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from mainstay.lifecycle import Move, apply
from mainstay.model import IdSource, Job, Session
from mainstay.stores import JobStore, SealedChange, open_store
from mainstay.testing import new_job
from servers import Redis

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="`strace` is not on this machine; install it")


class Client:
    """Submits, claims and completes one job at a time, and remembers what it was told."""

    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.ids = IdSource(random.Random(3))
        self.submitted: set[str] = set()
        self.completed: set[str] = set()

    async def submit(self) -> None:
        [made] = await self.store.insert([new_job(self.store.clock, self.ids, chain=self.store.chain)])
        self.submitted.add(made.id)

    async def complete_one(self) -> None:
        [job] = await self.store.claim(["default"], "s1", 1)
        [answer] = await self.store.apply([self._done(job)])
        assert answer.outcome == "applied"
        self.completed.add(job.id)

    async def work(self) -> None:
        await self.store.open_session(Session(id="s1", lease_s=1000))
        while True:
            await self.submit()
            await self.complete_one()
            await self.submit()

    def _done(self, job: Job) -> SealedChange:
        moved = apply(job, Move(to="succeeded"), now_ms=self.store.clock.now_ms(), actor="s1", chain=self.store.chain)
        return SealedChange.of(job, moved, holder="s1")


async def stored(url: str) -> dict[str, str]:
    """Status of every job; the store is sound."""
    store = await open_store(url)
    found = {each.job.id: each.job.status for each in await store.audit(limit=100_000)}
    assert await store.check() == []
    await store.close()
    return found


async def assert_nothing_answered_is_lost(url: str, client: Client) -> None:
    found = await stored(url)
    assert client.submitted <= found.keys()
    assert {job_id for job_id in client.completed if found[job_id] != "succeeded"} == set()


@contextlib.contextmanager
def traced(server: Redis, log: Path, *more: str) -> Iterator[None]:
    """Follow the server's writes and syncs; at the end it is dead."""
    pid = redis.Redis.from_url(server.url()).info("server")["process_id"]
    command = ["strace", "-f", "-y", "-e", "trace=write,fdatasync,fsync", "-o", str(log), *more, "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as tracer:
        assert tracer.stderr is not None
        while b"attached" not in tracer.stderr.readline():
            assert tracer.poll() is None, "strace may not attach here"
        try:
            yield
        finally:
            # the server first: without its tracer, a sync that is held up would go on
            os.kill(pid, signal.SIGKILL)
            tracer.kill()
            server.kill()


async def test_under_always_a_killed_server_has_everything_it_answered(tmp_path: Path) -> None:
    server = Redis(tmp_path, appendonly="yes", appendfsync="always")
    store = await open_store(f"{server.url()}?retries=0")
    assert "survives the death of this process, of the server and of its machine" in store.durability
    for _ in range(3):
        client = Client(store)
        working = asyncio.create_task(client.work())
        while len(client.completed) < 40:
            await asyncio.sleep(0.001)
        server.kill()
        await asyncio.wait([working])
        assert working.exception() is not None
        server.start()
        await assert_nothing_answered_is_lost(server.url(), client)
    await store.close()
    server.stop()


@needs_strace
async def test_under_always_a_power_cut_takes_nothing_that_was_answered(tmp_path: Path) -> None:
    server = Redis(tmp_path, appendonly="yes", appendfsync="always")
    store = await open_store(f"{server.url()}?retries=0")
    [file] = tmp_path.glob("appendonlydir/*.incr.aof")
    size = file.stat().st_size
    client = Client(store)
    with traced(server, tmp_path / "trace"):
        working = asyncio.create_task(client.work())
        while len(client.completed) < 20:
            await asyncio.sleep(0.001)
    await asyncio.wait([working])
    await store.close()

    synced = size + synced_bytes((tmp_path / "trace").read_text(), file.name)
    assert size < synced <= file.stat().st_size
    with file.open("r+b") as cut:
        cut.truncate(synced)
    server.start()
    await assert_nothing_answered_is_lost(server.url(), client)
    server.stop()


@needs_strace
async def test_under_everysec_a_killed_server_with_a_slow_disk_loses_what_it_answered(tmp_path: Path) -> None:
    server = Redis(tmp_path, appendonly="yes", appendfsync="everysec")
    store = await open_store(f"{server.url()}?retries=0")
    assert "may take the last second or two of answered calls" in store.durability
    client = Client(store)
    await client.submit()
    kept = set(client.submitted)
    admin = redis.Redis.from_url(server.url())
    # every sync takes a minute from now on; the first one begins within a second of the next write
    with traced(server, tmp_path / "trace", "-e", "inject=fdatasync:delay_enter=60000000"):
        while not admin.info("persistence")["aof_buffer_length"]:
            await client.submit()
    await store.close()

    server.start()
    found = await stored(server.url())
    assert kept <= found.keys()
    assert client.submitted - found.keys(), "the last answered submits are gone"
    server.stop()


async def test_without_an_append_only_file_a_killed_server_loses_everything(tmp_path: Path) -> None:
    server = Redis(tmp_path)
    store = await open_store(f"{server.url()}?retries=0")
    assert "but not of the server: it keeps no append-only file" in store.durability
    client = Client(store)
    await client.submit()
    await store.close()
    server.kill()
    server.start()
    assert await stored(server.url()) == {}
    server.stop()


def synced_bytes(trace: str, name: str) -> int:
    """How many bytes of a file had been written when its last finished sync began."""
    written = synced = 0
    begun: dict[str, int] = {}
    for line in trace.splitlines():
        thread, _, rest = line.partition(" ")
        rest = rest.strip()
        if name in rest and rest.startswith("write("):
            written += int(rest.rpartition("= ")[2]) if rest.rpartition("= ")[2].isdigit() else 0
        elif name in rest and rest.startswith(("fdatasync(", "fsync(")):
            begun[thread] = written
            if rest.endswith("= 0"):
                synced = begun.pop(thread)
        elif thread in begun and "sync resumed" in rest and rest.endswith("= 0"):
            synced = begun.pop(thread)
    return synced

"""One seed gives one history: nothing on the simulated paths asks the operating system for time, chance or a thread."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest

from mainstay import App
from mainstay.control import Control
from mainstay.load.blocking_work import InlineThread
from mainstay.load.handler import LoadWork, summary_of
from mainstay.load.plan import LoadOptions
from mainstay.load.sources import LoadTest
from mainstay.load.stats.model import Summary
from mainstay.load.stream import StreamOutput
from mainstay.model import Session
from mainstay.stores import Query
from mainstay.stores.memory import MemoryStore
from mainstay.stores.registry import JobRegistry
from mainstay.stores.versioned import Versioned, VersionedStore
from mainstay.stores.versioned.file import FileVersioned
from mainstay.stores.versioned.memory import MemoryVersioned
from mainstay.testing import LoopClock, VirtualLoop, run_virtual
from mainstay.worker import Engine, EngineProcess
from sim.load_runner import SimulatedRunner, SimulatedTarget
from sim.runs import simulate
from sim.worlds import WORLDS
from tests.load.trials import GET, written

T = TypeVar("T")

pytestmark = pytest.mark.usefixtures("quiet")

#: the big cluster runs the code of the small one, for longer
CHECKED = [name for name in WORLDS if name != "big-cluster"]
#: prints the digest of some runs of these worlds
DIGESTS = """
import logging
from sim.runs import simulate
from sim.worlds import WORLDS
logging.disable(logging.CRITICAL)
for name, world in sorted(WORLDS.items()):
    if name == "big-cluster":
        continue
    for seed in range(4):
        result = simulate(world, seed)
        print(name, seed, result.digest, result.steps, result.error)
"""
JOBS = 90


def digests(hash_seed: str) -> list[str]:
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{root / 'src'}:{root}"}
    made = subprocess.run([sys.executable, "-c", DIGESTS], env=env, capture_output=True, text=True, check=True)
    return made.stdout.splitlines()


def test_a_seed_gives_the_same_history_in_another_process_with_other_hashes() -> None:
    first = digests("1")

    assert len(first) == 4 * len(CHECKED)
    assert first == digests("2")


@pytest.fixture
def no_system_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system gives no time, no chance and no thread. (Chance that a seed decides is allowed.)"""
    tempfile.mkdtemp()  # the names of temporary folders are drawn by chance; they reach nothing
    seeded = random.Random.__init__

    def refuse(what: str) -> Callable[..., NoReturn]:
        def refused(*_: object, **__: object) -> NoReturn:
            raise AssertionError(f"a simulated path uses {what}")

        return refused

    def init(self: random.Random, seed: Any = None) -> None:
        assert seed is not None, "a simulated path uses chance without a seed"
        seeded(self, seed)

    monkeypatch.setattr(random.Random, "__init__", init)
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "clock_gettime_ns", "sleep"):
        monkeypatch.setattr(time, name, refuse(f"time.{name}"))
    monkeypatch.setattr(os, "urandom", refuse("os.urandom"))
    monkeypatch.setattr(threading.Thread, "start", refuse("a thread"))


@pytest.mark.usefixtures("no_system_sources")
@pytest.mark.parametrize("world", CHECKED)
def test_a_world_takes_no_time_chance_or_thread_from_the_system(world: str) -> None:
    for seed in range(3):
        result = simulate(WORLDS[world], seed)
        assert not result.failed, result.where


class Traced:
    """A host's way to a shared versioned store: each call takes a moment, and is noted when it is answered."""

    def __init__(self, store: VersionedStore, host: str, trace: list[str], rng: random.Random) -> None:
        self._store = store
        self._host = host
        self._trace = trace
        self._rng = rng

    @property
    def place(self) -> str:
        return self._store.place

    async def get(self, key: str) -> Versioned | None:
        return await self._call("get", key, lambda: self._store.get(key))

    async def put(self, key: str, value: bytes, version: str) -> str | None:
        return await self._call("put", key, lambda: self._store.put(key, value, version))

    async def create_if_absent(self, key: str, value: bytes) -> str | None:
        return await self._call("create", key, lambda: self._store.create_if_absent(key, value))

    async def delete(self, key: str, version: str) -> bool:
        return await self._call("delete", key, lambda: self._store.delete(key, version))

    async def list_keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        return await self._call("list", prefix, lambda: self._store.list_keys(prefix, after=after, limit=limit))

    async def close(self) -> None:
        """The store stays open for the others."""

    async def _call(self, name: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        await asyncio.sleep(self._rng.uniform(0.001, 0.02))
        answer = await call()
        seen = hashlib.sha256(repr(answer).encode()).hexdigest()[:12]
        self._trace.append(f"{asyncio.get_running_loop().time():.6f} {self._host} {name} {key} {seen}")
        return answer


class RegistryHistory:
    """Three hosts that share a registry: a client and two engines. One engine crashes."""

    def __init__(self, store: VersionedStore, seed: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.store = store
        self.seed = seed
        self.clock = LoopClock(loop)
        self.trace: list[str] = []
        self.app = App("sim://registry", retries=3, crash_budget=5)

        @self.app.task(name="on_the_loop")
        async def on_the_loop(seconds: float) -> str:
            await asyncio.sleep(seconds)
            return "done"

        @self.app.task(name="in_a_thread")
        def in_a_thread(seconds: float) -> str:
            return f"done {seconds}"

    def rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed} {purpose}")

    async def registry(self, host: str) -> JobRegistry:
        way = Traced(self.store, host, self.trace, self.rng(f"way {host}"))

        async def opener() -> VersionedStore:
            return way

        ids = self.rng(f"ids {host}")
        return await JobRegistry.open(
            opener,
            clock=self.clock,
            rng=self.rng(f"registry {host}"),
            writer=host,
            new_id=lambda: f"{ids.getrandbits(128):032x}",
            loop=self.loop,
        )

    async def run(self) -> list[str]:
        crashed = self.loop.host("w1")
        crashed.start(self.engine("w1"))
        self.loop.host("w2").start(self.engine("w2"))
        client = self.loop.host("c1").start(self.client())
        await asyncio.sleep(2)
        crashed.crash()
        await client
        return [*self.trace, f"{self.loop.steps} steps in {self.loop.time()} s"]

    async def engine(self, host: str) -> None:
        rng = self.rng(f"engine {host}")
        control = Control(await self.registry(host), settings=self.app.settings, rng=rng)

        async def open_session() -> Session:
            return await control.claims.open_session(worker=host, host=host)

        engine = Engine(
            self.app,
            control,
            await open_session(),
            queues=["default"],
            concurrency=4,
            process=EngineProcess(open_session=open_session),
            rng=rng,
        )
        engine.start()
        while True:
            await asyncio.sleep(control.settings.heartbeat_s)
            for pulse in await control.claims.beat([engine.session.id]):
                await engine.pulsed(pulse.session, known=pulse.known, cancelling=pulse.cancelling)
            await control.sweeper.sweep()

    async def client(self) -> None:
        rng = self.rng("client")
        registry = await self.registry("c1")
        control = Control(registry, settings=self.app.settings, rng=rng)
        for _ in range(JOBS):
            name = rng.choice(["on_the_loop", "in_a_thread"])
            await control.jobs.submit(name, [[rng.choice([0.1, 1, 5])], {}])
            await asyncio.sleep(rng.uniform(0, 0.2))
        while any(job.settled_ms is None for job in (await registry.find(Query(), limit=1000)).jobs):
            await asyncio.sleep(1)
        self.trace += [f"{job.id} {job.status} {job.token}" for job in (await registry.find(Query(), limit=1000)).jobs]
        await registry.close()


def history(make: Callable[[Callable[[], str]], VersionedStore], seed: int) -> list[str]:
    async def run() -> list[str]:
        versions = random.Random(f"{seed} versions")
        return await RegistryHistory(make(lambda: f"{versions.getrandbits(128):032x}"), seed).run()

    return run_virtual(run(), seed=seed)


def check(make: Callable[[Any], VersionedStore]) -> None:
    first = history(make, 1)
    assert sum(" create log/" in line for line in first) > 64, "long enough for a snapshot"
    assert any(" create snapshot/" in line for line in first)
    assert any("succeeded 2" in line for line in first), "the jobs of the crashed engine ran again"
    assert sum(" succeeded " in line for line in first) == JOBS

    assert first == history(make, 1)
    assert first != history(make, 2)


def test_a_registry_in_memory_has_the_same_history_again() -> None:
    check(lambda versions: MemoryVersioned(versions=versions))


@pytest.mark.usefixtures("no_system_sources")
def test_a_registry_takes_no_time_chance_or_thread_from_the_system() -> None:
    assert history(lambda versions: MemoryVersioned(versions=versions), 3)


def test_a_registry_in_a_folder_has_the_same_history_again(tmp_path: Path) -> None:
    folders = iter(range(10))
    check(
        lambda versions: FileVersioned(tmp_path / str(next(folders)), place="file:///sim", versions=versions),
    )


async def load_job(shop: LoadTest, folder: Path) -> tuple[Summary, SimulatedTarget]:
    """A load test as a job of an engine, with simulated generators."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    clock, target, rng = LoopClock(loop), SimulatedTarget(), random.Random(1)
    app = App("sim://store", rng=rng)
    test = app.load(shop)
    app.loads.folder = lambda: folder
    work = app.work("load", test.name)
    assert isinstance(work, LoadWork)
    work.runner = functools.partial(SimulatedRunner, loop=loop, clock=clock, target=target)
    work.record = functools.partial(StreamOutput, thread=InlineThread())
    control = Control(MemoryStore(clock), settings=app.settings, rng=rng)
    with app.client.connection.instead(control):
        planned = app.loads.plan(test, LoadOptions(vus=5, duration="30s", processes=2))
        job_id = (await app.loads.submit(planned, {})).id
        session = await control.claims.open_session(worker="w", host="h")
        engine = Engine(app, control, session, queues=["default"], concurrency=1, rng=rng)
        engine.start()
        async with asyncio.timeout(120):
            while (await control.jobs.get(job_id)).settled_ms is None:
                await asyncio.sleep(1)
                await control.claims.beat([session.id])
        engine.drain(0)
        await engine.stopped.wait()
        job = await control.jobs.get(job_id)
        assert job.status == "succeeded", job.error
        summary = summary_of(job, app.client.sealer)
        assert summary is not None
        return summary, target


@pytest.fixture
def shop(tmp_path: Path) -> LoadTest:
    return written(tmp_path, GET)


def test_a_load_test_takes_no_time_chance_or_thread_from_the_system(
    shop: LoadTest, no_system_sources: None, tmp_path: Path
) -> None:
    summary, target = run_virtual(load_job(shop, tmp_path))

    assert summary.requests == target.total == 5 * 30 * 50
    assert summary.elapsed_s == pytest.approx(30)
    assert summary == run_virtual(load_job(shop, tmp_path))[0]

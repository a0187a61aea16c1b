"""Empty tasks on a node, through a manager, beside the same tasks on a direct worker: how many a second, and how soon.

Both run on SQLite with one engine process and the default settings, in turns, from a full queue; who begins changes
with each round. The rate is that of the jobs after the first success. The pickup latency is from the submit of a single
job to its end, with an idle worker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

import servers
from mainstay.cluster.local_cluster import LocalCluster, LocalClusterOptions
from mainstay.control import Control, JobRequest
from mainstay.stores import JobStore, open_store

from .queues import Tell
from .runs import Run, begun

SCENARIOS = ("cluster_rate",)
#: of the rate of a direct worker
GOAL = 0.6

_PATIENCE_S = 120.0
_PROGRAM = """
import os
from mainstay import App
app = App(os.environ.get("MAINSTAY_STORE", "memory:"))
@app.task(name="noop")
async def noop(n: int) -> int:
    return n
"""


class ClusterFailed(Exception):
    """The jobs were not done in time."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is done."""

    jobs: int = 10_000
    rounds: int = 5
    pickups: int = 100


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the two did in a round."""

    a_second: float
    pickup_ms: float
    """the median"""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of both."""

    direct: Side
    manager: Side

    @property
    def ratio(self) -> float:
        return self.manager.a_second / self.direct.a_second


class Report(Run, kw_only=True):
    """The results of a run, as they are kept."""

    sizes: Sizes
    load_after: float = 0.0
    """The load average at the end; the processes that were measured are in it."""
    trouble: list[str] = msgspec.field(default_factory=list)
    rounds: list[Round] = msgspec.field(default_factory=list)

    @property
    def ratio(self) -> float:
        return statistics.median(each.ratio for each in self.rounds) if self.rounds else 0.0

    @property
    def met(self) -> bool:
        return self.ratio >= GOAL


def measure(scenarios: Sequence[str], sizes: Sizes, tell: Tell) -> Report:
    """Run the rounds."""
    del scenarios  # there is one
    began_s = time.monotonic()
    with servers.folder("mainstay-bench-") as folder:
        report = Report(**begun(folder), sizes=sizes)
        (folder / "bench_noop.py").write_text(_PROGRAM, encoding="utf-8")
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        try:
            for number in range(sizes.rounds):
                tell(f"cluster: round {number + 1} of {sizes.rounds}")
                place = folder / str(number)
                place.mkdir()
                report.rounds.append(asyncio.run(_round(place, sizes, direct_first=number % 2 == 0)))
        except ClusterFailed as error:
            report.trouble.append(str(error))
    report.took_s = round(time.monotonic() - began_s, 1)
    report.load_after = round(os.getloadavg()[0], 1)
    return report


async def _round(folder: Path, sizes: Sizes, *, direct_first: bool) -> Round:
    works = {"direct": _direct, "manager": _through_a_manager}
    sides = {name: await works[name](folder, sizes) for name in (works if direct_first else reversed(works))}
    return Round(**sides)


async def _direct(folder: Path, sizes: Sizes) -> Side:
    url = f"sqlite:///{folder}/direct.db"
    store = await open_store(url)
    await _fill(store, sizes.jobs)
    command = [sys.executable, "-m", "mainstay", "worker", "bench_noop:app", "--log-level", "error"]
    worker = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, "MAINSTAY_STORE": url}, stderr=subprocess.DEVNULL
    )
    try:
        return await _side(store, sizes)
    finally:
        worker.send_signal(signal.SIGTERM)
        await worker.wait()
        await store.close()


async def _through_a_manager(folder: Path, sizes: Sizes) -> Side:
    place = folder / "cluster"
    place.mkdir()
    options = LocalClusterOptions(folder=place, target="bench_noop:app", managers=1, nodes=1, log_level="error")
    cluster = LocalCluster(options)
    store = await open_store(cluster.store)
    await _fill(store, sizes.jobs)
    try:
        await cluster.start()
        return await _side(store, sizes)
    finally:
        await store.close()
        await cluster.stop()


async def _fill(store: JobStore, jobs: int) -> None:
    control = Control(store)
    for begin in range(0, jobs, 1000):
        numbers = range(begin, min(begin + 1000, jobs))
        await control.jobs.submit_many([JobRequest("noop", {"n": n}, {}) for n in numbers])


async def _side(store: JobStore, sizes: Sizes) -> Side:
    rate = await _rate(store, sizes.jobs)
    return Side(a_second=round(rate, 1), pickup_ms=round(await _pickup_ms(store, sizes.pickups), 2))


async def _rate(store: JobStore, jobs: int) -> float:
    """Jobs a second from the first look that finds an end; of very few, from the beginning."""
    first = done = 0
    begun_s = time.perf_counter()
    ends_s = begun_s + _PATIENCE_S
    while done < jobs:
        queue = (await store.stats()).queues.get("default")
        done = queue.counts.get("succeeded", 0) if queue else 0
        now_s = time.perf_counter()
        if 0 < done < jobs and not first:
            first, begun_s = done, now_s
        if now_s > ends_s:
            raise ClusterFailed(f"{done} of {jobs} jobs were done after {_PATIENCE_S:.0f} s")
        await asyncio.sleep(0.02)
    return (done - first) / max(1e-9, time.perf_counter() - begun_s)


async def _pickup_ms(store: JobStore, times: int) -> float:
    control = Control(store)
    found = []
    for n in range(times):
        begun_s = time.perf_counter()
        made = await control.jobs.submit("noop", {"n": n})
        async with store.wake([f"job:{made.id}"]) as wake:
            while (await control.jobs.get(made.id)).settled_ms is None:
                await wake.wait(1.0)
        found.append((time.perf_counter() - begun_s) * 1000)
    return statistics.median(found)

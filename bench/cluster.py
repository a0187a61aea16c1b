"""Empty tasks on a node, through a manager, beside the same tasks on a direct worker: `python -m bench.cluster`.

Both run on SQLite with one engine process and the default settings, in turns, from a full queue. The rate is that of
the jobs after the first success. The pickup latency is from the submit of a single job to its end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from mainstay.cluster.local_cluster import LocalCluster, LocalClusterOptions
from mainstay.control import Control, JobRequest
from mainstay.stores import JobStore, open_store

GOAL = 0.6
KEPT = Path(__file__).resolve().parent / "results" / "cluster.json"
_PROGRAM = """
import os
from mainstay import App
app = App(os.environ.get("MAINSTAY_STORE", "memory:"))
@app.task(name="noop")
async def noop(n: int) -> int:
    return n
"""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of both."""

    direct_a_second: float
    manager_a_second: float
    direct_pickup_ms: float
    manager_pickup_ms: float


class ClusterReport(msgspec.Struct, frozen=True, kw_only=True):
    """All rounds."""

    jobs: int
    load_before: float
    rounds: list[Round]

    @property
    def ratio(self) -> float:
        return statistics.median(each.manager_a_second / each.direct_a_second for each in self.rounds)


async def _fill(store: JobStore, jobs: int) -> None:
    control = Control(store)
    for begin in range(0, jobs, 1000):
        await control.jobs.submit_many(
            [JobRequest("noop", {"n": n}, {}) for n in range(begin, min(begin + 1000, jobs))]
        )


async def _rate(store: JobStore, jobs: int) -> float:
    first = done = 0
    begun = 0.0
    while done < jobs:
        queue = (await store.stats()).queues.get("default")
        done = queue.counts.get("succeeded", 0) if queue else 0
        if done and not begun:
            first, begun = done, time.perf_counter()
        await asyncio.sleep(0.02)
    return (done - first) / max(1e-9, time.perf_counter() - begun)


async def _pickup_ms(store: JobStore, times: int) -> float:
    control = Control(store)
    found = []
    for n in range(times):
        begun = time.perf_counter()
        made = await control.jobs.submit("noop", {"n": n})
        async with store.wake([f"job:{made.id}"]) as wake:
            while (await control.jobs.get(made.id)).settled_ms is None:
                await wake.wait(1.0)
        found.append((time.perf_counter() - begun) * 1000)
    return statistics.median(found)


async def _measure_direct(folder: Path, jobs: int) -> tuple[float, float]:
    url = f"sqlite:///{folder}/direct.db"
    store = await open_store(url)
    await _fill(store, jobs)
    command = [sys.executable, "-m", "mainstay", "worker", "bench_noop:app", "--log-level", "error"]
    worker = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, "MAINSTAY_STORE": url}, stderr=subprocess.DEVNULL
    )
    try:
        return await _rate(store, jobs), await _pickup_ms(store, 50)
    finally:
        worker.send_signal(signal.SIGTERM)
        await worker.wait()
        await store.close()


async def _measure_manager(folder: Path, jobs: int) -> tuple[float, float]:
    place = folder / "cluster"
    place.mkdir()
    options = LocalClusterOptions(folder=place, target="bench_noop:app", managers=1, nodes=1, log_level="error")
    cluster = LocalCluster(options)
    store = await open_store(cluster.store)
    await _fill(store, jobs)
    await cluster.start()
    try:
        return await _rate(store, jobs), await _pickup_ms(store, 50)
    finally:
        await store.close()
        await cluster.stop()


async def measure(jobs: int, rounds: int) -> ClusterReport:
    """Both, in turns."""
    load = os.getloadavg()[0]
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "bench_noop.py").write_text(_PROGRAM, encoding="utf-8")
            os.environ["PYTHONPATH"] = os.pathsep.join([name, *filter(None, [os.environ.get("PYTHONPATH")])])
            direct, direct_ms = await _measure_direct(folder, jobs)
            manager, manager_ms = await _measure_manager(folder, jobs)
        found.append(
            Round(
                direct_a_second=round(direct, 1),
                manager_a_second=round(manager, 1),
                direct_pickup_ms=round(direct_ms, 2),
                manager_pickup_ms=round(manager_ms, 2),
            )
        )
    return ClusterReport(jobs=jobs, load_before=load, rounds=found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=KEPT, help="where the result is kept")
    given = parser.parse_args()
    report = asyncio.run(measure(given.jobs, given.rounds))
    for each in report.rounds:
        print(
            f"direct {each.direct_a_second:8.0f} jobs/s {each.direct_pickup_ms:6.1f} ms   "
            f"through a manager {each.manager_a_second:8.0f} jobs/s {each.manager_pickup_ms:6.1f} ms   "
            f"ratio {each.manager_a_second / each.direct_a_second:.2f}"
        )
    met = report.ratio >= GOAL
    print(f"median ratio {report.ratio:.2f} (goal {GOAL}: {'met' if met else 'NOT met'})")
    kept = {**msgspec.to_builtins(report), "ratio": round(report.ratio, 3), "goal": GOAL, "met": met}
    given.json.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

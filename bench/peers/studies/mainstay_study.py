"""Mainstay: the same study, and one that does nothing; on the stores that the environment names.

    python -m bench.peers.studies.mainstay_study study PHASE UNITS      from start to end, worker included if told so
    python -m bench.peers.studies.mainstay_study submit UNITS           the one that does nothing; answers at once
    python -m bench.peers.studies.mainstay_study settled JOB
    python -m bench.peers.studies.mainstay_study plan JOB

Each answers with one line of JSON, which tells its own peak of memory as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from bench.peers.studies import unit
from mainstay import App, Outputs
from mainstay.stores import Query

app = App(os.environ["BENCH_URL"], outputs=os.environ["BENCH_OUTPUTS"])
SEEDS = 100
"""Of each set of parameters in the study that does nothing."""
_LONGEST = "1h"
"""A worker that ended leaves a batch as it is."""


@app.batch(name="study", outputs={"result": "result.json"}, version="1")
def study(seed: int, out: Outputs) -> None:
    out.save("result", unit.simulate(seed))


@app.batch(name="nothing", outputs={"result": "result.json"}, version="1")
def nothing(params: dict[str, Any], seed: int, out: Outputs) -> None:  # noqa: ARG001  # what makes a unit of its own
    out.save("result", b"0")


# -- the same study -----------------------------------------------------------------------------


async def run_study(phase: str, units: str) -> dict[str, Any]:
    """Submit it, or resume what was submitted last; over when the store says what became of it."""
    async with app:
        if phase == "ready":
            # elsewhere: it is not part of what is looked at
            run = await app.submit_batch(nothing, params=[{}], seeds=[0], outputs=f"file://{os.getcwd()}/ready")
        elif phase == "repair":
            last = (await app.control.store.find(Query(name="study"), limit=1)).jobs[0]
            run = app.batch_run((await app.batch_run(last.id).resume()).id)
        else:
            run = await app.submit_batch(study, seeds=range(int(units)))
        with _worker() if os.environ["BENCH_WORKER"] == "own" else contextlib.nullcontext():
            job = await run.wait(_LONGEST)
    if job.status != "succeeded":
        raise SystemExit(f"the study is {job.status}: {job.reason}")
    return {"status": job.status}


@contextlib.contextmanager
def _worker() -> Iterator[None]:
    """Two engines, and otherwise the defaults."""
    program = str(Path(sys.executable).with_name("mainstay"))
    command = [program, "worker", f"{__spec__.name}:app", "--processes", "2", "--log-level", "warning"]
    worker = subprocess.Popen(command)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait()


# -- the one that does nothing ------------------------------------------------------------------


async def submit(units: str) -> dict[str, Any]:
    sets, seeds = max(1, int(units) // SEEDS), min(SEEDS, int(units))
    async with app:
        began = time.perf_counter()
        run = await app.submit_batch(nothing, params=[{"a": a} for a in range(sets)], seeds=range(seeds))
        return {"id": run.id, "units": sets * seeds, "seconds": time.perf_counter() - began}


async def settled(job_id: str) -> dict[str, Any]:
    """When it did what, from its own events: a look from outside would cost what is measured."""
    async with app:
        job = await app.batch_run(job_id).wait(_LONGEST)
        events = await app.control.jobs.events(job_id)
        # newest first; one of the two may be the driver
        rows = (await app.control.store.find(Query(parent=job_id), limit=2)).jobs
        unit_rows = [row for row in rows if row.name == "nothing:unit"]
    # the last that it became: one that was resumed was running before
    at_ms = {event.to: event.at_ms for event in events if event.source != event.to}
    planned_ms = max((row.created_ms for row in unit_rows), default=None)
    return {
        "status": job.status,
        "reason": job.reason,
        "created_ms": job.created_ms,
        "planned_ms": planned_ms,
        "at_ms": at_ms,
    }


async def plan(job_id: str) -> dict[str, Any]:
    """What a resume would run, as `mainstay jobs resume --dry-run` tells it."""
    async with app:
        began = time.perf_counter()
        units = await app.batch_run(job_id).to_run()
        return {"units": len(units), "seconds": time.perf_counter() - began}


COMMANDS: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {
    "study": run_study,
    "submit": submit,
    "settled": settled,
    "plan": plan,
}


def _peak_mb() -> float:
    # not getrusage: that has the peak of whoever started this program in it
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


async def _main(name: str, *given: str) -> None:
    answer = await COMMANDS[name](*given)
    print(json.dumps({**answer, "peak_mb": _peak_mb()}))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))

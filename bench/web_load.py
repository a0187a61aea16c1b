"""Requests under load: submits, a page of jobs, one job; by `mainstay load run`, and by wrk beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from servers.programs import program

from .environments import ROOT
from .web_server import Serving
from .web_work import BULK, JOB, JOBS

GENERATORS = ("mainstay load", "wrk")
_UNTRUE = 0.02
_PATIENCE_S = 120


class LoadFailed(Exception):
    """A generator did not do what it was told, or the server counted something else."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of request."""

    title: str
    workflow: str
    method: str
    path: str
    body: object = None
    jobs: int = 0
    """That one request submits."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of request under load."""

    store: str
    what: str
    generator: str
    connections: int
    requests: int
    """As the generator says."""
    answered: int
    """As the server says."""
    failed: int
    rate: float
    jobs: int
    """That one request submits."""
    p50_ms: float
    p99_ms: float
    server_cpu_s: float
    store_cpu_s: float | None
    """None where the store is inside of the server."""

    @property
    def server_cpu_ms(self) -> float:
        """For a request."""
        return self.server_cpu_s / self.answered * 1000

    @property
    def store_cpu_ms(self) -> float | None:
        return None if self.store_cpu_s is None else self.store_cpu_s / self.answered * 1000


class _Said(msgspec.Struct, frozen=True):
    requests: int
    failed: int
    elapsed_s: float
    p50_ms: float
    p99_ms: float


SUBMIT = Work(title="submit one", workflow="Submit", method="POST", path="/api/v1/jobs", body=JOB, jobs=1)
BULKS = Work(
    title=f"submit {BULK} at once", workflow="Bulk", method="POST", path="/api/v1/jobs/bulk", body=JOBS, jobs=BULK
)
PAGE = Work(title="a page of 50 jobs", workflow="Page", method="GET", path="/api/v1/jobs?limit=50")
ONE = Work(title="one job", workflow="One", method="GET", path="/api/v1/jobs/{job}")


def asked(
    serving: Serving, store: str, work: Work, generator: str, connections: int, seconds: int, folder: Path, job: str
) -> Asked:
    """Put the load on, and believe the server before the generator."""
    run = {"wrk": _wrk, "mainstay load": _ours}[generator]
    before, (server_s, store_s) = serving.answered(), serving.used()
    said = run(serving, work, connections, seconds, folder, job)
    answered = serving.answered() - before
    server_after_s, store_after_s = serving.used()
    # what is under way at the end is answered, and not counted by either
    if not answered or abs(answered - said.requests) > _UNTRUE * answered + 2 * connections:
        raise LoadFailed(f"{generator} says {said.requests:,} requests, and the server {answered:,}")
    return Asked(
        store=store,
        what=work.title,
        generator=generator,
        connections=connections,
        requests=said.requests,
        answered=answered,
        failed=said.failed,
        rate=said.requests / said.elapsed_s,
        jobs=work.jobs,
        p50_ms=said.p50_ms,
        p99_ms=said.p99_ms,
        server_cpu_s=server_after_s - server_s,
        store_cpu_s=None if store_s is None or store_after_s is None else store_after_s - store_s,
    )


def plan(names: list[str], connections: tuple[int, ...], middle: int) -> Iterator[tuple[Work, int]]:
    """What is run over how many connections."""
    if "web_submit" in names:
        for n in connections:
            yield SUBMIT, n
        yield BULKS, middle
    if "web_read" in names:
        yield PAGE, middle
        yield ONE, middle


def _ours(serving: Serving, work: Work, connections: int, seconds: int, folder: Path, job: str) -> _Said:
    out = folder / "load.json"
    out.unlink(missing_ok=True)
    command = [
        *(str(Path(sys.executable).with_name("mainstay")), "load", "run", str(ROOT / "bench" / "web_work.py")),
        *(work.workflow, "--processes", "1", "--ui", "none", "--json", str(out), "--base-url", serving.base),
        *("--vus", str(connections), "--duration", f"{seconds}s", "--set", f"job={job}"),
    ]
    _run(command, folder)
    told = json.loads(out.read_text())
    times = told["service"]
    return _Said(told["requests"], told["failed"], told["elapsed_s"], times["p50"] * 1000, times["p99"] * 1000)


def _wrk(serving: Serving, work: Work, connections: int, seconds: int, folder: Path, job: str) -> _Said:
    command = [
        *(program("wrk", "wrk"), "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s"),
        *("-s", str(ROOT / "bench" / "web_wrk.lua"), serving.base + work.path.format(job=job), "--", work.method),
    ]
    if work.body is not None:
        body = folder / "body.json"
        body.write_bytes(msgspec.json.encode(work.body))
        command.append(str(body))
    return msgspec.json.decode(_run(command, folder).splitlines()[-1], type=_Said)


def _run(command: list[str], folder: Path) -> str:
    # a load test is a job, too: it must not be kept in a store that somebody works with
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAINSTAY_")}
    try:
        ran = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=_PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{Path(command[0]).name} had not ended after {_PATIENCE_S} s") from None
    if ran.returncode != 0:
        raise LoadFailed(f"{Path(command[0]).name} ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-1000:]}")
    return ran.stdout

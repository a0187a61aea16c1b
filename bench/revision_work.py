"""What `bench.revisions` runs in each revision: a file that uses the public API only, so that old and new trees run it.

    python revision_work.py submit|run|batch|load|web     with BENCH_URL and BENCH_FOLDER in the environment

Each prints one line of JSON: the amount of work and the seconds it took, CPU seconds for `load` and `web`. Times begin
after the imports and the first use, so they are about the work, not about the start of a program.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

from mainstay import App, Outputs

URL = os.environ["BENCH_URL"]
FOLDER = Path(os.environ["BENCH_FOLDER"])
MAINSTAY = (sys.executable, "-m", "mainstay")
SINGLE = 400
BULK = 4_000
JOBS = 3_000
UNITS = 150
LOAD_S = 3
REQUESTS = 1_500

app = App(URL, outputs=f"file://{FOLDER}/outputs")
_ran = 0
_began_s = 0.0


@app.task(name="empty")
async def empty(i: int) -> None:  # noqa: ARG001 - each job has its own payload
    """Notes when the first and the last of all jobs ran."""
    global _ran, _began_s  # noqa: PLW0603 - the engine process is the place where all of them run
    if not _ran:
        _began_s = time.perf_counter()
    _ran += 1
    if _ran == JOBS:
        _write_result(JOBS, time.perf_counter() - _began_s)


@app.batch(name="study", outputs={"result": "result.json"}, version="1")
def study(seed: int, out: Outputs) -> None:
    out.save("result", str(seed).encode())


def submit() -> None:
    """Single submits, one after the other, and one bulk submit."""

    async def measure() -> tuple[float, float]:
        async with app:
            await app.submit_many(empty.job(i) for i in range(100))
            began_s = time.perf_counter()
            for i in range(SINGLE):
                await empty.submit(i)
            single_s = time.perf_counter() - began_s
            began_s = time.perf_counter()
            await app.submit_many(empty.job(i) for i in range(BULK))
            return single_s, time.perf_counter() - began_s

    single_s, bulk_s = asyncio.run(measure())
    print(json.dumps({"submit, single": [SINGLE, single_s], "submit, bulk": [BULK, bulk_s]}))


def run() -> None:
    """Empty jobs through one engine process, from the first to the last."""

    async def fill() -> None:
        async with app:
            await app.submit_many(empty.job(i) for i in range(JOBS))

    asyncio.run(fill())
    with _program(*MAINSTAY, "worker", f"{Path(__file__).stem}:app", "--log-level", "error"):
        print(json.dumps({"run": _wait_for_result()}))


def batch() -> None:
    """A study of small units: submitted, run by one worker, validated."""

    async def measure() -> float:
        async with app:
            with _program(*MAINSTAY, "worker", f"{Path(__file__).stem}:app", "--log-level", "error"):
                await (await app.submit_batch(study, seeds=range(10_000, 10_002))).wait("2m")
                began_s = time.perf_counter()
                job = await (await app.submit_batch(study, seeds=range(UNITS))).wait("5m")
                assert job.status == "succeeded", job.status
                return time.perf_counter() - began_s

    print(json.dumps({"batch": [UNITS, asyncio.run(measure())]}))


def load() -> None:
    """GETs of a local target by a closed model of ten users; CPU seconds of the whole command."""
    script = FOLDER / "visit.py"
    script.write_text(
        "import os\n"
        "from mainstay.load import URL, HTTPResponse, Workflow, step\n"
        "class Visit(Workflow):\n"
        "    @step()\n"
        "    async def visit(self, url: URL = os.environ['BENCH_TARGET']) -> HTTPResponse:\n"
        "        return await self.client.http.get(url)\n"
    )
    out = FOLDER / "load.json"
    args = ("load", "run", str(script), "--vus", "10", "--duration", f"{LOAD_S}s", "--ui", "none")
    subprocess.run([*MAINSTAY, *args, "--json", str(out)], check=True, stdout=subprocess.DEVNULL, timeout=60)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    requests = json.loads(out.read_text())["requests"]
    print(json.dumps({"load, CPU": [requests, used.ru_utime + used.ru_stime]}))


def web() -> None:
    """Lists of jobs and single submits over HTTP; CPU seconds of the server."""

    async def fill() -> None:
        async with app:
            await app.submit_many(empty.job(i) for i in range(200))

    asyncio.run(fill())
    serve = (*MAINSTAY, "serve", "--store", URL, "--port", "0", "--rate", "0", "--json", "--log-level", "error")
    with subprocess.Popen(serve, stdout=subprocess.PIPE, cwd=FOLDER) as server:
        assert server.stdout is not None
        port = int(json.loads(server.stdout.readline())["url"].rpartition(":")[2])
        body = json.dumps({"name": "empty", "payload": {"i": 1}})
        found = {}
        try:
            for name, method, path in (
                ("web, list", "GET", "/api/v1/jobs?limit=50"),
                ("web, submit", "POST", "/api/v1/jobs"),
            ):
                connection = HTTPConnection("127.0.0.1", port, timeout=60)
                ask = _asker(connection, method, path, body if method == "POST" else None)
                for _ in range(50):
                    ask()
                before_s = _cpu_s(server.pid)
                for _ in range(REQUESTS):
                    ask()
                found[name] = [REQUESTS, _cpu_s(server.pid) - before_s]
                connection.close()
        finally:
            server.terminate()
    print(json.dumps(found))


def _asker(connection: HTTPConnection, method: str, path: str, body: str | None) -> Callable[[], None]:
    headers = {"Content-Type": "application/json"} if body else {}

    def ask() -> None:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        text = response.read()
        assert response.status < 300, (response.status, text[:300])

    return ask


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _program(*command: str) -> subprocess.Popen[bytes]:
    """A program that ends with the `with` block."""

    class Program(subprocess.Popen[bytes]):
        def __exit__(self, *details: object) -> None:
            self.terminate()
            self.wait(60)

    return Program(command, cwd=Path(__file__).parent)


def _write_result(count: int, took_s: float) -> None:
    new = FOLDER / "result.new"
    new.write_text(json.dumps([count, took_s]))
    new.rename(FOLDER / "result")


def _wait_for_result() -> list[float]:
    deadline_s = time.monotonic() + 120
    while not (FOLDER / "result").exists():
        if time.monotonic() > deadline_s:
            raise TimeoutError("the worker had not run all jobs after 120 s")
        time.sleep(0.02)
    found: list[float] = json.loads((FOLDER / "result").read_text())
    return found


if __name__ == "__main__":
    {"submit": submit, "run": run, "batch": batch, "load": load, "web": web}[sys.argv[1]]()

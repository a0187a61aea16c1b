"""Each small example is run as its head says, in an empty folder."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from mainstay.testing import Harness
from tests import places

EXAMPLES = Path(__file__).parents[2] / "examples"
#: programs that run their jobs on a worker, and what they print in the end
WITH_A_WORKER = {
    "first_task": r"Hello, Ann!\n",
    "retries": r"charged 4242 at attempt 3\n(.*\n)*.*attempt 2(.*\n)*",
    "group": r"6 words\n",
    "schedule": r"\S{36} tidy\n",
    "custom_kind": r"Ann: Do you drink tea\? Yes\.\n",
}

pytestmark = pytest.mark.slow


def environ(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(EXAMPLES), "COLUMNS": "100", **more}


def run(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environ(**more), capture_output=True, text=True, check=False
    )


@contextlib.contextmanager
def background(folder: Path, *words: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "mainstay", *words],
        cwd=folder,
        env=environ(**more),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@contextlib.contextmanager
def database() -> Iterator[str]:
    """One of its own: the program connects to it by the URL of the store."""
    server, name = places.server_url("postgresql"), f"examples_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield urlsplit(server)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_node_job_runs_on_its_node(tmp_path: Path) -> None:
    with background(tmp_path, "worker", "node_job:app", "--node", "n1"):
        done = run(tmp_path, str(EXAMPLES / "node_job.py"))
    assert (done.stdout, done.returncode) == ("events: n1 compacted 12 rows\n", 0), done.stderr


@pytest.mark.parametrize("name", WITH_A_WORKER)
def test_a_program_prints_what_its_worker_did(name: str, tmp_path: Path) -> None:
    with background(tmp_path, "worker", f"{name}:app"):
        done = run(tmp_path, str(EXAMPLES / f"{name}.py"))

    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(WITH_A_WORKER[name], done.stdout), done.stdout


def test_what_is_rolled_back_was_never_submitted(tmp_path: Path) -> None:
    with database() as url:
        assert run(tmp_path, "-m", "mainstay", "store", "migrate", MAINSTAY_STORE=url).returncode == 0
        with background(tmp_path, "worker", "transactional_enqueue:app", MAINSTAY_STORE=url):
            done = run(tmp_path, str(EXAMPLES / "transactional_enqueue.py"), MAINSTAY_STORE=url)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "confirmed order 1\norder 2 was rolled back, and its job was never submitted\n"


async def test_a_slow_endpoint_answers_at_once_and_has_the_result_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import fastapi_app

    transport = httpx.ASGITransport(fastapi_app.web)
    async with Harness(fastapi_app.jobs) as box, httpx.AsyncClient(transport=transport, base_url="http://t") as http:
        posted = await http.post("/reports", json={"year": 2026})
        await box.drain()
        done = await http.get(posted.headers["Location"], follow_redirects=True)

    assert (posted.status_code, done.json()) == (202, {"year": 2026, "pages": 12})


def test_a_study_runs_once_and_the_same_again_runs_nothing(tmp_path: Path) -> None:
    words = ("-m", "mainstay", "batch", "run", str(EXAMPLES / "batch_study.py"))
    grid = ("--param", "beta=0.2,0.4", "--seeds", "5", "--workers", "1", "--json")
    first, again = (json.loads(run(tmp_path, *words, *grid).stdout)["units"] for _ in range(2))

    assert (first["succeeded"], again["there"], again["made"]) == (10, 10, 0)


def test_a_load_test_meets_its_thresholds(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with background(tmp_path, "load", "target", "--port", str(port)):
        _until_it_listens(port)
        done = run(
            tmp_path, "-m", "mainstay", "load", "run", str(EXAMPLES / "load_test.py"), "--base-url", url, "--json", "-"
        )

    assert done.returncode == 0, done.stdout + done.stderr


def _until_it_listens(port: int) -> None:
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return


def test_tests_with_the_harness_pass(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "test_with_harness.py"))

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout

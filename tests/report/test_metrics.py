"""Metrics as a Prometheus server gets them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from mainstay import App
from mainstay.cli import app as commands
from mainstay.control import Control
from mainstay.errors import InvalidInput, MissingExtra
from mainstay.model import private_queue
from mainstay.report.metrics import GAUGES, METRICS, QueueCollector, expose, metrics_server
from mainstay.stores import open_store
from mainstay.stores.change_check import moves
from mainstay.testing import Harness

ROOT = Path(__file__).parents[2]
WORDS = ("--processes", "2", "--concurrency", "2", "--metrics", "127.0.0.1:0")
Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


def parsed(text: str) -> Samples:
    """An exposition: name -> labels -> value."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def scraped(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return parsed(answer.read().decode())


# the queues -------------------------------------------------------------------------------------------


async def test_the_queues_of_an_app_are_told_at_each_scrape() -> None:
    app, registry = App("memory:"), CollectorRegistry()

    @app.task(name="a", queue="mail")
    async def a() -> None: ...

    with Harness(app) as box:
        collector = expose(app, registry)
        await a.submit()
        await a.options(delay="1h").submit()
        # made for one job, so it is told of by nobody
        await a.options(queue=private_queue("3f9c")).submit()
        box.advance("30s")
        told = parsed(generate_latest(registry).decode())  # on a thread with a running loop, as in a web server
        await box.drain()
        later = parsed(generate_latest(registry).decode())
        collector.close()

    queue = (("queue", "mail"),)
    assert told["mainstay_queue_jobs"][*queue, ("status", "pending")] == 1
    assert told["mainstay_queue_jobs"][*queue, ("status", "scheduled")] == 1
    assert told["mainstay_queue_oldest_ready_seconds"][queue] == 30
    # states in which jobs wait for a person are told from the start, so that growth is seen
    noughts = dict.fromkeys(("failed", "partial", "quarantined", "timed_out"), 0)
    assert later["mainstay_queue_jobs"] == {
        (*queue, ("status", status)): n for status, n in {"succeeded": 2, **noughts}.items()
    }
    assert later["mainstay_queue_oldest_ready_seconds"][queue] == 0
    assert told["mainstay_store_up"][()] == later["mainstay_store_up"][()] == 1


def test_a_store_that_cannot_be_asked_is_told_as_down(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_text("this is no database, and it is long enough to look like one")
    registry = CollectorRegistry()
    collector = QueueCollector(f"sqlite:///{tmp_path / 'jobs.db'}")
    registry.register(collector)

    told = parsed(generate_latest(registry).decode())
    collector.close()

    assert told == {"mainstay_store_up": {(): 0.0}}


def test_a_collector_without_a_store_tells_nothing_and_registering_opens_none() -> None:
    registry = CollectorRegistry()
    collector = QueueCollector()
    registry.register(collector)

    assert generate_latest(registry) == b""
    assert [family.name for family in collector.describe()] == [metric.name for metric in GAUGES]
    collector.close()


# serving ----------------------------------------------------------------------------------------------


def test_the_environment_is_as_before_and_the_folder_gone_when_serving_ends() -> None:
    before = dict(os.environ)
    with metrics_server("127.0.0.1:0") as served:
        folder = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])
        assert folder.is_dir()
        assert os.environ["MAINSTAY_METRICS"] == "on"
        assert scraped(served.url) == {}

    assert not folder.exists()
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("127.0.0.1", 200), ("localhost:9464", 200), ("LOCALHOST", 200), ("[::1]:9464", 200), ("127.0.0.9", 200)),
        *(
            ("evil.example", 403),
            ("evil.example:9464", 403),
            ("10.0.0.7", 403),
            ("localhost.evil.example", 403),
            ("", 403),
        ),
    ],
)
def test_metrics_of_this_machine_are_for_those_who_call_it_by_its_name(host: str, status: int) -> None:
    with metrics_server("127.0.0.1:0") as served:
        asked = urllib.request.Request(served.url, headers={"Host": host})
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                found = answer.status
        except urllib.error.HTTPError as error:
            found = error.code
            error.close()
    assert found == status


def test_an_address_that_is_taken_is_named() -> None:
    with metrics_server("127.0.0.1:0") as served:
        address = served.url.removeprefix("http://").removesuffix("/metrics")
        with (
            pytest.raises(InvalidInput, match=rf"cannot listen on {address}: Address already in use"),
            metrics_server(address),
        ):
            pass


def test_without_the_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstay.stores.metrics.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'mainstay\[prometheus\]'"), metrics_server("127.0.0.1:0"):
        pass

    done = CliRunner().invoke(commands, ["worker", "tests.report.jobs:app", "--metrics", "127.0.0.1:0"])
    assert done.exit_code == 2
    assert "mainstay[prometheus]" in done.output


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A worker with two processes that serves its metrics."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mainstay", "worker", "tests.report.jobs:app", *WORDS],
        cwd=ROOT,
        env={**os.environ, "SHOP_STORE": f"sqlite:///{tmp_path / 'jobs.db'}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=60)
    finally:
        process.kill()


def where(worker: subprocess.Popen[str]) -> str:
    assert worker.stderr is not None
    said = ""
    for line in worker.stderr:
        said += line
        if found := re.search(r"metrics\s+(http://\S+)", line):
            return found[1]
    raise AssertionError(f"the worker did not say where its metrics are:\n{said}")


async def holder_of(control: Control, job_id: str) -> int:
    """The process that has begun a job."""
    while (await control.jobs.get(job_id)).started_ms is None:
        await asyncio.sleep(0.01)
    job = await control.jobs.get(job_id)
    return next(session.pid for session in await control.store.sessions() if session.id == job.session)


@pytest.mark.slow
async def test_a_worker_serves_the_sum_of_its_processes(worker: subprocess.Popen[str], tmp_path: Path) -> None:
    url = await asyncio.to_thread(where, worker)
    store = await open_store(f"sqlite:///{tmp_path / 'jobs.db'}")
    control = Control(store)
    ids = [(await control.jobs.submit("shop.pay", {"n": n})).id for n in range(20)]
    ids += [(await control.jobs.submit("shop.flaky", {})).id for _ in range(5)]
    ids += [(await control.jobs.submit("shop.stay_once", {})).id]
    os.kill(await holder_of(control, ids[-1]), signal.SIGKILL)  # its supervisor counts what becomes of the job
    for job_id in ids:
        await control.jobs.wait(job_id, "60s")

    told = await asyncio.to_thread(scraped, url)

    events = [event for job_id in ids for event in await store.events(job_id)]
    await store.close()
    # the submits were made here, and are not the worker's
    trail = Counter((event.source, event.to) for event in events if moves(event) and event.source is not None)
    counted: Counter[tuple[str, str]] = Counter()
    for labels, value in told["mainstay_transitions_total"].items():
        counted[dict(labels)["from"], dict(labels)["to"]] += int(value)
    assert counted == trail
    assert counted["running", "succeeded"] == 26
    assert told["mainstay_queue_jobs"][("queue", "default"), ("status", "succeeded")] == 26
    assert told["shop_paid_total"][("how", "cash"),] == 20
    assert told["mainstay_store_up"][()] == 1
    assert told["mainstay_sessions"][()] >= 1
    assert sum(told["mainstay_pickup_seconds_count"].values()) == trail["pending", "running"]
    assert {name for name in told if name.startswith("mainstay_")} <= exposed()


def exposed() -> set[str]:
    """Every name of a sample that we document."""
    names = set()
    for metric in METRICS:
        suffixes = ("_bucket", "_count", "_sum") if metric.kind == "histogram" else ("",)
        names |= {metric.name + suffix for suffix in suffixes}
    return names

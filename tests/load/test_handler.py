"""Load tests as jobs: submitted to a store, run by `mainstay worker`, and settled like any other job."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from mainstay import App
from mainstay.errors import InvalidInput
from mainstay.load.handler import summary_of
from mainstay.load.local_run import STORE, run_here
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.report.files import FileOutput
from mainstay.load.stats.model import Summary
from mainstay.load.stats.tally import from_json
from mainstay.load.stream import RecordedStream, remade
from mainstay.load.target import TargetOptions, TargetServer
from mainstay.model import Job
from mainstay.stores import Query
from tests.load.trials import GET, until, written

pytestmark = pytest.mark.slow

PROGRAM = """
import os
from pathlib import Path
from mainstay import App
from mainstay.load.sources import load_file

app = App(os.environ["TRIAL_STORE"])
app.load(load_file(Path(__file__).with_name("shop.py")))
app.loads.folder = lambda: Path(__file__).parent
"""
SLOW = GET.replace('"/"', '"/?delay=100ms"')


@pytest.fixture
async def target() -> AsyncIterator[TargetServer]:
    async with TargetServer(TargetOptions(errors="10%", seed=1)) as found:
        yield found


class Place:
    """A folder with a test, a store, and workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder}/jobs.db"
        self.workers: list[subprocess.Popen[bytes]] = []
        (folder / "load_program.py").write_text(PROGRAM)

    def app(self, text: str) -> App:
        app = App(self.store)
        app.load(written(self.folder, text))
        return app

    def worker(self) -> subprocess.Popen[bytes]:
        """A worker as an operator starts it."""
        with (self.folder / "worker.log").open("ab") as log:
            started = subprocess.Popen(
                [sys.executable, "-m", "mainstay", "worker", "load_program:app"],
                cwd=self.folder,
                env={**os.environ, "TRIAL_STORE": self.store, "PYTHONPATH": str(self.folder)},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        self.workers.append(started)
        return started

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.terminate()
                try:
                    worker.wait(60)
                except subprocess.TimeoutExpired:
                    worker.kill()
                    worker.wait()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def summary_in(app: App, job: Job) -> Summary:
    found = summary_of(job, app.client.sealer)
    assert found is not None
    return found


async def until_loaded(target: TargetServer, running: asyncio.Future[Any]) -> None:
    await until(lambda: target.counts().completed >= 5, running)


@contextlib.asynccontextmanager
async def awaited(handle: Any) -> AsyncIterator[asyncio.Task[Job]]:
    """The end of a job, which is waited for while this is open."""
    waiting = asyncio.create_task(handle.wait("10m"))
    try:
        yield waiting
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])


async def reported(job_id: str) -> str:
    """What `mainstay load report` prints of a run in this folder."""
    command = [sys.executable, "-m", "mainstay", "load", "report", job_id]
    done = await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def generators() -> dict[int, int]:
    """All generator processes of this machine, and who started each."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"mainstay.load.engine.main" in words:
                found[int(folder.name)] = int(words[-2])
    return found


def started_by(pid: int) -> int:
    """The process that started another; 0 if that one is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


async def test_a_worker_runs_it_and_its_result_is_the_summary(place: Place, target: TargetServer) -> None:
    async with place.app(GET) as app:
        handle = await app.submit_load("shop", LoadOptions(vus=3, duration="500ms", processes=2, base_url=target.url))
        place.worker()
        summary = await handle.result("60s")
        job = await handle.job()

    counts = target.counts()
    assert (job.kind, job.status, job.crashes) == ("load", "succeeded", 0)
    assert summary.requests == counts.completed > 0
    assert summary.failed == counts.statuses["503"]
    assert summary.header.run == job.id
    assert Path(summary.stream).exists()
    assert RecordedStream(summary.stream).header.run == job.id


async def test_a_threshold_that_is_not_kept_fails_the_job_once(place: Place, target: TargetServer) -> None:
    async with place.app(GET) as app:
        options = LoadOptions(vus=3, duration="400ms", thresholds=("error rate < 1%",), base_url=target.url)
        handle = await app.submit_load("shop", options)
        place.worker()
        job = await handle.wait("5m")
        summary = summary_in(app, job)

    assert (job.status, job.crashes) == ("failed", 0)
    assert job.error is not None
    assert job.error.code == "threshold_failed"
    assert "error rate < 1%" in job.error.message
    assert (summary.verdict, summary.requests) == ("failed", target.counts().completed)


async def test_a_job_that_is_retried_keeps_the_recording_of_each_attempt(place: Place, target: TargetServer) -> None:
    async with place.app(GET) as app:
        options = LoadOptions(vus=2, iterations=20, thresholds=("requests < 1",), base_url=target.url)
        handle = await app.submit_load("shop", options)
        place.worker()
        first = summary_in(app, await handle.wait("5m"))
        await app.control.operations.retry(handle.id, actor="ann")
        async with asyncio.timeout(60):
            while (job := await handle.job()).starts < 2 or job.settled_ms is None:
                await asyncio.sleep(0.05)
        second = summary_in(app, job)

    assert (first.header.token, second.header.token) == (1, 2)
    assert first.stream != second.stream
    for one in (first, second):
        recorded = remade(one.stream)
        assert (recorded.header, recorded.requests, recorded.verdict) == (one.header, 20, "failed")


async def test_a_job_that_is_cancelled_drains_and_keeps_what_it_measured(place: Place, target: TargetServer) -> None:
    async with place.app(SLOW) as app:
        handle = await app.submit_load("shop", LoadOptions(vus=4, duration="5m", processes=2, base_url=target.url))
        place.worker()
        async with awaited(handle) as waiting:
            await until_loaded(target, waiting)
        await handle.cancel("enough")
        job = await handle.wait("5m")
        summary = summary_in(app, job)

    counts = target.counts()
    assert job.status == "cancelled"
    assert summary.requests == counts.completed == counts.begun
    assert (summary.aborted, counts.abandoned) == (0, 0)
    assert summary.ended.startswith("cancelled")


async def test_a_job_that_takes_too_long_is_ended_and_not_repeated(place: Place, target: TargetServer) -> None:
    async with place.app(SLOW) as app:
        handle = await app.submit_load("shop", LoadOptions(vus=2, duration="5m", base_url=target.url), timeout="10s")
        place.worker()
        job = await handle.wait("5m")

    counts = target.counts()
    # as any job that was out of time and may not be repeated
    assert job.status == "quarantined"
    assert job.error is not None
    assert job.error.code == "run_timeout"
    assert counts.begun == counts.completed > 0
    assert job.starts == 1


async def test_what_cannot_be_started_fails_the_job_with_the_reason(place: Place) -> None:
    async with place.app(GET) as app:
        handle = await app.submit_load("shop", LoadOptions(base_url="http://nowhere.invalid"))
        place.worker()
        job = await handle.wait("5m")

    assert (job.status, job.crashes) == ("failed", 0)
    assert job.error is not None
    assert "nowhere.invalid cannot be resolved" in job.error.message


async def test_what_is_bad_is_refused_when_it_is_submitted(place: Place) -> None:
    async with place.app(GET) as app:
        with pytest.raises(InvalidInput, match="10x"):
            await app.submit_load("shop", LoadOptions(duration="10x"))
        with pytest.raises(InvalidInput, match="not a load test of this app; it has shop"):
            await app.submit_load("shopp")


async def test_a_worker_that_is_killed_takes_its_generators_along_and_nobody_runs_it_again(
    place: Place, target: TargetServer
) -> None:
    async with place.app(SLOW) as app:
        handle = await app.submit_load("shop", LoadOptions(vus=4, duration="5m", processes=2, base_url=target.url))
        worker = place.worker()
        async with awaited(handle) as waiting:
            await until_loaded(target, waiting)
            while (first := await handle.job()).checkpoint is None:
                assert not waiting.done()
                await asyncio.sleep(0.05)
        assert summary_in(app, first).verdict == "running"
        engines = {engine for engine in generators().values() if started_by(engine) == worker.pid}
        mine = {pid for pid, engine in generators().items() if engine in engines}
        assert len(mine) == 2
        worker.kill()
        for engine in engines:
            # it may have gone with its worker
            with contextlib.suppress(ProcessLookupError):
                os.kill(engine, signal.SIGKILL)
        worker.wait()
        place.worker()
        job = await handle.wait("5m")
        summary = summary_in(app, job)

    assert job.status in ("failed", "quarantined")
    assert summary.verdict == "lost"
    assert summary.ended.startswith(f"lost: the job is {job.status} (")
    assert not mine & set(generators())
    assert job.crashes == 1


async def test_a_run_whose_claim_was_lost_puts_no_more_load_on_anything(place: Place, target: TargetServer) -> None:
    async with place.app(SLOW) as app:
        handle = await app.submit_load("shop", LoadOptions(vus=4, duration="5m", processes=2, base_url=target.url))
        worker = place.worker()
        async with awaited(handle) as waiting:
            await until_loaded(target, waiting)
        engines = {engine for engine in generators().values() if started_by(engine) == worker.pid}
        mine = {pid for pid, engine in generators().items() if engine in engines}
        assert len(mine) == 2
        with contextlib.closing(sqlite3.connect(place.folder / "jobs.db", timeout=10)) as store, store:
            store.execute("UPDATE jobs SET token = token + 1, version = version + 1")

        async with asyncio.timeout(60):
            while mine & set(generators()):
                await asyncio.sleep(0.05)

    counts = target.counts()
    assert counts.begun == counts.completed


async def test_a_run_in_this_process_is_a_job_too(
    tmp_path: Path, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    submitted: list[str] = []

    job, summary = await run_here(
        PlannedRun(written(tmp_path, GET), LoadOptions(vus=3, duration="400ms", processes=1, base_url=target.url)),
        outputs=[FileOutput("json", Path("run.json"))],
        on_submitted=submitted.append,
    )

    assert (job.status, job.kind, submitted) == ("succeeded", "load", [job.id])
    assert summary.requests == target.counts().completed
    assert Path(summary.stream).parent == tmp_path / ".mainstay" / "load"
    assert from_json(Path("run.json").read_bytes()).stream == summary.stream


async def test_a_run_that_was_killed_with_its_command_is_told_as_crashed_by_the_next(
    tmp_path: Path, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    test = written(tmp_path, SLOW)
    command = subprocess.Popen(
        [
            *(sys.executable, "-m", "mainstay", "load", "run", test.source.file, "--ui", "none"),
            *("--base-url", target.url, "--duration", "5m", "--processes", "1"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not target.counts().begun:
            assert command.poll() is None
            await asyncio.sleep(0.05)
        async with App(STORE) as app:
            while not (jobs := (await app.control.store.find(Query())).jobs) or jobs[0].checkpoint is None:
                assert command.poll() is None
                await asyncio.sleep(0.05)
        running = await reported(jobs[0].id)
    finally:
        command.kill()
        command.wait()
    killed = await reported(jobs[0].id)

    assert running.startswith("shop running")
    assert "\n  the run has not ended: these are the numbers of its first " in running
    # the store does not know it before a sweep; the recording does
    assert killed.startswith("shop lost, NOT TRUSTWORTHY\n  the recording has no end: requests, errors and iterations ")
    assert "\n  lost: the recording has " in killed
    await run_here(PlannedRun(test, LoadOptions(vus=1, iterations=1, processes=1, base_url=target.url)))

    async with App("sqlite:///.mainstay/load.db") as app:
        first, second = (await app.control.store.find(Query(oldest_first=True))).jobs
    assert (first.status, second.status) == ("quarantined", "succeeded")
    assert first.error is not None
    assert first.error.code == "worker_lost"
    assert (await reported(first.id)).startswith("shop lost, NOT TRUSTWORTHY\n")


async def test_a_run_in_this_process_that_fails_a_threshold_has_its_summary(
    tmp_path: Path, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    job, summary = await run_here(
        PlannedRun(
            written(tmp_path, GET),
            LoadOptions(duration="300ms", processes=1, thresholds=("requests < 1",), base_url=target.url),
        ),
    )

    assert (job.status, summary.verdict) == ("failed", "failed")
    assert summary.requests == target.counts().completed


async def test_a_run_in_this_process_can_be_stopped(
    tmp_path: Path, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stop = asyncio.Event()
    running = asyncio.ensure_future(
        run_here(
            PlannedRun(written(tmp_path, SLOW), LoadOptions(vus=3, duration="5m", processes=1, base_url=target.url)),
            stop=stop,
        )
    )
    await until_loaded(target, running)
    stop.set()
    _, summary = await asyncio.wait_for(running, 60)

    counts = target.counts()
    assert summary.ended == "interrupted"
    assert summary.requests == counts.completed == counts.begun


async def test_a_run_in_this_process_that_is_drained_through_the_store_ends_in_good_order_and_warns_who_asked(
    tmp_path: Path, target: TargetServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAINSTAY_HEARTBEAT", "50ms")
    options = LoadOptions(vus=3, duration="5m", processes=1, base_url=target.url)
    running = asyncio.ensure_future(run_here(PlannedRun(written(tmp_path, SLOW), options)))
    await until_loaded(target, running)

    async with App(STORE) as app:
        await app.control.operations.drain("load", actor="ann")
    _, summary = await running

    counts = target.counts()
    assert summary.ended == "interrupted"
    assert summary.requests == counts.completed == counts.begun
    # a shell shows warnings, and whoever waits for the run has asked nobody to stop it
    told = [record.getMessage() for record in caplog.records if record.name == "mainstay.load"]
    assert told == ["asked to drain by=ann; the run ends early"]


async def test_a_run_in_this_process_that_is_given_up_is_cancelled_and_not_left_for_nobody(
    tmp_path: Path, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    submitted: list[str] = []
    text = GET.replace('"/"', '"/?delay=1m"')
    running = asyncio.ensure_future(
        run_here(
            PlannedRun(written(tmp_path, text), LoadOptions(duration="5m", processes=1, base_url=target.url)),
            on_submitted=submitted.append,
        )
    )
    while not target.counts().begun:
        assert not running.done(), running
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait([running])

    async with App(STORE) as app:
        job = await app.control.jobs.get(submitted[0])
    assert (job.status, job.reason) == ("cancelled", "given up")


async def test_a_run_in_this_process_that_is_left_after_it_was_given_up_has_a_summary(
    tmp_path: Path, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stop, give_up, left = asyncio.Event(), asyncio.Event(), list[Summary]()
    text = """
    class Shop(Workflow):
        @step()
        async def browse(self, url: URL = "/?delay=1m") -> HTTPResponse:
            return await self.client.http.get(url)

        @teardown
        async def clean(self):
            await self.client.http.get("/echo")
            await asyncio.sleep(3600)
    """
    options = LoadOptions(vus=3, duration="5m", processes=1, base_url=target.url)
    running = asyncio.ensure_future(
        run_here(PlannedRun(written(tmp_path, text), options), stop=stop, give_up=give_up, on_left=left.append)
    )
    await until(lambda: target.counts().under_way == 3, running)
    stop.set()
    give_up.set()
    await until(lambda: "/echo" in target.counts().paths, running)
    running.cancel()
    await asyncio.wait([running])

    assert running.cancelled()
    assert [(one.ended, one.sent_calls, one.aborted) for one in left] == [("interrupted", 3, 3)]
    assert left[0].skipped == {"Shop teardown": "was not run to its end: the run was given up"}


async def test_a_generator_that_is_killed_fails_the_job(
    tmp_path: Path, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    running = asyncio.ensure_future(
        run_here(
            PlannedRun(written(tmp_path, SLOW), LoadOptions(vus=2, duration="5m", processes=2, base_url=target.url))
        )
    )
    await until_loaded(target, running)
    mine = [pid for pid, parent in generators().items() if parent == os.getpid()]
    os.kill(mine[0], signal.SIGKILL)
    job, summary = await asyncio.wait_for(running, 60)

    assert len(mine) == 2
    assert job.status == "failed"
    assert job.error is not None
    assert job.error.code == "load_failed"
    assert "ended with signal 9" in summary.ended
    assert (
        "requests, errors and iterations are a lower bound of those that the target received"
        in summary.trust.reasons[0]
    )
    assert summary.begun == summary.iterations + summary.aborted_iterations
    assert not set(mine) & set(generators())


async def test_a_run_in_this_process_refuses_what_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidInput, match="nowhere.invalid cannot be resolved"):
        await run_here(PlannedRun(written(tmp_path, GET), LoadOptions(base_url="http://nowhere.invalid")))

"""`mainstay worker` as a process: its signals, its exit codes, and what is left when it is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mainstay.cli import app, worker as worker_command
from mainstay.control import Control
from mainstay.stores import open_store
from mainstay.worker.worker_options import WorkerOptions
from tests.worker.crews import ROOT, alive

PROGRAM = "tests.worker.crew_program:stage"


class Shell:
    """Workers started as a shell starts them: each in a process group of its own."""

    def __init__(self, url: str, log: Path) -> None:
        self.environ = {**os.environ, "CREW_STORE": url}
        self._log = log
        self._started: list[subprocess.Popen[bytes]] = []

    def worker(self, *words: str, target: str = PROGRAM) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "mainstay", "worker", target, "--name", "shop", *words],
                cwd=ROOT,
                env=self.environ,
                stderr=out,
                stdout=out,
                process_group=0,
            )
        self._started.append(process)
        return process

    @property
    def said(self) -> str:
        return self._log.read_text()

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def shell(url: str, tmp_path: Path) -> Iterator[Shell]:
    made = Shell(url, tmp_path / "worker.log")
    yield made
    made.close()


@pytest.fixture
async def control(url: str) -> AsyncIterator[Control]:
    store = await open_store(url)
    yield Control(store)
    await store.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Come back once something is so that sends no event. The test's own timeout is the net."""
    while not await condition():
        await asyncio.sleep(0.01)


async def running(control: Control, name: str = "goes_on", **arguments: object) -> str:
    """The id of a job that a worker has begun."""
    job_id = (await control.jobs.submit(name, arguments)).id

    async def started() -> bool:
        return (await control.jobs.get(job_id)).started_ms is not None

    await until(started)
    return job_id


async def ended(process: subprocess.Popen[bytes]) -> int:
    return await asyncio.to_thread(process.wait)


async def engines(control: Control, n: int) -> list[int]:
    async def there() -> bool:
        return len(await control.store.sessions()) == n

    await until(there)
    return [session.pid for session in await control.store.sessions()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_the_whole_group_drains_in_good_order(
    shell: Shell, control: Control, number: signal.Signals
) -> None:
    """Ctrl-C and service managers signal every process of the worker, engines included."""
    worker = shell.worker("--grace", "500ms")
    job_id = await running(control)

    os.killpg(worker.pid, number)

    assert await ended(worker) == 0
    job = await control.jobs.get(job_id)
    assert (job.status, job.releases, job.crashes, job.failures) == ("pending", 1, 0, 0)
    assert f"waiting for jobs=1: {job_id}" in shell.said


async def test_a_second_signal_gives_back_at_once(shell: Shell, control: Control) -> None:
    worker = shell.worker("--grace", "1h")
    job_id = await running(control)
    os.kill(worker.pid, signal.SIGTERM)

    async def draining() -> bool:
        return "draining" in shell.said

    await until(draining)
    os.kill(worker.pid, signal.SIGTERM)

    assert await ended(worker) == 0
    assert (await control.jobs.get(job_id)).status == "pending"


@pytest.mark.slow
async def test_a_worker_that_is_asked_to_drain_finishes_its_job_claims_no_other_and_ends_with_zero(
    shell: Shell, control: Control, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    worker = shell.worker("--processes", "2", "--grace", "1h")
    pids = await engines(control, 2)
    job_id = await running(control, "waits_for", path=str(go_on))

    asked = await control.operations.drain("shop", actor="ann")

    assert sorted(session.pid for session in asked) == sorted(pids)
    assert {session.supervisor for session in asked} == {worker.pid}

    async def heard() -> bool:
        return "asked to drain by=ann" in shell.said

    await until(heard)
    other = (await control.jobs.submit("takes", {"seconds": 0})).id
    go_on.touch()

    assert await ended(worker) == 0
    assert (await control.jobs.get(job_id)).status == "succeeded"
    job = await control.jobs.get(other)
    assert (job.status, job.token) == ("pending", 0)
    assert not any(alive(pid) for pid in pids)
    assert await control.store.sessions() == []


async def test_engines_die_with_a_killed_supervisor_and_the_next_worker_takes_their_jobs(
    shell: Shell, control: Control
) -> None:
    worker = shell.worker("--processes", "2")
    pids = await engines(control, 2)
    job_id = await running(control)

    worker.kill()

    async def gone() -> bool:
        return not any(alive(pid) for pid in pids)

    await until(gone)
    shell.worker()

    async def again() -> bool:
        job = await control.jobs.get(job_id)
        return job.status == "running" and job.token == 2

    await until(again)
    job = await control.jobs.get(job_id)
    assert (job.crashes, job.losses) == (0, 1)


async def test_hangup_replaces_the_engines(shell: Shell, control: Control) -> None:
    worker = shell.worker("--grace", "500ms")
    before = await engines(control, 1)

    async def ready() -> bool:
        return "engine up" in shell.said

    await until(ready)
    os.killpg(worker.pid, signal.SIGHUP)

    async def replaced() -> bool:
        now = [session.pid for session in await control.store.sessions()]
        return len(now) == 1 and now != before

    await until(replaced)
    assert worker.poll() is None


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("tests.worker.nowhere:app", "there is no module 'tests.worker.nowhere'"),
        ("tests.worker.crew_program:stag", "did you mean tests.worker.crew_program:stage?"),
        ("tests.worker.program:stage", "a store in memory is not shared between processes"),
    ],
)
async def test_what_cannot_be_started_is_told_and_ends_with_two(shell: Shell, target: str, reason: str) -> None:
    assert await ended(shell.worker(target=target)) == 2

    assert "cannot start" in shell.said
    assert reason in shell.said


async def test_a_variable_that_names_another_store_than_the_program_is_warned_of(
    shell: Shell, control: Control
) -> None:
    shell.environ["MAINSTAY_STORE"] = "postgresql://ann:secret@db/jobs"
    worker = shell.worker()
    await engines(control, 1)

    async def warned() -> bool:
        return "not used" in shell.said

    await until(warned)
    os.kill(worker.pid, signal.SIGTERM)
    await ended(worker)

    assert "warning  MAINSTAY_STORE (postgresql://ann:***@db/jobs) is not used" in shell.said


async def test_the_banner_tells_what_runs_and_json_logs_are_json_alone(shell: Shell, control: Control) -> None:
    worker = shell.worker("--processes", "2", "--concurrency", "7")
    await engines(control, 2)
    os.kill(worker.pid, signal.SIGTERM)
    await ended(worker)
    banner = shell.said

    machine = shell.worker("--json-logs")
    await engines(control, 1)

    async def up() -> bool:
        return "engine up" in shell.said

    await until(up)
    os.kill(machine.pid, signal.SIGTERM)
    await ended(machine)
    lines = [json.loads(line) for line in shell.said.splitlines()]

    assert f"worker shop (pid {worker.pid}) runs {PROGRAM}" in banner
    assert "2 processes x 7 jobs" in banner
    assert {"time", "level", "logger", "pid", "message"} <= lines[0].keys()


async def test_the_banner_of_a_node_names_it_with_its_labels(shell: Shell, control: Control) -> None:
    worker = shell.worker("--node", "rack-7", "--label", "zone=a", "--label", "disk=ssd")
    await engines(control, 2)
    nodes = [(each.node, each.labels) for each in await control.store.sessions() if each.node]
    os.kill(worker.pid, signal.SIGTERM)
    await ended(worker)

    assert nodes == [("rack-7", {"zone": "a", "disk": "ssd"})]
    assert "  node     rack-7 (zone=a, disk=ssd)" in shell.said
    assert "2 processes x 10 jobs" in shell.said


@pytest.mark.parametrize(
    ("host", "name"), [("box", "box-{pid}"), ("my box!", "my-box--{pid}"), ("h" * 80, "long"), ("", "worker-{pid}")]
)
def test_a_worker_without_a_name_is_called_by_its_machine_and_process(
    monkeypatch: pytest.MonkeyPatch, host: str, name: str
) -> None:
    orders: list[WorkerOptions] = []

    class Noted:
        def __init__(self, given: WorkerOptions, **_: object) -> None:
            orders.append(given)

        async def run(self) -> int:
            return 0

    monkeypatch.setattr(socket, "gethostname", lambda: host)
    monkeypatch.setattr(worker_command, "Supervisor", Noted)

    assert CliRunner().invoke(app, ["worker", PROGRAM]).exit_code == 0
    (given,) = orders
    wanted = f"-{os.getpid()}".rjust(64, "h") if len(host) > 64 else name.format(pid=os.getpid())
    assert given.name == wanted


def test_the_help_tells_the_signals_and_the_exit_codes() -> None:
    shown = CliRunner().invoke(app, ["worker", "--help"], env={"COLUMNS": "100"}).stdout

    for part in ("drains", "SIGHUP", "Exit codes", "--processes 4", "--grace"):
        assert part in shown


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--grace", "30"], "write it with a unit"),
        (["--name", "my shop"], "letters, digits"),
        (["--queues", "a,,b"], "empty name"),
        (["--log-level", "loud"], "not one of debug, info, warning, error"),
        (["--node", "rack 7"], "node: 'rack 7' is not 1 to 64 of letters"),
        (["--label", "zone=a"], "label: 'zone=a' is a label of a node; name the node with --node"),
        (["--node", "n", "--label", "zone"], "label: 'zone' is not of the form key=value"),
        (["--node", "n", "--label", "zone="], "label.zone: '' is not 1 to 64 of letters"),
        (["--node", "n", "--label", "a b=c"], "label: 'a b' is not 1 to 64 of letters"),
        (["--node", "n", "--label", "zone=a", "--label", "zone=b"], "label: 'zone' is given twice"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_started(words: list[str], reason: str) -> None:
    done = CliRunner().invoke(app, ["worker", PROGRAM, *words])

    assert done.exit_code == 2
    assert reason in done.stderr

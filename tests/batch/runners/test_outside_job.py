"""What a driver does about its outside job, in virtual time, with a runner that does as it is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from mainstay import App, BatchRun, Outputs
from mainstay.batch.runners import OutsideStatus
from mainstay.errors import InvalidInput, RunnerFailed
from mainstay.testing import Harness


class Scripted:
    """Says what it was told to say, and writes down what it was asked."""

    every_s = 30.0

    def __init__(self) -> None:
        self.says: OutsideStatus | str = OutsideStatus(state="running")
        self.refuses = ""
        self.started: list[tuple[str, list[str], dict[str, str]]] = []
        self.looks = 0
        self.stops = 0

    async def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> str:
        self.started.append((name, list(command), dict(env)))
        if self.refuses:
            raise RunnerFailed(self.refuses)
        return f"no-{len(self.started)}"

    async def look(self, handle: str, name: str) -> OutsideStatus:
        self.looks += 1
        if isinstance(self.says, str):
            raise RunnerFailed(self.says)
        return self.says

    async def stop(self, handle: str, name: str) -> None:
        self.stops += 1


class Stage:
    def __init__(self, app: App, box: Harness, runner: Scripted) -> None:
        self.app = app
        self.box = box
        self.runner = runner

        @app.batch(name="study", outputs={"result": "result.txt"}, version="1")
        def study(seed: int, out: Outputs) -> None:
            out.save("result", b"1")

    async def submit(self, deadline: str | None = None) -> BatchRun:
        """A batch whose units nobody runs until they are told to."""
        study = self.app.batches["study"]
        run = await self.app.submit_batch(study, seeds=range(3), runner="scripted", deadline=deadline)
        await self.app.control.operations.pause(f"batch.{run.id}")
        return run

    async def units_run(self, run: BatchRun) -> None:
        await self.app.control.operations.resume(f"batch.{run.id}")

    async def told(self, run: BatchRun, text: str) -> int:
        return sum(text in line for line in await run.story())


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("MAINSTAY_APP", "lab:app")
    runner = Scripted()
    app = App("memory:", outputs=f"file://{tmp_path}?sync=off", runners={"scripted": runner})
    with Harness(app) as box:
        yield Stage(app, box, runner)


async def test_an_outside_job_is_started_once_with_no_secret_on_its_command_line_and_looked_at_now_and_then(
    stage: Stage,
) -> None:
    run = await stage.submit()
    await stage.box.drain(until="10m")

    ((name, command, env),) = stage.runner.started
    assert name == f"mainstay-{run.id}-1"
    assert command[1:] == ["-m", "mainstay", "batch", "exec", run.id, "--app", "lab:app"]
    assert env == {"MAINSTAY_STORE": "memory:"}
    assert 15 <= stage.runner.looks <= 20
    assert (await run.status()).job.status == "running"


async def test_what_is_about_to_be_started_is_written_down_before(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    start = stage.runner.start

    async def looks_first(name: str, command: Sequence[str], env: Mapping[str, str]) -> str:
        outside = (await run.status()).outside
        seen.append(outside and (outside.name, outside.handle))
        return await start(name, command, env)

    monkeypatch.setattr(stage.runner, "start", looks_first)
    run = await stage.submit()
    await stage.box.drain(until="1s")

    assert seen == [(f"mainstay-{run.id}-1", "")]


async def test_whoever_finds_that_a_start_was_under_way_gives_it_a_moment_to_come_through(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, at = stage.runner.start, []

    async def dies_once(name: str, command: Sequence[str], env: Mapping[str, str]) -> str:
        at.append(stage.box.clock.now_ms())
        if len(at) == 1:
            raise OSError("its worker breaks here")
        return await start(name, command, env)

    monkeypatch.setattr(stage.runner, "start", dies_once)
    run = await stage.submit()
    await stage.box.drain(until="20s")

    first, second = at
    assert second - first >= 5000
    outside = (await run.status()).outside
    assert outside is not None
    assert outside.handle == "no-1"


async def test_a_start_that_is_refused_is_tried_again_and_given_up_in_the_end(stage: Stage) -> None:
    stage.runner.refuses = "no such partition"
    run = await stage.submit()
    await stage.box.drain(until="2m")
    meanwhile = (await run.status()).job
    drained = await stage.box.drain()
    job = await run.wait()

    assert meanwhile.status == "running"
    assert "could not be started (4): no such partition" in str(meanwhile.reason)
    assert len(stage.runner.started) == 5
    assert drained.took.total_seconds() < 120
    assert (job.status, "0 of 3 outputs" in str(job.reason)) == ("failed", True)


async def test_a_runner_that_does_not_answer_changes_nothing_and_is_told_once(stage: Stage) -> None:
    run = await stage.submit()
    await stage.box.drain(until="1m")
    stage.runner.says = "the controller is away"
    await stage.box.drain(until="45s")
    at_once = await stage.told(run, "cannot be checked")
    await stage.box.drain(until="1h")
    away = (await run.status()).job.status, await stage.told(run, "cannot be checked: the controller is away")
    stage.runner.says = OutsideStatus(state="running")
    await stage.box.drain(until="1m")

    assert (at_once, away) == (0, ("running", 1))
    assert str((await run.status()).job.reason).endswith("(no-1) is running")


async def test_one_look_that_does_not_find_it_says_nothing_and_two_say_that_it_is_gone(stage: Stage) -> None:
    run = await stage.submit()
    await stage.box.drain(until="40s")
    stage.runner.says = OutsideStatus(state="gone")
    looks = stage.runner.looks
    while stage.runner.looks == looks:
        await stage.box.drain(until="5s")
    after_one = await stage.told(run, "is gone")
    await stage.box.drain(until="1h")
    after_many = await stage.told(run, "is gone; to continue, run")
    stage.runner.says = OutsideStatus(state="running")
    await stage.box.drain(until="1m")

    assert (after_one, after_many) == (0, 1)
    outside = (await run.status()).outside
    assert outside is not None
    assert (outside.state, (await run.status()).job.status) == ("running", "running")


async def test_units_that_are_open_when_it_has_exited_are_withdrawn_and_the_outputs_decide(stage: Stage) -> None:
    run = await stage.submit()
    await stage.box.drain(until="10s")
    stage.runner.says = OutsideStatus(state="exited", exit_code=0)
    await stage.box.drain()
    job = await run.wait()

    assert job.status == "failed"
    assert (await run.status()).units.cancelled == 3
    assert await stage.told(run, "exited with 0") == 1


async def test_units_stay_open_while_somebody_else_executes_the_batch(stage: Stage) -> None:
    stage.runner.every_s = 1.0
    run = await stage.submit()
    await stage.box.drain(until="2s")
    control = stage.app.control
    session = await control.claims.open_session(worker=f"exec-{run.id[-12:]}-4711")
    stage.runner.says = OutsideStatus(state="exited", exit_code=1)
    await stage.box.drain(until="4s")
    meanwhile = (await run.status()).units.waiting, await stage.told(run, "exited with 1")
    await control.claims.close_session(session.id)
    await stage.box.drain()

    assert meanwhile == (3, 1)
    assert (await run.status()).units.cancelled == 3


async def test_one_that_does_not_end_when_the_units_are_done_is_waited_for_and_stopped(stage: Stage) -> None:
    run = await stage.submit()
    await stage.box.drain(until="1s")
    await stage.units_run(run)
    drained = await stage.box.drain()
    job = await run.wait()

    assert job.status == "succeeded"
    assert stage.runner.stops == 1
    assert 29 <= drained.took.total_seconds() <= 40
    assert "outside job mainstay-" in str(job.reason)


async def test_a_cancelled_batch_waits_past_its_grace_until_its_outside_job_has_ended(stage: Stage) -> None:
    run = await stage.submit()
    await stage.box.drain(until="10s")
    await run.cancel("wrong beta")
    await stage.box.drain(until="1h")
    meanwhile = (await run.status()).job.status, stage.runner.stops > 1
    stage.runner.says = OutsideStatus(state="exited", exit_code=-15)
    await stage.box.drain()
    job = await run.wait()

    assert meanwhile == ("cancelling", True)
    assert (job.status, job.reason) == ("cancelled", f"wrong beta; outside job mainstay-{run.id}-1 (no-1)")
    assert (await run.status()).units.cancelled == 3


async def test_a_batch_that_timed_out_has_its_outside_job_stopped(stage: Stage) -> None:
    run = await stage.submit(deadline="1h")
    await stage.box.drain(until="59m")
    before = stage.runner.stops
    stage.runner.says = OutsideStatus(state="running")
    await stage.box.drain(until="2m")
    stage.runner.says = OutsideStatus(state="exited", exit_code=-15)
    await stage.box.drain()

    assert (await run.wait()).status == "timed_out"
    assert (before, stage.runner.stops > 0) == (0, True)


async def test_a_worker_that_does_not_have_the_runner_says_so(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await stage.submit()
    monkeypatch.delitem(stage.app.runners._known, "scripted")
    await stage.box.drain(until="5s")

    assert "this worker has no such runner" in str((await run.status()).job.reason)


@pytest.mark.parametrize(
    ("runners", "told"),
    [
        ({"local": Scripted()}, "'local' is not a valid name for a runner"),
        ({"a b": Scripted()}, "'a b' is not a valid name for a runner"),
        ({"slurm": object()}, "is not a runner"),
    ],
)
def test_a_runner_that_cannot_be_used_is_refused_where_it_is_declared(runners: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        App("memory:", runners=runners)  # type: ignore[arg-type]

"""A runner by its commands, with a real, if small, scheduler behind it."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from mainstay.batch.runners import ExecRunner, OutsideStatus
from mainstay.errors import InvalidInput, RunnerFailed
from tests.batch.runners import scheduler
from tests.batch.runners.scheduler import Spool


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    (tmp_path / "spool").mkdir()
    return Spool(tmp_path / "spool")


def commands(spool: Spool) -> dict[str, str]:
    call = shlex.join([sys.executable, scheduler.__file__, str(spool.folder)])
    return {
        "submit": f"{call} submit {{name}} {{line}}",
        "status": f"{call} status {{handle}}",
        "cancel": f"{call} cancel {{handle}}",
        "find": f"{call} find {{name}}",
    }


@pytest.fixture
def runner(spool: Spool) -> ExecRunner:
    return ExecRunner(**commands(spool))


async def over(runner: ExecRunner, handle: str) -> OutsideStatus:
    while not (seen := await runner.look(handle, "")).over:
        await asyncio.sleep(0.01)
    return seen


async def test_what_submit_prints_last_is_the_handle_and_status_tells_the_exit_code(
    runner: ExecRunner, spool: Spool
) -> None:
    handle = await runner.start("a", ["sh", "-c", 'echo "$GREETING"; exit 3'], {"GREETING": "hi there"})

    assert handle == "100"
    assert await over(runner, handle) == OutsideStatus(state="exited", exit_code=3, detail="FAILED")
    assert (spool.folder / "100" / "log").read_text() == "hi there\n"


async def test_a_job_that_is_found_by_its_name_is_not_submitted_again(runner: ExecRunner, spool: Spool) -> None:
    handles = [await runner.start("a", ["true"], {}) for _ in range(2)]

    assert handles == ["100", "100"]
    assert spool.log().count("submit") == 1


async def test_one_that_waits_or_is_not_known_is_told_apart(runner: ExecRunner, spool: Spool) -> None:
    (spool.folder / "hold").touch()
    handle = await runner.start("a", ["true"], {})

    assert (await runner.look(handle, "a")).state == "waiting"
    assert (await runner.look("", "a")).state == "waiting"
    assert (await runner.look("999", "b")).state == "gone"
    assert (await runner.look("", "b")).state == "gone"


async def test_cancel_ends_it_and_a_refusal_counts_unless_it_is_over(runner: ExecRunner, spool: Spool) -> None:
    handle = await runner.start("a", ["sleep", "600"], {})
    (spool.folder / "refuse").touch()

    with pytest.raises(RunnerFailed, match="failed with 1: the controller is away"):
        await runner.stop(handle, "a")
    (spool.folder / "refuse").unlink()
    await runner.stop(handle, "a")
    (spool.folder / "refuse").touch()
    await runner.stop(handle, "a")

    assert (await runner.look(handle, "a")).text == "exited with -15 (CANCELLED)"


async def test_a_word_that_is_not_known_is_refused_until_it_is_translated(spool: Spool) -> None:
    odd = {**commands(spool), "status": "echo Fermenting"}

    with pytest.raises(RunnerFailed, match="printed 'Fermenting', an unknown state"):
        await ExecRunner(**odd).look("1", "a")
    assert (await ExecRunner(**odd, states={"Fermenting": "running"}).look("1", "a")).state == "running"


async def test_a_command_that_hangs_is_given_up(spool: Spool) -> None:
    hangs = {**commands(spool), "status": "sleep 600"}

    with pytest.raises(RunnerFailed, match=r"sleep did not answer within 0\.05s"):
        await ExecRunner(**hangs, timeout="50ms").look("1", "a")


async def test_a_command_has_ended_when_its_call_has_even_if_it_is_cancelled_twice(
    spool: Spool, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    hangs = f"sh -c {shlex.quote(f'echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600')}"
    call = asyncio.ensure_future(ExecRunner(**{**commands(spool), "status": hangs}).look("1", "a"))
    while not pid.exists():
        await asyncio.sleep(0.01)

    call.cancel()
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_submit_that_runs_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="does not contain the command to run"):
        ExecRunner(submit="sbatch script.sh", status="squeue", cancel="scancel")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_process_that_submit_leaves_in_the_background_does_not_hold_up_its_answer(
    run: Callable[[Coroutine[Any, Any, str]], str], tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    leaves = f"sleep 600 & echo $! > {pid}; echo handle-1"
    runner = ExecRunner(submit=f"sh -c {shlex.quote(leaves)} {{command}}", status="true", cancel="true")
    try:
        assert run(runner.start("a", ["true"], {})) == "handle-1"
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("COMPLETED|0:0\nRUNNING|0:0\nPENDING|0:0", OutsideStatus(state="running", detail="RUNNING")),
        ("COMPLETED|0:0\nPENDING|0:0", OutsideStatus(state="waiting", detail="PENDING")),
        ("COMPLETED|0:0\nFAILED|3:0\nCOMPLETED|0:0", OutsideStatus(state="exited", exit_code=3, detail="FAILED")),
        ("COMPLETED|0:0\nCOMPLETED|0:0", OutsideStatus(state="exited", exit_code=0, detail="COMPLETED")),
    ],
)
async def test_a_job_array_runs_while_one_of_its_tasks_does_and_failed_if_one_has(
    said: str, seen: OutsideStatus
) -> None:
    runner = ExecRunner(submit="echo {command}", status=f"printf {shlex.quote(said)}", cancel="true")

    assert await runner.look("7", "a") == seen


async def test_the_command_starts_with_the_interpreter_of_where_it_runs() -> None:
    runner = ExecRunner(submit="echo {line}", status="true", cancel="true", python="/opt/bin/python")

    started = await runner.start("a", [sys.executable, "-m", "mainstay"], {})
    assert started == "/opt/bin/python -m mainstay"

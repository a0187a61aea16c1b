"""Processes of their own: real ones, really killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from mainstay.batch.runners import OutsideStatus, ProcessRunner
from mainstay.errors import InvalidInput, RunnerFailed
from tests.worker.crews import alive

WAITS = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\nsys.exit(3)"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "runners"
    folder.mkdir()
    yield folder
    for record in folder.glob("*.pid"):
        for pid in record.read_text().split():
            if alive(int(pid)):
                os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def runner(folder: Path) -> ProcessRunner:
    return ProcessRunner(folder=folder, grace_s=0.5)


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-c", code, *words]


def told(folder: Path, name: str = "a") -> str:
    return (folder / f"{name}.log").read_text()


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    while not await look():
        await asyncio.sleep(0.01)


async def over(runner: ProcessRunner, name: str = "a") -> OutsideStatus:
    async def seen() -> bool:
        return (await runner.look("", name)).over

    await until(seen)
    return await runner.look("", name)


def pid_of(handle: str) -> int:
    return int(handle.rpartition(":")[2])


async def test_a_process_runs_on_its_own_and_its_exit_code_is_kept(
    runner: ProcessRunner, folder: Path, tmp_path: Path
) -> None:
    handle = await runner.start("a", python(WAITS, str(tmp_path / "go")), {})

    assert (await runner.look(handle, "a")) == OutsideStatus(state="running")
    assert os.getsid(pid_of(handle)) != os.getsid(0)
    (tmp_path / "go").touch()
    assert await over(runner) == OutsideStatus(state="exited", exit_code=3)
    assert await over(ProcessRunner(folder=folder)) == OutsideStatus(state="exited", exit_code=3)


async def test_the_same_name_is_started_once_also_by_many_at_a_time_and_after_its_end(
    runner: ProcessRunner, folder: Path
) -> None:
    code = python("print('began')")

    handles = await asyncio.gather(*(ProcessRunner(folder=folder).start("a", code, {}) for _ in range(6)))
    await over(runner)
    handles.append(await runner.start("a", code, {}))

    assert len(set(handles)) == 1
    assert told(folder) == "began\n"


async def test_what_it_is_given_by_the_environment_is_on_no_command_line(runner: ProcessRunner, folder: Path) -> None:
    code = "import os, sys; print(os.environ['SECRET'], sys.argv)"

    await runner.start("a", python(code), {"SECRET": "hunter2"})
    await over(runner)

    assert told(folder) == "hunter2 ['-c']\n"


async def test_a_process_that_was_killed_tells_by_what(runner: ProcessRunner) -> None:
    await runner.start("a", python("import os; os.kill(os.getpid(), 9)"), {})

    seen = await over(runner)

    assert (seen.state, seen.exit_code, "SIGKILL" in seen.detail) == ("exited", -9, True)


async def test_one_whose_keeper_was_killed_goes_with_it(runner: ProcessRunner, folder: Path, tmp_path: Path) -> None:
    code = f"import os, pathlib; pathlib.Path({str(folder)!r}, 'child.pid').write_text(str(os.getpid()))\n{WAITS}"
    handle = await runner.start("a", python(code, str(tmp_path / "never")), {})

    child = folder / "child.pid"

    async def begun() -> bool:
        return child.exists() and bool(child.read_text())

    await until(begun)
    os.kill(pid_of(handle), signal.SIGKILL)

    assert (await over(runner)).state == "gone"

    async def went_with_it() -> bool:
        return not Path(f"/proc/{child.read_text()}").exists()

    await until(went_with_it)


async def test_a_stop_asks_once_and_kills_what_does_not_end(runner: ProcessRunner, folder: Path) -> None:
    deaf = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(1)"
    )
    handle = await runner.start("a", python(deaf), {})

    async def ready() -> bool:
        return "ready" in told(folder)

    await until(ready)
    await runner.stop(handle, "a")
    await runner.stop(handle, "a")

    assert (await over(runner)).exit_code == -9
    assert told(folder) == "ready\nasked\n"
    await runner.stop(handle, "a")


async def test_what_was_never_started_is_gone_and_what_runs_elsewhere_is_nobodys_guess(runner: ProcessRunner) -> None:
    assert (await runner.look("", "a")).state == "gone"
    with pytest.raises(RunnerFailed, match="it was started on elsewhere"):
        await runner.look("elsewhere:17", "a")


async def test_a_command_that_is_not_there_is_refused_by_name(folder: Path) -> None:
    with pytest.raises(RunnerFailed, match="command 'no-such-command' does not exist"):
        await ProcessRunner("no-such-command {command}", folder=folder).start("a", ["x"], {})


def test_a_command_line_that_leaves_out_what_is_to_be_run_is_refused() -> None:
    with pytest.raises(InvalidInput, match="write exec:srun {command}"):
        ProcessRunner("srun")


async def test_a_command_that_cannot_be_run_exits_with_127(runner: ProcessRunner, folder: Path) -> None:
    broken = folder / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o700)

    await runner.start("a", [str(broken)], {})

    assert (await over(runner)).exit_code == 127
    assert "cannot be started" in told(folder)

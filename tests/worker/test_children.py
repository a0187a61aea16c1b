"""Children of an engine, with real processes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainstay.control import Extension, decoded
from mainstay.errors import StaleClaim
from mainstay.model import ErrorInfo, Job, Progress
from mainstay.worker import Context, Input, child_handle, children as module
from mainstay.worker.children import Children, ChildRun
from mainstay.worker.endings import Crashed, Done, Ending, Failed, Halted, Misfit, NotNeeded, PutOff
from mainstay.worker.process import Process
from mainstay.worker.worker_options import WorkerOptions
from tests.worker.program import job, stage

ROOT = Path(__file__).parents[2]
TARGET = "tests.worker.program:stage"


class Ear:
    """The engine's side of a context: hears what the job says."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.heard: asyncio.Queue[Progress] = asyncio.Queue()
        self.saved: asyncio.Queue[bytes] = asyncio.Queue()
        self.refuses: Exception | None = None

    def progress(self, progress: Progress) -> None:
        self.heard.put_nowait(progress)

    async def save(self, checkpoint: bytes) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.saved.put_nowait(checkpoint)

    async def extend(self) -> Extension:
        return Extension(granted_s=30.0, grants=1, why=f"after {self.heard.qsize()} words")

    async def inputs(self) -> list[Input]:
        error = ErrorInfo(type="ValueError", message="no")
        return [
            Input(id="a", name="n", status="succeeded", result={"x": 1}),
            Input(id="b", name="n", status="failed", error=error),
        ]


class Nursery:
    """Children, and the way tests talk to them."""

    def __init__(self, children: Children) -> None:
        self.children = children

    def begin(self, job: Job, ear: Ear | None = None, *, fresh: bool = False) -> ChildRun:
        context = Context(job, ear or Ear(), pack=stage.pack, unpack=stage.unpack)
        return self.children.begin(job, context, fresh=fresh)

    async def ending(self, name: str, /, **arguments: Any) -> Ending:
        return await self.begin(job(name, **arguments)).ending

    async def result(self, name: str, /, **arguments: Any) -> Any:
        return result_of(await self.ending(name, **arguments))

    async def begun(self, name: str, /, *, fresh: bool = False) -> ChildRun:
        """A job that says something once it runs, running."""
        ear = Ear()
        run = self.begin(job(name), ear, fresh=fresh)
        await ear.heard.get()
        return run


def result_of(ending: Ending) -> Any:
    assert isinstance(ending, Done), ending
    return None if ending.result is None else decoded(bytes(ending.result))


class Witness:
    """Sees a process die that is not ours to wait for."""

    def __init__(self, pid: int) -> None:
        self._fd = os.pidfd_open(pid)

    def dead(self, timeout_s: float = 30) -> bool:
        try:
            return bool(select.select([self._fd], [], [], timeout_s)[0])
        finally:
            os.close(self._fd)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'src'}")


@pytest.fixture
async def nursery() -> AsyncIterator[Nursery]:
    children = Children(WorkerOptions(target=TARGET, name="w"), most=3)
    yield Nursery(children)
    await children.close()
    assert left_over() == []


def left_over() -> list[str]:
    """The command lines of all children that this process has started and that are still there."""
    mark = f'"parent":{os.getpid()},'
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_text())
    return [line for line in found if mark in line]


# endings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "add_later"])
async def test_what_a_function_returns_comes_back(nursery: Nursery, name: str) -> None:
    assert await nursery.result(name, a=2, b=3) == 5


async def test_an_error_comes_back_with_its_traceback(nursery: Nursery) -> None:
    ending = await nursery.ending("raises")
    assert isinstance(ending, Failed)
    assert (ending.error.type, ending.error.message) == ("ValueError", "the light is out")
    assert "in raises" in (ending.error.traceback or "")


async def test_an_exit_asked_for_by_a_job_is_a_failure_and_the_child_lives_on(nursery: Nursery) -> None:
    pid, _ = await nursery.result("who")
    ending = await nursery.ending("exits")
    assert isinstance(ending, Failed)
    assert ending.error.type == "SystemExit"
    assert (await nursery.result("who"))[0] == pid


async def test_an_exit_in_a_task_that_a_job_started_is_its_crash(
    nursery: Nursery, capfd: pytest.CaptureFixture[str]
) -> None:
    ending = await nursery.ending("exits_in_a_task_of_its_own")
    assert isinstance(ending, Crashed)
    assert "exited with code 70" in ending.error.message
    assert "a job ended its process with SystemExit" in capfd.readouterr().err


async def test_a_plain_function_that_lets_stop_iteration_escape_fails(nursery: Nursery) -> None:
    ending = await nursery.ending("ends_iteration")
    assert isinstance(ending, Failed)


async def test_arguments_that_no_longer_fit_are_a_misfit(nursery: Nursery) -> None:
    ending = await nursery.ending("add", a=1, c=2)
    assert isinstance(ending, Misfit)
    assert ending.error.code == "bad_arguments"


async def test_a_name_that_only_the_engine_knows_fails(nursery: Nursery) -> None:
    ending = await nursery.ending("ad")
    assert isinstance(ending, Failed)
    assert ending.error.code == "unknown_task"


async def test_directives_come_back(nursery: Nursery) -> None:
    again = await nursery.ending("tries_again")
    assert isinstance(again, Failed)
    assert (again.after_s, again.error.code, again.error.message) == (90.0, "retry", "the line is busy")
    assert await nursery.ending("snoozes") == PutOff(300.0, "too early")
    assert await nursery.ending("skips") == NotNeeded("nothing to do")


async def test_an_ending_that_cannot_be_said_is_a_failure_of_its_job_only(nursery: Nursery) -> None:
    for reason in (404, b"\xff", [1]):
        ending = await nursery.ending("skips", reason=reason)
        assert isinstance(ending, Failed), ending
    assert await nursery.result("add", a=1, b=1) == 2


async def test_follow_ups_come_back_ready_to_be_submitted(nursery: Nursery) -> None:
    ending = await nursery.ending("submits", payload={"n": 1}, options={"queue": "mail", "tags": ["a"], "unique": True})
    assert result_of(ending) == "submitted"
    assert isinstance(ending, Done)
    first, last = ending.followups
    assert (first.name, last.name) == ("next", "last")
    assert decoded(bytes(first.payload)) == {"n": 1}
    assert first.options.queue == "mail"  # type: ignore[union-attr]
    assert first.options.options.tags == ("a",)  # type: ignore[union-attr]
    assert first.options.unique is True  # type: ignore[union-attr]


async def test_a_follow_up_with_a_wrong_option_fails_the_job_that_made_it(nursery: Nursery) -> None:
    ending = await nursery.ending("submits", payload=1, options={"quue": "mail"})
    assert isinstance(ending, Failed)
    assert "did you mean 'queue'" in ending.error.message


# what a job says and asks -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reports", "reports_from_a_thread"])
async def test_a_job_reaches_its_engine_and_gets_answers(nursery: Nursery, name: str) -> None:
    ear = Ear()
    row = msgspec.structs.replace(job(name), checkpoint=stage.pack({"at": 0}), failures=2)
    ending = await nursery.begin(row, ear).ending
    assert result_of(ending) == [{"at": 0}, 30.0, "after 1 words", ["a", "b"], 3]
    assert decoded(ear.saved.get_nowait()) == {"at": 1}
    assert ear.heard.get_nowait() == Progress(done=1, total=3, message="one")
    assert ear.heard.get_nowait() == Progress(done=3, total=3)


async def test_an_error_of_the_engine_is_raised_in_the_job(nursery: Nursery) -> None:
    ear = Ear()
    ear.refuses = StaleClaim("job x: the claim was lost")
    assert (
        result_of(await nursery.begin(job("saves_and_survives"), ear).ending) == "StaleClaim: job x: the claim was lost"
    )
    ear.refuses = KeyError("gone")
    assert "KeyError" in result_of(await nursery.begin(job("saves_and_survives"), ear).ending)


async def test_a_flood_of_progress_is_thinned_and_its_last_word_arrives(nursery: Nursery) -> None:
    ear = Ear()
    result_of(await nursery.begin(job("counts_fast", to=20_000), ear).ending)
    words = [ear.heard.get_nowait() for _ in range(ear.heard.qsize())]
    assert words[-1].done == 20_000
    assert len(words) < 2_000


async def test_progress_that_makes_no_sense_is_refused_in_the_job(nursery: Nursery) -> None:
    ending = await nursery.ending("says_nonsense")
    assert isinstance(ending, Failed)
    assert ending.error.code == "invalid_input"


async def test_arguments_and_results_of_many_megabytes_pass_both_ways_at_once(nursery: Nursery) -> None:
    data = os.urandom(6 << 20)
    found = await asyncio.gather(*(nursery.result("doubles", data=data) for _ in range(2)))
    assert found == [data + data] * 2


# crashes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("segfaults", {}, "was killed by SIGSEGV (a memory fault in native code)"),
        ("leaves", {"code": 3}, "exited with code 3"),
        ("leaves", {"code": 0}, "exited with code 0"),
        ("kills_itself", {"number": signal.SIGKILL}, "was killed by SIGKILL (from outside;"),
        ("kills_itself", {"number": signal.SIGABRT}, "was killed by SIGABRT"),
    ],
)
async def test_a_job_that_takes_its_process_down_has_crashed(
    nursery: Nursery, name: str, arguments: dict[str, Any], words: str
) -> None:
    ending = await nursery.ending(name, **arguments)
    assert isinstance(ending, Crashed)
    assert ending.error.code == "worker_crashed"
    assert words in ending.error.message
    assert await nursery.result("add", a=1, b=1) == 2


async def test_a_child_killed_from_outside_crashes_its_job_and_no_other(nursery: Nursery) -> None:
    first, second, third = [await nursery.begun("waits_in_a_thread") for _ in range(3)]
    assert second.pid is not None
    os.kill(second.pid, signal.SIGKILL)
    ending = await second.ending
    assert isinstance(ending, Crashed)
    assert str(second.pid) in ending.error.message
    assert not first.ending.done()
    assert not third.ending.done()
    for run in (first, third):
        run.stop("enough")
        assert await run.ending == Halted("enough")


async def test_a_memory_fault_says_which_line_led_to_it(nursery: Nursery, capfd: pytest.CaptureFixture[str]) -> None:
    await nursery.ending("segfaults")
    assert "in segfaults" in capfd.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux asks whom to kill")
async def test_a_child_is_killed_before_its_engine_when_memory_runs_out(nursery: Nursery) -> None:
    run = await nursery.begun("hears_nothing")
    ours, theirs = (int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in (os.getpid(), run.pid))
    assert theirs == min(ours + 500, 1000)


async def test_what_a_crashed_job_had_started_dies_with_it(nursery: Nursery) -> None:
    ear = Ear()
    run = nursery.begin(job("forgets_a_child_and_leaves"), ear)
    helper = Witness(int((await ear.heard.get()).done))
    assert isinstance(await run.ending, Crashed)
    assert helper.dead()


async def test_a_crash_is_seen_though_something_forked_still_holds_the_pipe(nursery: Nursery) -> None:
    ear = Ear()
    run = nursery.begin(job("forks_away_and_leaves"), ear)
    stray = int((await ear.heard.get()).done)
    witness = Witness(stray)
    try:
        assert isinstance(await run.ending, Crashed)
    finally:
        os.kill(stray, signal.SIGKILL)
        assert await asyncio.to_thread(witness.dead)


@pytest.mark.slow
async def test_whatever_is_killed_whenever_each_job_comes_to_one_end(
    nursery: Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_START_AGAIN_S", 0.0)
    chance = random.Random(11)
    runs = [nursery.begin(job("works_a_while", steps=30), fresh=chance.random() < 0.03) for _ in range(80)]

    async def kill_now_and_then() -> None:
        for _ in range(8):
            await asyncio.sleep(chance.random() / 3)
            victims = [run.pid for run in runs if run.pid is not None and not run.ending.done()]
            if victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(victims), signal.SIGKILL)

    killing = asyncio.create_task(kill_now_and_then())
    endings = await asyncio.gather(*(run.ending for run in runs))
    await killing
    done = [ending for ending in endings if isinstance(ending, Done)]
    hit = [ending for ending in endings if not isinstance(ending, Done)]
    assert all(result_of(ending) == 30 for ending in done)
    assert len(hit) <= 8
    assert {type(ending) for ending in hit} <= {Crashed, PutOff}


async def test_a_job_sent_to_a_child_that_just_died_is_innocent_and_runs_in_another(nursery: Nursery) -> None:
    pid, _ = await nursery.result("who")
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    # the loop has not turned: the engine still takes it for idle
    found = await nursery.result("who")
    assert found[0] != pid


async def test_a_child_that_closed_its_pipe_is_ended(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_handle, "_CLOSED_PIPE_S", 0.01)
    ending = await nursery.ending("closes_everything")
    assert isinstance(ending, Crashed)
    assert "had closed the pipe to its worker" in ending.error.message


# stopping -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["waits_on_the_loop", "waits_in_a_thread"])
async def test_a_job_that_is_asked_to_stop_stops_and_its_child_goes_on(nursery: Nursery, name: str) -> None:
    run = await nursery.begun(name)
    pid = run.pid
    run.stop("cancelled by ann")
    run.stop("a second reason is not the first")
    assert await run.ending == Halted("cancelled by ann")
    assert (await nursery.result("who"))[0] == pid


@pytest.mark.parametrize("name", ["hears_nothing", "waits_and_ignores"])
async def test_a_job_that_does_not_stop_is_killed(nursery: Nursery, name: str) -> None:
    run = await nursery.begun(name)
    run.stop("timed out")
    run.kill()
    assert await run.ending == Halted("timed out")


async def test_a_job_that_holds_the_interpreter_is_killed(nursery: Nursery) -> None:
    ear = Ear()
    run = nursery.begin(job("holds_the_interpreter"), ear)
    await ear.saved.get()
    run.stop("timed out")
    run.kill()
    assert await run.ending == Halted("timed out")


async def test_a_job_killed_without_being_asked_has_crashed(nursery: Nursery) -> None:
    run = await nursery.begun("hears_nothing")
    run.kill()
    ending = await run.ending
    assert isinstance(ending, Crashed)
    assert "killed by its worker" in ending.error.message


async def test_a_stopped_process_is_killed_too(nursery: Nursery) -> None:
    run = await nursery.begun("hears_nothing")
    assert run.pid is not None
    os.kill(run.pid, signal.SIGSTOP)
    run.stop("timed out")
    run.kill()
    assert await run.ending == Halted("timed out")


async def test_killing_a_job_kills_what_it_started(nursery: Nursery) -> None:
    ear = Ear()
    run = nursery.begin(job("has_a_child"), ear)
    helper = Witness(int((await ear.heard.get()).done))
    run.kill()
    await run.ending
    assert helper.dead()


async def test_a_job_stopped_before_its_child_is_ready_ends_at_once(nursery: Nursery) -> None:
    run = nursery.begin(job("add", a=1, b=1))
    run.stop("cancelled")
    assert run.ending.done()
    assert await run.ending == Halted("cancelled")
    later = nursery.begin(job("add", a=1, b=1))
    while later.pid is None:
        await asyncio.sleep(0)
    later.kill()
    assert isinstance(await later.ending, Halted)
    assert await nursery.result("add", a=1, b=1) == 2


async def test_a_job_that_waits_its_turn_can_be_stopped(nursery: Nursery) -> None:
    busy = [await nursery.begun("waits_in_a_thread") for _ in range(3)]
    waiting, next_one = nursery.begin(job("who")), nursery.begin(job("who"))
    waiting.stop("cancelled")
    assert await waiting.ending == Halted("cancelled")
    assert next_one.pid is None
    busy[1].stop("make room")
    assert result_of(await next_one.ending)[0] == busy[1].pid


async def test_to_give_up_waiting_is_to_kill_the_job(nursery: Nursery) -> None:
    run = await nursery.begun("hears_nothing")
    waiting = [nursery.begin(job("hears_nothing")) for _ in range(3)]
    assert run.pid is not None
    witness = Witness(run.pid)
    for one in (run, *waiting):
        one.ending.cancel()
    assert left_over() != []
    assert await asyncio.to_thread(witness.dead)
    assert await nursery.result("add", a=1, b=1) == 2


async def test_interrupt_and_terminate_are_left_to_the_engine(nursery: Nursery) -> None:
    run = await nursery.begun("waits_in_a_thread")
    assert run.pid is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(run.pid, number)
    run.stop("enough")
    assert await run.ending == Halted("enough")
    assert await nursery.result("ignored_signals") == [True, True]


# the life of a child ------------------------------------------------------------------------------------


async def test_a_child_is_kept_warm(nursery: Nursery) -> None:
    assert [await nursery.result("who") for _ in range(2)] == [[(await nursery.result("who"))[0], 1]] * 2


async def test_children_that_have_nothing_to_do_go_and_one_stays() -> None:
    children = Children(WorkerOptions(target=TARGET, name="w"), most=3, idle_s=0.05)
    nursery = Nursery(children)
    runs = [await nursery.begun("waits_on_the_loop") for _ in range(3)]
    witnesses = {run.pid: Witness(run.pid) for run in runs if run.pid is not None}
    for run in runs:
        run.stop("enough")
        await run.ending
    last = runs[-1].pid
    for pid, witness in witnesses.items():
        if pid != last:
            assert await asyncio.to_thread(witness.dead)
    assert (await nursery.result("who"))[0] == last
    assert not witnesses[last or 0].dead(0)
    await children.close()


async def test_a_job_that_waits_its_turn_has_not_begun(nursery: Nursery) -> None:
    busy = [await nursery.begun("waits_on_the_loop") for _ in range(3)]
    assert all(run.begun.done() for run in busy)
    waiting, dropped = nursery.begin(job("waits_on_the_loop")), nursery.begin(job("who"))
    assert not waiting.begun.done()
    dropped.stop("enough")
    busy[0].stop("make room")
    await waiting.begun
    assert not dropped.begun.done()


async def test_a_fresh_child_runs_one_job(nursery: Nursery) -> None:
    warm, _ = await nursery.result("who")
    run = nursery.begin(job("who"), fresh=True)
    fresh = result_of(await run.ending)[0]
    assert fresh != warm
    assert (await nursery.result("who"))[0] == warm


async def test_a_fresh_child_takes_the_place_of_an_idle_one() -> None:
    children = Children(WorkerOptions(target=TARGET, name="w"), most=1)
    nursery = Nursery(children)
    warm = Witness((await nursery.result("who"))[0])
    result_of(await nursery.begin(job("who"), fresh=True).ending)
    assert await asyncio.to_thread(warm.dead)
    await children.close()


async def test_a_child_is_recycled_after_its_jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    left = tmp_path / "left"
    monkeypatch.setenv("STAGE_LEFT", str(left))
    children = Children(WorkerOptions(target=TARGET, name="w"), most=1, recycle_after=2)
    nursery = Nursery(children)
    pids = [(await nursery.result("who"))[0] for _ in range(3)]
    assert pids[0] == pids[1] != pids[2]
    await children.close(grace_s=60)
    assert left.read_text() == str(pids[2]), "both left their lifespan, the last one last"


async def test_close_lets_jobs_stop_within_the_grace_and_kills_the_rest(tmp_path: Path) -> None:
    children = Children(WorkerOptions(target=TARGET, name="w"), most=3)
    nursery = Nursery(children)
    stops, stays = await nursery.begun("waits_on_the_loop"), await nursery.begun("hears_nothing")
    starting, waiting = nursery.begin(job("who")), nursery.begin(job("who"))
    witnesses = [Witness(run.pid) for run in (stops, stays) if run.pid is not None]
    closing = asyncio.create_task(children.close(grace_s=600))
    for run in (stops, starting, waiting):
        assert await run.ending == Halted("its worker stops")
    assert not stays.ending.done()
    await asyncio.gather(children.close(), closing)
    assert await stays.ending == Halted("its worker stops")
    assert [one.dead(0) for one in witnesses] == [True, True]
    assert await nursery.begin(job("who")).ending == Halted("its worker stops")


async def test_a_program_that_does_not_load_fails_its_job_and_the_next_start_waits(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_START_AGAIN_S", 600.0)
    children = Children(WorkerOptions(target="tests.worker.nowhere:app", name="w"), most=1)
    nursery = Nursery(children)
    ending = await nursery.ending("add", a=1, b=1)
    assert isinstance(ending, Failed)
    assert ending.error.code == "child_unfit"
    assert "there is no module 'tests.worker.nowhere'" in ending.error.message
    assert "could not start" in caplog.text
    second = nursery.begin(job("add", a=1, b=1))
    assert children.start_wait_s > 0
    await asyncio.sleep(0)
    assert second.pid is None
    await children.close()
    assert isinstance(await second.ending, Halted)


async def test_a_lifespan_that_cannot_be_entered_fails_the_job() -> None:
    children = Children(WorkerOptions(target="tests.worker.program:broken_lifespan", name="w"), most=1)
    ending = await Nursery(children).ending("add", a=1, b=1)
    assert isinstance(ending, Failed)
    assert ending.error.type == "RuntimeError"
    assert "no database in sight" in ending.error.message
    assert "RuntimeError" in (ending.error.traceback or "")
    await children.close()


async def test_a_process_that_dies_while_it_starts_fails_the_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "dies_at_import.py").write_text("import os\nos._exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT / 'src'}")
    children = Children(WorkerOptions(target="dies_at_import:app", name="w"), most=1)
    ending = await Nursery(children).ending("add", a=1, b=1)
    assert isinstance(ending, Failed)
    assert ending.error.code == "child_unfit"
    assert "exited with code 7" in ending.error.message
    await children.close()


@pytest.mark.parametrize("deaths", [1, 2])
async def test_a_process_that_is_killed_while_it_starts_costs_the_job_nothing(
    deaths: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_START_AGAIN_S", 0.0)
    tally = tmp_path / "tally"
    (tmp_path / "killed_at_import.py").write_text(
        "import os, pathlib\n"
        f"tally = pathlib.Path({str(tally)!r})\n"
        "with tally.open('a') as file: file.write('!')\n"
        f"if tally.stat().st_size <= {deaths}: os.kill(os.getpid(), 9)\n"
        "from tests.worker.program import stage\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "src")]))
    children = Children(WorkerOptions(target="killed_at_import:stage", name="w"), most=1)
    ending = await Nursery(children).ending("add", a=1, b=1)
    if deaths == 1:
        assert result_of(ending) == 2
    else:
        assert isinstance(ending, PutOff)
        assert ending.reason is not None
        assert "killed by SIGKILL" in ending.reason
    await children.close()


async def test_a_shortage_of_processes_costs_the_job_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_START_AGAIN_S", 0.0)
    left = [OSError(errno.EAGAIN, "Resource temporarily unavailable")]

    def short(*given: Any, **more: Any) -> Process:
        if left:
            raise left.pop()
        return Process(*given, **more)

    monkeypatch.setattr(child_handle, "Process", short)
    children = Children(WorkerOptions(target=TARGET, name="w"), most=1)
    assert await Nursery(children).result("add", a=1, b=1) == 2
    await children.close()


async def test_no_process_to_be_had_fails_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    children = Children(WorkerOptions(target=TARGET, name="w"), most=1)
    ending = await Nursery(children).ending("add", a=1, b=1)
    assert isinstance(ending, Failed)
    assert "could not be started" in ending.error.message
    await children.close()


def test_all_of_it_works_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def scenario() -> None:
        children = Children(WorkerOptions(target=TARGET, name="w"), most=2)
        nursery = Nursery(children)
        data = os.urandom(3 << 20)
        assert await nursery.result("doubles", data=data) == data + data
        assert isinstance(await nursery.ending("segfaults"), Crashed)
        run, other = await nursery.begun("waits_on_the_loop"), await nursery.begun("hears_nothing")
        run.stop("enough")
        assert await run.ending == Halted("enough")
        other.kill()
        assert isinstance(await other.ending, Crashed)
        witness = Witness((await nursery.result("who"))[0])
        await children.close(grace_s=60)
        assert witness.dead(0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


async def test_what_a_job_logs_is_formatted_as_in_its_engine(capfd: pytest.CaptureFixture[str]) -> None:
    children = Children(WorkerOptions(target=TARGET, name="w", log_level="info", json_logs=True), most=1)
    result_of(await Nursery(children).begin(job("logs")).ending)
    await children.close(grace_s=60)
    record = msgspec.json.decode(capfd.readouterr().err)
    assert (record["message"], record["job_id"], record["lamp"]) == ("lit", "job-logs", 7)


# dying with the parent ----------------------------------------------------------------------------------


@pytest.fixture
def engine() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("engine_with_children.py"))],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    yield process
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_children_die_with_their_engine_whatever_they_are_busy_with(engine: subprocess.Popen[str]) -> None:
    assert engine.stdout is not None
    witnesses = [Witness(int(pid)) for pid in engine.stdout.readline().split()]
    assert len(witnesses) == 3
    engine.kill()
    assert [one.dead() for one in witnesses] == [True, True, True]


async def test_a_process_whose_parent_died_before_it_could_say_so_exits() -> None:
    script = "from mainstay.parent import die_with_parent; die_with_parent(1 << 22); raise SystemExit(9)"
    process = Process([sys.executable, "-c", script], pass_fds=[])
    assert await process.ended() == 1

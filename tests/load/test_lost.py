"""Generators that die, stop or block, at any moment of a run: it ends, and says which, doing what, and its last words.

What a process may do to the line is in test_member; here the generators are real, and the test is what undoes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainstay.errors import InvalidInput
from mainstay.load.generator_process import GeneratorLost, Limits
from mainstay.load.generators import Generators
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.sources import LoadTest
from mainstay.load.target import TargetOptions, TargetServer
from tests.load.test_run import alive
from tests.load.trials import GET, HEAD, run_of, told, until, written
from tests.worker.crews import alive as runs

pytestmark = pytest.mark.slow

#: what only passes when something is amiss; not what a real process takes on a busy machine
HASTY = Limits(stopped_s=0.3, tell_s=0.3, tick_s=0.1)
KILL, STOP = "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 19)"
WORKFLOW = """
class Shop(Workflow):
    iterations = 1
    @step()
    async def act(self) -> None:
        {act}
    {more}
"""


def workflow(act: str = "await asyncio.sleep(0.01)", more: str = "") -> str:
    return WORKFLOW.format(act=act, more=more)


def method(kind: str, body: str) -> str:
    return f"@{kind}\n    async def other(self):\n        {body}"


def changed(folder: Path, start: str) -> LoadTest:
    """A test that was edited after this process had loaded it: generators find something else."""
    test = written(folder, workflow())
    file = folder / "shop.py"
    file.write_text(f"{HEAD}\n{start}\n{workflow()}")
    return test


@contextlib.asynccontextmanager
async def no_longer_than(seconds: float) -> AsyncIterator[None]:
    async with asyncio.timeout(seconds):
        yield


@pytest.mark.parametrize(
    ("start", "how"),
    [
        (KILL, "ended with signal 9, while it was preparing"),
        (
            "print('half done'); os._exit(3)",
            r"ended with code 3, while it was preparing .*; its last output: half done",
        ),
        (STOP, "was stopped by a signal for 0.3 s, while it was preparing"),
        # the clone has no part in the run
        ("if os.fork(): os.kill(os.getpid(), 9)", "ended with signal 9, while it was preparing"),
    ],
)
async def test_a_generator_that_is_lost_while_it_loads_the_test_ends_the_run(
    tmp_path: Path, start: str, how: str
) -> None:
    run = run_of(changed(tmp_path, start), limits=HASTY)

    async with no_longer_than(60):
        with pytest.raises(GeneratorLost, match=f"generator 0 {how}"):
            await run.run()


async def test_what_is_forked_while_the_test_is_loaded_has_no_part_in_the_run(tmp_path: Path) -> None:
    lines: list[str] = []
    run = run_of(changed(tmp_path, "os.fork()"), on_line=lambda _, line: lines.append(line))

    async with no_longer_than(60):
        summary = await run.run()

    assert (summary.ended, summary.iterations, lines) == ("finished", 1, [])


async def test_a_test_that_never_ends_being_loaded_ends_the_run_which_says_where_it_is(tmp_path: Path) -> None:
    began = tmp_path / "began"
    test = changed(tmp_path, f"open({str(began)!r}, 'w').close()\nwhile True: pass")
    run = run_of(test, limits=Limits(overtime_s=0.3, tick_s=0.1))
    task = asyncio.ensure_future(run.run())
    await until(began.exists, task)
    run.stop("interrupted")

    async with no_longer_than(60):
        with pytest.raises(GeneratorLost, match=r"did not finish.*preparing(.|\n)*shop\.py"):
            await task


@pytest.mark.parametrize("error", ["SystemExit(3)", "KeyboardInterrupt"])
async def test_a_test_that_leaves_while_it_is_loaded_is_refused(tmp_path: Path, error: str) -> None:
    with pytest.raises(InvalidInput, match=error.partition("(")[0]):
        await run_of(changed(tmp_path, f"raise {error}"), limits=HASTY).run()


async def test_a_generator_that_is_killed_before_it_was_told_anything_is_told(tmp_path: Path) -> None:
    test = written(tmp_path, workflow())
    async with no_longer_than(60), Generators(2, print, limits=HASTY) as fleet:
        os.kill(fleet.pids[1], signal.SIGKILL)
        with pytest.raises(GeneratorLost, match="generator 1 ended with signal 9"):
            await fleet.prepare(PlannedRun(test, LoadOptions()).order())
    assert not any(map(alive, fleet.pids))


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (workflow(more=method("setup", KILL)), "ended with signal 9, while it set up Shop"),
        (workflow(more=method("on_start", KILL)), "ended with signal 9, while it was under load"),
        (workflow(STOP), "was stopped by a signal for 0.3 s, while it was under load"),
        (workflow(more=method("teardown", KILL)), "ended with signal 9, while it tore down Shop"),
        (workflow(more=method("teardown", STOP)), "was stopped by a signal for 0.3 s, while it tore down Shop"),
    ],
)
async def test_a_generator_that_is_lost_at_any_moment_ends_the_run_in_bounded_time(
    tmp_path: Path, text: str, how: str
) -> None:
    run = run_of(written(tmp_path, text), limits=HASTY)

    async with no_longer_than(60):
        summary = await run.run()

    assert summary.ended.startswith(f"failed: generator 0 {how}")
    assert summary.verdict == "failed"


async def test_a_step_that_blocks_its_generator_ends_the_run_which_says_where_it_is(tmp_path: Path) -> None:
    test = written(tmp_path, workflow("while True: pass"))

    async with no_longer_than(60):
        summary = await run_of(test, limits=Limits(silent_s=1.5, tick_s=0.1)).run()

    assert "generator 0 sent nothing for 1.5 s; does one of its steps block the event loop?" in summary.ended
    assert "in act" in summary.ended


async def test_a_generator_that_is_killed_while_it_drains_ends_the_run(tmp_path: Path) -> None:
    text = workflow(f"await asyncio.sleep(0.5); {KILL}").replace("iterations = 1", 'duration = "100ms"')

    async with no_longer_than(60):
        summary = await run_of(written(tmp_path, text), drain="20s", limits=Limits()).run()

    assert summary.ended.startswith("failed: generator 0 ended with signal 9, while it was under load")


async def test_a_generator_that_is_stopped_does_not_keep_the_others(tmp_path: Path) -> None:
    async with TargetServer() as target:
        run = run_of(written(tmp_path, GET), vus=4, duration="1h", processes=2, base_url=target.url, limits=HASTY)
        task = asyncio.ensure_future(run.run())
        await until(lambda: target.counts().completed >= 20, task)
        assert isinstance(run._runner, Generators)
        pids = run._runner.pids
        os.kill(pids[1], signal.SIGSTOP)
        async with no_longer_than(60):
            summary = await task

    assert "generator 1 was stopped by a signal for 0.3 s" in summary.ended
    assert summary.requests >= 20
    assert not any(map(alive, pids))


async def test_generators_go_with_the_process_that_started_them_even_if_they_are_stopped(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    (tmp_path / "shop.py").write_text(
        f"{HEAD}\nwith open({str(pids)!r}, 'a') as file: print(os.getpid(), file=file)\n"
        + workflow("await asyncio.sleep(60)")
    )
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mainstay", "load", "run", "shop.py", "--processes", "2", "--vus", "2"),
        *("--ui", "none", "--iterations", "2"),
        cwd=tmp_path,
    )
    waiting = asyncio.ensure_future(parent.wait())
    await until(lambda: len(told(pids)) == 3, waiting)
    generators = [int(pid) for pid in told(pids) if int(pid) != parent.pid]
    os.kill(generators[0], signal.SIGSTOP)
    parent.kill()
    await waiting

    async with no_longer_than(60):
        while any(map(alive, generators)):
            await asyncio.sleep(0.01)


#: a process that starts generators as an engine of a node does, and orders the load
ENGINE = """
import asyncio, os, sys
from mainstay.event_loop import new_event_loop
from mainstay.load.generators import Generators
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.sources import load_file

async def main(file, url):
    options = LoadOptions(processes=2, base_url=url, preflight=False)
    async with Generators(2, lambda _: None, on_line=lambda _, line: print(line, flush=True)) as runner:
        print(*runner.pids, flush=True)
        await runner.prepare(PlannedRun(load_file(file), options).order())
        await runner.go(["Shop"], {}, longest_s=600.0, drain_s=1.0)

with asyncio.Runner(loop_factory=new_event_loop) as runner:
    runner.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "act",
    [
        "await self.client.http.get('/')",
        # the event loop would notice nothing
        "await self.client.http.get('/'); while_true()",
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {15, 1, 2}); await self.client.http.get('/')",
    ],
    ids=["calls", "busy", "signals are blocked"],
)
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a generator must notice that its connection is closed")
async def test_a_load_ends_within_a_second_with_the_process_that_started_it(tmp_path: Path, act: str) -> None:
    """Load that nobody measures any more would be an outage of the system under test."""
    (tmp_path / "shop.py").write_text(
        f"{HEAD}\ndef while_true():\n    while True: pass\n"
        f"class Shop(Workflow):\n    vus, duration = 4, '5m'\n    @step()\n    async def act(self) -> None:\n"
        f"        {act}\n"
    )
    async with TargetServer(TargetOptions()) as target:
        engine = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", ENGINE, str(tmp_path / "shop.py"), target.url), stdout=asyncio.subprocess.PIPE
        )
        assert engine.stdout is not None
        pids = [int(pid) for pid in (await engine.stdout.readline()).split()]
        waiting = asyncio.ensure_future(engine.wait())
        await until(lambda: target.counts().begun >= 2, waiting)
        assert [runs(pid) for pid in pids] == [True, True]

        engine.kill()
        killed_s = time.monotonic()
        async with no_longer_than(60):
            while any(map(runs, pids)):
                await asyncio.sleep(0.005)
        took_s = time.monotonic() - killed_s
        sent = target.counts().begun
        await waiting

        assert took_s < 1.0
        # what the four users had sent may still arrive
        assert target.counts().begun <= sent + 4


async def test_what_a_step_starts_can_be_terminated_though_its_generator_cannot(tmp_path: Path) -> None:
    text = """
    import signal, time
    from multiprocessing import get_context

    def wait(began):
        began.set()
        time.sleep(60)

    async def forked() -> int:
        fork = get_context("fork")
        began = fork.Event()
        process = fork.Process(target=wait, args=[began])
        process.start()
        await asyncio.to_thread(began.wait)
        process.terminate()
        await asyncio.to_thread(process.join)
        return process.exitcode

    async def started() -> int:
        process = await asyncio.create_subprocess_exec("sleep", "60")
        process.terminate()
        return await process.wait()

    class Shop(Workflow):
        iterations = 1
        @step()
        async def act(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            print(await forked(), await started())
    """
    lines: list[str] = []

    async with no_longer_than(50):
        summary = await run_of(written(tmp_path, text), on_line=lambda _, line: lines.append(line)).run()

    assert (summary.ended, lines) == ("finished", ["-15 -15"])


async def test_what_the_steps_print_is_passed_on_with_the_number_of_the_process(tmp_path: Path) -> None:
    text = """
    import logging
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    print("loaded")

    class Shop(Workflow):
        vus, iterations = 2, 2
        @step()
        async def act(self) -> None:
            print("user", self.vu.id)
            logging.info("logged %d", self.vu.id)
            os.system("echo shell")
            print("half", end="")
    """
    lines: list[tuple[int, str]] = []
    run = run_of(written(tmp_path, text), processes=2, on_line=lambda number, line: lines.append((number, line)))

    await run.run()

    assert sorted(lines) == sorted(
        (number, line)
        for number in (0, 1)
        for line in ("loaded", f"user {number}", f"logged {number}", "shell", "half")
    )


async def test_a_test_that_takes_the_streams_away_ends_as_any_other(tmp_path: Path) -> None:
    lines: list[str] = []
    test = written(tmp_path, workflow("sys.stdout = sys.stderr = None"))

    summary = await run_of(test, on_line=lambda _, line: lines.append(line)).run()

    assert (summary.ended, lines) == ("finished", [])


async def test_a_print_for_each_iteration_is_bounded(tmp_path: Path) -> None:
    lines: list[str] = []
    run = run_of(
        written(tmp_path, workflow("print('again')")), iterations=5000, on_line=lambda _, line: lines.append(line)
    )

    summary = await run.run()

    assert summary.iterations == 5000
    more = sum(int(line.split()[2].replace(",", "")) for line in lines if line.startswith("... and"))
    assert lines.count("again") + more == 5000
    assert len(lines) < 1000

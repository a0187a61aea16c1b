"""Where results go never fails a run, and never holds it up."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mainstay.clock import SystemClock
from mainstay.errors import InvalidInput
from mainstay.load.outputs import OutputLimits, RunOutputs
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.run import LoadRun
from mainstay.load.stats.model import Header, Moment, Summary, Trust, Window
from tests.load.trials import written

HEADER = Header(run="1", name="shop", started_ms=0, version="0", processes=1, duration_s=1.0)
SUMMARY = Summary(header=HEADER, elapsed_s=1.0, requests=1, failed=0, rate=1.0, iterations=1, users=1)
MOMENT = Moment(window=Window(bucket=0), elapsed_s=0.1, phase="running", trust=Trust())
#: no time at all: what comes to its end at once has it
HASTY = OutputLimits(start_s=0.0, stop_s=0.0, give_up_s=0.0)


class WorkflowReport:
    """An output that notes what it is told, and does something else in one of its calls."""

    def __init__(self, name: str, at: str = "", act: object = None) -> None:
        self.name = name
        self.calls: list[str] = []
        self._at = at
        self._act = act

    async def start(self, _: Header) -> None:
        await self._called("start")

    def add(self, _: Moment) -> None:
        self.calls.append("add")

    async def stop(self, _: Summary) -> None:
        await self._called("stop")

    async def _called(self, name: str) -> None:
        self.calls.append(name)
        if name != self._at:
            return
        if isinstance(self._act, BaseException):
            raise self._act
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self._act != "deaf":
                    raise
                self._act = ""  # the second time it heeds, so that the test comes to its end


async def told(bad: WorkflowReport, limits: OutputLimits | None = None) -> tuple[WorkflowReport, list[tuple[str, str]]]:
    good = WorkflowReport("good")
    outputs = RunOutputs([bad, good], limits)
    await outputs.start(HEADER)
    outputs.add(MOMENT)
    await outputs.stop(SUMMARY)
    return good, [(one.name, one.error) for one in outputs.outcomes()]


@pytest.mark.parametrize(("at", "calls"), [("start", ["start"]), ("stop", ["start", "add", "stop"])])
@pytest.mark.parametrize(
    ("act", "limits", "says"),
    [
        (OSError("no"), None, "OSError: no"),
        (asyncio.CancelledError(), None, "RuntimeError: {at} was cancelled"),
        ("waits", HASTY, "TimeoutError: {at} did not return within 0 s"),
        ("deaf", HASTY, "TimeoutError: {at} did not return within 0 s"),
    ],
    ids=["raises", "cancels", "waits", "deaf"],
)
async def test_an_output_that_fails_gets_nothing_more_and_the_others_go_on(
    at: str, calls: list[str], act: object, limits: OutputLimits | None, says: str
) -> None:
    bad = WorkflowReport("bad", at, act)

    good, outcomes = await told(bad, limits)

    assert bad.calls == calls
    assert good.calls == ["start", "add", "stop"]
    assert outcomes == [("bad", says.format(at=at)), ("good", "")]


async def test_what_the_user_asked_for_wrongly_is_refused() -> None:
    with pytest.raises(InvalidInput, match="html: is a folder"):
        await told(WorkflowReport("bad", "start", InvalidInput("html", "is a folder")))


async def test_whoever_stops_waiting_does_not_leave_a_call_behind() -> None:
    task = asyncio.ensure_future(told(bad := WorkflowReport("bad", "start", "waits")))
    while not bad.calls:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)

    assert task.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.slow
@pytest.mark.parametrize("output", ["FileOutput('json', Path(path))", "StreamOutput(path)"])
def test_a_pipe_that_nobody_reads_does_not_keep_the_program(tmp_path: Path, output: str) -> None:
    os.mkfifo(pipe := tmp_path / "run")
    program = f"""
import asyncio, sys
from pathlib import Path
from mainstay.load.outputs import RunOutputs
from mainstay.load.stream import StreamOutput
from mainstay.load.report.files import FileOutput
from tests.load.test_outputs import HASTY, HEADER, SUMMARY

async def main(path):
    outputs = RunOutputs([{output}], HASTY)
    await outputs.start(HEADER)
    await outputs.stop(SUMMARY)
    print([one.error for one in outputs.outcomes()])

asyncio.run(main(sys.argv[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, pipe], cwd=Path(__file__).parents[2],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip

    assert "did not return within 0 s" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("at", ["start", "stop"])
async def test_a_run_whose_output_hangs_comes_to_its_end_and_says_so(tmp_path: Path, at: str) -> None:
    test = written(tmp_path, "class Shop(Workflow):\n    iterations = 3\n    @step()\n    async def act(self): ...")
    planned = PlannedRun(test, LoadOptions(processes=1))
    hangs = WorkflowReport("hangs", at, "waits")

    run = LoadRun(planned.spec(), "run-1", clock=SystemClock(), outputs=[hangs], output_limits=HASTY)
    summary = await run.run()

    assert (summary.ended, summary.verdict, summary.iterations) == ("finished", "passed", 3)
    assert [one.error for one in summary.outputs] == [f"TimeoutError: {at} did not return within 0 s"]

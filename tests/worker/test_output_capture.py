"""What a job prints goes to that job, from its task, its threads and its logs; everything else stays where it was."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from mainstay.testing import a_job
from mainstay.worker import Context, output_path, read_output
from mainstay.worker.job_context import enter
from mainstay.worker.output_capture import JobStream, OutputCapture


class Capturing:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.capture = OutputCapture(folder)
        self.out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)

    def begin(self) -> None:
        """Replace the streams: in the test itself, for pytest replaces them between a fixture and its test."""
        sys.stdout = sys.stderr = self.out
        self.capture.install()

    def job(self, number: int = 0) -> Context:
        row = msgspec.structs.replace(
            a_job("running"), id=f"018bcfe5-6800-7000-8000-{number:012x}", token=1, session="s"
        )
        return Context(row, cast("Any", None), pack=bytes, unpack=bytes)

    def printed(self, context: Context) -> str:
        found = read_output(output_path(self.folder, context.job.id, 1))
        return "" if found is None else found.data.decode()

    def echoed(self) -> str:
        return self.out.buffer.getvalue().decode()


@pytest.fixture
def capturing(tmp_path: Path) -> Iterator[Capturing]:
    made = Capturing(tmp_path)
    before = sys.stdout, sys.stderr
    yield made
    sys.stdout, sys.stderr = before


async def run(context: Context, work: Any) -> None:
    async def job() -> None:
        enter(context)
        await work()
        context.close()

    await asyncio.create_task(job())


async def test_tasks_at_the_same_time_print_to_their_own_jobs(capturing: Capturing) -> None:
    capturing.begin()
    jobs = [capturing.job(number) for number in range(20)]

    async def work(number: int) -> None:
        for step in range(5):
            print(number, end=" ")
            await asyncio.sleep(0)
            print("step", step)

            async def inner(step: int = step) -> None:
                print(number, "inner", step)

            await asyncio.create_task(inner())

    await asyncio.gather(*(run(job, lambda n=number: work(n)) for number, job in enumerate(jobs)))

    for number, job in enumerate(jobs):
        assert capturing.printed(job).splitlines() == [
            line for step in range(5) for line in (f"{number} step {step}", f"{number} inner {step}")
        ]


async def test_threads_that_take_the_context_print_to_the_job(capturing: Capturing) -> None:
    capturing.begin()
    jobs = [capturing.job(number) for number in range(5)]
    together = threading.Barrier(5)

    def in_thread(number: int) -> None:
        together.wait(10)
        print("thread", number)

    async def work(number: int) -> None:
        await asyncio.to_thread(in_thread, number)

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(5))
    await asyncio.gather(*(run(job, lambda n=number: work(n)) for number, job in enumerate(jobs)))

    assert [capturing.printed(job) for job in jobs] == [f"thread {number}\n" for number in range(5)]


async def test_a_thread_that_a_job_starts_itself_is_attributed_to_no_other_job(capturing: Capturing) -> None:
    capturing.begin()
    job = capturing.job()

    async def work() -> None:
        thread = threading.Thread(target=print, args=("from a thread",))
        thread.start()
        thread.join()

    await run(job, work)
    assert capturing.printed(job) == ""
    assert capturing.echoed() == "from a thread\n"


async def test_a_process_that_runs_one_job_at_a_time_attributes_its_threads_too(capturing: Capturing) -> None:
    capturing.begin()
    job = capturing.job()
    capturing.capture.alone = job

    async def work() -> None:
        thread = threading.Thread(target=print, args=("from a thread",))
        thread.start()
        thread.join()

    await run(job, work)
    assert capturing.printed(job) == "from a thread\n"


async def test_a_job_that_prints_nothing_costs_no_file(capturing: Capturing) -> None:
    capturing.begin()
    job = capturing.job()
    await run(job, lambda: asyncio.sleep(0))
    assert job.output is None
    assert list(capturing.folder.iterdir()) == []


def test_what_is_printed_outside_of_a_job_goes_where_it_went(capturing: Capturing) -> None:
    capturing.begin()
    print("ready")
    sys.stderr.write("starting\n")
    sys.stdout.buffer.write(b"bytes\n")
    assert capturing.echoed() == "ready\nstarting\nbytes\n"
    assert list(capturing.folder.iterdir()) == []


async def test_standard_error_logs_and_bytes_of_a_job_are_kept_and_echoed(capturing: Capturing) -> None:
    capturing.begin()
    job = capturing.job()
    log = logging.getLogger("tests.output")
    handler = logging.StreamHandler(sys.stderr)
    log.addHandler(handler)

    async def work() -> None:
        print("out")
        print("err", file=sys.stderr)
        log.warning("logged")
        sys.stdout.buffer.write(b"\xff bytes\n")
        sys.stdout.writelines(["a\n", "b\n"])

    try:
        await run(job, work)
    finally:
        log.removeHandler(handler)

    found = read_output(output_path(capturing.folder, job.job.id, 1))
    assert found is not None
    assert found.data == b"out\nerr\nlogged\n\xff bytes\na\nb\n"
    assert capturing.out.buffer.getvalue() == found.data


async def test_without_echo_it_is_kept_only(tmp_path: Path) -> None:
    capturing = Capturing(tmp_path)
    capturing.capture = OutputCapture(tmp_path, echo=False)
    job = capturing.job()

    async def work() -> None:
        print("quiet")

    with contextlib.redirect_stdout(capturing.out):
        sys.stdout = cast("Any", JobStream(sys.stdout, capturing.capture))
        await run(job, work)
    assert (capturing.printed(job), capturing.echoed()) == ("quiet\n", "")


async def test_a_task_that_goes_on_after_its_job_prints_to_nothing_but_the_terminal(capturing: Capturing) -> None:
    capturing.begin()
    job = capturing.job()
    go = asyncio.Event()
    late: list[asyncio.Task[None]] = []

    async def afterwards() -> None:
        await go.wait()
        print("late")

    async def work() -> None:
        print("in time")
        late.append(asyncio.create_task(afterwards()))

    await run(job, work)
    go.set()
    await asyncio.gather(*late)
    assert capturing.printed(job) == "in time\n"
    assert capturing.echoed() == "in time\nlate\n"


async def test_one_process_keeps_the_output_of_its_newest_jobs(capturing: Capturing, monkeypatch: Any) -> None:
    capturing.begin()
    monkeypatch.setattr("mainstay.worker.output_capture._PROCESS_FILES", 10)
    jobs = [capturing.job(number) for number in range(30)]

    async def work() -> None:
        print("x")

    for job in jobs:
        await run(job, work)

    assert [capturing.printed(job) for job in jobs] == [""] * 20 + ["x\n"] * 10
    assert len(list(capturing.folder.iterdir())) == 10


async def test_flush_shows_an_unfinished_line(capturing: Capturing) -> None:
    capturing.begin()
    job = capturing.job()

    async def work() -> None:
        print("50 %", end="", flush=True)
        assert capturing.printed(job) == "50 %"

    await run(job, work)

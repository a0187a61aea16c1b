"""The same for code without a loop, from any thread, beside and inside workers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mainstay import App
from mainstay.errors import MainstayError
from tests.app.working import working


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    made = App("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db")

    @made.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    yield made
    made.close_sync()


def test_jobs_are_submitted_looked_at_and_cancelled(app: App) -> None:
    double = app.tasks["double"]

    job = double.submit_sync(4)
    many = app.submit_many_sync(double.job(n) for n in range(3))

    assert job.created
    assert len(many) == 3
    assert job.status_sync() == "pending"
    assert job.job_sync().name == "double"
    assert job.cancel_sync().status == "cancelled"
    assert job.wait_sync().status == "cancelled"
    assert len(job.story_sync()) == 2


def test_several_threads_at_once_share_the_store(app: App) -> None:
    double = app.tasks["double"]

    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(double.submit_sync, range(40)))

    assert len({job.id for job in jobs}) == 40
    assert all(job.status_sync() == "pending" for job in jobs)


async def test_a_thread_and_a_loop_use_the_same_store(app: App) -> None:
    double = app.tasks["double"]

    async with working(app):
        job = await asyncio.to_thread(double.submit_sync, 4)
        # woken by the end of a job that another loop's worker ran
        assert await asyncio.to_thread(job.result_sync, "10s") == 8
        assert await job.result(timeout="60s") == 8


async def test_a_plain_function_in_a_worker_may_submit_and_wait(app: App) -> None:
    double = app.tasks["double"]

    @app.task(name="outer")
    def outer(n: int) -> int:
        found: int = double.submit_sync(n).result_sync("10s")
        return found + 1

    async with working(app):
        assert await (await outer.submit(4)).result(timeout="60s") == 9


@pytest.mark.parametrize("lives", [True, False], ids=["worker", "bare engine"])
async def test_a_job_cannot_close_the_store_that_its_worker_uses(app: App, lives: bool) -> None:
    double = app.tasks["double"]

    @app.task(name="entering")
    async def entering() -> None:
        async with app:
            await double.submit(1)

    @app.task(name="closing")
    async def closing() -> None:
        await app.close()

    @app.task(name="closing-thread")
    def closing_thread() -> None:
        double.submit_sync(1)
        app.close_sync()

    async with working(app, lives=lives):
        for task in (entering, closing, closing_thread):
            await (await task.submit()).result(timeout="60s")
            assert await (await double.submit(4)).result(timeout="60s") == 8


async def test_a_thread_that_a_job_started_cannot_close_it_either(app: App) -> None:
    double = app.tasks["double"]

    @app.task(name="closing")
    def closing() -> None:
        thread = threading.Thread(target=app.close_sync)
        thread.start()
        thread.join()

    async with working(app):
        await (await closing.submit()).result(timeout="60s")
        assert await (await double.submit(4)).result(timeout="60s") == 8


async def test_a_job_closes_another_app_as_anybody_does(app: App) -> None:
    other = App("memory:")
    task = other.task(name="never")(lambda: None)

    @app.task(name="elsewhere")
    async def elsewhere() -> None:
        async with other:
            await task.submit()

    async with working(app):
        await (await elsewhere.submit()).result(timeout="60s")

    assert other.client.connection.control is None


async def test_on_a_running_loop_it_refuses_with_advice(app: App) -> None:
    with pytest.raises(MainstayError, match="would block the event loop .* `await submit"):
        app.tasks["double"].submit_sync(1)
    with pytest.raises(MainstayError, match="would block the event loop .* `await result"):
        app.handle("018bcfe5-6800-7000-8000-000000000001").result_sync()


def test_an_app_can_be_used_again_after_close(app: App) -> None:
    double = app.tasks["double"]
    double.submit_sync(1)

    app.close_sync()
    app.close_sync()

    assert double.submit_sync(2).status_sync() == "pending"


def test_a_program_that_ends_without_a_close_leaves_its_store_in_good_order(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from mainstay import App\n"
        "app = App('sqlite:///jobs.db')\n"
        "job = app.task(name='work')(lambda: None).submit_sync()\n"
        "assert job.cancel_sync().status == job.wait_sync().status\n"
    )

    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.glob("jobs.db-wal")) == []
    assert list((tmp_path / "jobs.db-mainstay" / "sockets").iterdir()) == []


def test_a_forked_process_opens_the_store_for_itself(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    double = app.task(name="double")(lambda n: 2 * n)
    before = double.submit_sync(1)

    child = os.fork()
    if child == 0:
        try:
            ok = double.submit_sync(2).status_sync() == before.status_sync() == "pending"
        except BaseException:  # noqa: BLE001 - whatever it is, the parent is to hear of it
            ok = False
        os._exit(0 if ok else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert double.submit_sync(3).created
    app.close_sync()

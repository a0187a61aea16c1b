"""Handles inside of jobs."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mainstay import App
from tests.app.working import working


@pytest.fixture
def app() -> App:
    return App("memory:", retries=0)


class Told(logging.Handler):
    """Lets go of those who wait once it has heard a number of warnings."""

    def __init__(self, enough: int) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []
        self.done = asyncio.Event()
        self._enough = enough
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage().split(":")[0])
        if len(self.said) == self._enough:
            self._loop.call_soon_threadsafe(self.done.set)


async def test_a_job_that_waits_for_another_is_told_of_once_for_its_task(app: App) -> None:
    told = Told(enough=2)
    log = logging.getLogger("mainstay.tasks")

    @app.task(name="kid")
    async def kid() -> int:
        await told.done.wait()
        return 1

    @app.task(name="parent")
    async def parent() -> int:
        return await (await kid.submit()).result("60s")

    @app.task(name="plain")
    def plain() -> int:
        return kid.submit_sync().result_sync("10s")

    log.addHandler(told)
    try:
        async with app, working(app):
            jobs = [await task.submit() for task in (parent, parent, plain)]
            assert [await job.result("60s") for job in jobs] == [1, 1, 1]
    finally:
        log.removeHandler(told)

    assert sorted(told.said) == [
        "task=parent waits inside a job for another job",
        "task=plain waits inside a job for another job",
    ]


async def test_a_job_that_reads_what_is_settled_holds_up_nobody(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(name="kid")
    async def kid() -> int:
        return 1

    @app.task(name="reader")
    async def reader(job_id: str) -> int:
        return await kid.handle(job_id).result("60s")

    async with app, working(app):
        job = await kid.submit()
        await job.wait("60s")
        assert await (await reader.submit(job.id)).result("60s") == 1

    assert "waits inside a job" not in caplog.text

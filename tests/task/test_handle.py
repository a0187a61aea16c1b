"""Handles inside of jobs."""

from __future__ import annotations

import logging

import pytest

from mainstay import App
from tests.app.working import working


@pytest.fixture
def app() -> App:
    made = App("memory:", retries=0)

    @made.task(name="kid")
    async def kid() -> int:
        return 1

    return made


async def test_a_job_that_waits_for_another_is_told_of_once_for_its_task(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    kid = app.tasks["kid"]

    @app.task(name="parent")
    async def parent() -> int:
        return int(await (await kid.submit()).result("10s"))

    @app.task(name="plain")
    def plain() -> int:
        return int(kid.submit_sync().result_sync("10s"))

    async with app, working(app):
        jobs = [await task.submit() for task in (parent, parent, plain)]
        assert [await job.result("10s") for job in jobs] == [1, 1, 1]

    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sorted(text.split(":")[0] for text in said) == [
        "task=parent waits inside a job for another job",
        "task=plain waits inside a job for another job",
    ]


async def test_a_job_that_reads_what_is_settled_holds_up_nobody(app: App, caplog: pytest.LogCaptureFixture) -> None:
    kid = app.tasks["kid"]

    @app.task(name="reader")
    async def reader(job_id: str) -> int:
        return int(await kid.handle(job_id).result("10s"))

    async with app, working(app):
        job = await kid.submit()
        await job.wait("10s")
        assert await (await reader.submit(job.id)).result("10s") == 1

    assert "waits inside a job" not in caplog.text

"""Groups: many jobs and one that follows them."""

from __future__ import annotations

import pytest

from mainstay import App, JobFailed, Task, context
from mainstay.errors import InvalidInput
from tests.app.working import working


@pytest.fixture
def app() -> App:
    return App("memory:", backoff_base="0s", retries=0)


@pytest.fixture
def work(app: App) -> Task[[int], int]:
    @app.task(name="work")
    async def work(n: int) -> int:
        if n < 0:
            raise ValueError("negative")
        return n * n

    return work


@pytest.fixture
def total(app: App) -> Task[[], int]:
    @app.task(name="total")
    async def total() -> int:
        return sum(done.result or 0 for done in await context().inputs())

    return total


async def test_the_callback_sees_what_the_members_returned(
    app: App, work: Task[[int], int], total: Task[[], int]
) -> None:
    async with app, working(app):
        group = await app.group([work.job(n) for n in range(5)], then=total.job())

        assert await group.then.result(timeout="60s") == 30
        assert [await member.result(timeout="60s") for member in group.members] == [0, 1, 4, 9, 16]


async def test_a_failed_member_skips_the_callback_or_not_as_declared(
    app: App, work: Task[[int], int], total: Task[[], int]
) -> None:
    async with app, working(app):
        strict = await app.group([work.job(-1), work.job(2)], then=total.job())
        lenient = await app.group([work.job(-1), work.job(2)], then=total.job(), when="settled")

        with pytest.raises(JobFailed, match="is skipped"):
            await strict.then.result(timeout="60s")
        assert await lenient.then.result(timeout="60s") == 4


async def test_a_group_submitted_twice_is_there_once(app: App, work: Task[[int], int], total: Task[[], int]) -> None:
    then = total.options(key="monday")

    first = await app.group([work.job(1), work.job(2)], then=then.job())
    again = await app.group([work.job(1), work.job(2)], then=then.job())

    assert (first.then.created, again.then.created) == (True, False)
    assert again.members == first.members
    assert repr(again) == f"<group of 2 then Handle({first.then.id!r})>"


async def test_the_callbacks_own_options_are_kept(app: App, work: Task[[int], int], total: Task[[], int]) -> None:
    group = await app.group([work.job(1)], then=total.options(queue="sums", tags=["x"]).job())

    row = await group.then.job()
    assert (row.queue, row.options.tags, row.status) == ("sums", ("x",), "scheduled")


async def test_what_is_no_job_is_refused(app: App, work: Task[[int], int]) -> None:
    with pytest.raises(InvalidInput, match="is not a job to submit; write task.job"):
        await app.group([work.job(1)], then=work)  # type: ignore[arg-type]


def test_code_without_a_loop_submits_groups(app: App, work: Task[[int], int], total: Task[[], int]) -> None:
    group = app.group_sync([work.job(1)], then=total.job())

    assert group.then.status_sync() == "scheduled"
    app.close_sync()

"""Hooks: before a submit, around a run, around a worker's life."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mainstay import App, Context, Draft, JobFailed, context
from mainstay.errors import InvalidInput, MainstayError
from mainstay.stores import Query
from tests.app.working import working

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


@pytest.fixture
def app() -> App:
    return App("memory:", retries=0)


# before submit --------------------------------------------------------------------------------------


async def test_a_hook_adds_to_every_submit_there_is(app: App) -> None:
    @app.before_submit
    def trace(draft: Draft) -> None:
        draft.add_metadata(trace_id=f"{draft.name}-{draft.arguments.get('n')}")
        draft.add_tags("traced")

    @app.task(name="work", tags=["mine"])
    async def work(n: int = 0) -> None:
        if n == 1:
            context().submit(work.job(5))

    @app.task(name="total")
    async def total() -> None: ...

    async with app, working(app):
        jobs = [
            await work.submit(1),
            *await app.submit_many([work.job(2)]),
            *(group := await app.group([work.job(n=3)], then=total.job())).members,
            group.then,
        ]
        for job in jobs:
            await job.result(timeout="10s")
        rows = (await app.control.find(Query(tag="traced"))).jobs

    assert {row.options.metadata["trace_id"] for row in rows} == {"work-1", "work-2", "work-3", "total-None", "work-5"}
    assert {row.options.tags for row in rows if row.name == "work"} == {("mine", "traced")}


async def test_a_hook_may_change_options_or_answer_with_another_draft(app: App) -> None:
    @app.before_submit
    def route(draft: Draft) -> Draft:
        return Draft(name=draft.name, arguments=draft.arguments, options={**draft.options, "queue": "bulk"})

    @app.before_submit
    def last_word(draft: Draft) -> None:
        draft.options["priority"] = 7 if draft.options["queue"] == "bulk" else 0

    row = await (await app.task(name="work")(lambda: None).submit()).job()

    assert (row.queue, row.priority) == ("bulk", 7)


async def test_a_hook_leaves_the_task_and_other_submits_as_they_are(app: App) -> None:
    task = app.task(name="work", metadata={"team": "x"})(lambda: None)

    @app.before_submit
    def count(draft: Draft) -> None:
        draft.add_metadata(n=str(len(draft.options["metadata"])))

    for _ in range(2):
        assert (await (await task.submit()).job()).options.metadata == {"team": "x", "n": "1"}
    assert task.defaults == {"metadata": {"team": "x"}}


async def test_what_a_hook_gets_wrong_is_refused(app: App) -> None:
    task = app.task(name="work")(lambda: None)

    @app.before_submit
    def wrong(draft: Draft) -> Any:
        return draft.options

    with pytest.raises(InvalidInput, match="wrong answered with a dict; return the Draft, or None"):
        await task.submit()

    async def later(draft: Draft) -> None: ...

    with pytest.raises(InvalidInput, match="is not a plain function"):
        app.before_submit(later)  # type: ignore[type-var]


# around a run ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [True, False])
async def test_managers_nest_in_order_around_each_run_and_what_they_set_is_seen(app: App, is_async: bool) -> None:
    told: list[str] = []

    @app.around_run
    async def outer(running: Context) -> AsyncIterator[None]:
        told.append(f"outer in {running.job.name}")
        token = tenant.set("ann")
        yield
        tenant.reset(token)
        told.append("outer out")

    @app.around_run
    def inner(running: Context) -> Iterator[None]:
        told.append("inner in")
        yield
        told.append("inner out")

    async def wait() -> str:
        return tenant.get()

    def work() -> str:
        return tenant.get()

    task = app.task(name="work")(wait) if is_async else app.task(name="work")(work)
    async with app, working(app):
        assert await (await task.submit()).result(timeout="10s") == "ann"

    assert told == ["outer in work", "inner in", "inner out", "outer out"]


async def test_a_manager_sees_the_error_and_may_turn_it_into_another(app: App) -> None:
    @app.around_run
    @asynccontextmanager
    async def translate(running: Context) -> AsyncIterator[None]:
        try:
            yield
        except ValueError as error:
            raise LookupError("translated") from error

    @app.task(name="fail")
    async def fail() -> None:
        raise ValueError

    async with app, working(app):
        with pytest.raises(JobFailed, match="LookupError: translated"):
            await (await fail.submit()).result(timeout="10s")


def test_without_managers_nothing_is_entered(app: App) -> None:
    assert app.around(None) is None  # type: ignore[arg-type]


def test_what_is_no_context_manager_is_refused(app: App) -> None:
    async def coroutine(running: Context) -> None: ...

    with pytest.raises(InvalidInput, match="around_run: .* write an async def that yields once"):
        app.around_run(coroutine)  # type: ignore[type-var]


# around a worker's life -----------------------------------------------------------------------------


async def test_what_the_lifespan_yields_is_the_state_while_a_worker_runs(app: App) -> None:
    told: list[str] = []

    @app.lifespan
    async def pools() -> AsyncIterator[dict[str, int]]:
        told.append("up")
        yield {"pool": 7}
        told.append("down")

    @app.task(name="use")
    def use() -> int:
        found: int = app.state["pool"]
        return found

    with pytest.raises(MainstayError, match="app.state is there while a worker runs"):
        _ = app.state
    async with app, working(app):
        assert await (await use.submit()).result(timeout="10s") == 7
        assert told == ["up"]

    assert told == ["up", "down"]
    with pytest.raises(MainstayError):
        _ = app.state


async def test_without_a_lifespan_the_state_is_none(app: App) -> None:
    async with app.lifespan():
        assert app.state is None


def test_there_is_one_lifespan(app: App) -> None:
    @app.lifespan
    async def first() -> AsyncIterator[None]:
        yield

    with pytest.raises(InvalidInput, match="lifespan: there is one already"):
        app.lifespan(first)

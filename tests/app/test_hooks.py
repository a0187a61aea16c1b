"""Hooks: before a submit, around a run, around a worker's life."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import servers
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
            await job.result(timeout="60s")
        rows = (await app.control.store.find(Query(tag="traced"))).jobs

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

    with pytest.raises(InvalidInput, match="wrong returned a dict; return the Draft, or None"):
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
        assert await (await task.submit()).result(timeout="60s") == "ann"

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
            await (await fail.submit()).result(timeout="60s")


def test_without_managers_nothing_is_entered(app: App) -> None:
    assert app.around(None) == ()  # type: ignore[arg-type]


async def test_a_plain_hook_runs_in_the_thread_of_a_plain_task(app: App) -> None:
    """Before and after it: what it sets in thread-locals the task sees, and what the task sets it sees."""
    local = threading.local()
    told: list[tuple[str, int]] = []

    @app.around_run
    def connected(running: Context) -> Iterator[None]:
        local.tenant = running.job.name
        told.append(("in", threading.get_ident()))
        yield
        told.append((f"out {local.answer}", threading.get_ident()))

    @app.task(name="work")
    def work() -> str:
        local.answer = 42
        told.append(("task", threading.get_ident()))
        return str(local.tenant)

    async with app, working(app):
        assert await (await work.submit()).result(timeout="60s") == "work"

    assert [what for what, _ in told] == ["in", "task", "out 42"]
    threads = {thread for _, thread in told}
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_hook_of_either_kind_runs_on_the_loop_around_an_async_task(app: App, kind: str) -> None:
    threads: set[int] = set()

    def plain(running: Context) -> Iterator[None]:
        threads.add(threading.get_ident())
        yield
        threads.add(threading.get_ident())

    async def awaited(running: Context) -> AsyncIterator[None]:
        threads.add(threading.get_ident())
        yield
        threads.add(threading.get_ident())

    app.around_run(plain if kind == "plain" else awaited)

    @app.task(name="work")
    async def work() -> None:
        threads.add(threading.get_ident())

    async with app, working(app):
        await (await work.submit()).result(timeout="60s")

    assert threads == {threading.get_ident()}


async def test_around_a_plain_task_async_hooks_are_outside_of_plain_ones(app: App) -> None:
    """They cannot be entered in a thread; among themselves, both kinds keep their order."""
    told: list[str] = []

    def plain(name: str) -> Any:
        def hook(running: Context) -> Iterator[None]:
            told.append(f"{name} in, {_where()}")
            yield
            told.append(f"{name} out, {_where()}")

        return hook

    def awaited(name: str) -> Any:
        async def hook(running: Context) -> AsyncIterator[None]:
            told.append(f"{name} in, {_where()}")
            yield
            told.append(f"{name} out, {_where()}")

        return hook

    for hook in (plain("first"), awaited("second"), plain("third"), awaited("fourth")):
        app.around_run(hook)

    @app.task(name="work")
    def work() -> None:
        told.append("work")

    async with app, working(app):
        await (await work.submit()).result(timeout="60s")

    entered = ["second in, loop", "fourth in, loop", "first in, thread", "third in, thread"]
    left = ["third out, thread", "first out, thread", "fourth out, loop", "second out, loop"]
    assert told == [*entered, "work", *left]


def _where() -> str:
    return "thread" if threading.current_thread().name.startswith("mainstay-job") else "loop"


async def test_a_plain_hook_around_a_plain_task_sees_its_error_and_may_swallow_it(app: App) -> None:
    seen: list[str] = []

    @app.around_run
    def calm(running: Context) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(str(error))

    @app.task(name="fail")
    def fail() -> int:
        raise ValueError("boom")

    async with app, working(app):
        assert await (await fail.submit()).result(timeout="60s") is None

    assert seen == ["boom"]


async def test_an_error_of_a_plain_hook_fails_the_job(app: App) -> None:
    @app.around_run
    def broken(running: Context) -> Iterator[None]:
        raise LookupError("no connection")
        yield

    @app.task(name="work")
    def work() -> None: ...

    async with app, working(app):
        with pytest.raises(JobFailed, match="LookupError: no connection"):
            await (await work.submit()).result(timeout="60s")


@pytest.mark.slow
async def test_connections_of_threads_are_replaced_by_a_hook_after_the_database_was_restarted(app: App) -> None:
    """As frameworks keep them: one per thread, closed by a hook when it is old or broken. With the hook in another
    thread than the task, no connection was ever closed, and every job failed after a restart."""
    psycopg = pytest.importorskip("psycopg")
    local = threading.local()
    opened: list[Any] = []

    def close_old_connection() -> None:
        connection = getattr(local, "connection", None)
        if connection is None:
            return
        try:
            connection.execute("SELECT 1")
        except psycopg.Error:
            connection.close()
            local.connection = None

    @app.around_run
    def connections(running: Context) -> Iterator[None]:
        close_old_connection()
        yield
        close_old_connection()

    with servers.folder("mainstay-hooks-") as place:
        database = servers.Postgres(place)

        @app.task(name="backend")
        def backend() -> int:
            if getattr(local, "connection", None) is None:
                local.connection = psycopg.connect(database.url(), autocommit=True)
                opened.append(local.connection)
            row = local.connection.execute("SELECT pg_backend_pid()").fetchone()
            return int(row[0])

        try:
            async with app, working(app):

                async def round_of_jobs() -> set[int]:
                    jobs = await app.submit_many([backend.job() for _ in range(30)])
                    return {await job.result(timeout="60s") for job in jobs}

                await round_of_jobs()
                first = len(opened)
                database.stop()
                database.start()
                await round_of_jobs()  # each job has its result: none failed
        finally:
            for connection in opened:
                connection.close()
            database.stop()

    assert 1 <= first <= 4, "one connection for each thread"
    assert len(opened) > first


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

    with pytest.raises(MainstayError, match="app.state exists only in a running worker"):
        _ = app.state
    async with app, working(app):
        assert await (await use.submit()).result(timeout="60s") == 7
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

    with pytest.raises(InvalidInput, match="lifespan: the app already has one"):
        app.lifespan(first)

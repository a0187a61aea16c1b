"""The harness: an app's jobs on a store in memory, in virtual time, when the test says so."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st

from mainstay import App, JobFailed, MainstayError, context
from mainstay.control.check import check
from mainstay.errors import InvalidInput
from mainstay.testing import DrainError, Harness
from tests.testing import heavy

BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def app() -> App:
    return App("sqlite:///never-opened.db", jitter=False)


# drain ------------------------------------------------------------------------------------------------


async def test_a_drain_runs_what_is_due_and_says_what_ran(app: App) -> None:
    @app.task(name="double")
    async def double(n: int) -> int:
        return 2 * n

    async with Harness(app) as box:
        jobs = [await double.submit(n) for n in range(3)]
        drained = await box.drain()

        assert [await job.result() for job in jobs] == [0, 2, 4]
    assert [(ran.task, ran.attempt) for ran in drained.runs] == [("double", 1)] * 3
    assert drained.counts == {"succeeded": 3}
    assert (drained.left, drained.took) == ((), timedelta())


async def test_delays_and_retries_pass_in_virtual_time(app: App) -> None:
    seen: list[datetime] = []

    @app.task(name="flaky", retries=2)
    async def flaky() -> None:
        seen.append(box.now)
        raise ConnectionError("down")

    began = time.monotonic()
    async with Harness(app, now=BEGIN) as box:
        job = await flaky.options(delay="1h").submit()
        drained = await box.drain()

        assert await job.status() in ("failed", "quarantined")
    hour = timedelta(hours=1)
    assert seen == [BEGIN + hour, BEGIN + hour + timedelta(seconds=2), BEGIN + hour + timedelta(seconds=6)]
    assert [ran.at for ran in drained.runs] == seen
    assert drained.took == hour + timedelta(seconds=6)
    assert time.monotonic() - began < 30


async def test_a_drain_up_to_a_time_leaves_the_rest_and_the_clock_there(app: App) -> None:
    @app.task(name="remind")
    async def remind(day: int) -> None: ...

    async with Harness(app, now=BEGIN) as box:
        for day in (1, 2, 3):
            await remind.options(delay=timedelta(days=day)).submit(day)
        drained = await box.drain(until="36h")

        assert (len(drained.runs), len(drained.left)) == (1, 2)
        assert box.now == BEGIN + timedelta(hours=36)
        assert (await box.drain()).counts == {"succeeded": 2}


async def test_plain_functions_run_in_threads_and_those_for_processes_too(app: App) -> None:
    @app.task(name="plain")
    def plain() -> str:
        return threading.current_thread().name

    @app.task(name="heavy", process=True)
    def heavy() -> str:
        return threading.current_thread().name

    async with Harness(app) as box:
        assert (await box.run(plain.job())).startswith("mainstay-job")
        assert (await box.run(heavy.job())).startswith("mainstay-job")


@pytest.mark.slow
async def test_tasks_for_processes_get_their_own_if_told_where_the_app_is() -> None:
    async with Harness(heavy.app, processes="tests.testing.heavy:app", patience="60s") as box:
        job = await heavy.leaves.submit()
        assert await box.run(heavy.where.job()) not in (0, os.getpid())
        await box.drain()
        row = await job.job()

    assert (row.status, row.crashes) == ("quarantined", 1)
    assert row.error is not None
    assert "exited with code 3" in row.error.message


async def test_what_a_job_submits_runs_in_the_same_drain_whatever_its_queue(app: App) -> None:
    done = []

    @app.task(name="child")
    async def child(n: int) -> None:
        done.append(n)

    @app.task(name="parent")
    async def parent() -> None:
        context().submit(child.job(1))
        await child.options(queue="elsewhere").submit(2)

    async with Harness(app) as box:
        await parent.submit()
        drained = await box.drain()

    assert sorted(done) == [1, 2]
    assert drained.counts == {"succeeded": 3}


async def test_groups_and_waits_come_to_their_end(app: App) -> None:
    @app.task(name="part")
    async def part(n: int) -> int:
        return n

    @app.task(name="total")
    async def total() -> int:
        return sum(each.result for each in await context().inputs())

    async with Harness(app) as box:
        group = await app.group([part.job(n) for n in (1, 2, 3)], then=total.job())
        await box.drain()

        assert await group.then.result() == 6


async def test_hooks_and_lifespan_are_there_as_in_a_worker(app: App) -> None:
    @app.lifespan
    async def pool() -> AsyncIterator[str]:
        yield "pool"

    @app.task(name="uses")
    async def uses() -> str:
        return str(app.state)

    async with Harness(app) as box:
        assert await box.run(uses.job()) == "pool"


async def test_a_job_that_puts_itself_off_for_ever_is_stopped_by_the_limit(app: App) -> None:
    @app.task(name="poll")
    async def poll() -> None:
        context().snooze("1h")

    async with Harness(app, limit=50) as box:
        await poll.submit()
        with pytest.raises(DrainError, match=r"stopped after 50 runs.*poll 51 times.*until="):
            await box.drain()
        assert len((await box.drain(until="10h")).runs) in (9, 10, 11)


async def test_a_job_that_submits_itself_at_once_for_ever_is_stopped_as_well(app: App) -> None:
    @app.task(name="echo")
    async def echo() -> None:
        await echo.submit()

    async with Harness(app, limit=200) as box:
        await echo.submit()
        with pytest.raises(DrainError, match="stopped after 200 runs"):
            await box.drain()


async def test_a_job_that_hangs_meets_its_timeout_without_real_waiting(app: App) -> None:
    @app.task(name="hangs", timeout="30m", retries=0)
    async def hangs() -> None:
        await asyncio.Event().wait()

    began = time.monotonic()
    async with Harness(app, now=BEGIN, patience="20ms") as box:
        job = await hangs.submit()
        drained = await box.drain()
        row = await job.job()

    assert [event.status for event in drained.settled] == ["quarantined"]
    assert row.error is not None
    assert "timeout" in row.error.message
    assert drained.took == timedelta(minutes=30)
    assert time.monotonic() - began < 30


async def test_a_job_that_will_not_stop_is_left_behind_and_the_others_go_on(app: App) -> None:
    release = asyncio.Event()

    @app.task(name="deaf", timeout="1m", retries=0)
    async def deaf() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    @app.task(name="fine")
    async def fine() -> None: ...

    async with Harness(app, patience="20ms") as box:
        await deaf.submit()
        await fine.options(delay="1h").submit()
        drained = await box.drain()
        release.set()

    assert drained.counts == {"quarantined": 1, "succeeded": 1}


async def test_a_job_that_hangs_without_a_limit_is_named(app: App) -> None:
    @app.task(name="hangs", timeout="off")
    async def hangs() -> None:
        await asyncio.Event().wait()

    async with Harness(app, patience="20ms") as box:
        job = await hangs.submit()
        with pytest.raises(DrainError, match=rf"job {job.id} \(hangs\) has been running.*timeout"):
            await box.drain()


async def test_a_job_that_takes_real_time_is_waited_for(app: App) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    @app.task(name="slow", timeout="1s")
    async def slow() -> str:
        began.set()
        await may_end.wait()
        return "done"

    async with Harness(app) as box:
        job = await slow.submit()
        draining = asyncio.create_task(box.drain())
        await began.wait()
        assert not draining.done()
        may_end.set()
        drained = await draining

        assert await job.result() == "done"
    assert drained.took == timedelta()


async def test_a_queue_deadline_passes(app: App) -> None:
    @app.task(name="soon")
    async def soon() -> None: ...

    async with Harness(app) as box:
        await app.control.operations.pause("default")
        await soon.options(queue_deadline="10m").submit()
        drained = await box.drain()

    assert drained.runs == ()
    assert [job.status for job in drained.settled] != []
    assert drained.took >= timedelta(minutes=10)


async def test_a_paused_queue_is_left_alone(app: App) -> None:
    @app.task(name="later")
    async def later() -> None: ...

    async with Harness(app) as box:
        await app.control.operations.pause("default")
        await later.submit()
        drained = await box.drain()

        assert [job.status for job in drained.left] == ["pending"]
        with pytest.raises(AssertionError, match="later is still pending"):
            drained.expect_success()
        with pytest.raises(DrainError, match="stays pending"):
            await box.run(later.job())


async def test_a_job_of_an_unknown_task_is_named(app: App) -> None:
    async with Harness(app) as box:
        await app.control.jobs.submit("unheard.of", {})
        with pytest.raises(DrainError, match=r"no task 'unheard\.of'"):
            await box.drain()


async def test_schedules_tick_when_a_drain_goes_up_to_a_time(app: App) -> None:
    ticked: list[datetime] = []

    @app.schedule("*/15 * * * *")
    @app.task(name="sync")
    async def sync() -> None:
        ticked.append(box.now)

    async with Harness(app, now=BEGIN) as box:
        assert (await box.drain()).runs == ()
        drained = await box.drain(until="1h")

    assert ticked == [BEGIN + timedelta(minutes=15 * n) for n in (1, 2, 3, 4)]
    assert drained.counts == {"succeeded": 4}


async def test_a_schedule_with_times_of_its_own_ticks_too(app: App) -> None:
    class Once:
        def next(self, after: datetime) -> datetime | None:
            at = BEGIN + timedelta(seconds=90)
            return at if after < at else None

    @app.schedule(Once())
    @app.task(name="once")
    async def once() -> None: ...

    async with Harness(app, now=BEGIN) as box:
        drained = await box.drain(until="5m")

    assert drained.counts == {"succeeded": 1}


async def test_failures_are_told_in_the_message(app: App) -> None:
    @app.task(name="breaks", retries=0)
    async def breaks() -> None:
        raise LookupError("no such address")

    async with Harness(app) as box:
        await breaks.submit()
        drained = await box.drain()

    with pytest.raises(AssertionError, match="breaks is .*LookupError: no such address"):
        drained.expect_success()


async def test_what_is_left_to_chance_is_the_same_in_every_run() -> None:
    async def story(seed: int) -> list[datetime]:
        app = App("memory:", jitter=True)

        @app.task(name="flaky", retries=4)
        async def flaky() -> None:
            raise ConnectionError("down")

        async with Harness(app, now=BEGIN, seed=seed) as box:
            await flaky.submit()
            return [ran.at for ran in (await box.drain()).runs]

    assert await story(1) == await story(1) != await story(2)


async def test_an_app_that_is_closed_by_the_code_under_test_stays_in_the_harness(app: App) -> None:
    @app.task(name="noop")
    async def noop() -> None: ...

    async with Harness(app) as box:
        async with app:
            await noop.submit()
        await noop.submit()

        assert (await box.drain()).counts == {"succeeded": 2}


FATES = ("returns", "fails", "recovers", "snoozes", "skips", "follows", "gives up")


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(FATES), st.integers(0, 3)), max_size=12))
def test_whatever_jobs_do_a_drain_brings_all_of_them_to_an_end_and_the_store_is_sound(
    fates: list[tuple[str, int]],
) -> None:
    app = App("memory:")

    @app.task(name="meets", retries=2)
    async def meets(fate: str) -> None:
        here = context()
        if fate == "fails" or (fate == "recovers" and here.attempt == 1):
            raise ConnectionError("down")
        if fate == "snoozes" and here.job.releases < 2:
            here.snooze("10m")
        elif fate == "skips":
            here.skip("nothing to do")
        elif fate == "follows":
            here.submit(meets.options(delay="5m").job("returns"))
        elif fate == "gives up":
            here.retry(after="1d", reason="later")

    async def story() -> None:
        with Harness(app) as box:
            ids: list[str] = []
            for fate, hours in fates:
                after = ids[-1:] if hours == 3 else None
                job = await meets.options(
                    delay=f"{hours}h", after=after, after_when="settled" if after else None
                ).submit(fate)
                ids.append(job.id)
            drained = await box.drain()

            assert drained.left == ()
            assert len(drained.settled) == len(ids) + sum(fate == "follows" for fate, _ in fates)
            assert (await check(box.store)).violations == ()

    asyncio.run(story())


# run and inline ---------------------------------------------------------------------------------------


async def test_run_gives_the_result_or_raises_as_a_handle_does(app: App) -> None:
    @app.task(name="half", retries=1)
    async def half(n: int) -> int:
        if n % 2:
            raise ValueError("odd")
        return n // 2

    async with Harness(app) as box:
        assert await box.run(half.job(4)) == 2
        with pytest.raises(JobFailed, match="ValueError: odd"):
            await box.run(half.job(3))


async def test_run_moves_the_clock_no_further_than_the_job_needs(app: App) -> None:
    @app.task(name="noop")
    async def noop() -> None: ...

    async with Harness(app, now=BEGIN) as box:
        later = await noop.options(delay="2h").submit()
        await box.run(noop.options(delay="1h").job())

        assert box.now == BEGIN + timedelta(hours=1)
        assert await later.status() == "scheduled"


async def test_inline_every_submit_runs_to_its_end(app: App) -> None:
    @app.task(name="add", retries=3)
    async def add(a: int, b: int) -> int:
        if context().attempt < 3:
            raise ConnectionError("again")
        return a + b

    async with Harness(app, inline=True):
        job = await add.submit(1, 2)

        assert await job.status() == "succeeded"
        assert await job.result() == 3
        assert [await each.result() for each in await app.submit_many(add.job(n, n) for n in (1, 2))] == [2, 4]


async def test_inline_submits_within_jobs_and_side_by_side_do_not_get_in_each_others_way(app: App) -> None:
    @app.task(name="child")
    def child(n: int) -> int:
        return n + 1

    @app.task(name="parent")
    async def parent(n: int) -> int:
        return await (await child.submit(n)).result() * 10

    @app.task(name="sync_parent")
    def sync_parent(n: int) -> int:
        return child.submit_sync(n).result_sync() * 10

    async with Harness(app, inline=True):
        jobs = await asyncio.gather(*(task.submit(n) for n in (1, 2) for task in (parent, sync_parent)))

        assert [await job.result() for job in jobs] == [20, 20, 30, 30]
    app.client._portal.close()


def test_without_a_loop_everything_has_a_sync_form(app: App) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    with Harness(app, now=BEGIN) as box:
        job = add.options(delay="1d").submit_sync(1, 2)
        assert box.drain_sync().counts == {"succeeded": 1}
        assert job.result_sync() == 3
        assert box.run_sync(add.job(2, 2)) == 4
        box.advance("1h")
        assert box.now == BEGIN + timedelta(days=1, hours=1)
    with Harness(app, inline=True):
        assert add.submit_sync(3, 4).result_sync() == 7
    app.client._portal.close()


async def test_the_sync_forms_are_refused_where_a_loop_runs(app: App) -> None:
    with Harness(app) as box, pytest.raises(MainstayError, match="await drain"):
        box.drain_sync()


async def test_a_job_cannot_drain_the_store_it_runs_in(app: App) -> None:
    @app.task(name="greedy", retries=0)
    async def greedy() -> None:
        await box.drain()

    async with Harness(app) as box:
        with pytest.raises(JobFailed, match="cannot drain the store it runs in"):
            await box.run(greedy.job())


async def test_outside_the_block_the_app_has_its_own_store_back(app: App) -> None:
    mine = App("memory:")
    async with mine:
        before = mine.control
        with Harness(mine) as box:
            assert mine.control is not before
        assert mine.control is before
        with pytest.raises(MainstayError, match="not in use"):
            await box.drain()


def test_only_an_app_can_be_tested() -> None:
    with pytest.raises(InvalidInput, match="is not an App"):
        Harness("sqlite:///jobs.db")  # type: ignore[arg-type]


# submitted --------------------------------------------------------------------------------------------


async def test_what_was_submitted_is_told_with_decoded_arguments_and_options(app: App) -> None:
    @app.task(name="mail.send", queue="mail", tags=["mail"])
    async def send(to: UUID, subject: str = "hi") -> None: ...

    who = UUID(int=7)
    async with Harness(app, now=BEGIN) as box:
        assert box.submitted() == []
        await send.options(delay="5m", key="welcome-7", priority=3, metadata={"trace": "t1"}).submit(who)
        await send.options(key="welcome-7").submit(who)  # the same job
        (found,) = box.submitted(send)
        await box.drain()

        assert box.submitted(send)[0].delay == found.delay == timedelta(minutes=5)
        assert box.submitted(send)[0].job.status == "succeeded"
    assert (found.task, found.arguments) == ("mail.send", {"to": who})
    assert (found.queue, found.key, found.priority, found.tags) == ("mail", "welcome-7", 3, ("mail",))
    assert (found.metadata, found.run_at) == ({"trace": "t1"}, BEGIN + timedelta(minutes=5))


async def test_submits_are_found_by_task_and_arguments_defaults_included(app: App) -> None:
    @app.task(name="send")
    async def send(to: str, subject: str = "hi") -> None: ...

    @app.task(name="log")
    async def log(to: str) -> None: ...

    async with Harness(app) as box:
        await send.submit("a")
        await send.submit("b", subject="bye")
        await log.submit("a")

        assert [each.task for each in box.submitted(to="a")] == ["send", "log"]
        assert [each.arguments["to"] for each in box.submitted(send, subject="hi")] == ["a"]
        assert [each.arguments["to"] for each in box.submitted("send")] == ["a", "b"]
        assert box.assert_submitted(send, to="b").arguments == {"to": "b", "subject": "bye"}
        box.assert_submitted(send, times=2)
        box.assert_not_submitted(log, to="b")
        with pytest.raises(
            AssertionError, match=r"send\(to='c'\) was not submitted; what was submitted:\n  send\(to='a'"
        ):
            box.assert_submitted(send, to="c")
        with pytest.raises(AssertionError, match="was not submitted 3 times, but 2 times"):
            box.assert_submitted(send, times=3)
        with pytest.raises(AssertionError, match="was submitted; "):
            box.assert_not_submitted(log)
        with pytest.raises(InvalidInput, match="assert_not_submitted"):
            box.assert_submitted(send, times=0)
        with pytest.raises(InvalidInput, match=r"send\.too: the task has no such parameter"):
            box.submitted(send, too="a")


async def test_a_task_of_another_app_is_refused_instead_of_never_found(app: App) -> None:
    other = App("memory:")

    @other.task(name="send")
    async def send() -> None: ...

    async with Harness(app) as box:
        with pytest.raises(InvalidInput, match="belongs to another app"):
            box.submitted(send)

"""Users are sent off and brought home."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest

from mainstay.load.engine import executors
from mainstay.load.engine.executors import ClosedExecutor, executor_of, gone
from mainstay.load.engine.user import StopSignal
from mainstay.load.feeders import Feed
from mainstay.load.hooks import on_start, on_stop, step
from mainstay.load.workflow import Workflow
from tests.load.engine.walking import crowd_of


async def test_a_user_that_takes_no_cancellation_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executors, "_LEAVE_S", 0.01)
    stubborn = True

    async def stays() -> None:
        while stubborn:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)

    task = asyncio.ensure_future(stays())
    await asyncio.sleep(0)
    with caplog.at_level(logging.ERROR):
        await asyncio.wait_for(gone({task}, 0.0, StopSignal()), 60)

    assert "users=1 do not leave" in caplog.text
    stubborn = False
    task.cancel()
    await task


async def test_what_ends_within_the_drain_is_not_given_up() -> None:
    tasks = {asyncio.ensure_future(asyncio.sleep(0.01, "done"))}
    (task,) = tasks
    await gone(tasks, 5.0, StopSignal())  # type: ignore[arg-type] # what they return is nobody's business

    assert task.result() == "done"


@pytest.mark.parametrize(("processes", "users"), [(4, 3), (3, 8), (2, 1)])
async def test_processes_share_the_iterations_of_those_that_have_users(processes: int, users: int) -> None:
    class Shop(Workflow):
        @step()
        async def act(self) -> None: ...

    made = []
    for process in range(processes):
        group = crowd_of(Shop, process=process, processes=processes, vus=users, iterations=10)
        await executor_of(group).run(executors._now())
        made.append(group.notes.iterations)

    assert sum(made) == 10


async def test_iterations_are_dealt_to_processes_by_their_users() -> None:
    class Shop(Workflow):
        @step()
        async def act(self) -> None: ...

    made = []
    for process in range(2):
        group = crowd_of(Shop, process=process, processes=2, vus=5, iterations=100)
        await executor_of(group).run(executors._now())
        made.append(group.notes.iterations)

    # three users and two of them: twenty for each user
    assert made == [60, 40]


async def test_iterations_begin_as_far_apart_as_their_pace_and_never_nearer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is late, for a timer that rang late or a step that took long, is not made up for."""
    now = 1000.0
    began: list[float] = []

    async def until(_: object, at: float) -> None:
        nonlocal now
        now = max(now, at) + 0.002  # it rings late

    class Shop(Workflow):
        @step()
        async def act(self) -> None:
            nonlocal now
            began.append(now)
            now += 0.35 if len(began) == 3 else 0.03

    monkeypatch.setattr(executors, "_now", lambda: now)
    monkeypatch.setattr("mainstay.load.engine.user.StopSignal.until", until)
    await executor_of(crowd_of(Shop, vus=1, iterations=6, pacing="100ms")).run(now)

    assert [round(at - began[0], 3) for at in began] == [0.0, 0.102, 0.204, 0.556, 0.658, 0.76]


@pytest.mark.parametrize(
    ("out", "feed", "unmade"),
    [
        ({0, 1}, None, 10),
        ({0}, None, 0),  # the other does them all
        (set(), Feed([1, 2, 3], every="iteration", at_end="stop"), 0),
        ({0}, Feed([1, 2, 3], every="iteration", at_end="stop"), 0),
    ],
)
async def test_iterations_that_nobody_was_left_for_are_told(out: set[int], feed: Feed | None, unmade: int) -> None:
    class Shop(Workflow):
        @on_start
        async def come(self) -> None:
            if self.vu.number in out:
                raise LookupError("no account")

        @step()
        async def act(self) -> None:
            await asyncio.sleep(0)

    group = crowd_of(Shop, vus=2, iterations=10, feed=feed)
    async with asyncio.timeout(60):
        await executor_of(group).run(executors._now())

    assert group.unmade == unmade
    assert group.refusal == ("LookupError: no account" if out else "")


async def test_users_without_a_row_do_not_start_and_the_others_end_when_the_rows_do() -> None:
    left = []

    class Shop(Workflow):
        @step()
        async def act(self) -> None:
            await asyncio.sleep(0)

        @on_stop
        async def go(self) -> None:
            left.append(self.vu.id)

    group = crowd_of(Shop, vus=5, duration="1h", feed=Feed([1, 2, 3], every="iteration", at_end="stop"))
    await asyncio.wait_for(executor_of(group).run(executors._now()), 60)

    assert group.notes.iterations == 3
    assert sorted(left) == [0, 1, 2]


async def test_an_open_model_ends_when_the_rows_do() -> None:
    left = []

    class Shop(Workflow):
        @step()
        async def act(self) -> None:
            await asyncio.sleep(0)

        @on_stop
        async def go(self) -> None:
            left.append(self.vu.id)

    group = crowd_of(Shop, rate="1000/s", duration="1h", feed=Feed([1, 2, 3], every="iteration", at_end="stop"))
    await asyncio.wait_for(executor_of(group).run(executors._now()), 60)

    assert group.notes.iterations == 3
    assert len(left) == len(set(left)) > 0
    assert group.arrivals == group.notes.iterations + group.dropped


@pytest.mark.parametrize("most", [3, 100])
async def test_arrivals_whose_users_cannot_begin_are_not_those_that_found_no_room(most: int) -> None:
    class Shop(Workflow):
        @on_start
        async def come(self) -> None:
            await asyncio.sleep(0)
            raise LookupError("no account")

        @step()
        async def act(self) -> None: ...

    group = crowd_of(Shop, rate="1000/s", duration="30ms", max_in_flight=most)
    async with asyncio.timeout(60):
        # nearly all are due already, and with few places most of them wait
        await executor_of(group).run(executors._now() - 0.0295)

    assert (group.arrivals, group.dropped, group.unbegun, group.notes.iterations) == (30, 30, 30, 0)
    assert group.refusal == "LookupError: no account"


async def test_arrivals_that_still_wait_when_nobody_could_begin_did_not_lack_room() -> None:
    class Shop(Workflow):
        @on_start
        async def come(self) -> None:
            if self.vu.number:
                await asyncio.Event().wait()
            raise LookupError("no account")

        @step()
        async def act(self) -> None: ...

    group = crowd_of(Shop, rate="1000/s", duration="10ms", max_in_flight=1, drain="0s")
    async with asyncio.timeout(60):
        await executor_of(group).run(executors._now() - 0.0095)

    # one of them did not get past its on_start
    assert (group.arrivals, group.dropped, group.unbegun) == (10, 10, 10)
    assert group.account().error == ""


async def test_arrivals_that_waited_for_a_user_who_could_not_begin_are_done_by_others() -> None:
    class Shop(Workflow):
        @on_start
        async def come(self) -> None:
            await asyncio.sleep(0)
            if self.vu.number < 3:
                raise LookupError("no account")

        @step()
        async def act(self) -> None:
            if self.vu.iteration == 6:
                group.stop.end(hurry=False)

    group = crowd_of(Shop, rate="0.1/s", duration="1h", max_in_flight=1)
    async with asyncio.timeout(60):
        # ten are due already
        await executor_of(group).run(executors._now() - 95)

    assert (group.arrivals, group.dropped, group.unbegun, group.notes.iterations) == (10, 3, 3, 7)


async def test_a_run_that_was_told_to_stop_before_it_began_begins_nothing() -> None:
    class Shop(Workflow):
        @step()
        async def act(self) -> None: ...

    for options in ({"vus": 3, "duration": "1h"}, {"rate": "100/s", "duration": "1h"}):
        group = crowd_of(Shop, **options)
        group.stop.end(hurry=True)
        await asyncio.wait_for(executor_of(group).run(executors._now()), 60)
        assert (group.notes.iterations, group.arrivals) == (0, 0)


async def test_the_most_users_at_work_are_told_also_if_they_left_meanwhile() -> None:
    class Shop(Workflow):
        @step()
        async def act(self) -> None:
            await asyncio.sleep(0)

    group = crowd_of(Shop, vus=5, iterations=20)
    await executor_of(group).run(executors._now())

    assert (group.active, group.take_users(), group.take_users()) == (0, 5, 0)


@pytest.mark.parametrize(
    "options", [{"vus": 2, "iterations": 3}, {"vus": 2, "duration": "1h"}, {"rate": "1000/s", "duration": "1h"}]
)
async def test_the_end_begins_when_the_first_user_has_nothing_more_to_begin(options: dict[str, Any]) -> None:
    seen = []

    class Shop(Workflow):
        @step()
        async def act(self) -> None:
            seen.append(group.draining)
            await asyncio.sleep(0)
            if len(seen) > 5:
                group.stop.end(hurry=False)

        @on_stop
        async def go(self) -> None:
            seen.append(group.draining)

    group = crowd_of(Shop, **options)
    async with asyncio.timeout(60):
        await executor_of(group).run(executors._now())

    assert (seen[0], seen[-1], group.draining) == (False, True, True)
    assert seen == sorted(seen)


async def test_a_user_that_the_plan_sends_away_does_not_begin_the_end() -> None:
    seen = []

    class Shop(Workflow):
        @step()
        async def act(self) -> None:
            await asyncio.sleep(0)
            # as in a stage with fewer users
            next(iter(closed._visitors)).retired = True

        @on_stop
        async def go(self) -> None:
            seen.append(group.draining)
            group.stop.end(hurry=False)

    group = crowd_of(Shop, vus=2, duration="1h")
    runner = executor_of(group)
    assert isinstance(runner, ClosedExecutor)
    closed = runner
    async with asyncio.timeout(60):
        await closed.run(executors._now())

    assert (seen[0], group.draining) == (False, True)


@pytest.mark.parametrize(
    "options",
    [
        {"vus": 2, "iterations": 3},
        {"vus": 2, "duration": "1h"},
        {"rate": "1000/s", "duration": "10ms"},
        {"vus": 1, "iterations": 3, "processes": 2, "process": 1},  # has no users at all
    ],
)
async def test_where_nobody_began_no_end_begins(options: dict[str, Any]) -> None:
    class Shop(Workflow):
        @on_start
        async def come(self) -> None:
            raise LookupError("no account")

        @step()
        async def act(self) -> None: ...

    group = crowd_of(Shop, **options)
    async with asyncio.timeout(60):
        await executor_of(group).run(executors._now())

    assert group.stop.ending
    assert not group.draining


@pytest.mark.parametrize("options", [{"vus": 2, "iterations": 10}, {"rate": "1000/s", "duration": "10ms"}])
async def test_a_process_that_wakes_a_little_before_the_start_has_its_users_all_the_same(
    options: dict[str, Any],
) -> None:
    class Shop(Workflow):
        @step()
        async def act(self) -> None: ...

    group = crowd_of(Shop, **options)
    await asyncio.wait_for(executor_of(group).run(executors._now() + 0.005), 60)

    assert group.notes.iterations == 10

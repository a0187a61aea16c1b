"""A process that continues the plan of one that was lost does the rest of it, and no more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainstay.load.engine import executors
from mainstay.load.engine.executors import executor_of
from mainstay.load.engine.workflow_users import WorkflowUsers
from mainstay.load.feeders import Feed
from mainstay.load.hooks import step
from mainstay.load.workflow import Workflow
from tests.load.engine.walking import crowd_of


class Shop(Workflow):
    @step()
    async def act(self) -> None:
        await asyncio.sleep(0)


async def ran(group: WorkflowUsers, *, late_s: float = 0.0) -> WorkflowUsers:
    """Run it to its end; with `late_s`, the process wakes so long after the start."""
    start = executors._now() - late_s
    await asyncio.wait_for(executor_of(group).run(start), 60)
    assert group.account().error == ""
    return group


@pytest.mark.parametrize("arrivals", ["constant", "poisson"])
async def test_arrivals_that_were_due_before_are_not_counted_and_the_later_ones_are_made(arrivals: str) -> None:
    options = {"rate": "200/s", "duration": "10s", "arrivals": arrivals, "processes": 2, "process": 1}
    due = list(crowd_of(Shop, **options).due())

    group = await ran(crowd_of(Shop, **options, begin_s=9.9))

    rest = [at for at in due if at >= 9.9]
    assert (group.arrivals, group.notes.iterations, group.dropped) == (len(rest), len(rest), 0)
    assert len(rest) == 10 if arrivals == "constant" else rest
    assert not group.nothing_left


async def test_the_time_of_a_continued_plan_is_that_from_its_start_on() -> None:
    for options in ({"rate": "200/s"}, {"vus": 2}):
        group = crowd_of(Shop, **options, duration="10s", begin_s=9.9)
        start = executors._now()
        await executor_of(group).run(start)

        assert group.took(start) == pytest.approx(0.1, abs=0.09)
        assert group.loaded(start) == pytest.approx(0.1, abs=0.09)
        assert group.notes.iterations > 0


async def test_users_are_as_many_as_at_that_time_of_the_plan_and_begin_at_once() -> None:
    seen: list[int] = []

    class Stages(Workflow):
        @step()
        async def act(self) -> None:
            seen.append(group.active)
            await asyncio.sleep(0)

    group = crowd_of(Stages, stages="10s:100, 0.1s:100", begin_s=10.0)
    await ran(group)

    assert max(seen) == group.take_users() == 100


async def test_users_of_a_ramp_are_those_of_its_level() -> None:
    group = crowd_of(Shop, stages="10s:100", processes=2, process=1, begin_s=5.0)
    running = asyncio.ensure_future(executor_of(group).run(executors._now()))
    await asyncio.sleep(0)
    while not group.active:
        await asyncio.sleep(0)

    assert group.active == pytest.approx(25, abs=1)
    group.stop.end(hurry=True)
    await running


@pytest.mark.parametrize(("done", "left"), [(0, 40), (33, 7), (38, 2), (40, 0), (41, 0)])
async def test_iterations_are_those_that_were_not_begun(done: int, left: int) -> None:
    group = await ran(crowd_of(Shop, vus=10, iterations=80, processes=2, process=1, done=done))

    assert (group.notes.iterations, group.unmade) == (left, 0)
    assert group.nothing_left == (left == 0)
    # no user begins that has nothing to do
    assert group.take_users() == min(5, left)


@pytest.mark.parametrize(
    ("options", "begin_s"),
    [
        ({"rate": "100/s", "duration": "1s"}, 1.0),
        ({"rate": "100/s", "duration": "1s", "arrivals": "poisson"}, 5.0),
        ({"vus": 3, "duration": "1s"}, 1.0),
        ({"vus": 3, "iterations": 10, "duration": "1s"}, 2.0),
        ({"stages": "1s:10, 1s:0"}, 2.0),
        ({"stages": "1s:10/s, 1s:0/s"}, 3.0),
    ],
)
async def test_after_the_end_of_its_plan_nothing_is_left_to_do(options: dict[str, Any], begin_s: float) -> None:
    group = crowd_of(Shop, **options, begin_s=begin_s)
    start = executors._now()
    await asyncio.wait_for(executor_of(group).run(start), 60)

    assert (group.notes.iterations, group.arrivals, group.unmade, group.nothing_left) == (0, 0, 0, True)
    assert group.took(start) == pytest.approx(0.0, abs=0.05)
    assert group.loaded(start) == pytest.approx(0.0, abs=0.05)


async def test_a_plan_from_its_start_on_always_has_something_left() -> None:
    group = await ran(crowd_of(Shop, rate="0.1/s", duration="1ms", processes=2, process=1))

    assert (group.arrivals, group.nothing_left) == (0, False)


@pytest.mark.parametrize(
    ("feed", "options", "first"),
    [
        # a row for each iteration: after those that were begun, or due
        (Feed(range(100), every="iteration"), {"vus": 1, "iterations": 50, "done": 33}, 33),
        (Feed(range(100), every="iteration"), {"rate": "10/s", "duration": "10s", "begin_s": 3.0}, 30),
        (Feed(range(100), every="iteration"), {"rate": "100/s", "duration": "10s", "begin_s": 3.0}, 0),
        # a row for each user: after those of the users that had begun
        (Feed(range(100)), {"vus": 4, "duration": "10s", "begin_s": 3.0}, 4),
        (Feed(range(100)), {"stages": "2s:8, 2s:2, 2s:8", "begin_s": 5.0}, 11),
        # it is not known how many users had begun
        (Feed(range(100)), {"rate": "10/s", "duration": "10s", "begin_s": 3.0}, 0),
        # each user has all rows
        (Feed(range(100), share="user"), {"vus": 4, "duration": "10s", "begin_s": 3.0}, 0),
    ],
)
def test_rows_continue_after_those_that_were_taken(feed: Feed, options: dict[str, Any], first: int) -> None:
    assert crowd_of(Shop, feed=feed, **options).visitor().user.data == first

"""Registering schedules, and what people do with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainstay.control import decoded
from mainstay.control.schedules import (
    Cron,
    Every,
    ScheduleSpec,
    Ticker,
    describe,
    drop,
    pause,
    register,
    resume,
    run_now,
    schedule,
    upcoming,
)
from mainstay.errors import InvalidInput
from mainstay.model import Schedule
from tests.control.conftest import Bench


def sums(**given: Any) -> ScheduleSpec:
    return schedule(**{"name": "sums", "when": "*/5 * * * *", "task": "report.sums", **given})


def now(bench: Bench) -> datetime:
    return datetime.fromtimestamp(bench.clock.now_ms() / 1000, UTC)


async def row(bench: Bench) -> Schedule:
    (found,) = await bench.store.schedules()
    return found


async def tick(bench: Bench) -> None:
    await Ticker(bench.control).run(await bench.store.lead("leader", "s1", 8.0))


async def test_registering_again_changes_nothing(bench: Bench) -> None:
    await register(bench.control, [sums()])
    before = await row(bench)
    bench.clock.advance(3600)
    await register(bench.control, [sums()])
    assert await row(bench) == before
    assert before.last_tick_ms == bench.clock.now_ms() - 3_600_000


async def test_registering_again_keeps_the_last_tick_and_makes_no_tick_twice(bench: Bench) -> None:
    await register(bench.control, [sums()])
    bench.clock.advance(300)
    await tick(bench)
    for _ in range(3):
        await register(bench.control, [sums(payload={"new": "payload"})])
        await tick(bench)
    assert len(await bench.everything()) == 1


async def test_a_missed_tick_is_made_up_for_although_everything_was_started_anew(bench: Bench) -> None:
    await register(bench.control, [sums(catch_up="once")])
    bench.clock.advance(86_400)
    await register(bench.control, [sums(catch_up="once", payload={"new": "payload"})])
    await tick(bench)
    (job,) = await bench.everything()
    assert decoded(job.payload) == {"new": "payload"}


async def test_registering_again_does_not_resume_what_somebody_paused(bench: Bench) -> None:
    await register(bench.control, [sums()])
    await pause(bench.control, "sums")
    await register(bench.control, [sums()])
    await register(bench.control, [sums(payload=1)])
    assert (await row(bench)).paused


async def test_a_schedule_whose_times_changed_counts_from_now(bench: Bench) -> None:
    await register(bench.control, [sums(when="@yearly", catch_up="all")])
    bench.clock.advance(86_400)
    await register(bench.control, [sums(when="* * * * *", catch_up="all")])
    assert (await row(bench)).last_tick_ms == bench.clock.now_ms()
    await tick(bench)
    assert await bench.everything() == []


async def test_a_schedule_that_cannot_be_read_is_replaced(bench: Bench) -> None:
    await bench.store.put_schedule(Schedule(name="sums", spec=b"\xff", last_tick_ms=1))
    await register(bench.control, [sums()])
    assert (await row(bench)).last_tick_ms == bench.clock.now_ms()


async def test_two_schedules_of_one_name_are_refused(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="schedule: 'sums' is declared twice"):
        await register(bench.control, [sums(), sums(when="1h")])


async def test_a_new_schedule_that_somebody_else_declares_stays(bench: Bench) -> None:
    await register(bench.control, [sums()])
    await register(bench.control, [sums(name="other")])
    assert [found.name for found in await bench.store.schedules()] == ["other", "sums"]


async def test_run_now_makes_a_job_beside_the_ticks_under_the_name_of_who_asked(bench: Bench) -> None:
    await register(bench.control, [sums(payload={"day": 1}, options={"queue": "reports"})])
    await pause(bench.control, "sums")
    before = await row(bench)

    first = await run_now(bench.control, "sums", actor="ann")
    second = await run_now(bench.control, "sums", actor="ann")

    assert first.created
    assert second.created
    job = await bench.control.jobs.get(first.id)
    assert (job.name, job.queue, job.options.tags) == ("report.sums", "reports", ("schedule:sums",))
    assert [event.actor for event in await bench.control.jobs.events(job.id)] == ["ann"]
    assert await row(bench) == before


async def test_run_now_beside_an_unsettled_job_gives_that_one_when_overlap_is_skip(bench: Bench) -> None:
    await register(bench.control, [sums(overlap="skip")])
    first = await run_now(bench.control, "sums", actor="ann")
    second = await run_now(bench.control, "sums", actor="ben")
    assert (second.id, second.created) == (first.id, False)


async def test_resuming_what_runs_passes_nothing_over(bench: Bench) -> None:
    await register(bench.control, [sums()])
    bench.clock.advance(600)
    await resume(bench.control, "sums")
    await tick(bench)
    assert len(await bench.everything()) == 1


async def test_a_dropped_schedule_is_gone_and_its_jobs_stay(bench: Bench) -> None:
    await register(bench.control, [sums()])
    await run_now(bench.control, "sums", actor="ann")
    await drop(bench.control, "sums")
    bench.clock.advance(600)
    await tick(bench)
    assert await bench.store.schedules() == []
    assert len(await bench.everything()) == 1


@pytest.mark.parametrize("operation", [pause, resume, drop, lambda control, name: run_now(control, name, actor="ann")])
async def test_a_name_that_nobody_registered_is_refused_with_the_one_meant(bench: Bench, operation: Any) -> None:
    await register(bench.control, [sums()])
    with pytest.raises(InvalidInput, match="schedule: there is no schedule 'sumz'; did you mean 'sums'?"):
        await operation(bench.control, "sumz")
    with pytest.raises(InvalidInput, match="known: sums"):
        await operation(bench.control, "nightly")


async def test_a_description_tells_what_was_and_what_comes(bench: Bench) -> None:
    when = Cron("30 2 * * *", tz="Europe/Berlin")
    await register(bench.control, [sums(when=when, catch_up="skip", overlap="skip")])
    (view,) = await describe(bench.control)
    assert (view.name, view.when, view.tz, view.task) == ("sums", "30 2 * * *", "Europe/Berlin", "report.sums")
    assert (view.catch_up, view.overlap, view.paused, view.problem) == ("skip", "skip", False, None)
    assert (view.counted_from, view.last_tick, view.last_job) == (now(bench), None, None)
    ticks = upcoming(when, now(bench), 4)
    assert view.next_ticks == tuple(ticks[:3])

    bench.clock.advance((ticks[0] - now(bench)).total_seconds())
    await tick(bench)
    (view,) = await describe(bench.control)
    (job,) = await bench.everything()
    assert (view.counted_from, view.last_tick) == (ticks[0], ticks[0])
    assert (view.last_job, view.last_status) == (job.id, "pending")
    assert view.next_ticks == tuple(ticks[1:])


async def test_a_description_of_a_paused_schedule_has_no_next_tick(bench: Bench) -> None:
    await register(bench.control, [sums()])
    await pause(bench.control, "sums")
    (view,) = await describe(bench.control)
    assert (view.paused, view.next_ticks) == (True, ())


async def test_a_description_says_what_is_wrong_and_shows_the_others(bench: Bench) -> None:
    class Mine:
        def next(self, after: datetime) -> datetime:
            return after + timedelta(hours=1)

    class Broken:
        def next(self, after: datetime) -> datetime:
            raise RuntimeError("moon not found")

    await bench.store.put_schedule(Schedule(name="a", spec=b"\xff"))
    await register(bench.control, [sums(name=name, when=Mine()) for name in ("b", "c", "d")])
    await register(bench.control, [sums(name="e", when=Every("1h"))])

    views = await describe(bench.control, {"c": Broken(), "d": Mine()})

    assert [view.name for view in views] == ["a", "b", "c", "d", "e"]
    assert [bool(view.next_ticks) for view in views] == [False, False, False, True, True]
    problems = [view.problem or "" for view in views]
    assert "the stored schedule cannot be read" in problems[0]
    assert problems[1] == "its times are known only to the program that declares it"
    assert "moon not found" in problems[2]
    assert problems[3:] == ["", ""]

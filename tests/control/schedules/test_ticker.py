"""The leader's ticker: every tick once, none missed, and no schedule holds up another."""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from mainstay.control import Completion, Control, JobRequest
from mainstay.control.schedules import Cron, Every, Ticker, describe, pause, register, resume, schedule, upcoming
from mainstay.control.schedules.plan import ticks_between
from mainstay.errors import NotLeader, StoreLocked
from mainstay.model import Job, Leadership, Schedule
from mainstay.stores import Query
from mainstay.testing import MemoryStore, VirtualClock
from tests.control.conftest import Bench

#: leader leases of these tests, in virtual time; the grace is two default leases (16 s)
LEASE_S = 8.0


def now(bench: Bench) -> datetime:
    return datetime.fromtimestamp(bench.clock.now_ms() / 1000, UTC)


async def leads(bench: Bench, session: str = "s1") -> Leadership:
    lead = await bench.store.lead("leader", session, LEASE_S)
    assert lead.holder == session
    return lead


async def made(bench: Bench) -> list[str]:
    """What the jobs are for, oldest first."""
    jobs = sorted(await bench.everything(), key=lambda job: job.id)
    return [job.options.metadata["scheduled_for"] for job in jobs]


def texts(*times: datetime) -> list[str]:
    return [time.isoformat() for time in times]


async def settle(bench: Bench, job: Job) -> None:
    session = await bench.session()
    (held,) = await bench.worker.claims.claim([job.queue], session.id, 1)
    assert held.id == job.id
    (done,) = await bench.worker.attempts.complete([Completion(held)])
    assert done.ok


async def test_a_due_tick_makes_one_job_that_says_where_it_comes_from(bench: Bench) -> None:
    spec = schedule(
        "sums", Every("1m"), "report.sums", {"day": 1}, options={"queue": "reports", "tags": ["x"], "retries": 7}
    )
    await register(bench.control, [spec])
    ticker = Ticker(bench.control)
    (tick,) = upcoming(Every("1m"), now(bench), 1)

    bench.clock.advance(60)
    await ticker.run(await leads(bench))
    await ticker.run(await leads(bench))

    (job,) = await bench.everything()
    assert (job.name, job.queue, job.options.retry.retries, job.unique_key) == ("report.sums", "reports", 7, None)
    assert msgspec.msgpack.decode(job.payload) == {"day": 1}
    assert job.options.tags == ("x", "schedule:sums")
    assert job.options.metadata == {"schedule": "sums", "scheduled_for": tick.isoformat()}
    assert [event.actor for event in await bench.control.jobs.events(job.id)] == ["schedule:sums"]


async def test_a_program_may_change_the_request_of_a_tick(bench: Bench) -> None:
    await register(bench.control, [schedule("sums", Every("1m"), "report.sums", options={"queue": "reports"})])

    def prepare(request: JobRequest) -> JobRequest:
        assert isinstance(request.options, dict)
        return msgspec.structs.replace(request, options={**request.options, "queue": "night"})

    bench.clock.advance(60)
    await Ticker(bench.control, prepare=prepare).run(await leads(bench))

    (job,) = await bench.everything()
    assert (job.queue, job.options.tags) == ("night", ("schedule:sums",))


async def test_a_new_schedule_never_ticks_the_past(bench: Bench) -> None:
    await register(bench.control, [schedule("sums", "* * * * *", "t", catch_up="all")])
    await Ticker(bench.control).run(await leads(bench))
    assert await made(bench) == []


async def test_a_schedule_stored_without_a_beginning_begins_when_it_is_first_seen(bench: Bench) -> None:
    await register(bench.control, [schedule("sums", Every("1m"), "t", catch_up="all")])
    (row,) = await bench.store.schedules()
    await bench.store.drop_schedule("sums")
    await bench.store.put_schedule(Schedule(name="sums", spec=row.spec))
    ticker = Ticker(bench.control)
    begun = now(bench)
    await ticker.run(await leads(bench))
    bench.clock.advance(120)
    await ticker.run(await leads(bench))
    assert await made(bench) == texts(*upcoming(Every("1m"), begun, 2))


async def test_it_answers_with_the_wait_to_the_next_tick_within_a_second(bench: Bench) -> None:
    ticker = Ticker(bench.control)
    assert await ticker.run(await leads(bench)) == 1.0
    await register(bench.control, [schedule("sums", Every("1m"), "t")])
    (tick,) = upcoming(Every("1m"), now(bench), 1)
    assert await ticker.run(await leads(bench)) == 1.0
    bench.clock.advance((tick - now(bench)).total_seconds() - 0.25)
    assert await ticker.run(await leads(bench)) == 0.25
    bench.clock.advance(0.25)
    assert await ticker.run(await leads(bench)) == 1.0
    assert await made(bench) == texts(tick)


async def test_an_idle_second_asks_no_schedule_for_its_times(bench: Bench) -> None:
    asked = []

    class Asked:
        def next(self, after: datetime) -> datetime:
            asked.append(after)
            return after + timedelta(hours=1)

    await register(bench.control, [schedule("sums", Asked(), "t")])
    ticker = Ticker(bench.control, {"sums": Asked()})
    await ticker.run(await leads(bench))
    before = len(asked)
    for _ in range(5):
        bench.clock.advance(1)
        await ticker.run(await leads(bench))
    assert len(asked) == before > 0


async def test_two_that_believe_to_lead_make_one_job_per_tick(bench: Bench) -> None:
    await register(bench.control, [schedule("sums", Every("1m"), "t", catch_up="all")])
    tickers = [Ticker(Control(bench.store, rng=random.Random(n))) for n in range(4)]
    lead = await leads(bench)
    begun = now(bench)
    for _ in range(3):
        bench.clock.advance(60)
        await bench.store.lead("leader", "s1", LEASE_S)
        await asyncio.gather(*(ticker.run(lead) for ticker in tickers))
    assert await made(bench) == texts(*upcoming(Every("1m"), begun, 3))


async def test_a_leader_that_comes_back_knows_what_the_other_one_made(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await register(bench.control, [schedule("sums", Every("1m"), "t", catch_up="once")])
    begun = now(bench)
    mine, other = Ticker(bench.control), Ticker(bench.control)
    for ticker in (mine, other, other, other, mine):
        bench.clock.advance(60)
        await ticker.run(await leads(bench, "mine" if ticker is mine else "other"))
    assert await made(bench) == texts(*upcoming(Every("1m"), begun, 5))
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []


async def test_a_leader_whose_epoch_is_over_makes_nothing(bench: Bench) -> None:
    await register(bench.control, [schedule("sums", Every("1m"), "t")])
    old = await leads(bench)
    ticker = Ticker(bench.control)
    await ticker.run(old)
    bench.clock.advance(60)
    new = await leads(bench, "s2")
    with pytest.raises(NotLeader):
        await ticker.run(old)
    assert await made(bench) == []
    await Ticker(bench.control).run(new)
    assert len(await made(bench)) == 1


@pytest.mark.parametrize("catch_up", ["skip", "once", "all"])
async def test_a_tick_that_falls_into_a_change_of_the_leader_is_made(bench: Bench, catch_up: Any) -> None:
    await register(bench.control, [schedule("sums", Every("1m"), "t", catch_up=catch_up)])
    (tick,) = upcoming(Every("1m"), now(bench), 1)
    bench.clock.advance((tick - now(bench)).total_seconds() - 1)
    await Ticker(bench.control).run(await leads(bench, "s1"))
    # it dies; its lease and a second pass before the next one leads
    bench.clock.advance(LEASE_S + 1)
    await Ticker(bench.control).run(await leads(bench, "s2"))
    assert await made(bench) == texts(tick)


@pytest.mark.parametrize("catch_up", ["skip", "once", "all"])
async def test_a_yearly_schedule_fires_although_the_leader_changes_all_the_time(bench: Bench, catch_up: Any) -> None:
    yearly = Cron("0 3 1 1 *", tz="Europe/Berlin")
    await register(bench.control, [schedule("audit", yearly, "t", catch_up=catch_up)])
    begun = now(bench)
    for tick in upcoming(yearly, begun, 3):
        # every leader is a new program that has never seen the schedule before
        for until in (tick - timedelta(days=90), tick - timedelta(days=1), tick + timedelta(seconds=9)):
            bench.clock.advance((until - now(bench)).total_seconds())
            await Ticker(bench.control).run(await leads(bench, f"s{until}"))
    assert await made(bench) == texts(*upcoming(yearly, begun, 3))


STEPS = st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(1, 900)), min_size=1, max_size=30)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(STEPS)
async def test_whoever_leads_and_whenever_every_tick_is_made_exactly_once(steps: list[tuple[int, int]]) -> None:
    store = MemoryStore(VirtualClock())
    bench = Bench(store, store.clock)  # type: ignore[arg-type]
    tickers = [Ticker(Control(store, rng=random.Random(n))) for n in range(2)]
    whens = {"fast": Every("7m"), "cron": Cron("*/13 * * * *", tz="Europe/Berlin"), "slow": Every("1h")}
    await register(bench.control, [schedule(name, when, "t", catch_up="all") for name, when in whens.items()])
    begun = now(bench)
    for who, seconds in steps:
        bench.clock.advance(seconds)
        lead = await store.lead("leader", f"s{who}", 0.5)
        await tickers[who].run(lead)

    jobs = (await store.find(Query(), limit=10_000)).jobs
    for name, when in whens.items():
        found = sorted(
            job.options.metadata["scheduled_for"] for job in jobs if job.options.metadata["schedule"] == name
        )
        assert found == texts(*ticks_between(when, begun, now(bench), 10_000)[0])


async def test_what_skip_passes_over_is_passed_over_once_and_said(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await register(bench.control, [schedule("sums", Every("1h"), "t", catch_up="skip")])
    ticks = upcoming(Every("1h"), now(bench), 4)
    bench.clock.advance((ticks[2] - now(bench)).total_seconds() + 60)
    ticker = Ticker(bench.control)
    for each in (ticker, ticker, Ticker(bench.control)):
        await each.run(await leads(bench))
    assert await made(bench) == []
    assert [r.getMessage() for r in caplog.records if "ticks skipped" in r.getMessage()] == [
        "ticks skipped schedule=sums count=3 catch_up=skip"
    ]
    (row,) = await bench.store.schedules()
    assert row.last_tick_ms == round(ticks[2].timestamp() * 1000)
    bench.clock.advance((ticks[3] - now(bench)).total_seconds())
    await ticker.run(await leads(bench))
    assert await made(bench) == texts(ticks[3])


async def test_a_year_of_missed_minutes_makes_no_more_than_the_limit(bench: Bench) -> None:
    await register(bench.control, [schedule("sums", "* * * * *", "t", catch_up="all", catch_up_limit=20)])
    bench.clock.advance(365 * 86_400)
    ticker = Ticker(bench.control)
    for _ in range(3):
        await ticker.run(await leads(bench))
    found = await made(bench)
    assert len(found) == len(set(found)) == 20


async def test_a_paused_schedule_makes_nothing_and_what_it_missed_is_not_made_up_for(bench: Bench) -> None:
    await register(bench.control, [schedule("sums", Every("1m"), "t", catch_up="all")])
    ticker = Ticker(bench.control)
    await pause(bench.control, "sums")
    bench.clock.advance(600)
    await ticker.run(await leads(bench))
    assert await made(bench) == []
    await resume(bench.control, "sums")
    await ticker.run(await leads(bench))
    assert await made(bench) == []
    resumed = now(bench)
    bench.clock.advance(60)
    await ticker.run(await leads(bench))
    assert await made(bench) == texts(*upcoming(Every("1m"), resumed, 1))


# overlap -----------------------------------------------------------------------------------------------


async def test_overlap_allow_makes_a_job_beside_the_one_that_is_not_settled(bench: Bench) -> None:
    await register(bench.control, [schedule("sums", Every("1m"), "t", overlap="allow")])
    ticker = Ticker(bench.control)
    for _ in range(3):
        bench.clock.advance(60)
        await ticker.run(await leads(bench))
    assert len(await made(bench)) == 3


async def test_overlap_skip_makes_none_until_the_earlier_one_is_settled(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="mainstay.schedules")
    await register(bench.control, [schedule("sums", Every("1m"), "t", overlap="skip")])
    ticks = upcoming(Every("1m"), now(bench), 5)
    ticker = Ticker(bench.control)
    for _ in range(4):
        bench.clock.advance(60)
        await ticker.run(await leads(bench))

    (job,) = await bench.everything()
    said = [record for record in caplog.records if "tick without a job" in record.getMessage()]
    assert [record.levelname for record in said] == ["WARNING", "DEBUG", "DEBUG"]
    assert all(job.id in record.getMessage() for record in said)
    (view,) = await describe(bench.control)
    assert (view.last_job, view.last_status, view.ticks_without_job) == (job.id, "pending", 3)
    assert view.last_tick == ticks[3]

    await settle(bench, job)
    (view,) = await describe(bench.control)
    assert (view.last_status, view.ticks_without_job) == ("succeeded", 0)
    bench.clock.advance(60)
    await ticker.run(await leads(bench))
    assert await made(bench) == texts(ticks[0], ticks[4])


async def test_overlap_skip_is_for_each_schedule_by_itself(bench: Bench) -> None:
    specs = [schedule(name, Every("1m"), "t", overlap="skip") for name in ("east", "west")]
    await register(bench.control, specs)
    bench.clock.advance(60)
    await Ticker(bench.control).run(await leads(bench))
    assert len(await made(bench)) == 2


# bad ones ----------------------------------------------------------------------------------------------


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


class Broken:
    """Raises, until told otherwise."""

    def __init__(self) -> None:
        self.cured = False

    def next(self, after: datetime) -> datetime:
        if self.cured:
            return Every("1m").next(after)
        raise RuntimeError("moon not found")


class Still:
    """Stands still: a scheduler that trusts it launches for ever."""

    def next(self, after: datetime) -> datetime:
        return after


async def test_a_bad_schedule_is_complained_about_once_and_the_others_tick(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    broken, good = Broken(), schedule("good", Every("1m"), "t")
    await bench.store.put_schedule(Schedule(name="a-damaged", spec=b"\xff"))
    await register(
        bench.control,
        [
            schedule("b-broken", broken, "t"),
            schedule("c-still", Still(), "t"),
            schedule("d-absent", Still(), "t"),
            good,
        ],
    )
    ticker = Ticker(bench.control, {"b-broken": broken, "c-still": Still()})
    for _ in range(3):
        bench.clock.advance(60)
        assert await ticker.run(await leads(bench)) > 0

    assert len(await made(bench)) == 3
    said = complaints(caplog)
    assert len(said) == 4
    for name, why in (
        ("a-damaged", "the stored schedule cannot be read"),
        ("b-broken", "moon not found"),
        ("c-still", "is not later"),
        ("d-absent", "its times come from an object that this program does not have"),
    ):
        assert [text for text in said if name in text and why in text], (name, said)

    broken.cured = True
    await ticker.run(await leads(bench))
    assert len(await made(bench)) == 4


async def test_a_schedule_that_breaks_later_does_not_keep_the_leader_busy(bench: Bench) -> None:
    fickle = Broken()
    fickle.cured = True
    await register(bench.control, [schedule("sums", fickle, "t")])
    ticker = Ticker(bench.control, {"sums": fickle})
    await ticker.run(await leads(bench))
    fickle.cured = False
    bench.clock.advance(60)
    assert await ticker.run(await leads(bench)) == 1.0


async def test_a_schedule_that_was_mended_ticks(bench: Bench) -> None:
    await bench.store.put_schedule(Schedule(name="sums", spec=b"\xff"))
    ticker = Ticker(bench.control)
    await ticker.run(await leads(bench))
    await register(bench.control, [schedule("sums", Every("1m"), "t")])
    bench.clock.advance(60)
    await ticker.run(await leads(bench))
    assert len(await made(bench)) == 1


async def test_jobs_that_are_refused_leave_the_tick_for_later(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await register(bench.control, [schedule("sums", Every("1h"), "t", "x" * 2000)])
    small = msgspec.structs.replace(bench.control.settings, payload_limit=1024)
    bench.clock.advance(3600)
    poor, rich = Ticker(Control(bench.store, settings=small)), Ticker(bench.control)
    for _ in range(2):
        assert await poor.run(await leads(bench)) == 1.0
    assert await made(bench) == []
    assert ["more than the limit of 1024" in text for text in complaints(caplog)] == [True]
    await rich.run(await leads(bench))
    assert len(await made(bench)) == 1


async def test_a_clock_that_was_set_back_is_said_and_nothing_is_made_twice(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await register(bench.control, [schedule("sums", Every("1h"), "t")])
    bench.clock.advance(7200)
    ticker = Ticker(bench.control)
    await ticker.run(await leads(bench))
    before = await made(bench)
    bench.clock.set_wall(bench.clock.now_ms() - 86_400_000)
    for each in (Ticker(bench.control), ticker):
        await each.run(await leads(bench))
    assert await made(bench) == before
    assert ["was the clock set back?" in text for text in complaints(caplog)] == [True]


async def test_a_store_that_is_away_is_the_callers_business_and_nothing_is_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(bench.control, [schedule("sums", Every("1h"), "t")])
    ticker = Ticker(bench.control)
    bench.clock.advance(3600)

    async def away(*_: object, **__: object) -> None:
        raise StoreLocked("busy")

    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "tick", away)
        with pytest.raises(StoreLocked):
            await ticker.run(await leads(bench))
    await ticker.run(await leads(bench))
    assert len(await made(bench)) == 1


async def test_a_schedule_that_never_ticks_again_is_left_alone(bench: Bench) -> None:
    class Once:
        def next(self, after: datetime) -> datetime | None:
            at = datetime.fromtimestamp(1_700_000_060, UTC)
            return at if after < at else None

    await register(bench.control, [schedule("sums", Once(), "t")])
    ticker = Ticker(bench.control, {"sums": Once()})
    for _ in range(3):
        bench.clock.advance(61)
        assert await ticker.run(await leads(bench)) == 1.0
    assert len(await made(bench)) == 1


async def test_as_a_duty_it_ticks_on_the_dot(bench: Bench) -> None:
    """Real waits: the duty asks to be run when the tick is due, not when its second is over."""
    await register(bench.control, [schedule("sums", Every("1m"), "t")])
    (tick,) = upcoming(Every("1m"), now(bench), 1)
    bench.clock.advance((tick - now(bench)).total_seconds() - 0.02)
    ticker, runs = Ticker(bench.control), asyncio.Event()
    duty = ticker.duty()
    assert (duty.name, duty.every_s) == ("schedules", 1.0)

    async def run(lead: Leadership) -> object:
        answer = await duty.run(lead)
        if await made(bench):
            runs.set()
        else:
            assert answer == pytest.approx(0.02)
            bench.clock.advance(0.02)
        return answer

    duties = bench.control.duties("s1", extra=[msgspec.structs.replace(duty, run=run)])
    duties.start()
    try:
        async with asyncio.timeout(60):
            await runs.wait()
    finally:
        await duties.stop()
    assert await made(bench) == texts(tick)

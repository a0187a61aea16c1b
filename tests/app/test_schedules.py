"""Schedules declared on an app."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

import pytest

from mainstay import App, Draft, Every
from mainstay.control.schedules import describe, pause, read_spec
from mainstay.errors import InvalidInput
from mainstay.model import Job, Leadership
from mainstay.stores import Query
from mainstay.testing import MemoryStore, VirtualClock
from tests.task.test_codec import Xor


class Hours:
    """Times of one's own: on the hour."""

    def next(self, after: datetime) -> datetime:
        return after.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def app(clock: VirtualClock) -> App:
    return App("memory:", clock=clock)


async def lead(app: App) -> Leadership:
    session = await (await app.open()).claims.open_session()
    return await app.control.store.lead("leader", session.id, 1e6)


async def jobs(app: App, name: str) -> list[Job]:
    return list((await app.control.store.find(Query(tag=f"schedule:{name}"))).jobs)


async def test_a_task_is_submitted_at_its_times_once_a_leader_has_stored_it(app: App, clock: VirtualClock) -> None:
    @app.schedule("*/5 * * * *", tz="Europe/Berlin", catch_up="once", overlap="skip")
    @app.task(name="sums", queue="reports")
    async def sums() -> None: ...

    await app.open()
    assert await app.control.store.schedules() == []
    (duty, *_) = app.duties(app.control)
    leading = await lead(app)

    await duty.run(leading)
    assert await jobs(app, "sums") == []
    clock.advance(300)
    await duty.run(leading)

    (job,) = await jobs(app, "sums")
    assert (job.name, job.queue) == ("sums", "reports")
    (view,) = await describe(app.control)
    assert (view.tz, view.catch_up, view.overlap, view.task) == ("Europe/Berlin", "once", "skip", "sums")


async def test_a_call_with_arguments_and_options_can_be_scheduled(app: App, clock: VirtualClock) -> None:
    @app.task(name="send", queue="mail")
    def send(to: str, subject: str = "hello") -> None: ...

    app.schedule(Every("15m"), name="morning")(send.options(queue="bulk", timeout=timedelta(minutes=2)).job("a@b.c"))
    (duty, *_) = app.duties(await app.open())
    leading = await lead(app)
    await duty.run(leading)
    clock.advance(900)
    await duty.run(leading)

    (job,) = await jobs(app, "morning")
    assert send.arguments(job.payload) == {"to": "a@b.c"}
    assert (job.queue, job.options.run_timeout_s) == ("bulk", 120)
    assert list(app.queues) == ["bulk", "mail"]


async def test_times_of_ones_own_are_asked(app: App, clock: VirtualClock) -> None:
    app.schedule(Hours())(app.task(name="chime")(lambda: None))
    (duty, *_) = app.duties(await app.open())
    leading = await lead(app)
    await duty.run(leading)
    clock.advance(3600)
    await duty.run(leading)

    (job,) = await jobs(app, "chime")
    assert job.options.metadata["scheduled_for"].endswith(":00:00+00:00")


async def test_hooks_see_the_jobs_of_schedules(app: App, clock: VirtualClock) -> None:
    @app.before_submit
    def trace(draft: Draft) -> None:
        draft.add_metadata(trace=str(draft.arguments))

    @app.task(name="work")
    def work(n: int) -> None: ...

    app.schedule("15m")(work.job(3))
    (duty, *_) = app.duties(await app.open())
    leading = await lead(app)
    await duty.run(leading)
    clock.advance(900)
    await duty.run(leading)

    (job,) = await jobs(app, "work")
    assert job.options.metadata["trace"] == "{'n': 3}"
    assert job.options.metadata["schedule"] == "work"


async def test_arguments_that_no_longer_fit_do_not_hold_up_a_tick(clock: VirtualClock) -> None:
    store = MemoryStore(clock)
    before, now = App("memory:"), App("memory:")
    before.schedule("15m")(before.task(name="work")(lambda n: None).job(3))
    now.task(name="work")(lambda m: None)
    seen: list[Draft] = []
    now.before_submit(seen.append)
    with before.using(store):
        await before.sync_schedules()

    with now.using(store):
        (duty, *_) = now.duties(now.control)
        leading = await lead(now)
        await duty.run(leading)
        clock.advance(900)
        await duty.run(leading)

        assert len(await jobs(now, "work")) == 1
    assert [draft.arguments for draft in seen] == [{}]


async def test_a_codec_seals_the_arguments_of_a_schedule_once(clock: VirtualClock) -> None:
    app = App("memory:", clock=clock, codec=Xor())

    @app.task(name="work")
    def work(secret: str) -> None: ...

    app.schedule("15m")(work.job("attack at dawn"))
    await app.sync_schedules()
    (first,) = await app.control.store.schedules()
    await app.sync_schedules()
    (again,) = await app.control.store.schedules()

    assert again == first
    payload = read_spec(first.spec).payload
    assert b"attack" not in payload
    assert work.arguments(payload) == {"secret": "attack at dawn"}


async def test_a_schedule_that_was_taken_out_of_the_program_is_told(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore(clock)
    before, now = App("memory:"), App("memory:")
    before.schedule("15m")(before.task(name="work")(lambda: None))
    now.task(name="work")(lambda: None)
    with before.using(store):
        await before.sync_schedules()

    with now.using(store), caplog.at_level(logging.WARNING, "mainstay.schedules"):
        await now.sync_schedules()

    assert "no longer declared by this program schedule=work" in caplog.text


def test_a_task_that_needs_arguments_is_refused_with_advice(app: App) -> None:
    @app.task(name="mail.send")
    def send(to: str) -> None: ...

    with pytest.raises(InvalidInput, match="mail.send needs to; write app.schedule\\(...\\)\\(send.job\\(...\\)\\)"):
        app.schedule("15m")(send)


def test_a_bare_function_is_refused_with_advice(app: App) -> None:
    with pytest.raises(InvalidInput, match="put @app.schedule\\(...\\) above @app.task"):
        app.schedule("15m")(lambda: None)  # type: ignore[type-var]


def test_a_second_schedule_of_a_task_needs_a_name(app: App) -> None:
    task = app.schedule("15m")(app.task(name="work")(lambda: None))

    with pytest.raises(InvalidInput, match="'work' is already declared; give this one another name"):
        app.schedule("30m")(task)
    app.schedule("30m", name="work-slow")(task)
    assert list(app.schedules) == ["work", "work-slow"]


@pytest.mark.parametrize("when", ["5 minutes", "0 0 31 2 *", "1ms", 15])
def test_times_that_are_none_are_refused_when_declared(app: App, when: str) -> None:
    task = app.task(name="work")(lambda: None)

    with pytest.raises(InvalidInput):
        app.schedule(when)(task)


async def test_a_task_that_replaces_its_like_can_be_scheduled(app: App) -> None:
    app.schedule("15m")(app.task(name="sync", unique="feed", on_clash="replace")(lambda: None))

    await app.sync_schedules()

    assert [row.name for row in await app.control.store.schedules()] == ["sync"]


async def test_hooks_see_the_job_of_a_schedule_that_is_run_by_hand(app: App) -> None:
    @app.before_submit
    def trace(draft: Draft) -> None:
        draft.add_metadata(trace=str(draft.arguments))

    @app.task(name="work")
    def work(n: int) -> None: ...

    app.schedule("15m")(work.job(3))
    await app.sync_schedules()

    handle = await app.run_schedule("work", actor="ann")

    assert handle.created
    job = await handle.job()
    assert (job.options.metadata["trace"], job.options.tags) == ("{'n': 3}", ("schedule:work",))


async def test_what_is_declared_and_not_stored_is_described_and_cannot_be_run_yet(app: App) -> None:
    app.schedule(Hours())(app.task(name="chime")(lambda: None))
    await app.open()

    (before,) = await app.describe_schedules()
    with pytest.raises(InvalidInput, match="'chime' is declared but not registered yet; a worker registers it"):
        await app.run_schedule("chime")
    await app.sync_schedules()
    (after,) = await app.describe_schedules()

    assert (before.registered, after.registered) == (False, True)
    assert before.next_ticks == after.next_ticks != ()
    assert before.problem is None


async def test_a_worker_that_does_not_lead_stores_its_schedules_and_the_leader_ticks_them(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore(clock)
    ours, theirs = App("memory:"), App("memory:")
    ours.schedule("15m")(ours.task(name="ours")(lambda: None))
    theirs.task(name="theirs", queue="there")(lambda n: None)
    theirs.schedule("0 * * * *", name="hourly")(theirs.tasks["theirs"].options(priority=3).job(7))
    theirs.schedule(Hours(), name="own")(theirs.tasks["theirs"].job(8))
    with theirs.using(store) as control:
        await theirs.prepare(control)

    with ours.using(store) as control, caplog.at_level(logging.ERROR, "mainstay.schedules"):
        await ours.prepare(control)
        (duty, *_) = ours.duties(control)
        leading = await lead(ours)
        for _ in range(3):
            clock.advance(3600)
            await duty.run(leading)
        views = {view.name: view for view in await ours.describe_schedules()}
        made = (await jobs(ours, "hourly"))[0]

        assert {view.name for view in views.values() if view.last_job} == {"ours", "hourly"}
        assert (made.name, made.queue, made.priority) == ("theirs", "there", 3)
        assert theirs.tasks["theirs"].arguments(made.payload) == {"n": 7}
        assert views["own"].problem == "its times are known only to the program that declares it"
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["cannot tick schedule=own"]


async def test_storing_them_again_keeps_the_last_tick_and_the_pause(app: App, clock: VirtualClock) -> None:
    app.schedule("15m")(app.task(name="work")(lambda: None))
    control = await app.open()
    await app.prepare(control)
    (duty, *_) = app.duties(control)
    leading = await lead(app)
    clock.advance(900)
    await duty.run(leading)
    await pause(control, "work")
    (before,) = await control.store.schedules()

    clock.advance(60)
    another = app.client.control_of(control.store)  # another worker's
    await app.prepare(another)

    assert [before] == await control.store.schedules()
    assert before.paused


async def test_a_worker_that_begins_to_lead_leaves_what_newer_workers_have_changed(clock: VirtualClock) -> None:
    store = MemoryStore(clock)
    old, new = App("memory:"), App("memory:")
    for app, when in ((old, "15m"), (new, "30m")):
        app.schedule(when)(app.task(name="work")(lambda: None))
    with old.using(store) as control:
        await old.prepare(control)
        with new.using(store) as newer:
            await new.prepare(newer)

        (duty, *_) = old.duties(control)
        await duty.run(await lead(old))

        (view,) = await describe(control)
        assert view.when == "every 30m"

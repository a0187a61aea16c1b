"""App: declaring, submitting, reading results."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from mainstay import App, JobFailed, WaitTimeout
from mainstay.app.settings import AppSettings
from mainstay.errors import BadArguments, InvalidInput, JobNotFound, KeyConflict, MainstayError, UnknownTask
from mainstay.model.settings import describe
from mainstay.stores import Query
from mainstay.testing import MemoryStore, VirtualClock
from mainstay.worker import Program, load
from tests.app.working import working


class Receipt(msgspec.Struct):
    number: int
    at: datetime


@pytest.fixture
def app() -> App:
    return App("memory:")


# settings and the store -----------------------------------------------------------------------------


def test_every_setting_is_an_argument() -> None:
    assert set(AppSettings.__annotations__) == {name for name, *_ in describe()}


def test_arguments_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTAY_LEASE", "20s")
    monkeypatch.setenv("MAINSTAY_RETRIES", "7")

    settings = App("memory:", retries=5).settings

    assert (settings.lease_s, settings.retries) == (20, 5)


def test_the_store_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTAY_STORE", "memory:")

    assert App().store_url == "memory:"


def test_without_a_store_it_says_how_to_name_one() -> None:
    with pytest.raises(InvalidInput, match='store: no store is given; write App\\("sqlite:///jobs.db"\\)'):
        App()


def test_a_misspelt_setting_is_refused() -> None:
    with pytest.raises(InvalidInput, match="leese: unknown option; did you mean 'lease'"):
        App("memory:", leese="20s")  # type: ignore[call-arg]


def test_its_repr_keeps_a_password_to_itself() -> None:
    assert repr(App("postgresql://ann:secret@db/jobs?password=x")) == "<App postgresql://ann:***@db/jobs: 0 tasks>"


# declaring ------------------------------------------------------------------------------------------


def test_an_app_is_a_program_that_workers_run(app: App) -> None:
    assert isinstance(app, Program)


def test_a_worker_finds_an_app_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_of_this_test.py").write_text("from mainstay import App\napp = App('memory:')\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert load("shop_of_this_test:app").store_url == "memory:"


def test_how_a_task_runs_follows_from_its_function(app: App) -> None:
    async def wait() -> None: ...

    def work() -> None: ...

    found = {
        (task.mode, task.is_async)
        for task in (
            app.task(name="a")(wait),
            app.task(name="b")(work),
            app.task(name="c", process=True)(wait),
            app.task(name="d", process=True)(work),
        )
    }

    assert found == {("loop", True), ("thread", False), ("process", True), ("process", False)}


async def test_calling_a_task_calls_its_function(app: App) -> None:
    @app.task(name="add")
    def add(a: int, b: int = 1) -> int:
        return a + b

    @app.task(name="wait")
    async def wait(a: int) -> int:
        return a

    assert add(1, b=2) == 3
    assert await wait(5) == 5


def test_a_task_looks_like_its_function(app: App) -> None:
    @app.task(name="add")
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    assert add.__doc__ == "Add."
    assert list(inspect.signature(add).parameters) == ["a", "b"]
    assert repr(add) == "<task add>"
    assert add.required == ("a",)


def test_tasks_and_their_queues_are_known(app: App) -> None:
    assert list(app.queues) == ["default"]

    send = app.task(name="send", queue="mail")(lambda: None)
    app.task(name="sum")(lambda: None)

    assert dict(app.tasks)["send"] is send
    assert list(app.queues) == ["default", "mail"]
    assert app.work("task", "send") is send


def test_an_unknown_task_is_told_with_the_one_that_was_meant(app: App) -> None:
    app.task(name="mail.send")(lambda: None)

    with pytest.raises(UnknownTask, match="did you mean 'mail.send'"):
        app.work("task", "mail.sent")
    with pytest.raises(UnknownTask):
        app.work("batch", "mail.send")


# submitting and reading -----------------------------------------------------------------------------


async def test_a_job_is_run_and_its_result_comes_back_as_declared(app: App) -> None:
    @app.task(name="pay")
    async def pay(number: int, at: datetime) -> Receipt:
        return Receipt(number, at)

    @app.task(name="double")
    def double(values: tuple[int, ...]) -> set[int]:
        return {2 * value for value in values}

    now = datetime(2026, 3, 1, tzinfo=UTC)
    async with app, working(app):
        receipt = await (await pay.submit(7, at=now)).result(timeout="60s")
        doubled = await (await double.submit((1, 2))).result(timeout="60s")

    assert receipt == Receipt(7, now)
    assert doubled == {2, 4}


async def test_a_repeat_is_told_from_a_first_submit(app: App) -> None:
    @app.task(name="charge")
    def charge(order: int, amount: int = 1) -> None: ...

    first = await charge.options(key="order-7").submit(7)
    again = await charge.options(key="order-7", queue="other").submit(order=7)

    assert (first.created, again.created) == (True, False)
    assert first == again
    with pytest.raises(KeyConflict):
        await charge.options(key="order-7").submit(7, amount=2)


async def test_a_unique_job_can_be_replaced(app: App) -> None:
    @app.task(name="sync", unique=True, on_clash="replace")
    def sync(feed: int) -> None: ...

    first = await sync.options(delay="1m").submit(1)
    second = await sync.submit(1)

    assert second.created
    assert await first.status() == "cancelled"


async def test_a_failed_job_raises_with_how_and_why(app: App) -> None:
    @app.task(name="fail", retries=0)
    async def fail() -> int:
        raise ValueError("no such address")

    async with app, working(app):
        job = await fail.submit()
        with pytest.raises(JobFailed, match="is quarantined: .*ValueError: no such address") as failed:
            await job.result(timeout="60s")
        row = await job.wait(timeout="60s")

    assert (failed.value.status, failed.value.error_code, failed.value.name) == ("quarantined", "error", "fail")
    assert row.status == "quarantined"


async def test_a_result_that_is_not_what_was_declared_fails_the_job_at_once(app: App) -> None:
    runs = []

    @app.task(name="wrong", retries=3)
    async def wrong() -> int:
        runs.append(1)
        return "seven"  # type: ignore[return-value]

    async with app, working(app):
        job = await wrong.submit()
        with pytest.raises(JobFailed, match="wrong returned: expected int, got str") as failed:
            await job.result(timeout="60s")

    assert failed.value.error_code == "bad_result"
    assert len(runs) == 1


async def test_a_wait_that_is_over_says_so_and_the_job_goes_on(app: App) -> None:
    job = await app.task(name="never")(lambda: None).submit()

    with pytest.raises(WaitTimeout):
        await job.result(timeout="1ms")
    assert await job.status() == "pending"


async def test_a_handle_cancels_and_tells_the_story(app: App) -> None:
    job = await app.task(name="never")(lambda: None).submit()

    assert (await job.cancel(reason="not needed")).status == "cancelled"
    assert "not needed" in (await job.story())[-1]
    with pytest.raises(JobFailed, match="is cancelled: not needed"):
        await job.result()


async def test_a_handle_can_be_had_by_id(app: App) -> None:
    @app.task(name="pay")
    async def pay() -> Receipt:
        return Receipt(1, datetime(2026, 3, 1, tzinfo=UTC))

    async with app, working(app):
        job = await pay.submit()
        typed = await pay.handle(job.id).result(timeout="60s")
        plain = await app.handle(job.id).result(timeout="60s")

    assert isinstance(typed, Receipt)
    assert plain == {"number": 1, "at": datetime(2026, 3, 1, tzinfo=UTC)}


async def test_a_handle_shows_its_id_and_no_more(app: App) -> None:
    job = await app.task(name="never")(lambda: None).submit()

    assert repr(job) == f"Handle({job.id!r}, created=True)"
    assert repr(app.handle(job.id)) == f"Handle({job.id!r})"
    assert {job, app.handle(job.id)} == {job}
    with pytest.raises(JobNotFound):
        await app.handle("018bcfe5-6800-7000-8000-000000000001").job()


async def test_arguments_that_no_longer_fit_go_to_quarantine_with_the_field(app: App) -> None:
    def before(to: str) -> None: ...

    def now(to: str, subject: str) -> None: ...

    store = MemoryStore()
    with App("memory:").using(store) as control:
        await control.jobs.submit("send", {"to": "a@b.c"})
    task = app.task(name="send")(now)
    with pytest.raises(BadArguments, match="send.subject: missing"):
        task.unpack(bytes(App("memory:").task(name="send")(before).job("a").payload))

    with app.using(store):
        (row,) = (await app.control.store.find(Query())).jobs
        async with working(app):
            job = await app.handle(row.id).wait(timeout="60s")

    assert job.status == "quarantined"
    assert "send.subject: missing" in (job.error.message if job.error else "")


async def test_a_payload_over_the_limit_is_refused(app: App) -> None:
    take = app.task(name="take")(lambda data: None)

    with pytest.raises(InvalidInput, match="more than the limit of 1048576"):
        await take.submit("x" * 2_000_000)


# lifetime -------------------------------------------------------------------------------------------


async def test_the_store_opens_on_first_use(app: App) -> None:
    with pytest.raises(MainstayError, match="not open yet"):
        _ = app.control

    await app.task(name="never")(lambda: None).submit()

    assert (await app.control.store.stats()).queues["default"].counts == {"pending": 1}


async def test_an_app_opens_again_after_it_was_closed(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    task = app.task(name="never")(lambda: None)

    async with app:
        job = await task.submit()
    async with app:
        assert await task.handle(job.id).status() == "pending"


async def test_an_app_entered_twice_closes_when_it_is_left_twice(app: App) -> None:
    task = app.task(name="never")(lambda: None)

    async with app:
        async with app:
            job = await task.submit()
        assert await job.status() == "pending"
        await app.close()
        assert await job.status() == "pending"

    with pytest.raises(MainstayError, match="not open yet"):
        _ = app.control


async def test_who_leaves_an_app_that_another_has_opened_leaves_it_open(app: App) -> None:
    control = await app.open()

    async with app:
        pass

    assert app.control is control
    await app.close()
    with pytest.raises(MainstayError, match="not open yet"):
        _ = app.control


async def test_another_store_stands_in_for_tests(app: App) -> None:
    clock = VirtualClock()
    task = app.task(name="never")(lambda: None)

    with app.using(MemoryStore(clock)) as control:
        job = await task.options(delay="1h").submit()
        assert (await control.jobs.get(job.id)).due_ms == clock.now_ms() + 3_600_000

    with pytest.raises(JobNotFound):
        await job.job()


async def test_a_clock_can_be_given() -> None:
    clock = VirtualClock()
    app = App("memory:", clock=clock)

    job = await app.task(name="never")(lambda: None).submit()

    assert (await job.job()).created_ms == clock.now_ms()


# what workers store besides -------------------------------------------------------------------------


def test_checkpoints_are_any_data(app: App) -> None:
    value = {"done": 3, "at": [1, None, "x"], "raw": b"\x00"}

    assert app.unpack(app.pack(value)) == value
    with pytest.raises(InvalidInput, match="cannot be stored as data"):
        app.pack(object())

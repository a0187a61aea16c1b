"""Load tests of an app: how they are submitted by name and scheduled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainstay import App, Draft
from mainstay.control.schedules import describe
from mainstay.errors import InvalidInput
from mainstay.load import LoadOptions, LoadTest
from mainstay.model import Job, Leadership
from mainstay.stores import Query
from mainstay.testing import VirtualClock
from tests.load.trials import GET, written
from tests.task.test_codec import Xor


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def app(clock: VirtualClock) -> App:
    return App("memory:", clock=clock)


@pytest.fixture
def shop(app: App, tmp_path: Path) -> LoadTest:
    return app.load(written(tmp_path, GET), queue="load")


async def ticked(app: App, clock: VirtualClock, seconds: float, name: str) -> list[Job]:
    """The jobs of a schedule after some time."""
    session = await (await app.open()).claims.open_session()
    leading: Leadership = await app.control.store.lead("leader", session.id, 1e6)
    (duty, *_) = app.duties(app.control)
    await duty.run(leading)
    clock.advance(seconds)
    await duty.run(leading)
    return list((await app.control.store.find(Query(tag=f"schedule:{name}"))).jobs)


def options_of(app: App, job: Job) -> LoadOptions:
    assert job.payload is not None
    return msgspec.msgpack.decode(app.client.sealer.open(job.payload, field="payload"), type=LoadOptions)


async def test_a_load_test_is_run_at_the_times_of_its_schedule(app: App, clock: VirtualClock, shop: LoadTest) -> None:
    assert app.schedule("15m", overlap="skip")(shop) is shop

    (job,) = await ticked(app, clock, 900, "shop")

    assert (job.name, job.kind, job.queue, job.options.retry.retries) == ("shop", "load", "load", 0)
    assert options_of(app, job) == LoadOptions()
    (view,) = await describe(app.control)
    assert (view.name, view.task, view.overlap) == ("shop", "shop", "skip")


async def test_a_scheduled_run_may_differ_from_the_classes(app: App, clock: VirtualClock, shop: LoadTest) -> None:
    app.schedule("15m", name="peak")(shop.job(vus=500, duration="1h"))

    (job,) = await ticked(app, clock, 900, "peak")

    assert options_of(app, job) == LoadOptions(vus=500, duration="1h")
    assert job.options.run_timeout_s is not None
    assert job.options.run_timeout_s > 3600


async def test_the_timeout_of_a_long_run_is_exact(app: App, clock: VirtualClock, shop: LoadTest) -> None:
    app.schedule("15m", name="soak")(shop.job(duration="20d1s"))

    (job,) = await ticked(app, clock, 900, "soak")

    load_s, drain_s, overhead_s = 20 * 86_400 + 1, 30, 900
    assert job.options.run_timeout_s == load_s + drain_s + overhead_s


async def test_hooks_see_the_run_of_a_schedule(clock: VirtualClock, tmp_path: Path) -> None:
    app = App("memory:", clock=clock, codec=Xor(7))
    app.schedule("15m")(app.load(written(tmp_path, GET)).job(vus=3))
    seen: list[dict[str, Any]] = []

    @app.before_submit
    def look(draft: Draft) -> None:
        seen.append(dict(draft.arguments))
        draft.add_metadata(trace="t-1")

    (job,) = await ticked(app, clock, 900, "shop")

    assert seen == [{"vus": 3}]
    assert job.options.metadata is not None
    assert job.options.metadata["trace"] == "t-1"
    assert options_of(app, job).vus == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [({"vuss": 3}, "did you mean 'vus'"), ({"vus": "three"}, "Expected `int"), ({"duration": "10x"}, "10x")],
)
def test_a_run_that_cannot_be_is_refused_where_it_is_scheduled(
    app: App, shop: LoadTest, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        app.schedule("15m")(shop.job(**options))


def test_what_is_neither_task_nor_load_test_of_the_app_is_refused(app: App, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is not a task or a load test"):
        app.schedule("15m")(print)  # type: ignore[type-var]
    other = written(tmp_path, GET, name="other.py")
    with pytest.raises(InvalidInput, match="is not a task or a load test"):
        app.schedule("15m")(other)
    app.load(written(tmp_path, GET))
    with pytest.raises(InvalidInput, match="'other' is not a load test of this app; it has shop"):
        app.schedule("15m")(other)

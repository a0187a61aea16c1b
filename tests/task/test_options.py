"""Options of tasks and submits: what is known, what belongs where, and how they come together."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mainstay import App
from mainstay.control import OPTION_NAMES
from mainstay.errors import InvalidInput, UnknownOption
from mainstay.task import SubmitOptions, Task

#: how kinds of job build on each other; nothing users say
INTERNAL = {"kind", "parent", "unit", "group"}


@pytest.fixture
def app() -> App:
    return App("memory:", retries=2)


def declare(app: App, **options: Any) -> Task[[], None]:
    return app.task(name="work", **options)(lambda: None)


def test_every_option_of_control_can_be_given_to_a_submit() -> None:
    assert set(SubmitOptions.__annotations__) == set(OPTION_NAMES) - INTERNAL


def test_an_unknown_option_is_refused_with_the_one_that_was_meant(app: App) -> None:
    with pytest.raises(UnknownOption, match="retrys: unknown option; did you mean 'retries'"):
        declare(app, retrys=5)
    with pytest.raises(UnknownOption, match="dellay: unknown option; did you mean 'delay'"):
        declare(app).options(dellay="5m")  # type: ignore[call-arg]


@pytest.mark.parametrize("option", ["key", "key_ttl", "delay", "run_at", "after", "after_when", "after_failed"])
def test_what_belongs_to_one_submit_is_refused_on_the_task(app: App, option: str) -> None:
    with pytest.raises(InvalidInput, match=f"{option}: belongs to one submit.*task.options\\({option}=...\\)"):
        declare(app, **{option: "x"})


@pytest.mark.parametrize("option", ["name", "process", "retry_on", "give_up_on", "policy"])
def test_what_belongs_to_the_task_is_refused_on_a_submit(app: App, option: str) -> None:
    with pytest.raises(InvalidInput, match=f"{option}: belongs to the task"):
        declare(app).options(**{option: None})  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"timeout": 30}, "timeout: 30 is not a duration"),
        ({"priority": 500}, "priority: 500 is out of range"),
        ({"backoff": "never"}, "backoff: 'never' is not one of"),
        ({"on_clash": "refuse"}, "on_clash: needs `unique`"),
        ({"tags": 5}, "tags: 5 is not a list"),
    ],
)
def test_a_bad_option_is_refused_when_the_task_is_made(app: App, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        declare(app, **options)


async def test_a_submit_replaces_the_tasks_options_and_adds_to_tags_and_metadata(app: App) -> None:
    task = declare(app, queue="mail", timeout="30s", tags=["a"], metadata={"team": "x", "cost": "low"})

    job = await (
        await task.options(timeout=timedelta(minutes=1), tags={"b"}, metadata={"cost": "high"}, priority=None).submit()
    ).job()

    assert job.queue == "mail"
    assert job.options.run_timeout_s == 60
    assert job.options.tags == ("a", "b")
    assert job.options.metadata == {"team": "x", "cost": "high"}
    assert job.options.retry.retries == 2


async def test_options_upon_options_leave_the_first_as_they_were(app: App) -> None:
    slow = declare(app).options(timeout="1m")
    slower = slow.options(timeout="2m", queue="slow")

    assert (await (await slow.submit()).job()).options.run_timeout_s == 60
    assert (await (await slower.submit()).job()).options.run_timeout_s == 120


def test_a_worker_offers_a_duration_without_loss(app: App) -> None:
    task = declare(app, timeout=timedelta(days=1, hours=2, minutes=3, milliseconds=4))

    assert task.plain_defaults["timeout"] == "1d2h3m0.004s"


async def test_a_parameter_may_be_called_like_an_option(app: App) -> None:
    @app.task(name="wait")
    def wait(delay: int, key: str, queue: str) -> None: ...

    job = await (await wait.options(queue="q").submit(5, key="k", queue="of people")).job()

    assert job.queue == "q"
    assert job.key is None
    assert wait.arguments(job.payload) == {"delay": 5, "key": "k", "queue": "of people"}


async def test_a_job_waits_for_ids_and_handles_alike(app: App) -> None:
    task = declare(app)
    first, second = await task.submit(), await task.submit()

    waiting = await task.options(after=[first, second.id]).submit()

    assert await app.control.jobs.awaited(waiting.id) == [first.id, second.id]
    with pytest.raises(InvalidInput, match="after: .* is one job; write after="):
        task.options(after=first)  # type: ignore[arg-type]


def test_none_is_refused_where_it_could_mean_no_limit(app: App) -> None:
    with pytest.raises(InvalidInput, match="timeout: None is ambiguous"):
        declare(app).options(timeout=None)  # type: ignore[arg-type]

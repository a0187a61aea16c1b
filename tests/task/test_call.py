"""Calls that a running job submits with its own success."""

from __future__ import annotations

import pytest

from mainstay import App, Draft, JobFailed, context
from mainstay.errors import InvalidInput
from mainstay.task import Call
from tests.app.working import working


@pytest.fixture
def app() -> App:
    return App("memory:", retries=0)


async def refusal(app: App, call: Call[None]) -> str:
    """How a job ends that submits this."""

    @app.task(name="parent")
    async def parent() -> None:
        context().submit(call)

    async with app, working(app):
        with pytest.raises(JobFailed) as failed:
            await (await parent.submit()).result(timeout="60s")
        found = await app.control.jobs.get(failed.value.job_id)
        assert found.error is not None
        return found.error.message


async def test_a_call_of_another_app_is_refused_where_it_is_submitted(app: App) -> None:
    other = App("memory:")
    task = other.task(name="theirs")(lambda: None)

    said = await refusal(app, task.job())

    assert said.startswith("submit: <call of theirs> belongs to another app")


async def test_a_call_that_would_replace_another_job_is_refused_where_it_is_submitted(app: App) -> None:
    task = app.task(name="feed", unique="feed", on_clash="replace")(lambda: None)

    said = await refusal(app, task.job())

    assert said.startswith("submit: <call of feed> has on_clash='replace', which needs its own write")


def test_a_hook_may_make_it_one_that_is_refused(app: App) -> None:
    @app.before_submit
    def replacing(draft: Draft) -> None:
        draft.options["on_clash"] = "replace"

    call = app.task(name="feed", unique="feed")(lambda: None).job()

    with pytest.raises(InvalidInput, match="on_clash='replace'"):
        call.followup()


def test_any_other_is_taken_as_it_is(app: App) -> None:
    call = app.task(name="feed", unique="feed", on_clash="refuse")(lambda: None).job()

    assert call.followup() is call


def test_what_is_called_by_hand_is_no_job(app: App) -> None:
    task = App("memory:").task(name="theirs")(lambda: None)

    task.call(task.unpack(bytes(task.job().payload)))

    assert app.task(name="ours")(lambda: None).job().followup().name == "ours"


def test_a_follow_up_has_the_durability_of_the_success_it_is_stored_with(app: App) -> None:
    task = app.task(name="careful")(lambda: None)

    with pytest.raises(InvalidInput, match="has its own durability, but it is stored with the success of the job"):
        task.options(durability="local").job().followup()

"""The explanation of jobs as a store has them."""

from __future__ import annotations

import random

import pytest

from mainstay.control import Completion, Control, JobRequest
from mainstay.control.explain import Explanation, explained
from mainstay.errors import InvalidInput, JobNotFound
from mainstay.testing import MemoryStore, VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def control(clock: VirtualClock) -> Control:
    return Control(MemoryStore(clock), rng=random.Random(1), actor="ann")


def section(told: Explanation, title: str) -> str:
    return " ".join(sentence for part in told.sections if part.title == title for sentence in part.sentences)


async def test_jobs_that_go_first_are_counted_by_rank(control: Control) -> None:
    session = await control.claims.open_session(worker="w1")
    await control.jobs.submit("a", queue="mail")
    await control.claims.claim(["mail"], session.id, 1)
    ids = [made.id for made in await control.jobs.submit_many([JobRequest("a", None, {"queue": "mail"})] * 600)]
    await control.jobs.submit("a", queue="mail", priority=10)
    await control.jobs.submit("a", queue="elsewhere", priority=10)

    first, last = await explained(control.store, ids[0]), await explained(control.store, ids[-1])

    assert section(first, "waits for").startswith("1 ready job of queue mail goes before it")
    assert section(last, "waits for").startswith("600 ready jobs of queue mail go before it")


async def test_who_holds_the_slots_of_its_key(control: Control) -> None:
    session = await control.claims.open_session(worker="w1")
    await control.operations.set_limit("tenant-7", 1)
    first = await control.jobs.submit("a", queue="one", concurrency_key="tenant-7")
    second = await control.jobs.submit("a", queue="two", concurrency_key="tenant-7")
    await control.claims.claim(["one", "two"], session.id, 10)

    told = await explained(control.store, second.id)

    assert f"1 of 1 slots are taken, by {first.id} (a, held by w1)" in section(told, "waits for")


async def test_what_it_waits_for_is_told_with_its_state(control: Control) -> None:
    session = await control.claims.open_session(worker="w1")
    first = await control.jobs.submit("load", queue="q")
    second = await control.jobs.submit("load", queue="q")
    last = await control.jobs.submit("sum", queue="q", after=[first.id, second.id])
    (job, *_) = await control.claims.claim(["q"], session.id, 1)
    await control.attempts.complete([Completion(job)])

    said = section(await explained(control.store, last.id), "waits for")

    assert "2 other jobs have all succeeded (1 of 2 settled)" in said
    assert f"{second.id} (load, pending)" in said


async def test_open_units_are_counted(control: Control) -> None:
    session = await control.claims.open_session(worker="w1")
    parent = await control.jobs.submit("build", queue="builds", kind="batch")
    await control.claims.claim(["builds"], session.id, 1)
    for unit in ("a", "b"):
        await control.jobs.submit("page", queue="pages", parent=parent.id, unit=unit)

    assert "2 of its units are open." in section(await explained(control.store, parent.id), "now")


async def test_of_a_deleted_job_the_tombstone_speaks(control: Control) -> None:
    job = await control.jobs.submit("a")
    await control.operations.delete(job.id, actor="bob", reason="by request")

    told = await explained(control.store, job.id)

    assert told.status is None
    assert "It was deleted by bob" in section(told, "now")


@pytest.mark.parametrize(
    ("job_id", "error"), [("018bcfe5-6800-7000-8000-000000000001", JobNotFound), ("the first one", InvalidInput)]
)
async def test_a_job_that_is_not_there_is_an_error(control: Control, job_id: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        await explained(control.store, job_id)

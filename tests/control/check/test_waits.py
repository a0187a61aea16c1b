"""Jobs that wait for others: nothing about them looks wrong to the check, whatever becomes of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainstay.control import Completion, Control, JobRequest
from mainstay.control.check import check
from mainstay.stores import JobStore, open_store
from mainstay.testing import VirtualClock


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JobStore]:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    opened = await open_store(url, clock=VirtualClock())
    yield opened
    await opened.close()


async def test_waiting_released_skipped_and_failed_jobs_are_all_clean(store: JobStore) -> None:
    control = Control(store)
    session = await control.claims.open_session(worker="w")
    first = await control.jobs.submit("first", queue="first")
    lost = await control.jobs.submit("lost", queue="lost")
    await control.jobs.submit("later", after=[first.id], delay="1h", priority=7)
    await control.jobs.submit("skipped", after=[lost.id, first.id])
    await control.jobs.submit("failed", after=[lost.id], after_failed="fail")
    await control.jobs.submit("deadline", after=[lost.id], queue_deadline="5m", after_when="settled", priority=-100)
    forced = await control.jobs.submit("forced", after=[first.id, lost.id])
    cancelled = await control.jobs.submit("cancelled", after=[first.id])
    await control.jobs.submit_group([JobRequest("m", None, {"queue": "m"})] * 3, JobRequest("then"))
    assert (await check(store)).violations == ()

    await control.operations.force(forced.id, "pending", actor="ann", reason="now")
    await control.operations.cancel(cancelled.id, actor="ann")
    for queue in ("first", "m"):
        await control.attempts.complete([Completion(job) for job in await control.claims.claim([queue], session.id, 5)])
    await control.operations.delete(lost.id, actor="ann", reason="a mistake")

    report = await check(store)
    assert (report.violations, report.notices) == ((), ())
    counts = (await control.store.stats()).queues["default"].counts
    assert counts == {"scheduled": 1, "skipped": 1, "failed": 1, "pending": 3, "cancelled": 1}
    assert (await check(store, repair=True)).violations == ()

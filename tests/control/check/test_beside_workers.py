from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mainstay.control import Completion, Control, Failure
from mainstay.control.check import check
from mainstay.model import ErrorInfo, Settings
from mainstay.stores import JobStore, open_store

JOBS = 600


async def worked_off(store: JobStore) -> int:
    """Submit, fail, retry, release and complete, as fast as the store allows."""
    control = Control(store, settings=Settings(lease_s=3600))  # it sends no heartbeats, however long this takes
    session = (await control.claims.open_session()).id
    done = 0
    submitted = 0
    while done < JOBS:
        if submitted < JOBS:
            for n in range(30):
                await control.jobs.submit("work.do", {"n": submitted + n})
            submitted += 30
        jobs = await control.claims.claim(["default"], session, 40)
        await control.claims.start(jobs[:30])
        error = ErrorInfo(type="E", message="no")
        await control.attempts.fail([Failure(job, error, after_s=0) for job in jobs[:3] if job.failures == 0])
        await control.attempts.release(jobs[3:6], reason="drain") if jobs[10:] else None
        rest = [job for job in jobs[:3] if job.failures] + (jobs[6:] if jobs[10:] else jobs[3:])
        answers = await control.attempts.complete([Completion(job) for job in rest])
        done += len(answers)
    await control.claims.close_session(session)
    return done


@pytest.mark.slow
@pytest.mark.parametrize("repair", [False, True])
async def test_a_check_beside_running_workers_finds_nothing_and_disturbs_nobody(tmp_path: Path, repair: bool) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    working, checking = await open_store(url), await open_store(url)
    try:
        work = asyncio.create_task(worked_off(working))
        checks = 0
        while not work.done():
            assert (await check(checking, repair=repair)).violations == ()
            checks += 1
        assert await work == JOBS
        assert checks > 1
        counts = (await checking.stats()).queues["default"].counts
        assert counts == {"succeeded": JOBS}
    finally:
        await working.close()
        await checking.close()

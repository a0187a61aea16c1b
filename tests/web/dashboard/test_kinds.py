from __future__ import annotations

from mainstay.control import Control, JobRequest
from mainstay.testing import MemoryStore
from mainstay.web.dashboard.kinds import jobs_of_kind


async def test_those_of_a_kind_are_found_among_many_others_page_by_page() -> None:
    control = Control(MemoryStore())
    made = []
    for _ in range(5):
        made.append((await control.jobs.submit("Shop", kind="load")).id)
        await control.jobs.submit_many(JobRequest("t", n) for n in range(100))
    found: list[str] = []
    cursor = None
    while True:
        some = await jobs_of_kind(control.store, "load", cursor=cursor, most=2)
        found += [job.id for job in some.jobs]
        cursor = some.cursor
        if cursor is None:
            break
    assert found == made[::-1]


async def test_with_a_name_only_those_of_that_name_are_found() -> None:
    control = Control(MemoryStore())
    wanted = await control.jobs.submit("Shop", kind="load")
    await control.jobs.submit("Other", kind="load")
    await control.jobs.submit_many(JobRequest("t", n) for n in range(100))
    some = await jobs_of_kind(control.store, "load", cursor=None, name="Shop")
    assert ([job.id for job in some.jobs], some.cursor) == ([wanted.id], None)

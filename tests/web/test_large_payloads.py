"""Large payloads keep nobody else waiting: lists do not read them, and what must be read is read beside the loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from mainstay.control import Control, Failure
from mainstay.model import ErrorInfo, Job
from mainstay.stores import Page, Query
from mainstay.stores.memory import MemoryStore
from mainstay.stores.omitted_values import size_left_out
from mainstay.web.api import secret_search, views
from mainstay.web.api.job_pages import shown_page
from mainstay.web.api.masker import Masker
from mainstay.web.api.secret_search import PAGE_BYTES, parts_at_most
from mainstay.web.api.text_mask import UNSEARCHED
from mainstay.web.threads import SMALL_BYTES
from tests.web.conftest import Server, serving

#: as large as a payload may be, and as slow to walk
NUMBERS = [1] * 900_000
JOBS = 12


class Reading(MemoryStore):
    """Counts the bytes of payloads that it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = 0
        self.read = 0

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 100) -> Page:
        page = await super().find(query, cursor=cursor, limit=limit)
        self.listed += sum(len(job.payload) for job in page.jobs)
        return page

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        found = await super().get(ids)
        self.read += sum(len(job.payload) for job in found if job is not None)
        return found


@pytest.fixture
async def store() -> Reading:
    store = Reading()
    control = Control(store)
    session = await control.claims.open_session(worker="w")
    for n in range(JOBS):
        payload = {"password": f"hunter{n:04}", "rows": NUMBERS}
        await control.jobs.submit("charge", payload, retries=0, queue="huge")
        (job,) = await control.claims.claim(["huge"], session.id, 1)
        error = ErrorInfo(type="Declined", message=f"no entry for hunter{n:04}", traceback="line 1")
        await control.attempts.fail([Failure(job, error)])
    await control.claims.close_session(session.id)
    return store


@pytest.fixture
async def large(store: Reading) -> AsyncIterator[Server]:
    async with serving(store=store) as server:
        yield server


@pytest.fixture
def on_the_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The large values that were worked on in the thread of the event loop."""
    found: list[str] = []
    loop_thread = threading.current_thread()
    search_one, value_view = secret_search._search_one, views.value_view

    def noted(name: str, size: int) -> None:
        if size > SMALL_BYTES and threading.current_thread() is loop_thread:
            found.append(name)

    def searching(masker: Masker, job: Job) -> Any:
        noted("search", len(job.payload))
        return search_one(masker, job)

    def viewing(job: Job, name: str, masker: Masker) -> Any:
        noted("view", len(getattr(job, name) or b""))
        return value_view(job, name, masker)

    monkeypatch.setattr(secret_search, "_search_one", searching)
    for module in ("api.views", "api.job_history", "dashboard.job"):
        monkeypatch.setattr(f"mainstay.web.{module}.value_view", viewing)
    return found


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/jobs",
        "/api/v1/jobs?text=no+entry",
        "/api/v1/jobs?payload=true",
        "/jobs",
        "/jobs?status=quarantined",
        "/jobs/bulk?all=matching&action=retry",
        "/jobs/{id}",
        "/api/v1/jobs/{id}",
        "/api/v1/jobs/{id}/events",
        "/api/v1/jobs/{id}/explain",
        "/",
    ],
)
async def test_no_page_walks_large_values_in_the_event_loop(large: Server, on_the_loop: list[str], path: str) -> None:
    (job,) = (await large.control.store.find(Query(), limit=1)).jobs
    # processor time of this thread, so that a busy machine changes nothing
    began_s = time.thread_time()
    answer = await large.client.get(path.format(id=job.id))
    took_s = time.thread_time() - began_s

    assert answer.status_code == 200
    assert "hunter0011" not in answer.text
    assert on_the_loop == []
    assert took_s < 0.5


async def test_the_loop_turns_beside_the_worst_page(large: Server) -> None:
    slowest_s, done = 0.0, False

    async def asks_for_life() -> None:
        nonlocal slowest_s
        while not done:
            began_s = time.perf_counter()
            assert (await large.client.get("/livez")).status_code == 200
            slowest_s = max(slowest_s, time.perf_counter() - began_s)
            await asyncio.sleep(0.001)

    asking = asyncio.create_task(asks_for_life())
    for path in ("/api/v1/jobs?payload=true", "/jobs", "/api/v1/jobs?text=no+entry"):
        assert (await large.client.get(path)).status_code == 200
    done = True
    await asking
    # 100 ms on a machine that does nothing else; walked in the loop, one page took 10 s and more
    assert slowest_s < 2


async def test_a_list_reads_no_large_payload_and_searches_a_limited_number_of_bytes(store: Reading) -> None:
    store.listed = store.read = 0
    page = await shown_page(store, Query(), None, 50, Masker(("password",)))

    assert len(page.jobs) == JOBS
    assert store.listed < 16 * 1024
    assert 0 < store.read <= PAGE_BYTES
    shown = {job.error.message for job in page.jobs if job.error}
    assert shown == {"no entry for ***", UNSEARCHED}


async def test_what_one_page_did_not_search_the_next_one_does_and_then_it_is_kept(store: Reading) -> None:
    masker = Masker(("password",))
    jobs = (await store.find(Query(value_bytes=100))).jobs
    assert all(size_left_out(job.payload) for job in jobs)
    found = [await secret_search.search(store, jobs, masker) for _ in range(6)]
    store.read = 0
    again = await secret_search.search(store, jobs, masker)

    unsearched = [each.count(None) for each in found]
    assert unsearched[0] > 0, "one page searched more than its budget"
    assert unsearched == sorted(unsearched, reverse=True)
    assert unsearched[-1] == 0
    assert again == found[-1] == [(f"hunter{n:04}",) for n in reversed(range(JOBS))]
    assert store.read == 0


async def test_pages_with_payloads_end_before_they_are_too_large_and_miss_none(large: Server) -> None:
    found: list[str] = []
    cursor = ""
    while True:
        answer = await large.client.get(f"/api/v1/jobs?payload=true&limit=500{cursor}")
        assert len(answer.content) < 8 * 1024 * 1024
        page = answer.json()
        assert [job["payload"] for job in page["jobs"]] == [{"password": "***", "rows": NUMBERS}] * len(page["jobs"])
        found += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert len(found) == len(set(found)) == JOBS


async def test_a_search_goes_on_where_its_budget_ended(large: Server) -> None:
    found: list[str] = []
    cursor = ""
    for _ in range(2 * JOBS):
        page = (await large.client.get(f"/api/v1/jobs?text=no+entry{cursor}")).json()
        found += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert len(found) == len(set(found)) == JOBS


async def test_a_value_of_too_many_parts_is_not_decoded() -> None:
    tables = msgspec.msgpack.encode([{}] * 300_000)
    assert parts_at_most(tables) >= 300_000
    assert parts_at_most(msgspec.msgpack.encode(NUMBERS)) < 10
    async with serving() as server:
        made = await server.control.jobs.submit("x", [{}] * 300_000)
        shown = (await server.client.get(f"/api/v1/jobs/{made.id}")).json()
    assert shown["payload"] == {"left_out": f"{len(tables)} bytes, in too many lists and maps to show"}

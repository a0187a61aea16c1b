"""A search that has not seen all jobs says so: in the API, on the page and in the stream."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest

from mainstay.stores import Page, Query
from mainstay.web import page_search

from .conftest import Server, serving
from .live.listening import listening


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a store look at one job at a time, for no longer than that takes."""
    monkeypatch.setattr(page_search, "_SEARCH_MS", 0)

    def slow(server: Server) -> None:
        store = server.stores.first.store
        whole = store.find

        async def find(query: Query, *, cursor: str | None = None, limit: int = 100) -> Page:
            looked = await whole(Query(oldest_first=query.oldest_first), cursor=cursor, limit=1)
            matching = await whole(query, cursor=cursor, limit=limit)
            ids = {job.id for job in looked.jobs}
            return Page([job for job in matching.jobs if job.id in ids], looked.cursor)

        monkeypatch.setattr(store, "find", find)

    return slow


async def test_a_search_that_was_ended_early_says_that_it_has_not_finished(unhurried: Any) -> None:
    async with serving() as server:
        made = await server.control.jobs.submit("wanted")
        await server.control.jobs.submit("other")
        unhurried(server)

        page = (await server.client.get("/api/v1/jobs?text=want")).json()
        assert (page["jobs"], page["finished"]) == ([], False)
        page = (await server.client.get(f"/api/v1/jobs?text=want&cursor={page['next']}")).json()
        assert ([job["id"] for job in page["jobs"]], page["next"], page["finished"]) == ([made.id], None, True)


async def test_a_page_of_such_a_search_offers_to_look_on(unhurried: Any) -> None:
    async with serving() as server:
        await server.control.jobs.submit("other")
        made = await server.control.jobs.submit("wanted")
        unhurried(server)

        text = unescape((await server.client.get("/jobs?text=want")).text)
        assert made.id in text
        assert "The search is not finished: more jobs may match." in text
        assert "Continue »" in text
        text = unescape((await server.client.get("/jobs?text=othe")).text)
        assert "No match so far, and the search is not finished." in text
        assert "Continue »" in text


async def test_the_stream_of_such_a_search_does_not_claim_that_there_is_nothing(unhurried: Any) -> None:
    async with serving() as server:
        await server.control.jobs.submit("wanted")
        await server.control.jobs.submit("other")
        async with listening(server.app, "/api/v1/jobs/stream?text=want") as stream:
            page = (await stream.next("page")).data
            assert (len(page["ids"]), page["finished"]) == (1, True)
        unhurried(server)
        async with listening(server.app, "/api/v1/jobs/stream?text=want") as stream:
            page = (await stream.next("page")).data
            assert (page["ids"], page["finished"]) == ([], False)

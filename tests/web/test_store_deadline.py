"""A store that does not answer: whoever asks is told so in time, and what is made without it says nothing about it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mainstay.errors import StoreError
from mainstay.stores.memory import MemoryStore
from tests.web.conftest import Server, serving

JOB = "018bcfe5-6800-7000-8000-0123456789ab"


class Hanging(MemoryStore):
    """Takes every call, and answers none while it hangs."""

    hangs = False

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not asyncio.iscoroutinefunction(found) or name == "close":
            return found

        async def answer(*args: Any, **kwargs: Any) -> Any:
            while self.hangs:
                await asyncio.sleep(3600)
            return await found(*args, **kwargs)

        return answer


@pytest.fixture
async def hanging() -> AsyncIterator[Server]:
    store = Hanging()
    async with serving(store=store, answer_s=0.05) as server:
        store.hangs = True
        yield server
        store.hangs = False


@pytest.mark.parametrize(
    "path", ["/jobs", f"/jobs/{JOB}", f"/jobs/{JOB}/result?wait=20s", f"/jobs/{JOB}/stream", "/queues", "/stats"]
)
async def test_a_request_to_a_store_that_hangs_is_answered_with_when_to_come_back(hanging: Server, path: str) -> None:
    answer = await hanging.client.get(f"/api/v1{path}")

    assert (answer.status_code, answer.json()["type"]) == (503, StoreError.code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) > 0


async def test_a_submit_to_a_store_that_hangs_says_that_it_may_have_been_made(hanging: Server) -> None:
    answer = await hanging.client.post("/api/v1/jobs", json={"name": "send"})

    assert answer.status_code == 503
    assert "may have been made" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/jobs", "/batches"])
async def test_a_page_of_a_store_that_hangs_is_a_page_that_says_so(hanging: Server, path: str) -> None:
    answer = await hanging.client.get(path)

    assert answer.status_code == 503
    assert answer.headers["content-type"].startswith("text/html")
    assert int(answer.headers["retry-after"]) > 0
    assert "did not answer within" in answer.text


async def test_what_is_made_without_the_store_does_not_make_it_ready(hanging: Server) -> None:
    place = hanging.stores.first
    place.answered_s = time.monotonic() - 60

    for path in ("/", "/api/v1/snapshot", "/api/v1/history", "/api/v1/stores"):
        assert (await hanging.client.get(path)).status_code == 200

    assert (await hanging.client.get("/readyz")).status_code == 503

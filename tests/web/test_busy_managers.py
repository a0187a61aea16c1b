"""A server whose managers refuse calls because they are busy: what its clients are told."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainstay.client import AsyncClient, Tries
from mainstay.errors import JobNotFound, Overloaded, RateLimited, RequestRefused
from mainstay.stores.memory import MemoryStore
from mainstay.web.security.tokens import Tokens
from tests.web.conftest import Server, serving

JOB = "018bcfe5-6800-7000-8000-0123456789ab"
BASE = "http://127.0.0.1:8330"


class BusyStore(MemoryStore):
    """Refuses reads while `refusal` is set."""

    refusal: Overloaded | None = None
    reads = 0

    async def get(self, ids: Any) -> Any:
        self.reads += 1
        if self.refusal is not None:
            raise self.refusal
        return await super().get(ids)


@pytest.fixture
async def store() -> BusyStore:
    return BusyStore()


@pytest.fixture
async def busy(store: BusyStore) -> AsyncIterator[Server]:
    async with serving(store=store) as server:
        yield server


@pytest.mark.parametrize(
    ("refusal", "status", "after"),
    [
        (RateLimited("data requests of operator:ann", 0.025), 429, "1"),
        (RateLimited("data requests of operator:ann", 2.5), 429, "3"),
        (Overloaded("the manager is stressed and takes no data requests", 1.0), 503, "1"),
    ],
)
async def test_a_refusal_says_when_in_python_and_over_http(
    busy: Server, store: BusyStore, refusal: Overloaded, status: int, after: str
) -> None:
    store.refusal = refusal
    answer = await busy.client.get(f"/api/v1/jobs/{JOB}")
    assert (answer.status_code, answer.headers["retry-after"]) == (status, after)
    assert answer.json()["type"] == refusal.code
    assert answer.json()["retry_after_s"] == refusal.retry_after_s

    transport = httpx.ASGITransport(busy.app)
    async with AsyncClient(BASE, transport=transport, tries=Tries(most=1), rng=random.Random(1)) as client:
        with pytest.raises(type(refusal)) as raised:
            await client.handle(JOB).job()
    assert type(raised.value) is type(refusal)
    assert raised.value.retry_after_s == refusal.retry_after_s
    assert str(raised.value) == str(refusal)


async def test_a_refused_request_is_made_again_three_times_and_a_refusal_is_not_an_outage(
    busy: Server, store: BusyStore
) -> None:
    store.refusal = RateLimited("data requests of operator:ann", 0.001)
    transport = httpx.ASGITransport(busy.app)
    async with AsyncClient(BASE, transport=transport, rng=random.Random(1)) as client:
        with pytest.raises(RateLimited):
            await client.handle(JOB).job()
        assert store.reads == 4
        assert busy.site.stores.first.error == ""
        store.refusal = None
        with pytest.raises(JobNotFound):
            await client.handle(JOB).job()


async def test_a_cancel_does_not_count_for_the_rate_of_its_caller(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens")
    token = tokens.add("ann", ["operate"])
    async with serving(store=MemoryStore(), tokens=tokens, rate=0.6) as server:  # bursts of three
        ann = server.as_(token)
        codes = [(await ann.post(f"/api/v1/jobs/{JOB}/cancel", json={})).status_code for _ in range(20)]
        reads = [(await ann.get(f"/api/v1/jobs/{JOB}")).status_code for _ in range(4)]
        after = (await ann.post(f"/api/v1/jobs/{JOB}/cancel", json={})).status_code

        assert (codes, reads, after) == ([404] * 20, [404] * 3 + [429], 404)
        transport = httpx.ASGITransport(server.app)
        once = Tries(most=1)
        async with AsyncClient(BASE, token=token, transport=transport, tries=once, rng=random.Random(1)) as client:
            with pytest.raises(RequestRefused) as refused:
                await client.handle(JOB).job()
        assert refused.value.retry_after_s is not None
        assert refused.value.retry_after_s >= 1

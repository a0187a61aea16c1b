"""A server that is killed in the middle of submits."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import httpx
import pytest

from mainstay.client import AsyncClient, Tries
from mainstay.control import decoded
from mainstay.stores import Query, open_store
from tests.places import place
from tests.web.client.servers import Process

_WRITERS, _EACH, _KILLS = 8, 20, 3


class Killing(httpx.AsyncBaseTransport):
    """A real wire. Now and then the server is killed when it has stored something and before the client hears of it;
    whatever else is under way is cut where it stands."""

    def __init__(self, server: Process, every: int) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self._server = server
        self._every = every
        self._answered = 0
        self.kills = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        self._answered += 1
        if self._answered % self._every or self.kills == _KILLS:
            return response
        self.kills += 1
        await response.aclose()
        await asyncio.to_thread(self._server.kill)
        await asyncio.to_thread(self._server.start)
        raise httpx.ReadError("cut off")

    async def aclose(self) -> None:
        await self._inner.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_server_killed_in_the_middle_of_submits_loses_none_and_makes_none_twice(
    kind: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}" if kind == "sqlite" else place(kind, tmp_path)
    server = Process(tmp_path, url)
    wire = Killing(server, every=_WRITERS * _EACH // (_KILLS + 1))
    acknowledged: dict[int, str] = {}

    async def submit(client: AsyncClient, writer: int) -> None:
        for n in range(writer * _EACH, (writer + 1) * _EACH):
            if n % 10:
                handle = await client.submit("a", {"n": n})
            else:
                (handle,) = await client.submit_many([client.job("a", {"n": n})])
            acknowledged[n] = handle.id

    try:
        await asyncio.to_thread(server.start)
        tries = Tries(most=1000, base_s=0.05, cap_s=0.2)
        async with (
            AsyncClient(server.url, tries=tries, transport=wire, rng=random.Random(1)) as client,
            asyncio.TaskGroup() as group,
        ):
            for writer in range(_WRITERS):
                group.create_task(submit(client, writer))
    finally:
        server.kill()

    stored = await _stored(server.store)
    assert wire.kills == _KILLS
    assert {n: stored.get(job_id) for n, job_id in acknowledged.items()} == {n: n for n in range(_WRITERS * _EACH)}
    assert Counter(stored.values()) == dict.fromkeys(range(_WRITERS * _EACH), 1)


async def _stored(url: str) -> dict[str, int]:
    store = await open_store(url)
    try:
        found: dict[str, int] = {}
        cursor: str | None = None
        while True:
            page = await store.find(Query(), cursor=cursor, limit=500)
            found |= {job.id: decoded(job.payload)["n"] for job in page.jobs}
            if (cursor := page.cursor) is None:
                return found
    finally:
        await store.close()

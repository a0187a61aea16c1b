"""Answers that are lost on their way: nothing is done twice, nothing is missed."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings, strategies as st

from mainstay.client import AsyncClient, EndMessage, EventView, JobMessage, Tries
from mainstay.errors import ServerUnreachable
from tests.web.client.conftest import BASE, work
from tests.web.conftest import Server, serving


class Losing(httpx.AsyncBaseTransport):
    """Brings every request to the server, and loses answers, whole or from some byte on."""

    def __init__(self, app: Any, cuts: list[int | None]) -> None:
        self._inner = httpx.ASGITransport(app)
        self._cuts = cuts
        self.sent: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        response = await self._inner.handle_async_request(request)
        cut = self._cuts.pop(0) if self._cuts else None
        if cut is None:
            return response
        if cut == 0:
            raise httpx.ReadError("cut off")
        return httpx.Response(response.status_code, headers=response.headers, stream=_Cut(response, cut))


class _Cut(httpx.AsyncByteStream):
    def __init__(self, response: httpx.Response, at: int) -> None:
        self._response = response
        self._left = at

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._response.stream, httpx.AsyncByteStream)
        async for chunk in self._response.stream:
            yield chunk[: self._left]
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx.ReadError("cut off")


def losing(server: Server, cuts: list[int | None]) -> tuple[AsyncClient, Losing]:
    transport = Losing(server.app, cuts)
    tries = Tries(base_s=0.0, most=len(cuts) + 2)
    return AsyncClient(BASE, transport=transport, tries=tries, rng=random.Random(1)), transport


async def test_a_submit_whose_answer_is_lost_is_sent_again_and_makes_one_job(stored: Server) -> None:
    client, wire = losing(stored, [0, 5])
    async with client:
        handle = await client.submit("a")

        keys = {request.headers["Idempotency-Key"] for request in wire.sent}
        assert (len(wire.sent), len(keys)) == (3, 1)
        assert not handle.created
        assert [job.id async for job in client.jobs.find()] == [handle.id]


async def test_many_jobs_whose_answer_is_lost_are_there_once(stored: Server) -> None:
    client, _ = losing(stored, [0, None, 0])
    async with client:
        made = await client.submit_many([client.job("a", {"n": n}) for n in range(20)], chunk=10)

        assert len({handle.id for handle in made}) == 20
        assert len([job async for job in client.jobs.find()]) == 20


async def test_what_may_have_been_done_is_not_done_again(stored: Server) -> None:
    handle = (await stored.control.jobs.submit("a", delay="1h")).id
    client, wire = losing(stored, [0])
    async with client:
        with pytest.raises(ServerUnreachable, match="It may have been done: check before you send it again"):
            await client.handle(handle).retry()

        assert len(wire.sent) == 1
        assert await client.handle(handle).status() == "pending"


@given(cuts=st.lists(st.integers(1, 4000), max_size=6))
@settings(max_examples=30)
def test_a_stream_that_breaks_anywhere_is_taken_up_without_a_gap_or_a_repetition(cuts: list[int]) -> None:
    import asyncio

    async def read() -> tuple[list[JobMessage], list[int]]:
        async with serving() as server:
            job = await server.control.jobs.submit("a", retries=3)
            for n in range(3):
                await server.control.operations.set_priority(job.id, n + 1, actor="ann")
            await work(server.control, result=1)
            client, _ = losing(server, list(cuts))
            async with client:
                news = [each async for each in client.handle(job.id).stream()]
            return news, [event.seq for event in await server.control.jobs.events(job.id)]

    news, trail = asyncio.run(read())
    assert [each.seq for each in news if isinstance(each, EventView)] == trail
    assert [each for each in news if isinstance(each, EndMessage)] == news[-1:]


async def test_a_stream_that_is_not_there_is_refused_at_once(server: Server) -> None:
    client, wire = losing(server, [])
    async with client:
        with pytest.raises(LookupError):
            _ = [each async for each in client.handle("018bcfe5-6800-7000-8000-0123456789ab").stream()]
        assert len(wire.sent) == 1

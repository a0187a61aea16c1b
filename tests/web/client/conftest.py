"""Clients of a server in this process, and what a worker would do."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mainstay.client import AsyncClient, Tries
from mainstay.control import Completion, Control, Failure
from mainstay.model import ErrorInfo

BASE = "http://127.0.0.1:8330"
AT_ONCE = Tries(base_s=0.0, total_s=0.0)


def client_of(app: Any, **options: Any) -> AsyncClient:
    """One that speaks to an app without a socket, and makes no pauses."""
    given = {"tries": AT_ONCE, "rng": random.Random(1), **options}
    return AsyncClient(BASE, transport=httpx.ASGITransport(app), **given)


async def work(control: Control, queue: str = "default", *, result: Any = None, error: ErrorInfo | None = None) -> int:
    """Take what waits and end it; how many that were."""
    session = await control.claims.open_session()
    jobs = await control.claims.claim([queue], session.id, 100)
    await control.claims.start(jobs)
    if error is None:
        await control.attempts.complete([Completion(job, result=result) for job in jobs])
    else:
        await control.attempts.fail([Failure(job, error=error) for job in jobs])
    await control.claims.close_session(session.id)
    return len(jobs)


@pytest.fixture
async def client(server: Any) -> AsyncIterator[AsyncClient]:
    async with client_of(server.app) as made:
        yield made


@pytest.fixture
async def either(stored: Any) -> AsyncIterator[AsyncClient]:
    """The same on each of two stores."""
    async with client_of(stored.app) as made:
        yield made

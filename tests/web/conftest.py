"""A server in this process, without a socket: the app as it is served, and a client that speaks to it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainstay.stores import JobStore
from mainstay.web import ClusterSource
from mainstay.web.options import WebOptions
from mainstay.web.security.middleware import wrapped
from mainstay.web.security.tokens import Tokens
from mainstay.web.services import WebServices
from mainstay.web.site import make_site
from mainstay.web.store_deadline import ANSWER_S
from mainstay.web.stores import ServedStore, ServedStores

BASE = "http://127.0.0.1:8330"


class Server:
    """A site, and a client that is let in."""

    def __init__(self, site: WebServices, client: httpx.AsyncClient, app: Any) -> None:
        self.site = site
        self.stores = site.stores
        self.client = client
        self.app = app
        self.control = site.stores.first.control

    def as_(self, token: str | None) -> httpx.AsyncClient:
        """Another client, with another token."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=BASE, headers=headers)


Serve = Callable[..., AbstractAsyncContextManager[Server]]


@contextlib.asynccontextmanager
async def serving(
    urls: dict[str, str] | None = None,
    *,
    store: JobStore | None = None,
    tokens: Tokens | None = None,
    cluster: ClusterSource | None = None,
    answer_s: float = ANSWER_S,
    **options: Any,
) -> AsyncIterator[Server]:
    """A server on these stores; on one that is open already, which is closed with it, and has so long to answer;
    without either, on one in memory."""
    chosen = WebOptions(**{"rate": 1e6, "tokens": None if tokens is None else "given", **options})
    stores = (
        ServedStores({"main": ServedStore("main", store, answer_s=answer_s)})
        if store
        else await ServedStores.open(urls or {"main": "memory:"})
    )
    async with stores:
        app = make_site(stores, chosen, tokens=tokens, cluster=cluster)
        served = wrapped(app, chosen, knows=app.state.site.guard.knows)
        transport = httpx.ASGITransport(served)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url=BASE) as client,
        ):
            yield Server(app.state.site, client, served)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A store in memory, and nobody is asked for a token."""
    async with serving() as found:
        yield found


@pytest.fixture(params=["memory", "sqlite"])
async def stored(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    """The same on each of two stores."""
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    async with serving({"main": url}) as found:
        yield found

"""A small site behind the guard, to knock at."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from mainstay.testing import VirtualClock
from mainstay.web.options import WebOptions
from mainstay.web.problems import Problem, problem_response
from mainstay.web.security import login
from mainstay.web.security.guard import Guard
from mainstay.web.security.limits import ConnectionLimits
from mainstay.web.security.middleware import wrapped
from mainstay.web.security.tokens import Tokens

BASE = "http://127.0.0.1:8330"


def small_site(guard: Guard) -> Starlette:
    """Something to read, something to change, something that goes on."""

    async def read(request: Request) -> Response:
        caller = await guard.admit(request, "read")
        return JSONResponse({"who": caller.actor, "how": caller.how, "csrf": guard.csrf_token(request)})

    async def operate(request: Request) -> Response:
        caller = await guard.admit(request, "operate")
        return JSONResponse({"who": caller.actor, "size": len(await request.body())})

    async def unread(_: Request) -> Response:
        return PlainTextResponse("not looked at")

    async def kept(_: Request) -> Response:
        return PlainTextResponse("an asset", headers={"Cache-Control": "max-age=60"})

    async def flood(_: Request) -> Response:
        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 65_536
                await asyncio.sleep(0)

        return StreamingResponse(endless())

    async def live(_: Request) -> Response:
        async def events() -> AsyncIterator[bytes]:
            yield b"data: here\n\n"
            await asyncio.Event().wait()

        return StreamingResponse(events(), media_type="text/event-stream")

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return problem_response(error)

    return Starlette(
        routes=[
            *login.routes(SimpleNamespace(guard=guard)),  # type: ignore[arg-type]
            Route("/read", read),
            Route("/operate", operate, methods=["POST"]),
            Route("/unread", unread, methods=["POST"]),
            Route("/kept", kept),
            Route("/flood", flood),
            Route("/live", live),
        ],
        exception_handlers={Problem: refused},
    )


class Door:
    """A guarded site in this process, and those who knock."""

    def __init__(
        self, folder: Path, *, asks: bool = True, limits: ConnectionLimits | None = None, **options: Any
    ) -> None:
        self.clock = VirtualClock()
        self.tokens = Tokens(folder / "tokens.json", clock=self.clock)
        self.options = WebOptions(tokens=str(self.tokens.path) if asks else None, **options)
        self.guard = Guard(self.options, self.tokens if asks else None, clock=self.clock)
        self.app = wrapped(small_site(self.guard), self.options, limits, knows=self.guard.knows, clock=self.clock)

    def client(self, token: str | None = None, *, base: str = BASE, **headers: str) -> httpx.AsyncClient:
        """Whoever knocks, perhaps with a token."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        transport = httpx.ASGITransport(self.app, client=("192.0.2.7", 4711))
        return httpx.AsyncClient(transport=transport, base_url=base, headers=headers)

    async def signed_in(self, token: str, *, base: str = BASE) -> httpx.AsyncClient:
        """A browser after its sign-in."""
        client = self.client(base=base)
        done = await client.post("/login", data={"token": token})
        assert done.status_code == 303, done.text
        return client


def problem(response: httpx.Response) -> tuple[int, str]:
    """Its status and code."""
    assert response.headers["content-type"] == "application/problem+json"
    return response.status_code, response.json()["type"]


def cookie_value(client: httpx.AsyncClient) -> str:
    [cookie] = list(client.cookies.jar)
    assert cookie.value is not None
    return cookie.value


def set_cookie(response: httpx.Response) -> dict[str, str]:
    """The attributes of the cookie that is set, in lower case."""
    parts = [part.strip().partition("=") for part in response.headers["set-cookie"].split(";")]
    return {re.sub(r"^mainstay-\d+$", "mainstay", name.lower()): value for name, _, value in parts}

"""Every route of the whole site, as far as strangers and readers come. A route that is added is asked here, too."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Mount

from mainstay.web.security.tokens import Tokens
from tests.web.conftest import BASE, Server, serving

#: what anybody may look at: whether it is alive, its description, its sign-in, and what pages are made of
OPEN = {"/livez", "/readyz", "/login", "/logout", "/static/{path:path}", "/api/v1/openapi.json"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
UNSAFE = ("POST", "PUT", "PATCH", "DELETE")


def paths(routes: Iterable[Any], below: str = "") -> Iterator[str]:
    for route in routes:
        if isinstance(route, Mount):
            yield from paths(route.routes, below + route.path)
        else:
            yield below + route.path


def concrete(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "01a1e20f-5355-7137-b2a7-4de452e6b59d", path)


@contextlib.asynccontextmanager
async def guarded(folder: Path, **options: Any) -> AsyncIterator[tuple[Server, Tokens, list[str]]]:
    tokens = Tokens(folder / "tokens.json")
    tokens.add("root", ["admin"])
    async with serving(tokens=tokens, **options) as server:
        found = sorted(set(paths(server.app.app.routes)) - OPEN)
        assert len(found) > 30
        yield server, tokens, found


async def asked(client: httpx.AsyncClient, found: Iterable[str], methods: Iterable[str]) -> dict[str, httpx.Response]:
    return {
        f"{method} {path}": await client.request(method, concrete(path), content=b"{}" if method in UNSAFE else None)
        for path in found
        for method in methods
    }


async def test_strangers_are_shown_nothing_and_change_nothing(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (server, _, found):
        answers = await asked(server.as_(None), found, METHODS)

    let_in = {
        name: done.status_code
        for name, done in answers.items()
        if not (
            done.status_code in (401, 405)
            or (done.status_code == 303 and done.headers["location"].startswith("/login?next="))
        )
    }
    assert let_in == {}
    assert sum(done.status_code == 401 for done in answers.values()) > 40


async def test_what_anybody_may_look_at_says_not_where_the_stores_are(tmp_path: Path) -> None:
    """Their names are no secret: they are part of how the API is described, and of what is ready."""
    async with guarded(tmp_path, urls={"shop": f"sqlite:///{tmp_path / 'ledger.db'}"}) as (server, _, _):
        for path in sorted(OPEN - {"/static/{path:path}"}):
            done = await server.as_(None).get(path)

            assert done.status_code in (200, 303, 405, 503)
            assert "ledger" not in done.text


async def test_readers_change_nothing(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (server, tokens, found):
        answers = await asked(server.as_(tokens.add("ann", ["read"])), found, UNSAFE)

    changed = {name: done.status_code for name, done in answers.items() if done.status_code not in (403, 405)}
    assert changed == {}
    assert sum(done.status_code == 403 for done in answers.values()) > 15


async def test_a_server_that_only_shows_changes_nothing_for_anybody(tmp_path: Path) -> None:
    async with guarded(tmp_path, read_only=True) as (server, tokens, found):
        answers = await asked(server.as_(tokens.add("ann", ["admin"])), found, UNSAFE)

    changed = {name: done.status_code for name, done in answers.items() if done.status_code not in (403, 405)}
    assert changed == {}


@pytest.mark.parametrize("headers", [{}, {"X-CSRF-Token": "guessed"}, {"Origin": "https://evil.example"}], ids=str)
async def test_no_other_site_changes_anything_with_somebodys_cookie(tmp_path: Path, headers: dict[str, str]) -> None:
    async with guarded(tmp_path) as (server, tokens, found):
        browser = httpx.AsyncClient(transport=httpx.ASGITransport(server.app), base_url=BASE)
        done = await browser.post("/login", data={"token": tokens.add("ann", ["admin"])})
        assert done.status_code == 303
        browser.headers.update(headers)
        answers = await asked(browser, found, UNSAFE)

    changed = {name: done.status_code for name, done in answers.items() if done.status_code not in (403, 405)}
    assert changed == {}
    assert {done.json()["type"] for done in answers.values() if done.status_code == 403} <= {
        "csrf_token_needed",
        "cross_site",
    }


async def test_a_rebound_name_reads_nothing_where_nobody_is_asked() -> None:
    async with serving() as server:
        found = sorted(set(paths(server.app.app.routes)))
        client = server.as_(None)
        client.headers["Host"] = "evil.example"
        answers = await asked(client, found, METHODS)

    assert {done.status_code for done in answers.values()} == {403}

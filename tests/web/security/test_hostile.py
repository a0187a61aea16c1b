"""Hostile paths, queries and bodies against the whole site: clear refusals, and never a mistake of the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from mainstay.stores import Query
from tests.web.conftest import Server, serving

PARTS = [
    "..",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "%00",
    "%ff%fe",
    "%c0%ae",
    "a%0d%0aX:%20y",
    "%F0%9F%92%A5",
    "%ed%a0%80",
    "%25%32%65",
    "%5c..%5c",
    "x" * 5000,
    "%27%20or%201=1%20--",
    "{}",
    "-1",
    "1e400",
    "null",
    "*",
]
PLACES = [
    "/{}",
    "/static/{}",
    "/api/v1/{}",
    "/api/v1/jobs/{}",
    "/api/v1/jobs/{}/events",
    "/api/v1/queues/{}",
    "/api/v1/schedules/{}",
    "/jobs/{}",
    "/batches/{}",
    "/loads/{}",
    "/login?next={}",
    "/api/v1/jobs?cursor={}",
    "/api/v1/jobs?limit={}",
    "/api/v1/jobs?status={}",
    "/api/v1/jobs?older_than={}",
    "/api/v1/stats?store={}",
    "/jobs?cursor={}",
    "/jobs?text={}",
    "/queues?store={}",
    "/loads/compare?a={0}&b={0}",
    "/jobs/bulk?action={}",
]
BODIES = [
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"a":' * 5000,
    b"[" * 100_000,
    b'{"name": "\\ud800"}',
    b'{"name": "x", "priority": 1e400}',
    b'{"name": "x", "payload": ' + b"9" * 5000 + b"}",
    b'{"name": "x", "queue": "a\\u0000b"}',
    b'{"name": "x", "delay": "99999999d"}',
    b'{"jobs": [{}]}',
]
CHANGES = [
    "/api/v1/jobs",
    "/api/v1/jobs/bulk",
    "/api/v1/jobs/actions",
    "/api/v1/queues/mail/pause",
    "/api/v1/queues/mail/purge",
    "/login",
    "/logout",
]
MEDIA = ["application/json", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16"]


async def ask(
    app: Any, method: str, target: str, body: bytes = b"", media: str = "application/json"
) -> tuple[int, bytes]:
    """Ask as uvicorn does; a client would make the path tidy first."""
    raw, _, query = target.partition("?")
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "scheme": "http",
        "server": ("127.0.0.1", 8330),
        "client": ("127.0.0.1", 4711),
        "headers": [(b"host", b"127.0.0.1:8330"), (b"content-type", media.encode()), (b"if-match", b"*")],
    }
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


@pytest.fixture
async def site(tmp_path: Path) -> Any:
    async with serving({"main": f"sqlite:///{tmp_path / 'jobs.db'}"}) as server:
        yield server


def targets() -> Iterator[str]:
    for place in PLACES:
        for part in PARTS:
            yield place.replace("{}", part).replace("{0}", part)


async def test_hostile_paths_and_queries_are_refused_or_mean_nothing(site: Server) -> None:
    broken = {}
    for target in targets():
        status, body = await ask(site.app, "GET", target)
        if status >= 500 or b"Traceback" in body or b"root:" in body:
            broken[target] = status

    assert broken == {}


async def test_hostile_bodies_are_refused_with_a_problem_and_leave_nothing(site: Server) -> None:
    broken = {}
    for target in CHANGES:
        for content in BODIES:
            for media in MEDIA:
                status, body = await ask(site.app, "POST", target, content, media)
                refused = 400 <= status < 500 and "detail" in json.loads(body)
                # where nobody has to sign in, there is nothing to refuse
                if not refused and (status, target) not in {(303, "/login"), (303, "/logout")}:
                    broken[target, content[:40], media] = status

    assert broken == {}
    store = site.stores.first.store
    assert (await store.find(Query())).jobs == []
    assert await store.queues() == []

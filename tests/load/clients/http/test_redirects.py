"""Answers that lead elsewhere."""

from __future__ import annotations

import pytest

from mainstay.errors import CallFailed
from mainstay.load.clients.http import HTTPClient
from mainstay.load.clients.network import Network
from tests.load.clients.http.scripted import OK, Heard, Talk, serving


def leads_to(location: str, status: int = 302, more: str = "") -> bytes:
    return f"HTTP/1.1 {status} Elsewhere\r\nLocation: {location}\r\n{more}Content-Length: 0\r\n\r\n".encode()


async def test_a_redirect_is_followed_and_is_part_of_the_call(http: HTTPClient, network: Network) -> None:
    async def answer(heard: Heard, talk: Talk) -> bytes:
        return {"/a": leads_to("/b"), "/b": leads_to(f"{server.url}/c?d"), "/c?d": OK}[heard.path]

    async with serving(answer) as server:
        r = await http.get(f"{server.url}/a")

    assert (r.status, r.content, r.redirects, r.url) == (200, b"ok", 2, f"{server.url}/c?d")
    assert r.received == len(leads_to("/b")) + len(leads_to(f"{server.url}/c?d")) + len(OK)
    assert r.opening is not None
    assert r.written < r.first <= r.ended
    assert server.connections == 1
    assert (network.sent, network.answered) == (3, 3)


@pytest.mark.parametrize(
    ("method", "status", "then"),
    [
        ("POST", 301, "GET"),
        ("POST", 302, "GET"),
        ("POST", 303, "GET"),
        ("POST", 307, "POST"),
        ("POST", 308, "POST"),
        ("PUT", 302, "PUT"),
        ("PUT", 303, "GET"),
        ("HEAD", 303, "HEAD"),
    ],
)
async def test_the_method_and_body_follow_the_status(http: HTTPClient, method: str, status: int, then: str) -> None:
    async def answer(heard: Heard, talk: Talk) -> bytes:
        if heard.path == "/a":
            return leads_to("/b", status)
        return OK[:-2] if heard.line.startswith("HEAD") else OK

    async with serving(answer) as server:
        await http.request(method, f"{server.url}/a", json={"a": 1})

    second = server.heard[1]
    assert second.line == f"{then} /b HTTP/1.1"
    assert second.body == (b'{"a":1}' if then in ("POST", "PUT", "HEAD") else b"")
    assert ("content-type" in second.headers) == (then in ("POST", "PUT", "HEAD"))


async def test_who_we_are_is_not_told_to_another_origin(http: HTTPClient) -> None:
    async def answer(heard: Heard, talk: Talk) -> bytes:
        return leads_to("/same") if heard.path == "/a" else leads_to(f"{other.url}/b")

    async with serving(OK) as other, serving(answer) as server:
        await http.get(
            f"{server.url}/a", auth="secret", cookies={"c": "secret"}, headers={"Cookie-Like": "kept", "X-Key": "kept"}
        )
        await http.get(f"{server.url}/a", headers={"Authorization": "secret", "X-Key": "kept"})

    for at in (0, 2):
        assert "secret" in str(server.heard[at].headers)
        assert "secret" in str(server.heard[at + 1].headers)
    for heard in other.heard:
        assert "secret" not in str(heard.headers)
        assert heard.headers["x-key"] == "kept"
        assert heard.headers["host"] == f"127.0.0.1:{other.port}"


async def test_too_many_redirects_fail_the_call(http: HTTPClient) -> None:
    async with serving(leads_to("/again")) as server:
        with pytest.raises(CallFailed, match="too many redirects") as failed:
            await http.get(f"{server.url}/a", redirects=3)

    assert failed.value.kind == "redirects"
    assert len(server.heard) == 4


async def test_redirects_are_not_followed_if_not_wanted(http: HTTPClient) -> None:
    async with serving(leads_to("/b")) as server:
        r = await http.get(f"{server.url}/a", redirects=0)

    assert (r.status, r.ok, r.headers["location"]) == (302, True, "/b")


@pytest.mark.parametrize("location", ["http://[", "ftp://127.0.0.1/x", "http://", "javascript:alert(1)"])
async def test_a_place_where_http_cannot_go_fails_the_call(http: HTTPClient, location: str) -> None:
    async with serving(leads_to(location)) as server:
        with pytest.raises(CallFailed) as failed:
            await http.get(server.url)

    assert failed.value.kind == "redirects"


async def test_a_cookie_that_is_set_on_the_way_is_sent_at_the_next_stop(http: HTTPClient) -> None:
    async def answer(heard: Heard, talk: Talk) -> bytes:
        return leads_to("/b", more="Set-Cookie: s=1; Path=/\r\n") if heard.path == "/a" else OK

    async with serving(answer) as server:
        await http.get(f"{server.url}/a")

    assert server.heard[1].headers["cookie"] == "s=1"


async def test_the_limit_of_the_whole_call_covers_its_redirects(http: HTTPClient) -> None:
    async def answer(heard: Heard, talk: Talk) -> bytes | None:
        if heard.path == "/a":
            return leads_to("/b")
        await talk.gone()
        return None

    async with serving(answer) as server:
        with pytest.raises(CallFailed) as failed:
            await http.get(f"{server.url}/a", timeout=0.05)

    assert failed.value.kind == "total timeout"

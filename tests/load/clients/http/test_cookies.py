"""What a user keeps of what servers set."""

from __future__ import annotations

import pytest

from mainstay.load.clients.http import HTTPClient
from mainstay.load.clients.http.cookies import Jar
from mainstay.load.prepared import split
from tests.load.clients.http.scripted import OK, Heard, Talk, serving


def sent(line: str, to: str, *, by: str = "http://shop.example.org/app/page") -> str:
    jar = Jar(lambda: 1_000_000.0)
    jar.store([line], split(by))
    return jar.header(split(to))


@pytest.mark.parametrize(
    ("line", "to", "expected"),
    [
        ("a=1", "http://shop.example.org/app/x", "a=1"),
        ("a=1", "http://shop.example.org/app", "a=1"),
        ("a=1", "http://shop.example.org/apple", ""),
        ("a=1", "http://shop.example.org/", ""),
        ("a=1; Path=/", "http://shop.example.org/", "a=1"),
        ("a=1; Path=/", "http://www.shop.example.org/", ""),
        ("a=1; Path=/; Domain=example.org", "http://www.example.org/", "a=1"),
        ("a=1; Path=/; Domain=.Example.org", "http://example.org/", "a=1"),
        ("a=1; Path=/; Domain=example.org", "http://badexample.org/", ""),
        ("a=1; Path=/; Domain=other.org", "http://other.org/", ""),
        ("a=1; Path=/; Domain=org", "http://shop.example.org/", ""),
        ("a=1; Path=/; Secure", "http://shop.example.org/", ""),
        ("a=1; Path=/; Secure", "https://shop.example.org/", "a=1"),
        ("a=1; Path=/; Max-Age=10", "http://shop.example.org/", "a=1"),
        ("a=1; Path=/; Max-Age=0", "http://shop.example.org/", ""),
        ("a=1; Path=/; Max-Age=-" + "9" * 5000, "http://shop.example.org/", ""),
        ("a=1; Path=/; Max-Age=" + "9" * 5000, "http://shop.example.org/", "a=1"),
        ("a=1; Path=/; Max-Age=--5", "http://shop.example.org/", "a=1"),
        ("a=1; Path=/; Max-Age=\u00b2", "http://shop.example.org/", "a=1"),
        ("a=1; Path=/; Expires=Thu, 01 Jan 1970 00:00:10 GMT", "http://shop.example.org/", ""),
        ("a=1; Path=/; Expires=Thu, 01 Jan 2099 00:00:10 GMT", "http://shop.example.org/", "a=1"),
        ("a=1; Path=/; Max-Age=10; Expires=Thu, 01 Jan 1970 00:00:10 GMT", "http://shop.example.org/", "a=1"),
        ("a=1; Path=/; Expires=nonsense; HttpOnly; SameSite=Lax", "http://shop.example.org/", "a=1"),
        ('a="1=2"; Path=/', "http://shop.example.org/", 'a="1=2"'),
        ("=1; Path=/", "http://shop.example.org/", ""),
        ("nonsense", "http://shop.example.org/app/x", ""),
    ],
)
def test_a_cookie_goes_where_it_belongs(line: str, to: str, expected: str) -> None:
    assert sent(line, to) == expected


def test_longer_paths_come_first_and_a_new_value_takes_the_place_of_the_old() -> None:
    jar, place = Jar(), split("http://h.example/a/b/c")
    jar.store(["x=1; Path=/", "y=2; Path=/a/b", "x=3; Path=/"], place)

    assert jar.header(place) == "y=2; x=3"


def test_a_cookie_is_gone_when_its_time_is_over_or_the_server_takes_it_back() -> None:
    now = [100.0]
    jar, place = Jar(lambda: now[0]), split("http://h.example/")
    jar.store(["a=1; Max-Age=10", "b=2"], place)
    now[0] = 111.0
    assert jar.header(place) == "b=2"

    jar.store(["b=; Max-Age=0"], place)
    assert jar.header(place) == ""
    assert len(jar) == 0


async def test_cookies_come_back_with_the_next_call_and_change_with_the_answers(http: HTTPClient) -> None:
    async def answer(heard: Heard, talk: Talk) -> bytes:
        if heard.path == "/plain":
            return OK
        return b"HTTP/1.1 200 OK\r\nSet-Cookie: n=%d; Path=/\r\nContent-Length: 0\r\n\r\n" % len(server.heard)

    async with serving(answer) as server:
        for path in ("/plain", "/set", "/plain", "/plain", "/set", "/plain"):
            r = await http.get(server.url + path)
        first_set = await http.get(f"{server.url}/set")
        await http.post(f"{server.url}/plain", cookies={"own": "x"})

    assert [heard.headers.get("cookie") for heard in server.heard] == [
        None, None, "n=2", "n=2", "n=2", "n=5", "n=5", "n=7; own=x",
    ]  # fmt: skip
    assert (r.cookies, first_set.cookies) == ({}, {"n": "7"})


async def test_a_cookie_that_ends_is_no_longer_sent_with_a_call_that_was_encoded_with_it(http: HTTPClient) -> None:
    now = [1_000.0]
    http.cookies._now = lambda: now[0]

    async def answer(heard: Heard, talk: Talk) -> bytes:
        if heard.path == "/set":
            return b"HTTP/1.1 200 OK\r\nSet-Cookie: n=1; Path=/; Max-Age=60\r\nContent-Length: 0\r\n\r\n"
        return OK

    async with serving(answer) as server:
        for path in ("/set", "/x", "/x"):
            await http.get(server.url + path)
        now[0] += 61
        http._encoder.forget()  # what its timer does
        await http.get(f"{server.url}/x")

    assert [heard.headers.get("cookie") for heard in server.heard] == [None, "n=1", "n=1", None]

"""What calls are made of: taken as people write it, refused by name, ready before the clock starts."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mainstay.errors import CallFailed, InvalidInput
from mainstay.load.clients.network import Address, Network
from mainstay.load.prepared import (
    URL,
    Auth,
    Cookies,
    Data,
    File,
    Headers,
    Params,
    Prepared,
    joined,
    split,
)


@pytest.mark.parametrize(
    ("url", "origin", "authority", "target"),
    [
        ("http://h.example", "http://h.example:80", b"h.example", b"/"),
        ("HTTP://H.Example:80/A", "http://h.example:80", b"h.example", b"/A"),
        ("https://h.example:8443/a?b=c#d", "https://h.example:8443", b"h.example:8443", b"/a?b=c"),
        ("http://[::1]:81/", "http://[::1]:81", b"[::1]:81", b"/"),
        ("http://u:p@h.example/x", "http://h.example:80", b"h.example", b"/x"),
        ("http://h.example/ü?q=ä&p=%20", "http://h.example:80", b"h.example", b"/%C3%BC?q=%C3%A4&p=%20"),
        ("http://bücher.example/", "http://xn--bcher-kva.example:80", b"xn--bcher-kva.example", b"/"),
        ("http+unix://%2Frun%2Fapp.sock/x", "http+unix://%2Frun%2Fapp.sock", b"localhost", b"/x"),
        ("wss://h.example/socket", "wss://h.example:443", b"h.example", b"/socket"),
        ("udp://h.example:53", "udp://h.example:53", b"h.example:53", b"/"),
    ],
)
def test_a_url_is_taken_apart(url: str, origin: str, authority: bytes, target: bytes) -> None:
    parts = split(url)

    assert (parts.origin, parts.authority, parts.target) == (origin, authority, target)
    assert parts.full == origin + target.decode()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("h.example/x", "no scheme"),
        ("ftp://h.example/", "no known scheme"),
        ("http:///x", "no host"),
        ("http://h.example:99999/", "not a URL"),
        ("http://h.example:x/", "not a URL"),
        ("http://[::1/", "not a URL"),
        ("http://h.example/a b", "a space"),
        ("http://h.example/\r\nX: y", "a space"),
        ("tcp://h.example", "no port"),
        ("http+unix://app.sock/x", "names no socket"),
        ("http://h\u2028.example/", "host|URL"),
    ],
)
async def test_a_url_that_is_none_is_refused_with_what_is_wrong(url: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        await URL(url).prepare(Network())

    assert refused.value.field == "url"


def test_a_refused_url_does_not_show_its_password() -> None:
    with pytest.raises(InvalidInput) as refused:
        split("http://ann:s3cret@h.example:x/")

    assert "s3cret" not in str(refused.value)


async def test_a_url_is_looked_up_when_it_is_prepared_and_only_once() -> None:
    asked = []

    async def lookup(host: str, port: int, kind: int) -> list[Address]:
        asked.append((host, port, kind))
        return [Address(socket.AF_INET, ("127.0.0.1", port))]

    network = Network(lookup=lookup)
    url, datagrams = URL("/login"), URL("udp://h.example:53")
    for _ in range(2):
        await url.prepare(network, "http://h.example:81/api")
        await datagrams.prepare(network)

    assert asked == [("h.example", 81, socket.SOCK_STREAM), ("h.example", 53, socket.SOCK_DGRAM)]
    assert (url, url.whole, url.parts.target) == ("/login", "http://h.example:81/api/login", b"/api/login")
    assert f"{url}?a=1" == "/login?a=1"


async def test_a_host_that_is_not_found_fails_before_the_start() -> None:
    async def lookup(host: str, port: int, kind: int) -> list[Address]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(CallFailed, match="none.example cannot be resolved") as failed:
        await URL("http://none.example/").prepare(Network(lookup=lookup))

    assert failed.value.kind == "dns"


@pytest.mark.parametrize(
    ("base", "url", "whole"),
    [
        ("http://h", "/a", "http://h/a"),
        ("http://h/", "/a", "http://h/a"),
        ("http://h/api/", "a", "http://h/api/a"),
        ("http://h/api", "http://other/x", "http://other/x"),
    ],
)
def test_a_relative_url_is_put_behind_its_base(base: str, url: str, whole: str) -> None:
    assert joined(url, base) == whole


def test_a_relative_url_without_base_is_refused() -> None:
    with pytest.raises(InvalidInput, match="base_url"):
        joined("/login", "")


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"X-A": "one\r\nX-B: two"}, "'X-A': its value contains a line break"),
        ({"X A": "1"}, "'X A': is not a valid header name"),
        ({"": "1"}, "not a valid header name"),
        ({"X-A\r\n": "1"}, "not a valid header name"),
        ({"X-A": "☃"}, "'X-A': its value has characters beyond"),
    ],
)
def test_a_header_that_would_break_the_head_is_refused_by_name(headers: dict, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Headers(headers)


@pytest.mark.parametrize(("name", "value"), [("a b", "1"), ("a", "1; b=2"), ("a", "1\r\n")])
def test_a_cookie_that_would_be_two_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidInput, match="cookie"):
        Cookies({name: value})


@pytest.mark.parametrize(
    ("params", "query"),
    [
        ({"a": 1, "b": "x y", "c": None}, "a=1&b=x+y"),
        ({"a": [1, 2], "b": True}, "a=1&a=2&b=true"),
        ([("a", 1), ("a", 2)], "a=1&a=2"),
        ("?a=ü", "a=%C3%BC"),
        ({}, ""),
    ],
)
def test_params_become_a_query(params: object, query: str) -> None:
    assert Params(params).query == query  # type: ignore[arg-type]


def test_auth_is_basic_or_bearer_and_never_shown() -> None:
    assert Auth(("ann", "p:w")).line == b"Authorization: Basic YW5uOnA6dw==\r\n"
    assert Auth("tok").line == b"Authorization: Bearer tok\r\n"
    assert "tok" not in repr(Auth("tok"))
    for wrong in (("ann",), "to\nken", 5):
        with pytest.raises(InvalidInput):
            Auth(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "body", "content_type"),
    [
        ({"a": [1, None]}, b'{"a":[1,null]}', "application/json"),
        (b"\x00", b"\x00", ""),
        ("ü", "ü".encode(), "text/plain; charset=utf-8"),
        (Data({"a": 1}), b'{"a":1}', "application/json"),
    ],
)
def test_data_is_encoded_by_its_type(value: object, body: bytes, content_type: str) -> None:
    data = Data(value)

    assert (data.body, data.content_type) == (body, content_type)


def test_data_that_is_no_json_is_refused() -> None:
    with pytest.raises(InvalidInput, match="JSON"):
        Data({"a": object()})


async def test_a_file_is_read_once_and_a_missing_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    path.write_text("{}")
    file = File(str(path))
    await file.prepare(Network())
    path.unlink()

    assert (file.body, file.name, file.content_type) == (b"{}", "note.json", "application/json")
    with pytest.raises(InvalidInput, match="note.json cannot be read"):
        await File(path).prepare(Network())


@pytest.mark.parametrize(
    "value",
    [URL("http://127.0.0.1:1"), Headers({"a": "b"}), Data(1), Params("a=1"), Cookies({"a": "b"}), Auth("t")],
    ids=lambda value: type(value).__name__,
)
async def test_each_can_be_prepared_twice_and_made_from_another(value: Prepared) -> None:
    assert type(value) in (URL, Headers, Data, Params, Cookies, Auth, File)
    await value.prepare(Network())
    await value.prepare(Network())
    again = type(value)(value)
    await again.prepare(Network())

    assert repr(again) == repr(value)

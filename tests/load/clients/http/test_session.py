"""Calls: what they send, what they return, how they are counted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from mainstay.errors import CallFailed, InvalidInput, UnknownOption
from mainstay.load.clients.http import HTTPClient
from mainstay.load.clients.network import Network, Timeouts
from mainstay.load.prepared import URL, Auth, Cookies, Data, File, Headers, Params
from tests.load.clients.http.scripted import OK, Heard, Talk, serving


async def test_a_get_returns_the_answer_and_its_times(http: HTTPClient, network: Network) -> None:
    async with serving(OK) as server:
        r = await http.get(f"{server.url}/a?b=c")

    assert (r.status, r.status_code, r.reason, r.version, r.ok, r.failure) == (200, 200, "OK", "1.1", True, "")
    assert (r.content, r.text(), r.headers["content-length"]) == (b"ok", "ok", "2")
    assert (r.url, r.redirects, r.sent, r.received) == (f"{server.url}/a?b=c", 0, len(_request(server)), len(OK))
    assert r.opening is not None
    assert r.opening.connect > 0
    assert r.started < r.written <= r.first <= r.ended
    assert (network.sent, network.answered, network.aborted) == (1, 1, 0)


def _request(server) -> bytes:
    heard = server.heard[-1]
    lines = [heard.line, *(f"{name}: {value}" for name, value in heard.headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + heard.body


async def test_a_connection_is_used_again_and_then_nothing_was_opened(http: HTTPClient) -> None:
    async with serving(OK) as server:
        first = await http.get(server.url)
        second = await http.get(server.url)

    assert server.connections == 1
    assert first.opening is not None
    assert second.opening is None


async def test_users_share_neither_connections_nor_cookies(network: Network) -> None:
    async def answer(heard: Heard, talk: Talk) -> bytes:
        return b"HTTP/1.1 200 OK\r\nSet-Cookie: who=%b\r\nContent-Length: 0\r\n\r\n" % heard.path[1:].encode()

    one, two = HTTPClient(network), HTTPClient(network)
    async with serving(answer) as server:
        await one.get(f"{server.url}/ann")
        await two.get(f"{server.url}/bob")
        await one.get(f"{server.url}/ann")
        await two.get(f"{server.url}/bob")
        await one.close()
        await two.close()

    assert server.connections == 2
    assert [heard.headers.get("cookie") for heard in server.heard] == [None, None, "who=ann", "who=bob"]


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete", "options"])
async def test_each_method_is_sent_by_its_name(http: HTTPClient, method: str) -> None:
    async with serving(OK) as server:
        assert (await getattr(http, method)(f"{server.url}/x")).content == b"ok"

    assert server.heard[0].line == f"{method.upper()} /x HTTP/1.1"


async def test_the_answer_to_a_head_has_no_body(http: HTTPClient) -> None:
    async def answer(heard: Heard, talk: Talk) -> bytes:
        return OK[:-2] if heard.line.startswith("HEAD") else OK

    async with serving(answer) as server:
        head = await http.head(server.url)
        get = await http.get(server.url)

    assert (head.content, head.headers["content-length"], get.content) == (b"", "2", b"ok")
    assert server.connections == 1


async def test_any_method_can_be_sent_and_nonsense_not(http: HTTPClient) -> None:
    async with serving(OK) as server:
        await http.request("purge", server.url)
        with pytest.raises(InvalidInput, match="method"):
            http.request("GET /\r\n", server.url)

    assert server.heard[0].line == "PURGE / HTTP/1.1"


@pytest.mark.parametrize(
    ("options", "body", "content_type"),
    [
        ({"json": {"a": 1}}, b'{"a":1}', "application/json"),
        ({"json": None}, b"null", "application/json"),
        ({"data": {"a": "1 2", "b": "&"}}, b"a=1+2&b=%26", "application/x-www-form-urlencoded"),
        ({"data": b"raw"}, b"raw", None),
        ({"data": "text"}, b"text", "text/plain; charset=utf-8"),
        ({"data": Data({"a": 1})}, b'{"a":1}', "application/json"),
        ({"data": Data("<a/>", content_type="text/xml")}, b"<a/>", "text/xml"),
        ({"data": b"{}", "headers": {"content-type": "application/x-own"}}, b"{}", "application/x-own"),
        ({"data": [b"one", b"", b"two"]}, b"onetwo", None),
        ({}, b"", None),
    ],
)
async def test_bodies_are_sent_with_their_type(http: HTTPClient, options: dict, body: bytes, content_type: str) -> None:
    async with serving(OK) as server:
        await http.post(server.url, **options)
        await http.post(server.url, **options)

    assert [heard.body for heard in server.heard] == [body, body]
    assert server.heard[0].headers.get("content-type") == content_type
    assert server.connections == 1


async def test_a_body_can_be_made_while_it_is_sent(http: HTTPClient) -> None:
    async def pieces():
        for number in range(200):
            yield b"%d," % number * 1000

    async with serving(OK) as server:
        assert (await http.post(server.url, data=pieces())).ok

    assert server.heard[0].body == b"".join(b"%d," % number * 1000 for number in range(200))


async def test_what_the_maker_of_a_body_raises_is_raised_by_the_call(http: HTTPClient, network: Network) -> None:
    async def pieces():
        yield b"one"
        raise FileNotFoundError("no more")

    async with serving(OK) as server:
        with pytest.raises(FileNotFoundError, match="no more"):
            await http.post(server.url, data=pieces())

    assert (network.sent, network.answered, network.aborted) == (1, 0, 1)


async def test_a_server_may_answer_before_it_has_heard_all(http: HTTPClient) -> None:
    async def endless():
        while True:
            yield bytes(1000)

    async def too_large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        writer.close()
        over.set()

    over = asyncio.Event()
    listening = await asyncio.start_server(too_large, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    for data in (endless(), bytes(20_000_000)):
        over.clear()
        assert (await http.post(url, data=data)).status == 413
        await over.wait()
    listening.close()


async def test_a_body_larger_than_the_socket_takes_is_sent_in_full(http: HTTPClient) -> None:
    body = bytes(range(256)) * 40_000
    async with serving(OK) as server:
        r = await http.put(server.url, data=body)

    assert server.heard[0].body == body
    assert r.sent > len(body)
    assert r.written > r.started


async def test_files_are_sent_as_a_form_with_the_other_fields(http: HTTPClient, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello")
    async with serving(OK) as server:
        await http.post(server.url, data={"kind": "note"}, files={"file": File(tmp_path / "note.txt"), "raw": b"\x00"})

    heard = server.heard[0]
    assert heard.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert b'name="kind"\r\n\r\nnote\r\n' in heard.body
    assert b'name="file"; filename="note.txt"\r\nContent-Type: text/plain\r\n\r\nhello\r\n' in heard.body
    assert b'name="raw"; filename="raw"\r\n' in heard.body


async def test_params_headers_cookies_and_auth_are_sent_prepared_or_plain(http: HTTPClient) -> None:
    async with serving(OK) as server:
        await http.get(
            f"{server.url}/a?x=1", params={"y": [2, 3]}, headers={"X-A": "b"}, cookies={"c": "d"}, auth="tok"
        )
        await http.get(
            URL(f"{server.url}/a"),
            params=Params("q=ü"),
            headers=Headers({"X-A": "b", "User-Agent": "mine"}),
            cookies=Cookies({"c": "d"}),
            auth=Auth(("ann", "pw")),
        )

    plain, prepared = server.heard
    assert plain.path == "/a?x=1&y=2&y=3"
    assert (plain.headers["x-a"], plain.headers["cookie"], plain.headers["authorization"]) == ("b", "c=d", "Bearer tok")
    assert plain.headers["user-agent"] == "mainstay"
    assert prepared.path == "/a?q=%C3%BC"
    assert prepared.headers["user-agent"] == "mine"
    assert prepared.headers["authorization"] == "Basic YW5uOnB3"


async def test_a_call_that_differs_in_one_option_from_the_last_is_another(http: HTTPClient) -> None:
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    shared = Headers({"X-A": "prepared"})
    async with serving(busy) as server:
        answers = [
            await http.get(server.url, **options)
            for options in (
                {},
                {"expect": {503}},
                {"expect": [200]},
                {"expect": {503: "busy"}},
                {"headers": {"X-A": "1"}},
                {"headers": {"X-A": "2"}, "expect": (503,)},
                {"headers": shared},
                {"headers": shared, "expect": {503}},
                {"timeout": "5s"},
                {},
            )
        ]

    assert [r.ok for r in answers] == [False, True, False, True, False, True, False, True, False, False]
    assert [heard.headers.get("x-a") for heard in server.heard] == [
        None, None, None, None, "1", "2", "prepared", "prepared", None, None,
    ]  # fmt: skip


async def test_a_length_that_the_caller_tells_is_refused(http: HTTPClient) -> None:
    with pytest.raises(InvalidInput, match="Content-Length"):
        http.post("http://127.0.0.1:1", data=b"abc", headers={"content-length": "5"})


async def test_a_user_in_the_url_is_sent_and_not_shown(http: HTTPClient) -> None:
    async with serving(OK) as server:
        r = await http.get(f"http://ann:s3cret@127.0.0.1:{server.port}/x")

    assert server.heard[0].headers["authorization"] == "Basic YW5uOnMzY3JldA=="
    assert "s3cret" not in r.url


async def test_relative_urls_are_put_behind_the_base(network: Network) -> None:
    async with serving(OK) as server:
        http = HTTPClient(network, base_url=f"{server.url}/api/")
        url = URL("/prepared")
        await url.prepare(network, f"{server.url}/api")
        for target in ("/plain", "/plain", url, url, f"{server.url}/whole"):
            await http.get(target)
        await http.close()

    assert [heard.path for heard in server.heard] == [
        "/api/plain", "/api/plain", "/api/prepared", "/api/prepared", "/whole",
    ]  # fmt: skip


async def test_a_status_from_400_on_is_a_failure_unless_expected(http: HTTPClient) -> None:
    async with serving(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n") as server:
        r = await http.get(server.url)
        expected = await http.get(server.url, expect={503})
        other = await http.get(server.url, expect={200})

    assert (r.status, r.ok, r.failure) == (503, False, "http 503")
    assert (expected.ok, other.failure) == (True, "http 503")


async def test_json_is_checked_against_a_type(http: HTTPClient) -> None:
    class Token(msgspec.Struct):
        token: str

    async with serving(b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"token":"x"}') as server:
        r = await http.get(server.url)

    assert (r.json(), r.json(Token).token) == ({"token": "x"}, "x")
    with pytest.raises(InvalidInput, match="json"):
        r.json(list[int])


async def test_text_is_read_in_the_charset_that_the_answer_names(http: HTTPClient) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=latin-1\r\nContent-Length: 1\r\n\r\n\xfc"
    async with serving(head) as server:
        assert (await http.get(server.url)).text() == "ü"


async def test_unknown_options_and_two_bodies_are_refused(http: HTTPClient) -> None:
    with pytest.raises(UnknownOption, match="did you mean 'headers'"):
        http.get("http://127.0.0.1:1", header={})  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="one body"):
        http.post("http://127.0.0.1:1", json=1, data=b"2")
    with pytest.raises(InvalidInput, match="not for HTTP"):
        http.get("ws://127.0.0.1:1")


async def test_a_call_that_is_cancelled_closes_its_connection_and_is_counted(network: Network) -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def answer(heard: Heard, talk: Talk) -> bytes | None:
        if heard.path == "/fine":
            return OK
        arrived.set()
        await talk.gone()
        gone.set()
        return None

    http = HTTPClient(network)
    async with serving(answer) as server:
        await http.get(f"{server.url}/fine")
        # on a connection that was open already, and on one that is opened for it
        for _ in range(2):
            call = asyncio.ensure_future(http.get(f"{server.url}/slow"))
            await arrived.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await gone.wait()
            arrived.clear()
            gone.clear()
        await http.close()

    assert (network.sent, network.answered, network.aborted) == (3, 1, 2)


async def test_closing_gives_up_what_is_under_way(network: Network) -> None:
    arrived = asyncio.Event()

    async def answer(heard: Heard, talk: Talk) -> None:
        arrived.set()
        await talk.gone()

    http = HTTPClient(network)
    async with serving(answer) as server:
        call = asyncio.ensure_future(http.get(server.url))
        await arrived.wait()
        await http.close()
        with pytest.raises(CallFailed, match="closed while"):
            await call

    assert (network.sent, network.answered, network.aborted) == (1, 0, 1)


async def test_a_user_has_six_connections_and_the_seventh_call_waits(http: HTTPClient) -> None:
    all_there, go = asyncio.Event(), asyncio.Event()

    async def answer(heard: Heard, talk: Talk) -> bytes:
        if len(server.heard) == 6:
            all_there.set()
        await go.wait()
        return OK

    async with serving(answer) as server:
        calls = [asyncio.ensure_future(http.get(server.url)) for _ in range(8)]
        await all_there.wait()
        go.set()
        done = await asyncio.gather(*calls)

    assert server.connections == 6
    waited = [r for r in done if r.opening is not None and r.opening.blocked > 0]
    assert len(waited) == 2
    assert all(r.opening.connect == 0 for r in waited)


async def test_a_call_that_waits_for_a_connection_may_give_up(http: HTTPClient) -> None:
    busy, go = asyncio.Event(), asyncio.Event()

    async def answer(heard: Heard, talk: Talk) -> bytes:
        if len(server.heard) == 6:
            busy.set()
        await go.wait()
        return OK

    async with serving(answer) as server:
        calls = [asyncio.ensure_future(http.get(server.url)) for _ in range(6)]
        await busy.wait()
        with pytest.raises(CallFailed, match="the call was not complete") as failed:
            await http.get(server.url, timeout=0.02)
        go.set()
        await asyncio.gather(*calls)
        assert (await http.get(server.url)).ok

    assert failed.value.kind == "total timeout"


async def test_calls_that_were_given_up_do_not_keep_others_waiting(http: HTTPClient, network: Network) -> None:
    busy = asyncio.Event()

    async def answer(heard: Heard, talk: Talk) -> bytes | None:
        if heard.path == "/fine":
            return OK
        if sum(one.path == "/slow" for one in server.heard) == 6:
            busy.set()
        await talk.gone()
        return None

    async with serving(answer) as server:
        await asyncio.gather(*(http.get(f"{server.url}/fine") for _ in range(6)))
        calls = [http.get(f"{server.url}/slow") for _ in range(6)]
        await busy.wait()
        for call in calls:
            call.cancel()
        r = await http.get(f"{server.url}/fine")

    assert r.opening is not None
    assert r.opening.connect > 0
    assert network.aborted == 6


async def test_a_kept_connection_that_was_closed_meanwhile_is_replaced(http: HTTPClient, network: Network) -> None:
    async def answer(heard: Heard, talk: Talk) -> bytes | None:
        # closes when the second request has arrived, so that the client cannot have known
        return None if (heard.connection, len(server.heard)) == (1, 2) else OK

    async with serving(answer) as server:
        await http.get(server.url)
        r = await http.get(server.url)

    assert r.content == b"ok"
    assert r.opening is not None
    assert (server.connections, len(server.heard)) == (2, 3)
    assert (network.sent, network.answered, network.resent) == (3, 2, 1)
    assert r.sent == 2 * len(_request(server))


async def test_a_post_is_not_sent_twice(http: HTTPClient) -> None:
    async def answer(heard: Heard, talk: Talk) -> bytes | None:
        return None if len(server.heard) == 2 else OK

    async with serving(answer) as server:
        await http.post(server.url)
        with pytest.raises(CallFailed, match="before its response") as failed:
            await http.post(server.url)

    assert failed.value.kind == "closed"
    assert len(server.heard) == 2


async def test_a_post_that_has_not_left_yet_goes_over_another_connection(http: HTTPClient, network: Network) -> None:
    async with serving(OK) as server:
        await http.post(server.url)
        connection = next(iter(http._shared.connections))
        posting = http.post(server.url, data=b"once")
        connection.take(b"", 0.0)  # the end of the connection comes first
        r = await posting

    assert [heard.body for heard in server.heard] == [b"", b"once"]
    assert (server.connections, network.sent, network.answered) == (2, 2, 2)
    assert r.sent == len(_request(server))


async def test_a_call_that_is_given_up_before_it_left_was_neither_sent_nor_aborted(network: Network) -> None:
    async with serving(OK) as server:
        http = HTTPClient(network)
        await http.get(server.url)
        call = http.get(server.url)
        await http.close()
        with pytest.raises(CallFailed):
            await call
        await asyncio.sleep(0)

    assert len(server.heard) == 1
    assert (network.sent, network.answered, network.aborted) == (1, 1, 0)


async def test_a_server_that_closes_each_fresh_connection_is_not_asked_for_ever(http: HTTPClient) -> None:
    async def answer(heard: Heard, talk: Talk) -> None:
        return None

    async with serving(answer) as server:
        with pytest.raises(CallFailed) as failed:
            await http.get(server.url)

    assert failed.value.kind == "closed"
    assert len(server.heard) == 1


async def test_a_connection_closed_while_idle_is_not_used_again(http: HTTPClient) -> None:
    closing = asyncio.Event()

    async def answer(heard: Heard, talk: Talk) -> None:
        await talk.say(OK)
        await closing.wait()

    async with serving(answer) as server:
        await http.get(server.url)
        closing.set()
        connection = next(iter(http._shared.connections))
        while not connection.closed:
            await asyncio.sleep(0)
        r = await http.get(server.url)

    assert r.opening is not None
    assert len(server.heard) == 2


@pytest.mark.parametrize(
    "when",
    [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
)
async def test_a_connection_that_shall_close_is_not_kept(http: HTTPClient, when: str) -> None:
    async with serving(when.encode()) as server:
        await http.get(server.url)
        await http.get(server.url)

    assert server.connections == 2


async def test_limits_apply_to_each_part(http: HTTPClient) -> None:
    async def answer(heard: Heard, talk: Talk) -> None:
        if heard.path == "/half":
            await talk.say(OK[:-1])
        await talk.gone()

    async with serving(answer) as server:
        for path, timeout, kind in [
            ("/", Timeouts(read=0.05), "read timeout"),
            ("/half", Timeouts(read=0.05), "read timeout"),
            ("/", "50ms", "total timeout"),
            ("/half", 0.05, "total timeout"),
        ]:
            with pytest.raises(CallFailed, match="within 0.05 s") as failed:
                await http.get(server.url + path, timeout=timeout)
            assert failed.value.kind == kind


async def test_a_server_that_does_not_read_is_a_write_timeout(http: HTTPClient) -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # the types hide it
        await over.wait()
        writer.close()

    over = asyncio.Event()
    listening = await asyncio.start_server(deaf, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    with pytest.raises(CallFailed) as failed:
        await http.post(f"http://127.0.0.1:{port}/", data=bytes(20_000_000), timeout=Timeouts(write=0.1))
    over.set()
    listening.close()

    assert failed.value.kind == "write timeout"


@pytest.mark.parametrize("timeout", ["5", 0, -1, True, object()])
async def test_a_timeout_that_is_no_time_is_refused(http: HTTPClient, timeout: object) -> None:
    with pytest.raises(InvalidInput, match="timeout"):
        http.get("http://127.0.0.1:1", timeout=timeout)  # type: ignore[arg-type]


async def test_a_call_that_fails_has_the_bytes_that_it_had_sent_and_received(http: HTTPClient) -> None:
    part = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"

    async def answer(heard: Heard, talk: Talk) -> None:
        await talk.say(part)

    async with serving(answer) as server:
        with pytest.raises(CallFailed) as failed:
            await http.get(f"{server.url}/a")

    assert failed.value.kind == "closed"
    assert (failed.value.sent, failed.value.received) == (len(_request(server)), len(part))


async def test_a_call_that_is_aborted_leaves_its_bytes(network: Network) -> None:
    came = asyncio.Event()

    async def answer(heard: Heard, talk: Talk) -> None:
        came.set()
        await talk.gone()

    http = HTTPClient(network)
    async with serving(answer) as server:
        call = asyncio.ensure_future(http.get(f"{server.url}/a"))
        await came.wait()
        await http.close()
        await asyncio.wait([call])

    assert (network.aborted, network.aborted_sent) == (1, len(_request(server)))


async def test_a_call_that_was_never_sent_has_no_bytes(http: HTTPClient) -> None:
    with pytest.raises(CallFailed) as failed:
        await http.get("http://127.0.0.1:9/")

    assert (failed.value.sent, failed.value.received) == (0, 0)

"""What surrounds every request: headers, sizes, times, rates, streams, and the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mainstay.web.caller import Caller
from mainstay.web.options import WebOptions
from mainstay.web.security.limits import ConnectionLimits
from mainstay.web.security.middleware import wrapped
from mainstay.worker.logs import JsonLines
from tests.web.security.doors import Door, problem


async def test_every_answer_tells_browsers_how_far_to_trust_it(open_door: Door) -> None:
    for path in ("/read", "/nothing", "/login"):
        headers = (await open_door.client().get(path)).headers
        policy = {
            part.partition(" ")[0]: part.partition(" ")[2] for part in headers["content-security-policy"].split("; ")
        }

        assert policy == {
            "default-src": "'none'",
            "script-src": "'self'",
            "style-src": "'self'",
            "img-src": "'self' data:",
            "connect-src": "'self'",
            "manifest-src": "'self'",
            "frame-ancestors": "'none'",
            "form-action": "'self'",
            "base-uri": "'none'",
        }
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        assert "strict-transport-security" not in headers


async def test_forms_of_our_pages_still_say_where_they_come_from(open_door: Door) -> None:
    """With `no-referrer` a browser says `Origin: null` for them, and they would be refused."""
    assert (await open_door.client().get("/login")).headers["referrer-policy"] == "same-origin"


async def test_what_may_be_kept_says_so_itself(open_door: Door) -> None:
    assert (await open_door.client().get("/kept")).headers["cache-control"] == "max-age=60"


async def test_browsers_are_told_to_stay_with_tls(door: Door) -> None:
    done = await door.client(base="https://jobs.example").get("/kept")

    assert done.headers["strict-transport-security"] == "max-age=31536000"


async def test_a_body_of_the_limit_fits_and_one_more_byte_does_not(tmp_path: Path) -> None:
    client = Door(tmp_path, asks=False, body_limit=1000).client()

    assert (await client.post("/operate", content=b"x" * 1000)).json()["size"] == 1000
    done = await client.post("/operate", content=b"x" * 1001)
    assert problem(done) == (413, "body_too_large")
    assert done.json()["limit"] == 1000


async def test_a_body_that_does_not_say_its_length_is_read_up_to_the_limit_only(tmp_path: Path) -> None:
    client = Door(tmp_path, asks=False, body_limit=1000).client()
    sent = []

    async def chunks() -> AsyncIterator[bytes]:
        while True:
            sent.append(100)
            yield b"x" * 100

    assert problem(await client.post("/operate", content=chunks())) == (413, "body_too_large")
    assert sum(sent) == 1100


async def test_a_length_that_is_a_lie_is_found_out(tmp_path: Path) -> None:
    client = Door(tmp_path, asks=False, body_limit=1000).client()

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    done = await client.post("/operate", content=chunks(), headers={"Content-Length": "5"})

    assert problem(done) == (413, "body_too_large")


@pytest.mark.parametrize("length", ["9" * 30, "9" * 5000])
async def test_a_length_beyond_all_numbers_is_too_large(open_door: Door, length: str) -> None:
    done = await open_door.client().post("/operate", content=b"x", headers={"Content-Length": length})

    assert problem(done) == (413, "body_too_large")


async def test_a_body_that_drips_is_given_up(tmp_path: Path) -> None:
    client = Door(tmp_path, asks=False, limits=ConnectionLimits(body_s=0.02)).client()

    async def chunks() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    done = await client.post("/operate", content=chunks())

    assert problem(done) == (408, "too_slow")
    assert done.headers["connection"] == "close"


async def test_strangers_are_limited_by_address(tmp_path: Path) -> None:
    door = Door(tmp_path, rate=0.6)
    client = door.client()
    codes = [(await client.get("/kept")).status_code for _ in range(5)]
    known = door.client(door.tokens.add("ann", ["read"]))

    assert codes == [200, 200, 200, 429, 429]
    assert (await client.get("/kept")).headers["retry-after"] == "2"
    assert (await known.get("/read")).status_code == 200
    door.clock.advance(2)
    assert (await client.get("/kept")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer mst_guessed"},
        {"Authorization": "Basic bWFpbnN0YXk6"},
        {"Cookie": "mainstay=1"},
        {"Cookie": "mainstay-8330=made.up"},
        {"Cookie": "other=mainstay"},
    ],
)
async def test_who_only_says_to_be_known_is_a_stranger(headers: dict[str, str], tmp_path: Path) -> None:
    door = Door(tmp_path, rate=0.6)
    client = door.client(**headers)

    assert [(await client.get("/kept")).status_code for _ in range(5)] == [200, 200, 200, 429, 429]


async def test_who_is_signed_in_is_no_stranger(tmp_path: Path) -> None:
    door = Door(tmp_path, rate=0.6)
    browser = await door.signed_in(door.tokens.add("ann", ["read"]))
    stranger = door.client()
    codes = [(await stranger.get("/kept")).status_code for _ in range(3)]

    assert codes == [200, 200, 429]
    assert [(await browser.get("/kept")).status_code for _ in range(5)] == [200] * 5


class Listener:
    """A client of a stream, as a server sees one."""

    def __init__(self, app: Any, path: str = "/live") -> None:
        self.sent: list[Any] = []
        self.told = asyncio.Event()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "scheme": "http",
            "headers": [(b"host", b"127.0.0.1")],
        }
        self.task = asyncio.create_task(app(scope, self._receive, self._send))
        self._asked = False

    async def _receive(self) -> Any:
        if self._asked:
            await asyncio.Event().wait()
        self._asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.told.set()

    @property
    def status(self) -> int:
        found: int = self.sent[0]["status"]
        return found


async def test_streams_end_in_good_order_when_the_server_stops(open_door: Door) -> None:
    listeners = [Listener(open_door.app) for _ in range(3)]
    for listener in listeners:
        await listener.told.wait()

    open_door.app.end_streams()

    for listener in listeners:
        await listener.task
        assert listener.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    late = Listener(open_door.app)
    await late.task
    assert late.status == 503


async def test_only_so_many_streams_are_open_and_each_that_ends_makes_room(tmp_path: Path) -> None:
    app = Door(tmp_path, asks=False, streams=1).app
    first = Listener(app)
    await first.told.wait()

    second = Listener(app)
    await second.task
    assert second.status == 429
    assert (b"retry-after", b"15") in second.sent[0]["headers"]
    assert [message["type"] for message in second.sent] == ["http.response.start", "http.response.body"]

    first.task.cancel()
    await asyncio.wait({first.task})
    third = Listener(app)
    await third.told.wait()
    assert third.status == 200
    third.task.cancel()
    await asyncio.wait({third.task})


async def test_one_caller_has_half_of_the_streams_at_most_and_leaves_the_rest_to_others() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["state"]["caller"] = Caller(name=scope["path"], scopes=("read",), how="token")
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"data: here\n\n", "more_body": True})
        await asyncio.Event().wait()

    served = wrapped(app, WebOptions(streams=4))
    listeners = []
    for name in ("ann", "ann", "ann", "ben"):
        listeners.append(Listener(served, name))
        await listeners[-1].told.wait()
    assert [listener.status for listener in listeners] == [200, 200, 429, 200]
    for listener in listeners:
        listener.task.cancel()
    await asyncio.wait({listener.task for listener in listeners})


async def test_an_answer_that_is_no_live_stream_is_finished_when_the_server_stops() -> None:
    going_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        left = asyncio.create_task(receive())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/csv")]})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await going_on.wait()
        assert not left.done()
        left.cancel()
        await send({"type": "http.response.body", "body": b"b"})

    served = wrapped(app, WebOptions())
    listener = Listener(served)
    await listener.told.wait()

    served.end_streams()
    going_on.set()
    await listener.task

    assert [message.get("body") for message in listener.sent[1:]] == [b"a", b"b"]


def of_the_log(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Of ours: the client of the tests may log, too."""
    return [record for record in caplog.records if record.name == "mainstay.web.access"]


async def test_the_log_has_who_and_what_and_never_a_secret(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mainstay.web.access")
    secret = door.tokens.add("ann", ["operate"])
    browser = await door.signed_in(secret)
    cookie = next(iter(browser.cookies.jar)).value
    assert cookie

    await door.client(secret).post("/operate?token=hidden&q=1", content=b'{"card": "4711"}', headers={"X-Key": "hush"})
    await browser.get("/read?password=hidden")

    records = of_the_log(caplog)
    lines = [JsonLines().format(record) for record in records]
    assert len(lines) == 3
    for word in (secret, secret[4:], cookie, "hidden", "4711", "hush", "Bearer"):
        assert not any(word in line for line in lines)
    told = records[1]
    assert (told.getMessage(), vars(told)["status"], vars(told)["caller"]) == ("POST /operate", 200, "ann")
    assert vars(told)["client"] == "192.0.2.7"
    assert vars(records[0])["caller"] == "-"


async def test_a_path_forges_no_line_of_the_log(open_door: Door, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mainstay.web.access")

    await open_door.client().get("/a%0Ainfo%20forged/" + "x" * 5000)

    [record] = of_the_log(caplog)
    assert "\n" not in record.getMessage()
    assert len(record.getMessage()) < 300

"""The target over HTTP/1.1: its routes, and its counts."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from mainstay.load.target import TargetOptions, TargetServer
from mainstay.load.target.message import Request, TargetResponse
from tests.load.target.talk import Talk


@pytest.fixture
async def target() -> AsyncIterator[TargetServer]:
    async with TargetServer(TargetOptions(seed=1)) as target:
        yield target


@pytest.fixture
async def talk(target: TargetServer) -> AsyncIterator[Talk]:
    async with Talk(target) as talk:
        yield talk


async def test_the_root_is_answered_over_and_over_on_one_connection(target: TargetServer, talk: Talk) -> None:
    for _ in range(5):
        status, _, body = await talk.get("/")
        assert (status, body) == (200, b"ok")
    counts = target.counts()
    assert (counts.begun, counts.completed, counts.statuses, counts.connections) == (5, 5, {"200": 5}, 1)


async def test_a_query_overrides_status_and_size(target: TargetServer, talk: Talk) -> None:
    status, _, body = await talk.get("/?status=503&size=1KB")
    assert (status, len(body)) == (503, 1000)
    assert target.counts().paths["/"].statuses == {"503": 1}


@pytest.mark.parametrize("path", ["/?size=huge", "/?status=99", "/?delay=soon", "/chunked?n=0", "/redirect/x"])
async def test_a_bad_query_is_answered_with_what_is_wrong(talk: Talk, path: str) -> None:
    status, _, body = await talk.get(path)
    assert status == 400
    assert msgspec.json.decode(body)["error"]


async def test_a_path_that_is_not_there_is_answered_with_those_that_are(talk: Talk) -> None:
    status, _, body = await talk.get("/nowhere")
    assert status == 404
    assert "/echo" in msgspec.json.decode(body)["error"]


async def test_echo_tells_what_was_sent_and_by_whom(talk: Talk) -> None:
    talk.say(b"POST /echo?a=1 HTTP/1.1\r\nHost: x\r\nX-Token: blue\r\nContent-Length: 5\r\n\r\nhello")
    _, _, body = await talk.hear()
    told = msgspec.json.decode(body)
    assert (told["method"], told["query"], told["body"]) == ("POST", {"a": "1"}, "hello")
    assert ["x-token", "blue"] in told["headers"]
    assert told["client"] == "{}:{}".format(*talk.writer.get_extra_info("sockname"))


async def test_whoever_logs_in_is_known_by_token_and_by_cookie(talk: Talk) -> None:
    assert (await talk.get("/me"))[0] == 401
    talk.say(b'POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{"user":"ann"}')
    _, headers, body = await talk.hear()
    token = msgspec.json.decode(body)["token"]
    assert (await talk.json("/me", f"Authorization: Bearer {token}"))["user"] == "ann"
    assert (await talk.json("/me", f"Cookie: {headers['set-cookie'].split(';')[0]}"))["user"] == "ann"


async def test_equal_logins_get_tokens_of_their_own(talk: Talk) -> None:
    tokens = set()
    for _ in range(3):
        talk.say(b'POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{"user":"ann"}')
        tokens.add(msgspec.json.decode((await talk.hear())[2])["token"])
    assert len(tokens) == 3


async def test_cookies_are_set_and_shown(talk: Talk) -> None:
    _, headers, body = await talk.get("/cookies?theme=dark", "Cookie: lang=de; size=3")
    assert headers["set-cookie"].startswith("theme=dark;")
    assert msgspec.json.decode(body) == {"cookies": {"lang": "de", "size": "3"}}


async def test_redirects_lead_to_the_root(talk: Talk) -> None:
    where = "/redirect/2"
    seen = []
    while True:
        status, headers, _ = await talk.get(where)
        if status != 302:
            break
        where = headers["location"]
        seen.append(where)
    assert (status, seen) == (200, ["/redirect/1", "/"])


async def test_bodies_come_in_chunks_compressed_and_as_events(talk: Talk) -> None:
    _, headers, body = await talk.get("/chunked?n=4&size=400")
    assert (headers["transfer-encoding"], len(body)) == ("chunked", 400)
    _, headers, body = await talk.get("/gzip")
    assert headers["content-encoding"] == "gzip"
    assert msgspec.json.decode(gzip.decompress(body))["gzip"] is True
    _, headers, body = await talk.get("/sse?n=2")
    assert headers["content-type"] == "text/event-stream"
    assert body == b"id: 0\nevent: tick\ndata: 0\n\nid: 1\nevent: tick\ndata: 1\n\n"


async def test_a_slow_body_takes_its_time_and_is_counted_when_it_is_whole(target: TargetServer, talk: Talk) -> None:
    start = time.perf_counter()
    talk.say(b"GET /slow-body?for=30ms&n=3 HTTP/1.1\r\nHost: x\r\n\r\n")
    await talk.reader.readuntil(b"\r\n\r\n")
    assert target.counts().under_way == 1
    await talk._chunks()
    assert time.perf_counter() - start >= 0.029
    assert target.counts().completed == 1


async def test_a_head_has_no_body_and_a_close_closes(talk: Talk) -> None:
    talk.say(b"HEAD /?size=10 HTTP/1.1\r\nHost: x\r\n\r\n")
    _, headers, _ = await talk.hear(bodiless=True)
    assert headers["content-length"] == "10"
    status, headers, _ = await talk.get("/", "Connection: close")
    assert (status, headers["connection"]) == (200, "close")
    assert await talk.reader.read() == b""


async def test_http_1_0_gets_a_body_that_ends_with_the_connection(talk: Talk) -> None:
    talk.say(b"GET /chunked?n=2&size=10 HTTP/1.0\r\nHost: x\r\n\r\n")
    head, _, body = (await talk.reader.read()).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body == b"x" * 10


async def test_whoever_asks_first_may_send_its_body(talk: Talk) -> None:
    talk.say(b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert (await talk.hear(bodiless=True))[0] == 100
    talk.say(b"hi")
    assert msgspec.json.decode((await talk.hear())[2])["body"] == "hi"


@pytest.mark.parametrize("path", ["/close", "/reset"])
async def test_a_connection_is_ended_without_an_answer_and_counted_as_that(
    target: TargetServer, talk: Talk, path: str
) -> None:
    talk.say(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    try:
        assert await talk.reader.read() == b""
        ended = "closed"
    except ConnectionResetError:
        ended = "reset"
    counts = target.counts()
    assert (counts.begun, counts.completed, counts.statuses) == (1, 0, {ended: 1})
    assert path.startswith(f"/{ended[:5]}")


async def test_what_is_no_request_is_refused(target: TargetServer, talk: Talk) -> None:
    talk.say(b"rubbish\r\n\r\n")
    assert (await talk.hear())[0] == 400
    assert target.counts().begun == 0


async def test_a_request_whose_connection_goes_is_abandoned(target: TargetServer) -> None:
    async with Talk(target) as talk:
        talk.say(b"GET /?delay=1h HTTP/1.1\r\nHost: x\r\n\r\n")
        async with Talk(target) as other:
            while not (await other.json("/stats"))["under_way"]:
                pass
    async with Talk(target) as other:
        while (await other.json("/stats"))["under_way"]:
            pass
    counts = target.counts()
    assert (counts.begun, counts.completed, counts.abandoned) == (1, 0, 1)


async def test_asking_for_the_counts_does_not_change_them(target: TargetServer, talk: Talk) -> None:
    await talk.get("/")
    async with Talk(target) as other:
        first = await other.json("/stats")
        assert first == await other.json("/stats")
    assert (first["begun"], first["connections"], first["open"]) == (1, 1, 1)


async def test_a_reset_counts_from_zero_and_gives_the_counts_before(target: TargetServer, talk: Talk) -> None:
    await talk.get("/")
    await talk.get("/")
    async with Talk(target) as other:
        assert (await other.json("/stats/reset"))["completed"] == 2
    await talk.get("/")
    counts = target.counts()
    assert (counts.begun, counts.completed, counts.connections) == (1, 1, 1)
    assert counts.sent > 0


async def test_a_share_of_the_answers_are_errors() -> None:
    async with TargetServer(TargetOptions(errors="20%", error_status=500, seed=3)) as target, Talk(target) as talk:
        seen = [(await talk.get("/"))[0] for _ in range(200)]
        assert 20 <= seen.count(500) <= 60
        assert target.counts().statuses == {"200": seen.count(200), "500": seen.count(500)}


async def test_delays_are_imposed_and_remembered() -> None:
    async with TargetServer(TargetOptions(latency="uniform 2ms 6ms", seed=3)) as target, Talk(target) as talk:
        took = []
        for _ in range(10):
            start = time.perf_counter()
            await talk.get("/")
            took.append(time.perf_counter() - start)
        delays = target.delays()
        assert len(delays.meant) == 10
        assert all(0.002 <= meant <= 0.006 for meant in delays.meant)
        pairs = list(zip(delays.meant, delays.taken, took, strict=True))
        assert all(meant <= taken <= seen for meant, taken, seen in pairs)
        assert await talk.json("/stats/delays") == {"meant": delays.meant.tolist(), "taken": delays.taken.tolist()}


async def test_the_counts_say_what_was_asked_for_and_what_it_came_to() -> None:
    async with (
        TargetServer(TargetOptions(latency="bimodal 1ms 20ms 10%", seed=3, keep=5)) as target,
        Talk(target) as talk,
    ):
        assert (await talk.json("/stats"))["imposed"] is None
        for _ in range(50):
            await talk.get("/")
        counts = target.counts()
        told = await talk.json("/stats")
        target.reset()
        assert target.counts().imposed is None

    assert counts.asked is not None
    assert counts.imposed is not None
    # of all of them, not of the last five that are kept one by one
    assert counts.asked.count == counts.imposed.count == told["imposed"]["count"] == 50
    assert counts.asked.p50 == pytest.approx(0.001, rel=0.004)
    assert (counts.asked.max, counts.asked.min) == pytest.approx((0.02, 0.001))
    assert counts.imposed.min >= 0.001
    assert counts.imposed.max >= 0.02


async def test_a_delay_counts_from_when_the_request_was_read() -> None:
    """So what the target itself needs to find its answer is in it, and not added to it."""
    async with TargetServer(TargetOptions(latency="1ms")) as target, Talk(target) as talk:
        site = target._site
        answer, at = site.answer, site.timers.at
        asked: list[float] = []
        due: list[float] = []

        def answers(request: Request, transport: Any) -> tuple[TargetResponse, float]:
            asked.append(time.perf_counter())
            return answer(request, transport)

        def noted(when: float, *call: Any) -> None:
            due.append(when)
            at(when, *call)

        site.answer = answers  # type: ignore[method-assign]
        site.timers.at = noted  # type: ignore[method-assign]
        for _ in range(2):
            await talk.get("/")

    assert len(due) == 2
    assert all(when <= then + 0.001 for when, then in zip(due, asked, strict=True))


async def test_the_latency_applies_to_every_path_that_is_not_for_control() -> None:
    async with TargetServer(TargetOptions(latency="1ms")) as target, Talk(target) as talk:
        talk.say(b'POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{"user": "ann"}')
        await talk.hear()
        for path in ("/me", "/echo", "/gzip", "/redirect/1", "/chunked"):
            await talk.get(path)
        assert len(target.delays().taken) == 6
        await talk.get("/stats")
        await talk.get("/stall?for=0s")
        assert len(target.delays().taken) == 6


async def test_only_the_last_delays_are_remembered() -> None:
    async with TargetServer(TargetOptions(keep=3)) as target, Talk(target) as talk:
        for ms in (1, 2, 3, 4):
            await talk.get(f"/?delay={ms}ms")
        assert sorted(target.delays().meant) == pytest.approx([0.002, 0.003, 0.004])


async def test_a_stall_holds_back_what_comes_and_what_is_under_way(target: TargetServer, talk: Talk) -> None:
    async with Talk(target) as other, Talk(target) as control:
        # long enough that it is still under way when the stall begins, however slow this machine is
        other.say(b"GET /?delay=200ms HTTP/1.1\r\nHost: x\r\n\r\n")
        while not (await control.json("/stats"))["begun"]:
            pass
        start = time.perf_counter()
        assert await control.json("/stall?for=300ms") == {"stalled_for": 0.3}
        await asyncio.gather(other.hear(), talk.get("/"))
        assert time.perf_counter() - start >= 0.3
    await talk.get("/")
    assert target.counts().completed == 3


async def test_a_plain_request_to_the_websocket_is_told_to_upgrade(talk: Talk) -> None:
    assert (await talk.get("/ws"))[0] == 426


REQUESTS = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
    b"GET /?status=404 HTTP/1.1\r\nHost: x\r\n\r\n"
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n"
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
)


@settings(max_examples=25)
@given(cuts=st.lists(st.integers(0, len(REQUESTS)), max_size=6).map(sorted), delay=st.booleans())
def test_any_split_of_the_requests_gives_the_same_answers_in_order(cuts: list[int], delay: bool) -> None:
    async def statuses() -> list[int]:
        async with TargetServer(TargetOptions(latency="1ms" if delay else "none")) as target, Talk(target) as talk:
            for start, end in zip([0, *cuts], [*cuts, len(REQUESTS)], strict=True):
                talk.say(REQUESTS[start:end])
                await asyncio.sleep(0)
            found = [(await talk.hear())[0] for _ in range(5)]
            assert target.counts().completed == 5
            return found

    assert asyncio.run(statuses()) == [200, 200, 404, 200, 200]

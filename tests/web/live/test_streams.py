"""Streams of stores, jobs and lists: what is told, what is told to who comes back, and what is left of who goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from mainstay.control import Completion, Control
from mainstay.model import Job
from mainstay.stores.memory import MemoryStore
from mainstay.testing import VirtualClock
from mainstay.web.live import followed_jobs, sse
from mainstay.web.security.tokens import Tokens
from tests.web.conftest import Server, serving
from tests.web.live.listening import listening

FAST = {"snapshot_s": 0.02}


@pytest.fixture
async def live() -> AsyncIterator[Server]:
    async with serving(**FAST) as found:
        yield found


@pytest.fixture(params=["memory", "sqlite"])
async def each(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    async with serving({"main": url}, **FAST) as found:
        yield found


async def claimed(control: Control, job_id: str) -> Job:
    session = await control.claims.open_session(worker="w")
    (job,) = await control.claims.claim(["default"], session.id, 1)
    assert job.id == job_id
    return job


async def test_a_job_is_told_from_its_first_event_to_its_end(each: Server) -> None:
    control = each.control
    made = await control.jobs.submit("send", {"to": "ann"})
    async with listening(each.app, f"/api/v1/jobs/{made.id}/stream") as stream:
        assert (await stream.next("job")).data["status"] == "pending"
        job = await claimed(control, made.id)
        await control.claims.start([job])
        assert (await stream.next("event")).data["to"] == "running"
        await control.claims.report([control.claims.progress(job, 3, 10)])
        assert (await stream.next("progress")).data["progress"]["done"] == 3
        await control.attempts.complete([Completion(job, b"\x80")])
        told = await stream.rest()
    assert [one.event for one in told[-3:]] == ["event", "job", "end"]
    assert told[-1].data == {"id": made.id, "status": "succeeded", "reason": None, "deleted": False}
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.raw.startswith(b"retry: ")


async def test_a_payload_is_told_when_asked_for_and_masked(live: Server) -> None:
    made = await live.control.jobs.submit("send", {"to": "ann", "password": "hunter2"})
    async with listening(live.app, f"/api/v1/jobs/{made.id}/stream") as stream:
        assert "payload" not in (await stream.next("job")).data
    async with listening(live.app, f"/api/v1/jobs/{made.id}/stream?payload=true") as stream:
        assert (await stream.next("job")).data["payload"] == {"to": "ann", "password": "***"}
    assert b"hunter2" not in stream.raw


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    visits=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 6)), max_size=5),
    kept=st.sampled_from([1, 3, 100]),
    watched=st.booleans(),
)
def test_whoever_comes_back_misses_no_event_and_sees_none_twice(
    visits: list[tuple[int, int, int]], kept: int, watched: bool
) -> None:
    """Wherever the connection breaks, whatever happened meanwhile, and however much the server remembers."""

    async def main() -> None:
        async with serving(snapshot_s=0.002) as server:
            control = server.control
            made = await control.jobs.submit("send")
            path = f"/api/v1/jobs/{made.id}/stream"
            seen: list[str] = []
            last, priority = None, 0

            async def change(times: int) -> None:
                nonlocal priority
                for _ in range(times):
                    priority = (priority + 1) % 100
                    await control.operations.set_priority(made.id, priority, actor="ann")

            for before, during, taken in visits:
                await change(before)
                async with listening(server.app, path, last=last) as stream:
                    for n in range(taken):
                        if n == 1:
                            await change(during)
                        if n >= 1 + before + during:
                            break
                        told = await stream.next("event", "job")
                        last = told.id or last
                        if told.event == "event":
                            seen.append(str(told.id))
            if not watched:
                await control.operations.cancel(made.id, actor="ann")
            async with listening(server.app, path, last=last) as stream:
                if watched:
                    await change(3)
                    await control.operations.cancel(made.id, actor="ann")
                rest = await stream.rest()
            assert rest[-1].event == "end"
            seen += [str(told.id) for told in rest if told.event == "event"]
            job = await control.jobs.get(made.id)
            assert seen == [str(n) for n in range(1, job.version + 1)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(followed_jobs, "_KEPT", kept)
        asyncio.run(main())


async def test_a_browser_that_has_seen_the_end_is_told_not_to_come_back(live: Server) -> None:
    made = await live.control.jobs.submit("send")
    await live.control.operations.cancel(made.id, actor="ann")
    path = f"/api/v1/jobs/{made.id}/stream"
    async with listening(live.app, path) as stream:
        last = (await stream.rest())[-1].id
    assert (await live.client.get(path, headers={"Last-Event-ID": str(last)})).status_code == 204


async def test_whoever_lost_the_line_before_the_end_was_told_is_told_it(live: Server) -> None:
    made = await live.control.jobs.submit("send")
    await live.control.operations.cancel(made.id, actor="ann")
    async with listening(live.app, f"/api/v1/jobs/{made.id}/stream", last="2") as stream:
        assert [told.event for told in await stream.rest()] == ["job", "end"]


async def test_the_end_of_a_deleted_job_is_its_tombstone(live: Server) -> None:
    made = await live.control.jobs.submit("send")
    path = f"/api/v1/jobs/{made.id}/stream"
    async with listening(live.app, path) as stream:
        await stream.next("job")
        await live.control.operations.delete(made.id, actor="ann", reason="a mistake")
        told = await stream.rest()
    assert told[-2].data["reason"] == "a mistake"
    assert told[-1].event == "end"
    assert told[-1].data["deleted"]
    async with listening(live.app, path) as stream:
        assert [one.event for one in await stream.rest()] == ["event", "end"]


async def test_a_job_that_is_not_there_is_refused_before_any_stream(live: Server) -> None:
    answer = await live.client.get("/api/v1/jobs/018bcfe5-6800-7000-8000-0123456789ab/stream")
    assert (answer.status_code, answer.json()["type"]) == (404, "job_not_found")


@pytest.mark.parametrize("mark", ["x", "-1", "1.5", "7-END", "9" * 40, "07"])
async def test_a_mark_that_no_stream_gave_is_refused(live: Server, mark: str) -> None:
    made = await live.control.jobs.submit("send")
    answer = await live.client.get(f"/api/v1/jobs/{made.id}/stream", headers={"Last-Event-ID": mark})
    assert (answer.status_code, answer.json()["field"]) == (422, "Last-Event-ID")


async def test_whoever_asks_for_the_head_of_a_stream_is_not_kept(live: Server) -> None:
    answer = await live.client.head("/api/v1/stream")
    assert (answer.status_code, answer.content) == (200, b"")
    assert live.site.hub.subscribers("main") == 0


async def test_a_store_is_told_at_once_and_then_as_it_changes(live: Server) -> None:
    async with listening(live.app, "/api/v1/stream", last="12") as stream:
        first = await stream.next("snapshot")
        assert first.data["counts"] == {}
        await live.control.jobs.submit("send")
        while (told := await stream.next("snapshot")).data["counts"] != {"pending": 1}:
            assert int(str(told.id)) > int(str(first.id))


async def test_a_slow_reader_gets_the_latest_and_not_all_between(live: Server) -> None:
    hub = live.site.hub
    async with listening(live.app, "/api/v1/stream") as stream:
        await stream.next("snapshot")
        async with listening(live.app, "/api/v1/stream") as other:
            for _ in range(10):
                latest = await other.next("snapshot")
        # of those it did not take, one was being sent and one waits behind it
        taken = [(await stream.next("snapshot")).id for _ in range(3)]
        assert int(str(taken[-1])) >= int(str(latest.id))
        assert hub.subscribers("main") == 1


async def test_a_list_is_told_whole_and_then_by_what_changed(live: Server) -> None:
    ids = [(await live.control.jobs.submit("send")).id for _ in range(3)]
    await live.control.jobs.submit("other")
    async with listening(live.app, "/api/v1/jobs/stream?name=send&limit=10") as stream:
        page = (await stream.next("page")).data
        assert page["ids"] == ids[::-1] == [job["id"] for job in page["jobs"]]
        await live.control.operations.cancel(ids[1], actor="ann")
        page = (await stream.next("page")).data
        assert page["ids"] == ids[::-1]
        assert [(job["id"], job["status"]) for job in page["jobs"]] == [(ids[1], "cancelled")]
        await live.control.operations.delete(ids[0], actor="ann", reason="gone")
        page = (await stream.next("page")).data
        assert page["ids"] == [ids[2], ids[1]]
        assert page["jobs"] == []


async def test_a_list_that_cannot_be_is_refused_before_any_stream(live: Server) -> None:
    answer = await live.client.get("/api/v1/jobs/stream?status=runing")
    assert (answer.status_code, answer.json()["field"]) == (422, "status")


async def test_the_same_list_is_looked_for_once_for_all(live: Server) -> None:
    lists = live.site.hub.lists("main")
    async with listening(live.app, "/api/v1/jobs/stream?name=a") as one:
        async with (
            listening(live.app, "/api/v1/jobs/stream?name=a") as same,
            listening(live.app, "/api/v1/jobs/stream?name=b") as other,
        ):
            for stream in (one, same, other):
                await stream.next("page")
            assert len(lists) == 2
        assert len(lists) == 1
    assert len(lists) == 0


async def test_streams_are_of_the_store_that_is_named(tmp_path: Path) -> None:
    async with serving({"one": "memory:", "two": f"sqlite:///{tmp_path / 'two.db'}"}, **FAST) as server:
        made = await server.stores.find("two").control.jobs.submit("send")
        async with listening(server.app, f"/api/v1/jobs/{made.id}/stream?store=two") as stream:
            assert (await stream.next("job")).data["id"] == made.id
        async with listening(server.app, "/api/v1/stream?store=two") as stream:
            assert (await stream.next("snapshot")).data["store"] == "two"
        assert (await server.client.get(f"/api/v1/jobs/{made.id}/stream")).status_code == 404
        assert (await server.client.get("/api/v1/stream?store=three")).status_code == 422


async def test_nothing_is_left_of_clients_that_vanish(each: Server) -> None:
    hub = each.site.hub
    made = await each.control.jobs.submit("send")
    before = {task.get_name() for task in asyncio.all_tasks()}
    for _ in range(20):
        async with (
            listening(each.app, "/api/v1/stream") as store,
            listening(each.app, f"/api/v1/jobs/{made.id}/stream") as job,
            listening(each.app, "/api/v1/jobs/stream") as jobs,
        ):
            for stream in (store, job, jobs):
                await stream.next()
    assert (hub.subscribers("main"), len(hub.jobs("main")), len(hub.lists("main"))) == (0, 0, 0)
    assert len(each.app.streams) == 0
    assert {task.get_name() for task in asyncio.all_tasks()} <= before


async def test_followers_of_one_job_share_one_look_and_each_sees_all(live: Server) -> None:
    made = await live.control.jobs.submit("send")
    path = f"/api/v1/jobs/{made.id}/stream"
    async with listening(live.app, path) as one, listening(live.app, path) as two:
        for stream in (one, two):
            await stream.next("job")
        assert len(live.site.hub.jobs("main")) == 1
        for n in range(1, 6):
            await live.control.operations.set_priority(made.id, n, actor="ann")
        await live.control.operations.cancel(made.id, actor="ann")
        for stream in (one, two):
            assert [told.id for told in await stream.rest() if told.event == "event"] == ["2", "3", "4", "5", "6", "7"]


async def test_a_slow_reader_of_a_job_misses_nothing_of_its_end(live: Server) -> None:
    made = await live.control.jobs.submit("send")
    hub = live.site.hub
    async with listening(live.app, f"/api/v1/jobs/{made.id}/stream") as stream:
        await stream.next("job")
        async with hub.jobs("main").follow(made.id) as followed:
            # what it is being sent is of the first of these; the others happen while it does not read
            for n in range(1, 6):
                await live.control.operations.set_priority(made.id, n, actor="ann")
                while followed.row is None or followed.row.version < n + 1:
                    await followed.changed.wait()
            await live.control.operations.cancel(made.id, actor="ann")
            while followed.row.status != "cancelled":
                await followed.changed.wait()
        told = await stream.rest()
    assert [one.id for one in told if one.event == "event"] == ["2", "3", "4", "5", "6", "7"]
    assert [one.event for one in told[-2:]] == ["job", "end"]


async def test_more_streams_than_there_may_be_are_told_to_come_later() -> None:
    async with serving(streams=1, **FAST) as server, listening(server.app, "/api/v1/stream") as stream:
        await stream.next()
        answer = await server.client.get("/api/v1/stream")
        assert answer.status_code in (429, 503)
        assert int(answer.headers["retry-after"]) > 0


async def test_a_quiet_stream_says_now_and_then_that_it_is_there(live: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_S", 0.02)
    made = await live.control.jobs.submit("send")
    async with listening(live.app, f"/api/v1/jobs/{made.id}/stream") as stream:
        await stream.next("job")
        # an event: a page is not told of comments
        told = await stream.next("alive")
    assert (told.data, told.id) == ({}, None)


async def test_a_stream_ends_when_its_token_is_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_S", 0.02)
    clock = VirtualClock()
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.add("ann", ["read"])
    async with serving(store=MemoryStore(clock=clock), tokens=tokens, **FAST) as server:
        job = await server.control.jobs.submit("send")
        path = f"/api/v1/jobs/{job.id}/stream"
        assert (await server.as_(None).get(path)).status_code == 401
        async with listening(server.app, path, authorization=f"Bearer {secret}") as stream:
            await stream.next("job")
            tokens.revoke("ann")
            clock.advance(5.1)
            with pytest.raises(EOFError):
                await stream.next()


async def test_signs_of_life_do_not_use_up_what_a_caller_may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_S", 0.02)
    # five requests, and then one every hundred seconds
    async with serving(store=MemoryStore(clock=VirtualClock()), rate=1, **FAST) as server:
        job = await server.control.jobs.submit("send")
        async with listening(server.app, f"/api/v1/jobs/{job.id}/stream") as stream:
            for _ in range(10):
                await stream.next("alive")
            assert (await server.client.get("/api/v1/jobs")).status_code == 200


def _revoke(server: Server, tokens: Tokens, cookie: str) -> None:
    tokens.revoke("ann")


def _end_session(server: Server, tokens: Tokens, cookie: str) -> None:
    sessions = server.site.guard.sessions
    session = sessions.read(cookie)
    assert session is not None
    sessions.end(session)


@pytest.mark.parametrize("end", [_revoke, _end_session])
async def test_a_busy_stream_ends_soon_after_its_caller_is_no_longer_let_in(end: Any, tmp_path: Path) -> None:
    clock = VirtualClock()
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.add("ann", ["read"])
    async with serving(store=MemoryStore(clock=clock), tokens=tokens, **FAST) as server, server.as_(None) as browser:
        await browser.post("/login", data={"token": secret})
        ((name, cookie),) = browser.cookies.items()
        async with listening(server.app, "/api/v1/stream", cookie=f"{name}={cookie}") as stream:
            await stream.next("snapshot")
            clock.advance(4.9)
            end(server, tokens, cookie.strip('"'))
            # what is sent before it is asked again
            for _ in range(4):
                await stream.next("snapshot")
            clock.advance(0.2)
            await stream.rest()
            assert stream.over

"""The hub: one look for all, at a bearable pace, and what is known of a store that has gone away."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from mainstay.control import Control, Failure, JobRequest
from mainstay.control.schedules import register, schedule
from mainstay.errors import StoreError
from mainstay.model import ErrorInfo
from mainstay.stores.memory import MemoryStore
from mainstay.web.live.hub import LiveHub
from mainstay.web.live.snapshot import Snapshot
from mainstay.web.options import WebOptions
from mainstay.web.stores import ServedStore, ServedStores

FAST = WebOptions(snapshot_s=0.01)


class Counting:
    """A store's method, with how often it was called, and what becomes of it."""

    def __init__(self, method: Callable[[], Awaitable[Any]]) -> None:
        self.calls = 0
        self.fails = False
        self.hangs = False
        self._method = method

    async def __call__(self) -> Any:
        self.calls += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise StoreError("the store is away")
        return await self._method()


@contextlib.asynccontextmanager
async def hub_on(options: WebOptions = FAST) -> Any:
    store = MemoryStore()
    counting = Counting(store.stats)
    store.stats = counting  # type: ignore[method-assign]
    async with ServedStores({"main": ServedStore("main", store)}) as stores, LiveHub(stores, options) as hub:
        yield hub, stores.first.control, counting


async def seen(hub: LiveHub, wanted: Callable[[Snapshot], bool]) -> Snapshot:
    """The first snapshot that is so."""
    async with asyncio.timeout(60), contextlib.aclosing(hub.subscribe("main")) as snapshots:
        async for snapshot in snapshots:
            if wanted(snapshot):
                return snapshot
    raise AssertionError("never")


async def failed(control: Control, name: str, error: ErrorInfo) -> str:
    made = await control.jobs.submit(name, retries=0)
    session = await control.claims.open_session(worker="failing")
    (job,) = await control.claims.claim(["default"], session.id, 1)
    await control.attempts.fail([Failure(job, error)])
    await control.claims.close_session(session.id)
    return made.id


async def test_a_snapshot_has_counts_ages_and_what_is_paused() -> None:
    async with hub_on() as (hub, control, _):
        await control.jobs.submit("send", queue="mail")
        await control.jobs.submit("send", queue="mail", delay="1h")
        await control.jobs.submit("draw", queue="images")
        await control.operations.pause("mail", reason="the provider is down", actor="ann")
        found = await seen(hub, lambda snapshot: snapshot.counts == {"scheduled": 1, "pending": 2})
        found = await seen(hub, lambda snapshot: any(queue.paused for queue in snapshot.queues))
    assert found.up
    assert found.waiting == 3
    assert found.oldest_ready_ms is not None
    mail = {queue.name: queue for queue in found.queues}["mail"]
    assert (mail.paused, mail.reason, mail.waiting) == (True, "the provider is down", 2)
    assert (mail.set_by, mail.set_ms is not None) == ("ann", True)


async def test_a_snapshot_says_who_is_at_work_on_what_and_tells_no_payload() -> None:
    async with hub_on() as (hub, control, _):
        made = await control.jobs.submit("send", {"secret": "hunter2"})
        session = await control.claims.open_session(worker="w")
        (job,) = await control.claims.claim(["default"], session.id, 1)
        await control.claims.start([job])
        await control.claims.report([control.claims.progress(job, 1, 4)])
        found = await seen(hub, lambda snapshot: bool(snapshot.sessions and snapshot.sessions[0].holds))
        told = hub.encoded("main", found)
    (worker,) = found.sessions
    assert (worker.worker, worker.at_work, worker.holds, found.live_sessions) == ("w", True, 1, 1)
    assert [(held.id, held.done, held.total) for held in worker.jobs] == [(made.id, 1, 4)]
    assert b"hunter2" not in told


async def test_failures_are_grouped_by_their_cause_the_most_frequent_first() -> None:
    refused = ErrorInfo(type="ConnectionRefusedError", message="port 25", code="refused")
    async with hub_on() as (hub, control, _):
        await failed(control, "send", ErrorInfo(type="KeyError", message="'name'"))
        await failed(control, "send", refused)
        last = await failed(control, "fetch", refused)
        found = await seen(hub, lambda snapshot: snapshot.failures.looked_at == 3)
    often, once = found.failures.causes
    assert (often.code, often.type, often.message, often.count) == ("refused", "ConnectionRefusedError", "port 25", 2)
    assert (often.names, often.newest) == ({"send": 1, "fetch": 1}, last)
    assert (once.type, once.count) == ("KeyError", 1)


async def test_batches_and_load_tests_at_work_are_told_and_plain_tasks_are_not() -> None:
    async with hub_on() as (hub, control, _):
        for kind in ("task", "batch", "load"):
            plan = msgspec.structs.replace(control.jobs.plan(), kind=kind)
            await control.store.insert(control.jobs.new_jobs([JobRequest(f"a-{kind}", None, plan)]))
        session = await control.claims.open_session(worker="w")
        await control.claims.claim(["default"], session.id, 3)
        hub.nudge("main")
        found = await seen(hub, lambda snapshot: bool(snapshot.runs))
    assert sorted((run.kind, run.name, run.status) for run in found.runs) == [
        ("batch", "a-batch", "running"),
        ("load", "a-load", "running"),
    ]


async def test_since_when_a_job_has_been_where_it_should_only_pass_is_told() -> None:
    async with hub_on() as (hub, control, _):
        made = await control.jobs.submit("send")
        session = await control.claims.open_session(worker="w")
        await control.claims.start(await control.claims.claim(["default"], session.id, 1))
        job = await control.operations.cancel(made.id, actor="ann")
        assert job.status == "cancelling"
        found = await seen(hub, lambda snapshot: bool(snapshot.since_ms))
    assert found.since_ms == {"cancelling": job.changed_ms}


async def test_schedules_are_told_with_their_next_ticks() -> None:
    async with hub_on() as (hub, control, _):
        await register(control, [schedule("nightly", "0 3 * * *", "clean")])
        hub.nudge("main")
        found = await seen(hub, lambda snapshot: bool(snapshot.schedules))
    (nightly,) = found.schedules
    assert nightly["name"] == "nightly"
    assert len(nightly["next_ticks_ms"]) == 3


async def test_any_number_of_viewers_cost_the_store_one_look() -> None:
    async with hub_on() as (hub, _, counting), contextlib.AsyncExitStack() as stack:
        viewers = [await stack.enter_async_context(contextlib.aclosing(hub.subscribe("main"))) for _ in range(50)]
        before, looks = counting.calls, set()
        for _ in range(3):
            looks |= {(await anext(viewer)).at_ms for viewer in viewers}
        assert counting.calls - before <= len(looks) + 1
        assert len(looks) < 50


async def test_to_know_what_was_seen_last_waits_for_no_store() -> None:
    async with hub_on() as (hub, _, counting):
        counting.hangs = True
        await asyncio.sleep(0)
        first = hub.snapshot("main")
        assert first.up
        assert hub.snapshot("main") is first


async def test_as_long_as_nobody_watches_looks_are_few() -> None:
    async with hub_on() as (hub, _, counting):
        # what asks now and then, like a scrape, is nobody who watches
        assert hub.last_known("main").up
        assert min(hub._watches["main"]._due_s.values()) > asyncio.get_running_loop().time() + 3
        before = counting.calls
        await seen(hub, lambda _: counting.calls > before + 2)


async def test_a_look_that_takes_long_is_taken_seldom() -> None:
    async with hub_on() as (hub, _, counting):
        method = counting._method

        async def slowly() -> Any:
            await asyncio.sleep(0.2)
            return await method()

        counting._method = slowly
        at = hub.snapshot("main").stats_ms
        await seen(hub, lambda snapshot: snapshot.stats_ms > at)
        due_s = hub._watches["main"]._due_s
        # ten times what it took; the other looks keep their pace
        assert due_s["numbers"] - asyncio.get_running_loop().time() > 1
        assert due_s["sessions"] - asyncio.get_running_loop().time() < 1


async def test_a_store_that_goes_away_is_told_and_so_is_its_return() -> None:
    async with hub_on() as (hub, control, counting):
        await control.jobs.submit("send")
        known = await seen(hub, lambda snapshot: snapshot.counts == {"pending": 1})
        counting.fails = True
        away = await seen(hub, lambda snapshot: not snapshot.up)
        assert away.error == "the store is away"
        assert (away.counts, away.stats_ms >= known.stats_ms) == ({"pending": 1}, True)
        counting.fails = False
        back = await seen(hub, lambda snapshot: snapshot.up)
        assert back.error == ""
        assert back.stats_ms > away.stats_ms or back.at_ms > away.at_ms


async def test_a_store_that_never_answers_is_given_up_after_a_while() -> None:
    async with hub_on(WebOptions(snapshot_s=0.01, ready_s=0.05)) as (hub, _, counting):
        counting.hangs = True
        away = await seen(hub, lambda snapshot: not snapshot.up)
        assert "did not answer within 0.05 s" in away.error
        counting.hangs = False
        assert (await seen(hub, lambda snapshot: snapshot.up)).error == ""


async def test_a_server_that_was_busy_itself_does_not_call_its_store_silent() -> None:
    async with hub_on(WebOptions(snapshot_s=0.01, ready_s=0.05)) as (hub, _, counting):
        method = counting._method

        async def busy() -> Any:
            time.sleep(0.5)
            for _ in range(3):
                await asyncio.sleep(0)
            return await method()

        told: list[Snapshot] = []
        counting._method = busy
        at = hub.snapshot("main").stats_ms
        await seen(hub, lambda snapshot: told.append(snapshot) or snapshot.stats_ms > at)  # type: ignore[func-returns-value]
    assert {snapshot.error for snapshot in told} == {""}
    assert all(snapshot.up for snapshot in told)


async def test_a_look_that_fails_as_nobody_foresaw_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async with hub_on() as (hub, control, _):
        store = control.store

        async def broken() -> Any:
            raise RuntimeError("a bug")

        store.sessions = broken  # type: ignore[method-assign]
        found = await seen(hub, lambda snapshot: "see the log of the server" in snapshot.error)
        assert found.up
        await control.jobs.submit("send")
        await seen(hub, lambda snapshot: snapshot.counts == {"pending": 1})
    assert "a read of a store failed store=main query=sessions" in caplog.text


async def test_nothing_of_the_hub_is_left_when_it_closes() -> None:
    before = asyncio.all_tasks()
    async with hub_on() as (hub, _, _counting):
        await seen(hub, lambda snapshot: snapshot.up)
    assert asyncio.all_tasks() == before

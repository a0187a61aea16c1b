"""A run on nodes as another machine sees it: whatever is lost on the way, its end is that of the job."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from mainstay.bus import MemoryBusNetwork
from mainstay.control import Completion, JobRequest
from mainstay.errors import (
    RateLimited,
    ReconnectFailed,
    RequestRefused,
    RoleRefused,
    ServerUnreachable,
    StoreError,
)
from mainstay.lifecycle import Move
from mainstay.load.fleet.follower import FollowedRun, RunFollower
from mainstay.load.fleet.live import BusOutput
from mainstay.load.fleet.record import FleetRecord
from mainstay.load.fleet.run_source import BusRunSource, HttpRunSource
from mainstay.load.fleet.saved_run import SavedRun
from mainstay.load.stats.model import Header, Moment, Summary
from mainstay.model import LEAD_QUEUE, IdSource, Job
from mainstay.stores import ClaimReport
from mainstay.testing import LoopClock, VirtualClock, VirtualLoop, new_job, run_virtual
from tests.load.cli.moments import header, moments
from tests.load.fleet.small_cluster import SmallCluster, small_cluster
from tests.load.web.led_run import streaming_client
from tests.web.client.conftest import client_of
from tests.web.conftest import Server, server

__all__ = ["server"]

HEADER = header("browse")
MOMENTS = list(moments(HEADER, seconds=3.0))


def summary_at(elapsed_s: float, **more: Any) -> Summary:
    values = {"requests": 100, "failed": 1, "rate": 10.0, "iterations": 100, "users": 5, **more}
    return Summary(header=HEADER, elapsed_s=elapsed_s, **values)


class Display:
    """An output that remembers what it got."""

    name = "display"

    def __init__(self) -> None:
        self.headers: list[Header] = []
        self.moments: list[Moment] = []

    async def start(self, header: Header) -> None:
        self.headers.append(header)

    def add(self, moment: Moment) -> None:
        self.moments.append(moment)

    async def stop(self, summary: Summary) -> None:
        raise AssertionError("the caller has the end")


class Leader:
    """What a manager does for the run."""

    def __init__(self, cluster: SmallCluster, job: Job) -> None:
        self.cluster = cluster
        self.job = job
        self.live: BusOutput

    async def claim(self) -> None:
        session = await self.cluster.behind.claims.open_session(worker="m1", lease_s=1e6)
        (self.job,) = await self.cluster.behind.claims.claim([LEAD_QUEUE], session.id, 1)
        bus = self.cluster.network.client(f"manager.m1.{self.job.token}")
        self.live = BusOutput(bus, self.job.id, epoch=self.job.token)
        await self.cluster.behind.claims.start([self.job])

    async def send(self, some: list[Moment]) -> None:
        for moment in some:
            self.live.add(moment)
            await asyncio.sleep(0.1)

    async def save(self, summary: Summary) -> None:
        assert self.job.session is not None
        saved = SavedRun(summary=msgspec.Raw(msgspec.msgpack.encode(summary)), fleet=FleetRecord())
        report = ClaimReport(
            job_id=self.job.id,
            session=self.job.session,
            token=self.job.token,
            checkpoint=msgspec.msgpack.encode(saved),
        )
        assert await self.cluster.behind.claims.report([report]) == [True]

    async def complete(self, summary: Summary) -> None:
        result = msgspec.Raw(msgspec.msgpack.encode(summary))
        await self.cluster.behind.attempts.complete([Completion(self.job, result)])


class Watched:
    """A run that is followed."""

    def __init__(self, cluster: SmallCluster, job: Job) -> None:
        self.cluster = cluster
        self.leader = Leader(cluster, job)
        self.display = Display()
        self.notes: list[str] = []
        self.waits: list[str] = []
        self.lines: list[tuple[int, str]] = []
        self.stop, self.give_up = asyncio.Event(), asyncio.Event()
        self.follower = RunFollower(
            BusRunSource(cluster.control, job.id),
            displays=[self.display],
            on_note=self.notes.append,
            on_wait=self.waits.append,
            on_line=lambda process, line: self.lines.append((process, line)),
            by="ann",
        )
        self.task = asyncio.create_task(self.follower.follow(stop=self.stop, give_up=self.give_up))

    async def ended(self) -> FollowedRun:
        return await asyncio.wait_for(self.task, 60)


@asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with small_cluster(clock=LoopClock(loop)) as cluster:
        plan = msgspec.structs.replace(cluster.behind.jobs.plan(kind="load", retries=0), queue=LEAD_QUEUE)
        found = await cluster.behind.jobs.submit_request(JobRequest("shop", {}, plan))
        run = Watched(cluster, await cluster.behind.jobs.get(found.id))
        await asyncio.sleep(0.5)
        yield run


def told(story: Callable[[Watched], Awaitable[None]]) -> None:
    async def main() -> None:
        async with watched() as run:
            await story(run)

    run_virtual(main())


def test_a_follower_shows_the_wait_the_windows_and_the_end() -> None:
    async def story(run: Watched) -> None:
        leader = run.leader
        await leader.claim()
        await run.cluster.behind.drivers.await_placement(leader.job, "waits for 8 cores, second in the queue")
        await asyncio.sleep(3)
        assert run.waits[-1] == "waits for 8 cores, second in the queue"
        now_ms = run.cluster.clock.now_ms()
        await place(run, now_ms)
        await leader.claim()
        await asyncio.sleep(2)
        assert run.waits[-1] == "is prepared on its nodes"

        await leader.live.start(HEADER)
        await leader.send(MOMENTS)
        await leader.complete(summary_at(3.0))
        await leader.live.stop(summary_at(3.0))

        followed = await run.ended()
        assert followed.summary == summary_at(3.0)
        assert (followed.is_settled, followed.job.status) == (True, "succeeded")
        assert (run.display.headers, run.display.moments) == ([HEADER], MOMENTS)
        assert (run.waits[-1], run.notes) == ("", [])

    told(story)


async def place(run: Watched, now_ms: int) -> None:
    """The leader of placement has cores."""
    moves = (Move(to="pending", reason="placed", fields={"due_ms": now_ms}, flag="note"),)
    await run.cluster.behind.drivers.act(run.leader.job.id, lambda *_: moves, actor="leader")


def test_a_follower_that_comes_late_gets_the_header_soon() -> None:
    async def story(run: Watched) -> None:
        await run.leader.claim()
        await run.leader.live.start(HEADER)
        await run.leader.send(MOMENTS[:5])
        late = Display()
        follower = RunFollower(BusRunSource(run.cluster.control, run.leader.job.id), displays=[late])
        task = asyncio.create_task(follower.follow(stop=asyncio.Event(), give_up=run.give_up))
        await asyncio.sleep(0)

        await run.leader.send(MOMENTS[5:])

        assert late.headers == [HEADER]
        assert late.moments == MOMENTS[-len(late.moments) :]
        assert len(late.moments) >= 5
        run.give_up.set()
        await task

    told(story)


def test_without_live_data_the_saved_summary_is_told() -> None:
    async def story(run: Watched) -> None:
        await run.leader.claim()
        await run.leader.save(summary_at(2.0, requests=1234))
        await asyncio.sleep(5)
        await run.leader.save(summary_at(7.0, requests=5678))
        await asyncio.sleep(5)
        await run.leader.complete(summary_at(12.0))

        await run.ended()
        assert run.notes == ["after 2 s: 1,234 requests, 1 failed", "after 7 s: 5,678 requests, 1 failed"]
        assert (run.display.headers, run.display.moments) == ([HEADER], [])

    told(story)


def test_a_leader_that_falls_silent_is_told_with_what_is_saved() -> None:
    async def story(run: Watched) -> None:
        await run.leader.claim()
        await run.leader.live.start(HEADER)
        await run.leader.send(MOMENTS[:3])
        await run.leader.save(summary_at(7.0, requests=5678))
        await asyncio.sleep(15)
        await run.leader.complete(summary_at(12.0))

        await run.ended()
        assert run.notes == ["no live data arrives; saved after 7 s: 5,678 requests, 1 failed"]

    told(story)


def test_a_stop_cancels_the_job_and_waits_for_its_end() -> None:
    async def story(run: Watched) -> None:
        await run.leader.claim()
        await run.leader.live.start(HEADER)
        run.stop.set()
        await asyncio.sleep(3)
        job = await run.cluster.behind.jobs.get(run.leader.job.id)
        assert (job.status, run.task.done()) == ("cancelling", False)

        await run.leader.send(MOMENTS)
        await run.leader.save(summary_at(3.0))
        await run.cluster.behind.attempts.confirm_cancelled([job])

        followed = await run.ended()
        assert (followed.job.status, followed.is_settled) == ("cancelled", True)
        assert followed.summary is not None
        assert run.display.moments == MOMENTS

    told(story)


def test_a_cancel_that_is_refused_is_said_and_the_run_is_followed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(source: BusRunSource, **_: Any) -> None:
        raise RoleRefused("operator", "ann", "cancel", "its certificate is for reading")

    monkeypatch.setattr(BusRunSource, "cancel", refused)

    async def story(run: Watched) -> None:
        await run.leader.claim()
        await run.leader.live.start(HEADER)
        run.stop.set()
        await run.leader.send(MOMENTS)
        await run.leader.complete(summary_at(3.0))

        followed = await run.ended()

        assert followed.job.status == "succeeded"
        why = "operator ann may not cancel: its certificate is for reading"
        assert run.notes == [f"the run is not cancelled, and goes on: {why}"]

    told(story)


def test_a_job_that_waits_for_cores_is_cancelled_at_once() -> None:
    async def story(run: Watched) -> None:
        run.stop.set()

        followed = await run.ended()

        assert (followed.job.status, followed.summary) == ("cancelled", None)

    told(story)


def test_giving_up_leaves_a_job_that_is_cancelled_anyway_with_the_numbers_so_far() -> None:
    async def story(run: Watched) -> None:
        await run.leader.claim()
        await run.leader.save(summary_at(2.0, requests=77))
        run.stop.set()
        await asyncio.sleep(3)
        run.give_up.set()

        followed = await run.ended()

        assert not followed.is_settled
        assert followed.summary is not None
        assert followed.summary.requests == 77
        assert (await run.cluster.behind.jobs.get(run.leader.job.id)).status == "cancelling"

    told(story)


def test_a_cluster_that_does_not_answer_for_a_while_is_waited_for() -> None:
    async def story(run: Watched) -> None:
        await run.leader.claim()
        await run.leader.live.start(HEADER)
        await run.leader.send(MOMENTS[:10])
        stores, _ = run.cluster.services
        await stores.stop()
        run.stop.set()
        await asyncio.sleep(30)
        await stores.start()
        await asyncio.sleep(10)
        assert (await run.cluster.behind.jobs.get(run.leader.job.id)).status == "cancelling"
        await run.leader.complete(summary_at(3.0))

        followed = await run.ended()

        assert followed.summary == summary_at(3.0)
        assert run.notes[0].startswith("the cluster does not answer (")
        assert "the cluster answers again" in run.notes

    told(story)


@pytest.mark.parametrize("cancels", [False, True])
def test_a_follower_that_reaches_nothing_for_a_minute_says_what_to_do(cancels: bool) -> None:
    async def story(run: Watched) -> None:
        await run.leader.claim()
        stores, _ = run.cluster.services
        await stores.stop()
        if cancels:
            run.stop.set()
        began_s = asyncio.get_running_loop().time()

        with pytest.raises(ReconnectFailed) as failed:
            await asyncio.wait_for(run.task, 100)

        assert 58 <= asyncio.get_running_loop().time() - began_s <= 70
        job = run.leader.job.id
        assert failed.value.id == job
        assert f"load test {job} goes on there" in str(failed.value)
        assert str(failed.value).endswith(f"See its numbers with: mainstay load report {job}")
        assert (f"repeat it with mainstay jobs cancel {job}" in str(failed.value)) is cancels

    told(story)


def test_a_follower_that_still_gets_windows_goes_on_without_the_store() -> None:
    async def story(run: Watched) -> None:
        await run.leader.claim()
        await run.leader.live.start(HEADER)
        stores, _ = run.cluster.services
        await stores.stop()
        for _ in range(40):
            await run.leader.send(MOMENTS[:1])
            await asyncio.sleep(2)
        assert not run.task.done()
        await stores.start()
        await run.leader.complete(summary_at(3.0))

        assert (await run.ended()).summary == summary_at(3.0)

    told(story)


def test_a_bus_that_is_closed_costs_the_run_nothing_but_its_windows() -> None:
    async def main() -> None:
        bus = MemoryBusNetwork().client("m1")
        output = BusOutput(bus, "job-1", epoch=1)
        await output.start(HEADER)
        await bus.close()
        for moment in MOMENTS:
            output.add(moment)
        await output.stop(summary_at(3.0))

        assert output.dropped == len(MOMENTS)

    run_virtual(main())


def test_what_steps_print_reaches_the_follower() -> None:
    async def story(run: Watched) -> None:
        leader = run.leader
        await leader.claim()
        await leader.live.start(HEADER)
        leader.live.said(3, "hello from a step")
        await leader.send(MOMENTS[:3])
        await asyncio.sleep(1)

        assert run.lines == [(3, "hello from a step")]
        await leader.complete(summary_at(1.0))
        await run.ended()

    told(story)


async def test_a_follower_over_http_shows_what_is_saved_with_the_job(server: Server) -> None:
    plan = msgspec.structs.replace(server.control.jobs.plan(kind="load", retries=0), queue=LEAD_QUEUE)
    found = await server.control.jobs.submit_request(JobRequest("shop", {}, plan))
    display, waits, stop = Display(), asyncio.Queue[str](), asyncio.Event()
    notes: asyncio.Queue[str] = asyncio.Queue()
    async with streaming_client(server) as client:
        follower = RunFollower(
            HttpRunSource(client, found.id), displays=[display], on_note=notes.put_nowait, on_wait=waits.put_nowait
        )
        task = asyncio.create_task(follower.follow(stop=stop, give_up=asyncio.Event()))
        assert await waits.get() == "is pending"
        session = await server.control.claims.open_session(worker="m1", lease_s=1e6)
        (job,) = await server.control.claims.claim([LEAD_QUEUE], session.id, 1)
        await server.control.claims.start([job])
        saved = SavedRun(summary=msgspec.Raw(msgspec.msgpack.encode(summary_at(12.0))), fleet=FleetRecord())
        report = server.control.claims.progress(job, 12.0, checkpoint=msgspec.msgpack.encode(saved))
        await server.control.claims.report([report])
        assert await notes.get() == "after 12 s: 100 requests, 1 failed"
        stop.set()
        while (await server.control.jobs.get(job.id)).status != "cancelling":
            await asyncio.sleep(0.01)
        await server.control.attempts.confirm_cancelled([job])
        followed = await task

    assert (display.headers, display.moments) == ([HEADER], [])
    assert followed.job.status == "cancelled"
    assert followed.summary is not None
    assert (followed.summary.requests, followed.summary.verdict) == (100, "lost")
    assert (await server.control.jobs.events(job.id))[-2].actor == "web:local"


async def test_a_server_that_is_away_for_a_while_is_waited_for(server: Server) -> None:
    async with client_of(server.app) as client:
        client.run = lost  # type: ignore[method-assign,assignment]
        source = HttpRunSource(client, "018bcfe5-6800-7000-8000-0123456789ab")
        with pytest.raises(StoreError, match="no answer"):
            await source.job()


async def test_a_server_that_asks_for_a_pause_is_like_a_busy_manager(server: Server) -> None:
    async def hurried(flow: Any) -> Any:
        raise RequestRefused(429, "too_many_requests", "too many requests", retry_after_s=3.0)

    async with client_of(server.app) as client:
        client.run = hurried  # type: ignore[method-assign,assignment]
        source = HttpRunSource(client, "018bcfe5-6800-7000-8000-0123456789ab")
        with pytest.raises(RateLimited) as limited:
            await source.job()
    assert limited.value.retry_after_s == 3.0


class BusySource(HttpRunSource):
    """A run whose manager refuses every read for a while."""

    def __init__(self, until_s: float, settled: Job) -> None:
        self.id = settled.id
        self.asked_s: list[float] = []
        self._until_s = until_s
        self._settled = settled

    async def job(self) -> Job:
        now_s = asyncio.get_running_loop().time()
        self.asked_s.append(now_s)
        if now_s < self._until_s:
            raise RateLimited("data requests of operator:ann", 7.0)
        return self._settled

    async def summary(self) -> Summary | None:
        return None

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[Any]:  # type: ignore[override] # it is never waited for
        yield None


def test_a_follower_asks_a_busy_manager_again_after_its_time_however_long_it_is_busy() -> None:
    async def main() -> None:
        clock = VirtualClock()
        made = new_job(clock, IdSource(random.Random(1))).job
        settled = msgspec.structs.replace(made, status="succeeded", settled_ms=1)
        source = BusySource(300.0, settled)
        follower = RunFollower(source, displays=[])
        followed = await follower.follow(stop=asyncio.Event(), give_up=asyncio.Event())
        assert followed.job is settled
        assert all(later - earlier >= 7.0 for earlier, later in zip(source.asked_s, source.asked_s[1:], strict=False))
        assert source.asked_s[-1] >= 300.0

    run_virtual(main())


async def lost(flow: Any) -> Any:
    raise ServerUnreachable("no answer")

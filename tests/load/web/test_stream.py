"""The live stream of a load test: any client follows a run through any server of the cluster, from any moment."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from mainstay.client import EndMessage, JobView
from mainstay.control import Completion, Failure
from mainstay.load.cli.frame import frame
from mainstay.load.cli.live_state import LiveState
from mainstay.load.fleet.follower import RunFollower
from mainstay.load.fleet.run_source import BusRunSource, HttpRunSource, RunSource
from mainstay.load.handler import stored as stored_summary
from mainstay.load.live_messages import RunBegin, RunWindow
from mainstay.load.stats.model import Header, Moment, Window, WorkflowResult
from mainstay.load.stats.tally import merge_windows
from mainstay.load.web.stream import WindowLimiter
from mainstay.model import ErrorInfo
from tests.load.cli.moments import moments
from tests.load.report.runs import a_summary
from tests.load.web.led_run import HEADER, led_run, streaming_client
from tests.web.conftest import Server
from tests.web.live.listening import Listener, Told, listening

MOMENTS = list(moments(HEADER, seconds=12.0, a_second=50))
RESULT = WorkflowResult(workflow="Shop", elapsed_s=12.0, iterations=7)


class StreamReader:
    """Adds up what one client gets, at any number of connections."""

    def __init__(self) -> None:
        self.windows: list[Window] = []
        self.messages = 0
        self.begins = 0
        self.results: list[str] = []
        self.ends: list[Told] = []
        self.mark: str | None = None

    def take(self, told: Told) -> None:
        self.mark = told.id or self.mark
        if told.event == "run":
            self.begins += 1
            self.windows = []
        elif told.event == "window":
            self.messages += 1
            self.windows.append(msgspec.json.decode(msgspec.json.encode(told.data), type=RunWindow).moment.window)
        elif told.event == "workflow":
            self.results.append(told.data["workflow"])
        elif told.event == "end":
            self.ends.append(told)

    async def until(self, stream: Listener, buckets: int) -> None:
        """Read until it has the first so many windows."""
        while not self.windows or self.windows[-1].bucket + self.windows[-1].width < MOMENTS[0].window.bucket + buckets:
            self.take(await stream.next())

    def assert_has(self, some: list[Moment]) -> None:
        whole, expected = merge_windows(self.windows), merge_windows(each.window for each in some)
        assert (whole.bucket, whole.width, whole.iterations) == (expected.bucket, expected.width, expected.iterations)
        for step, same in zip(whole.steps, expected.steps, strict=True):
            assert step.ok is not None
            assert same.ok is not None
            assert (step.ok.at, step.ok.n, step.ok.count) == (same.ok.at, same.ok.n, same.ok.count)


async def test_a_run_is_streamed_from_its_start_to_its_end_which_comes_once() -> None:
    async with led_run() as run, run.server("s1") as server:
        await run.pass_on(MOMENTS[:30])
        reader = StreamReader()
        async with listening(server.app, run.path) as stream:
            first = await stream.next()
            await reader.until(stream, 30)
            run.live.ended(RESULT)
            await run.end()
            for told in await stream.rest():
                reader.take(told)
        async with listening(server.app, run.path, last=reader.mark) as again:
            await again.body()

    assert (first.event, first.data["status"]) == ("status", "running")
    reader.assert_has(MOMENTS[:30])
    assert (reader.begins, reader.results) == (1, ["Shop"])
    assert [each.data["status"] for each in reader.ends] == ["succeeded"]
    assert again.status == 204


async def test_a_watcher_that_comes_late_gets_what_was_before() -> None:
    many = list(moments(HEADER, seconds=75.0, a_second=10))
    async with led_run() as run:
        await run.pass_on(many)
        reader = StreamReader()
        async with run.server("s1") as server, listening(server.app, run.path) as stream:
            await reader.until(stream, len(many))

    reader.assert_has(many)
    assert [each.width for each in reader.windows] == [100, 50, *[1] * 600]


@pytest.mark.parametrize("seed", range(5))
async def test_a_stream_that_breaks_goes_on_at_another_server(seed: int) -> None:
    rng = random.Random(seed)
    async with led_run() as run, run.server("s1") as one, run.server("s2") as other:
        reader, sent = StreamReader(), 0
        while sent < len(MOMENTS):
            more = min(len(MOMENTS), sent + rng.randrange(1, 50))
            await run.pass_on(MOMENTS[sent:more])
            sent = more
            server = rng.choice([one, other])
            async with listening(server.app, run.path, last=reader.mark) as stream:
                await reader.until(stream, rng.randrange(max(1, sent - 20), sent + 1))
        run.live.ended(RESULT)
        await run.end()
        async with listening(other.app, run.path, last=reader.mark) as stream:
            for told in await stream.rest():
                reader.take(told)

    reader.assert_has(MOMENTS)
    assert (reader.begins, reader.results, len(reader.ends)) == (1, ["Shop"], 1)


async def test_the_end_comes_once_for_each_cursor() -> None:
    async with led_run() as run, run.server("s1") as one, run.server("s2") as other:
        await run.pass_on(MOMENTS[:5])
        async with listening(one.app, run.path) as early:
            await early.next("window")
            await run.end()
            ends = [told for told in await early.rest() if told.event == "end"]
        async with listening(other.app, run.path) as late:
            ends += [told for told in await late.rest() if told.event == "end"]
        statuses = []
        for server in (one, other):
            async with listening(server.app, run.path, last=ends[0].id) as again:
                await again.body()
            statuses.append(again.status)

    assert len(ends) == 2
    assert statuses == [204, 204]


async def test_a_slow_client_loses_windows_never_counts_and_delays_no_other() -> None:
    async with led_run() as run, run.server("s1") as server:
        slow, fast = StreamReader(), StreamReader()
        await run.pass_on(MOMENTS[:1])
        async with listening(server.app, run.path) as slow_stream, listening(server.app, run.path) as fast_stream:
            await slow.until(slow_stream, 1)
            # the slow one reads no more
            for number in range(1, len(MOMENTS)):
                await run.pass_on([MOMENTS[number]])
                if number % 10 == 0:
                    await fast.until(fast_stream, number + 1)
            await fast.until(fast_stream, len(MOMENTS))
            await slow.until(slow_stream, len(MOMENTS))

    fast.assert_has(MOMENTS)
    slow.assert_has(MOMENTS)
    assert slow.begins == 1
    assert slow.messages < fast.messages


async def test_a_manager_that_takes_over_begins_the_count_again_with_the_sum_of_the_run() -> None:
    async with led_run() as run, run.server("s1") as server:
        await run.pass_on(MOMENTS[:40])
        reader = StreamReader()
        async with listening(server.app, run.path) as stream:
            await reader.until(stream, 40)
            await run.lead()
            # it collects what its slices have done: numbers that were shown do not fall meanwhile
            half = msgspec.structs.replace(MOMENTS[19], window=merge_windows(each.window for each in MOMENTS[:20]))
            rest = msgspec.structs.replace(MOMENTS[49], window=merge_windows(each.window for each in MOMENTS[20:50]))
            await run.pass_on([half])
            await run.pass_on([rest])
            await run.pass_on(MOMENTS[50:60])
            while reader.begins < 2:
                reader.take(await stream.next())
            await reader.until(stream, 60)

    assert reader.begins == 2
    reader.assert_has(MOMENTS[:60])


async def test_windows_that_are_lost_on_the_bus_are_asked_for() -> None:
    async with led_run() as run, run.server("s1") as server:
        reader = StreamReader()
        async with listening(server.app, run.path) as stream:
            await run.pass_on(MOMENTS[:10])
            await reader.until(stream, 10)
            # more than the leader keeps for a bus that is slow
            for moment in MOMENTS[10:]:
                run.live.add(moment)
            assert run.live.dropped > 0
            await reader.until(stream, len(MOMENTS))

    reader.assert_has(MOMENTS)


@pytest.mark.parametrize("shows", [True, False])
async def test_what_steps_print_is_masked_as_everywhere(shows: bool) -> None:
    failing = list(moments(HEADER, seconds=1.0, failing=1.0))
    for moment in failing:
        moment.window.examples = {"http 503": "503 for hunter2222"}
    async with (
        led_run({"password": "hunter2222"}) as run,
        run.server("s1", show_payloads=shows) as server,
        listening(server.app, run.path) as stream,
    ):
        await stream.next("run")
        run.live.said(1, "signed in with hunter2222")
        await run.pass_on(failing)
        lines = await stream.next("lines")
        window = await stream.next("window")

    assert lines.data["lines"] == [[1, "signed in with ***" if shows else "***"]]
    assert window.data["moment"]["window"]["examples"] == {"http 503": "503 for ***" if shows else "***"}
    assert b"hunter2222" not in stream.raw


async def test_without_detail_a_window_has_its_usual_numbers() -> None:
    async with led_run() as run, run.server("s1") as server:
        await run.pass_on(MOMENTS[:1])
        async with listening(server.app, f"{run.path}?detail=false") as stream:
            found = (await stream.next("window")).data

    assert found["moment"] is None
    numbers = found["numbers"]
    assert (numbers["requests"], numbers["users"], numbers["rate"]) == (5, 50, 50.0)
    assert 0 < numbers["p50"] <= numbers["p95"]


async def test_a_run_on_one_machine_is_streamed_as_it_is_saved(server: Server) -> None:
    made = await server.control.jobs.submit("shop", kind="load")
    session = await server.control.claims.open_session(worker="w")
    (job,) = await server.control.claims.claim(["default"], session.id, 1)
    await server.control.claims.start([job])
    checkpoint = stored_summary(a_summary(count=2000))
    await server.control.claims.report([server.control.claims.progress(job, 1, 2, checkpoint=checkpoint)])
    async with listening(server.app, f"/api/v1/loads/{made.id}/stream") as stream:
        found = await stream.next("summary")
        await server.control.attempts.complete([Completion(job, result=msgspec.to_builtins(a_summary()))])
        rest = await stream.rest()

    assert (found.data["verdict"], found.data["points"]) == ("running", [])
    assert [told.data["verdict"] for told in rest if told.event == "summary"] == ["passed"]
    assert rest[-1].event == "end"


async def test_a_run_on_one_machine_that_is_retried_is_streamed_again(server: Server) -> None:
    made = await server.control.jobs.submit("shop", kind="load", retries=0)
    session = await server.control.claims.open_session(worker="w")
    ends = []
    for _ in range(2):
        async with listening(server.app, f"/api/v1/loads/{made.id}/stream") as stream:
            await stream.next("status")
            (job,) = await server.control.claims.claim(["default"], session.id, 1)
            await server.control.claims.start([job])
            found = a_summary(count=2000)
            found.header.token = job.token
            report = server.control.claims.progress(job, 1, 2, checkpoint=stored_summary(found))
            await server.control.claims.report([report])
            # at first those of the attempt before
            while (await stream.next("summary")).data["header"]["token"] != job.token:
                pass
            await server.control.attempts.fail([Failure(job, ErrorInfo(type="X", message="it broke"))])
            ends.append((await stream.rest())[-1])
        await server.control.operations.retry(made.id, actor="ann")

    assert [(end.event, end.data["status"]) for end in ends] == [("end", "quarantined")] * 2
    assert ends[0].id != ends[1].id


async def test_another_job_has_no_such_stream(server: Server) -> None:
    made = await server.control.jobs.submit("a")
    answer = await server.client.get(f"/api/v1/loads/{made.id}/stream")

    assert answer.status_code == 422
    assert "not a load test" in answer.json()["detail"]


async def test_a_mark_that_is_none_is_refused() -> None:
    async with led_run() as run, run.server("s1") as server:
        answer = await server.client.get(run.path, headers={"Last-Event-ID": "7-end"})

    assert answer.status_code == 422


def test_the_limiter_lets_a_burst_through_and_then_twenty_a_second() -> None:
    now_s = 0.0
    limiter = WindowLimiter(lambda: now_s)
    assert limiter.allows(5) == 5
    assert limiter.allows(1) == 0
    sent = 0
    for step in range(1, 1281):
        now_s = step / 128
        sent += limiter.allows(1)

    assert sent == 200
    now_s = 20.0
    assert (limiter.allows(6), limiter.allows(1)) == (1, 0)


async def test_the_library_streams_a_run() -> None:
    async with led_run() as run, run.server("s1") as server, streaming_client(server) as client:
        await run.pass_on(MOMENTS[:3])
        kinds, windows, ending = [], 0, False
        async for message in client.loads.stream(run.job.id):
            kinds.append(type(message))
            if isinstance(message, RunWindow):
                windows += message.windows
            if windows == 3 and not ending:
                ending = True
                await run.end()

    assert kinds[0] is JobView
    assert kinds[-1] is EndMessage
    assert (kinds.count(RunBegin), windows) == (1, 3)


class ShownState:
    """The live view of a terminal, without a terminal."""

    name = "live view"

    def __init__(self) -> None:
        self.state: LiveState
        self.shown = asyncio.Event()

    async def start(self, header: Header) -> None:
        self.state = LiveState(header)

    def add(self, moment: Moment) -> None:
        self.state.add(moment)
        if moment.elapsed_s == MOMENTS[-1].elapsed_s:
            self.shown.set()

    async def stop(self, summary: object) -> None: ...

    def picture(self) -> str:
        """The screen."""
        return "\n".join(line.plain for line in frame(self.state, 100, 40, plain=True))


async def test_the_terminal_over_http_shows_what_the_terminal_on_the_bus_shows() -> None:
    async with (
        led_run() as run,
        run.server("s1") as server,
        run.operator("ann") as control,
        streaming_client(server) as client,
    ):
        sources: list[RunSource] = [HttpRunSource(client, run.job.id), BusRunSource(control, run.job.id)]
        shown = [ShownState(), ShownState()]
        never = asyncio.Event()
        followers = [RunFollower(each, displays=[display]) for each, display in zip(sources, shown, strict=True)]
        tasks = [asyncio.create_task(each.follow(stop=never, give_up=never)) for each in followers]
        await run.pass_on(MOMENTS)
        for each in shown:
            await each.shown.wait()
        pictures = [each.picture() for each in shown]
        await run.end()
        ended = [(await task).job.status for task in tasks]

    assert pictures[0] == pictures[1]
    assert "browse" in pictures[0]
    assert ended == ["succeeded", "succeeded"]

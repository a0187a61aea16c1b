"""Whole runs: real generator processes against the target, whose own counts are the truth."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mainstay.clock import SystemClock
from mainstay.load.generator_process import Limits
from mainstay.load.generators import Generators
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.report.files import FileOutput
from mainstay.load.run import LoadRun
from mainstay.load.stats.model import Header, Moment, StepSummary, Summary, WorkflowResult
from mainstay.load.stats.tally import from_json
from mainstay.load.target import TargetOptions, TargetServer
from tests.load.fleet.fleet_trials import Collected
from tests.load.trials import GET, ran, run_of, told, until, written

pytestmark = pytest.mark.slow


@pytest.fixture
async def target() -> AsyncIterator[TargetServer]:
    async with TargetServer(TargetOptions(errors="10%", seed=1)) as found:
        yield found


def step_of(summary: Summary, name: str) -> StepSummary:
    return next(one for one in summary.steps if one.step == name)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class ResultOutput:
    """An output that keeps the results of workflows."""

    name = "results"

    def __init__(self) -> None:
        self.results: list[str] = []
        self.by_name: dict[str, WorkflowResult] = {}

    async def start(self, header: Header) -> None: ...

    def add(self, moment: Moment) -> None: ...

    def ended(self, result: WorkflowResult) -> None:
        self.results.append(result.workflow)
        self.by_name[result.workflow] = result

    async def stop(self, summary: Summary) -> None: ...


# counts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2])
async def test_counts_are_those_of_the_target(target: TargetServer, tmp_path: Path, processes: int) -> None:
    summary = await ran(written(tmp_path, GET), vus=6, duration="500ms", processes=processes, base_url=target.url)

    counts = target.counts()
    assert summary.requests == counts.completed == counts.begun > 50
    assert summary.failed == counts.statuses["503"] > 0
    assert step_of(summary, "browse").statuses == counts.statuses
    assert (summary.sent_calls, summary.answered_calls, summary.aborted) == (counts.begun, counts.begun, 0)
    assert summary.iterations == summary.requests
    assert counts.connections == 6 + 1  # one was looked whether it can be reached
    assert (summary.ended, summary.verdict, summary.skipped) == ("finished", "passed", {})


async def test_each_response_of_a_list_is_measured_and_a_base_url_of_the_run_is_that_of_its_steps(
    target: TargetServer, tmp_path: Path
) -> None:
    text = """
    class Shop(Workflow):
        base_url = "http://127.0.0.1:9"

        @step()
        async def many(self) -> list[HTTPResponse]:
            return [await self.client.http.get(self.base_url + "/") for _ in range(3)]
    """
    summary = await ran(written(tmp_path, text), iterations=20, base_url=target.url)

    counts = target.counts()
    assert summary.requests == counts.completed == 60
    assert summary.failed == counts.statuses["503"] > 0
    assert step_of(summary, "many").requests == 60


async def test_calls_that_were_sent_again_and_messages_that_came_unasked_are_counted(tmp_path: Path) -> None:
    heard = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """HTTP: one answer for each connection, which a client expects to be kept. Else lines: two for each."""
        nonlocal heard
        answered = False
        while line := await reader.readline():
            if not line.startswith(b"GET"):
                writer.write(line * 2)
                continue
            await reader.readuntil(b"\r\n\r\n")
            heard += 1
            if answered:
                break
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            answered = True
        writer.close()

    text = """
    from mainstay.load import TCPResponse

    class Both(Workflow):
        iterations = 4
        @step()
        async def get(self) -> HTTPResponse:
            return await self.client.http.get("/")
        @step("get")
        async def line(self) -> TCPResponse:
            url = self.base_url.replace("http", "tcp")
            return await self.client.tcp.bidirectional(url, f"{self.vu.iteration}\\n", until="\\n")
    """
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        text = text.replace("iterations = 4", f"iterations = 4; base_url = '{url}'")
        summary = await ran(written(tmp_path, text), vus=1, processes=1)

    assert (summary.requests, summary.failed, heard) == (8, 0, 7)
    assert (summary.resent_calls, summary.sent_calls, summary.answered_calls) == (3, 11, 8)
    assert summary.unexpected == 4


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_run_that_is_stopped_waits_for_what_is_under_way(
    target: TargetServer, tmp_path: Path, processes: int
) -> None:
    run = run_of(
        written(tmp_path, GET.replace('"/"', '"/?delay=150ms"')),
        vus=5,
        duration="1m",
        processes=processes,
        base_url=target.url,
    )
    task = asyncio.ensure_future(run.run())
    await until(lambda: target.counts().under_way, task)
    run.stop("interrupted")
    summary = await task

    counts = target.counts()
    assert summary.requests == counts.completed == counts.begun == summary.sent_calls > 0
    assert (summary.aborted, counts.abandoned, summary.ended) == (0, 0, "interrupted")
    assert summary.verdict == "interrupted"


async def test_with_too_short_a_drain_what_is_given_up_is_told(target: TargetServer, tmp_path: Path) -> None:
    test = written(tmp_path, GET.replace('"/"', '"/?delay=10s"') + "    drain = '50ms'\n")

    summary = await ran(test, vus=5, duration="1s", base_url=target.url)

    counts = target.counts()
    assert (summary.requests, summary.aborted, summary.sent_calls) == (0, 5, 5)
    assert summary.requests <= counts.begun <= summary.sent_calls


SLOW_STEPS = """
class Shop(Workflow):
    @step()
    async def first(self, url: URL = "/") -> HTTPResponse:
        return await self.client.http.get(url)

    @step("first")
    async def wait(self, url: URL = "/echo") -> None:
        await self.client.http.get(url)
        await asyncio.sleep(3600)

    @step("wait")
    async def last(self, url: URL = "/") -> HTTPResponse:
        return await self.client.http.get(url)
"""


def adds_up(summary: Summary) -> bool:
    """Whether each iteration has an end."""
    ended = summary.iterations + summary.aborted_iterations
    return summary.begun == ended and (not summary.arrivals or summary.arrivals == summary.begun + summary.dropped)


@pytest.mark.parametrize("processes", [1, 2])
async def test_iterations_that_the_drain_cuts_off_are_counted_and_make_the_numbers_doubtful(
    target: TargetServer, tmp_path: Path, processes: int
) -> None:
    test = written(tmp_path, SLOW_STEPS)

    summary = await ran(test, rate="20/s", duration="1s", drain="100ms", processes=processes, base_url=target.url)

    assert summary.arrivals == 20
    assert (summary.iterations, summary.aborted_iterations) == (0, summary.begun)
    assert summary.begun > 0
    assert adds_up(summary)
    # most were between two calls
    assert summary.aborted < summary.aborted_iterations
    assert any("did not end within the drain and were aborted" in reason for reason in summary.trust.reasons)
    assert not any("do not add up" in reason for reason in summary.trust.reasons)


@pytest.mark.parametrize("model", [{"rate": "100/s"}, {"vus": 5}])
@pytest.mark.parametrize("gives_up", [False, True])
async def test_iterations_that_a_stop_cuts_off_are_counted(
    target: TargetServer, tmp_path: Path, model: dict[str, Any], gives_up: bool
) -> None:
    drain = "1h" if gives_up else "100ms"
    run = run_of(written(tmp_path, SLOW_STEPS), duration="1h", drain=drain, processes=2, base_url=target.url, **model)
    running = asyncio.ensure_future(run.run())
    await until(lambda: "/echo" in (paths := target.counts().paths) and paths["/echo"].completed >= 5, running)
    run.stop("interrupted")
    if gives_up:
        run.give_up()
    summary = await running

    assert adds_up(summary)
    assert (summary.aborted_iterations >= 5, summary.verdict) == (True, "interrupted")
    # it was asked for; and other processes of this machine may cast a doubt of their own
    assert not any("drain" in reason or "add up" in reason for reason in summary.trust.reasons)


async def test_users_that_cannot_begin_make_the_numbers_doubtful_in_a_closed_model_too(
    target: TargetServer, tmp_path: Path
) -> None:
    text = """
    class Shop(Workflow):
        @on_start
        async def sign_in(self) -> None:
            if self.vu.id % 2:
                raise LookupError("no account")

        @step()
        async def browse(self, url: URL = "/") -> HTTPResponse:
            return await self.client.http.get(url)
    """
    summary = await ran(written(tmp_path, text), vus=6, duration="300ms", processes=2, base_url=target.url)

    assert (summary.refused_users, summary.trust.ok) == (3, False)
    why = "3 users could not begin (on_start raised LookupError: no account): the target did not get the requested load"
    assert any(reason.startswith(why) for reason in summary.trust.reasons)


async def test_requests_of_steps_that_raise_after_their_answer_are_in_the_numbers(tmp_path: Path) -> None:
    text = """
    class Shop(Workflow):
        @step()
        async def browse(self) -> HTTPResponse:
            slow = self.vu.iteration % 5 == 0
            answer = await self.client.http.get("/?delay=100ms" if slow else "/")
            assert not slow, "the page is wrong"
            return answer
    """
    async with TargetServer(TargetOptions(seed=1)) as target:
        summary = await ran(
            written(tmp_path, text), iterations=20, thresholds=("p95 < 50ms", "error rate < 30%"), base_url=target.url
        )
        completed = target.counts().completed

    assert summary.requests == completed == 20
    assert (summary.raised, summary.raised_after, summary.failed) == (4, 4, 0)
    assert summary.error_rate == 0.2
    assert [(one.passed, one.value) for one in summary.thresholds][1] == (True, 0.2)
    assert not summary.thresholds[0].passed
    assert (summary.begun, summary.iterations, summary.failed_iterations) == (20, 20, 4)


@pytest.mark.parametrize("model", [{"rate": "20/s", "duration": "500ms"}, {"vus": 2, "iterations": 10}])
async def test_a_threshold_of_the_rate_sees_the_rate_of_the_report(
    target: TargetServer, tmp_path: Path, model: dict[str, Any]
) -> None:
    test = written(tmp_path, GET.replace('"/"', '"/?delay=300ms"'))

    summary = await ran(test, thresholds=("rate > 1",), processes=2, base_url=target.url, **model)

    assert summary.thresholds[0].value == summary.rate == summary.steps[0].rate
    assert summary.rate == pytest.approx(summary.requests / summary.load_s)
    if "rate" in model:
        # the drain is no part of the time in which requests arrived
        assert (summary.load_s, summary.rate) == (pytest.approx(0.5), pytest.approx(20.0))
        assert summary.elapsed_s > summary.load_s


async def test_a_process_sends_windows_also_while_nothing_ends(tmp_path: Path) -> None:
    test = written(
        tmp_path,
        "class Shop(Workflow):\n    @step()\n    async def wait(self) -> None:\n        await asyncio.sleep(1)\n",
    )
    planned, output = PlannedRun(test, LoadOptions(processes=1, vus=1, iterations=1)), Collected()

    await LoadRun(planned.spec(), "run-1", clock=SystemClock(), outputs=[output]).run()

    silent = [window.bucket for window in output.windows if not window.iterations]
    assert len(silent) >= 9
    assert silent[:9] == list(range(silent[0], silent[0] + 9))


async def test_no_drain_at_all_gives_up_at_once(target: TargetServer, tmp_path: Path) -> None:
    test = written(tmp_path, GET.replace('"/"', '"/?delay=20ms"'))

    summary = await ran(test, vus=5, duration="310ms", drain="0s", base_url=target.url)

    counts = target.counts()
    assert summary.requests + summary.aborted == summary.sent_calls
    assert summary.requests <= counts.begun <= summary.sent_calls


@pytest.mark.parametrize(("iterations", "vus", "processes"), [(1, 1, 2), (10, 3, 4), (100, 5, 2)])
async def test_a_fixed_number_of_iterations_is_exact(
    target: TargetServer, tmp_path: Path, iterations: int, vus: int, processes: int
) -> None:
    summary = await ran(
        written(tmp_path, GET), iterations=iterations, vus=vus, processes=processes, base_url=target.url
    )

    assert summary.iterations == summary.requests == target.counts().completed == iterations


async def test_iterations_shared_by_weight_are_exact(target: TargetServer, tmp_path: Path) -> None:
    text = """
    class Often(Workflow):
        iterations, weight = 20, 3
        @step()
        async def a(self, url: URL = "/?as=often") -> HTTPResponse:
            return await self.client.http.get(url)

    class Seldom(Workflow):
        iterations, weight = 20, 1
        @step()
        async def b(self, url: URL = "/?as=seldom") -> HTTPResponse:
            return await self.client.http.get(url)
    """
    summary = await ran(written(tmp_path, text), processes=2, base_url=target.url)

    assert (step_of(summary, "a").requests, step_of(summary, "b").requests) == (15, 5)


async def test_a_duration_shorter_than_a_call_has_that_call(target: TargetServer, tmp_path: Path) -> None:
    test = written(tmp_path, GET.replace('"/"', '"/?delay=1200ms"'))

    summary = await ran(test, vus=2, duration="500ms", processes=2, base_url=target.url)

    assert summary.requests == target.counts().completed == 2
    assert summary.elapsed_s > 1.1


async def test_a_step_that_raises_without_a_call_is_an_error_and_no_request(
    target: TargetServer, tmp_path: Path
) -> None:
    text = """
    class Shop(Workflow):
        iterations = 8
        thresholds = ["error rate of before == 100%", "requests of before == 0", "errors of after == 8"]

        @step()
        async def before(self, url: URL = "/before") -> HTTPResponse:
            raise LookupError("no cart")

        @step()
        async def after(self, url: URL = "/after?errors=0") -> HTTPResponse:
            await self.client.http.get(url)
            assert False, "not what was expected"

        @step()
        async def refused(self) -> HTTPResponse:
            return await self.client.http.get("http://127.0.0.1:1/")

        @step()
        async def fine(self, url: URL = "/") -> HTTPResponse:
            return await self.client.http.get(url, expect=(200, 503))
    """
    summary = await ran(written(tmp_path, text), base_url=target.url)

    counts = target.counts()
    steps = {one.step: (one.requests, one.failed, one.raised, one.error_rate) for one in summary.steps}
    assert steps == {
        "before": (0, 0, 8, 1.0),
        "after": (0, 0, 8, 1.0),
        "refused": (8, 8, 0, 1.0),
        "fine": (8, 0, 0, 0.0),
    }
    assert summary.errors == {"AssertionError": 8, "LookupError": 8, "refused": 8}
    assert (summary.requests, summary.failed, summary.raised, summary.error_rate) == (16, 8, 16, 24 / 32)
    assert step_of(summary, "fine").requests <= counts.completed == 16 <= summary.sent_calls
    assert all(one.passed for one in summary.thresholds), summary.thresholds


async def test_a_check_or_a_metric_that_raises_counts_in_the_error_rate(target: TargetServer, tmp_path: Path) -> None:
    text = """
    class Shop(Workflow):
        iterations = 10
        thresholds = ["error rate < 1%", "errors of price == 9", "checks of price < 20%"]

        @step()
        async def cart(self, url: URL = "/") -> HTTPResponse:
            return await self.client.http.get(url, expect=(200, 503))

        @step("cart")
        async def price(self) -> Check:
            return Check({9: True}[self.vu.iteration])

        @step()
        async def size(self) -> Metric[Counter]:
            return Metric({0: 1}[self.vu.iteration])

        @step("price")
        async def pay(self, url: URL = "/") -> HTTPResponse:
            return await self.client.http.get(url, expect=(200, 503))
    """
    summary = await ran(written(tmp_path, text), base_url=target.url)

    assert (summary.requests, summary.raised, summary.errors) == (11, 18, {"KeyError": 18})
    assert {one.step: one.raised for one in summary.steps} == {"cart": 0, "price": 9, "size": 9, "pay": 0}
    assert [one.passed for one in summary.thresholds] == [False, True, True], summary.thresholds
    assert summary.verdict == "failed"


# open model -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2])
async def test_the_rate_of_an_open_model_is_kept(target: TargetServer, tmp_path: Path, processes: int) -> None:
    summary = await ran(written(tmp_path, GET), rate="300/s", duration="2s", processes=processes, base_url=target.url)

    assert summary.arrivals == 600
    assert summary.requests == target.counts().completed == 600 - summary.dropped
    assert summary.dropped == 0
    assert summary.response is not None
    assert summary.response.count == 600


async def test_what_cannot_start_is_dropped_and_counted(target: TargetServer, tmp_path: Path) -> None:
    test = written(tmp_path, GET.replace('"/"', '"/?delay=200ms"'))

    summary = await ran(test, rate="50/s", duration="1s", max_in_flight=1, catch_up=False, base_url=target.url)

    assert summary.arrivals == 50
    assert summary.requests == target.counts().completed
    assert summary.requests + summary.dropped == 50
    assert 0 < summary.requests <= 6
    assert not summary.trust.ok


async def test_what_waits_to_be_caught_up_has_its_wait_in_its_response_time(
    target: TargetServer, tmp_path: Path
) -> None:
    test = written(tmp_path, GET.replace('"/"', '"/?delay=100ms"'))

    summary = await ran(test, rate="20/s", duration="1s", max_in_flight=1, base_url=target.url)

    assert summary.arrivals == 20
    assert summary.requests + summary.dropped == 20
    assert summary.service is not None
    assert summary.response is not None
    # each takes 100 ms and they come every 50 ms: the tenth waits for half a second
    assert summary.response.max > summary.service.max + 0.2


async def test_a_stall_of_the_target_shows_fully_in_response_time(tmp_path: Path) -> None:
    async with TargetServer() as target:
        run = run_of(written(tmp_path, GET), rate="100/s", duration="3s", max_in_flight=10, base_url=target.url)
        task = asyncio.ensure_future(run.run())
        await until(lambda: target.counts().completed >= 20, task)
        target.stall(1.5)
        summary = await task
        counts = target.counts()

    assert summary.requests == counts.completed
    assert summary.requests + summary.dropped == 300
    assert summary.service is not None
    assert summary.response is not None
    # only the ten under way are slow by themselves; the 140 that were due behind them waited for them
    slow = sum(n for low, _, n in summary.distribution if low > 0.1)
    assert slow <= 100
    # half of the run was the stall: response times fall evenly from 1.5 s to nothing. A slow machine makes them longer,
    # and nothing may make them shorter
    assert summary.response.max >= 1.3
    assert 0.55 <= summary.response.p75 <= summary.response.max
    assert summary.service.p75 < 0.5


# what runs once, and per user -----------------------------------------------------------------------

ONCE = """
def say(*words):
    with open(os.environ["TRIAL_FILE"], "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

class Shop(Workflow):
    @setup
    async def token(self):
        say("setup")
        return {"raw": b"bytes", "n": 5}

    @on_start
    async def come(self):
        say("start", self.vu.id)

    @step()
    async def browse(self, token, url: URL = "/") -> HTTPResponse:
        assert token == {"raw": b"bytes", "n": 5}, token
        return await self.client.http.get(url)

    @on_stop
    async def go(self):
        say("stop", self.vu.id)

    @teardown
    async def clean(self):
        say("teardown")
"""


@pytest.fixture
def trial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "told.txt"
    monkeypatch.setenv("TRIAL_FILE", str(file))
    return file


async def test_setup_and_teardown_are_done_once_and_users_come_and_go(
    target: TargetServer, tmp_path: Path, trial_file: Path
) -> None:
    summary = await ran(written(tmp_path, ONCE), vus=5, duration="300ms", processes=2, base_url=target.url)

    said = told(trial_file)
    assert summary.errors.get("AssertionError") is None
    assert (said[0], said[-1]) == ("setup", "teardown")
    assert sorted(said[1:-1]) == sorted(f"{word} {number}" for number in range(5) for word in ("start", "stop"))
    assert all(said.index(f"start {number}") < said.index(f"stop {number}") for number in range(5))


async def test_users_of_an_open_model_come_and_go_as_well(
    target: TargetServer, tmp_path: Path, trial_file: Path
) -> None:
    await ran(written(tmp_path, ONCE), rate="50/s", duration="300ms", processes=2, base_url=target.url)

    said = Counter(line.split()[0] for line in told(trial_file))
    assert said["start"] == said["stop"] > 0
    assert (said["setup"], said["teardown"]) == (1, 1)


async def test_rows_are_dealt_out_over_processes_without_a_duplicate(
    target: TargetServer, tmp_path: Path, trial_file: Path
) -> None:
    text = """
    class Shop(Workflow):
        data = Feed([{"user": n} for n in range(40)], every="iteration", at_end="stop")

        @step()
        async def use(self) -> None:
            with open(os.environ["TRIAL_FILE"], "a") as file:
                file.write(f"{self.vu.data['user']}\\n")
            await asyncio.sleep(0.001)
    """
    summary = await ran(written(tmp_path, text), vus=6, duration="5m", processes=2)

    assert sorted(map(int, told(trial_file))) == list(range(40))
    assert summary.iterations == 40
    assert summary.elapsed_s < 200


async def test_rows_that_can_be_gone_through_only_once_are_read_once(
    target: TargetServer, tmp_path: Path, trial_file: Path
) -> None:
    text = """
    class Shop(Workflow):
        data = (n for n in range(3))

        @step()
        async def use(self) -> None:
            assert self.vu.data in (0, 1, 2)
            await asyncio.sleep(0.01)
    """
    summary = await ran(written(tmp_path, text), vus=3, duration="100ms")

    assert (summary.ended, summary.errors) == ("finished", {})


async def test_one_row_that_is_used_once_is_not_given_to_two_processes(tmp_path: Path) -> None:
    text = """
    class Shop(Workflow):
        data = Feed([1], every="iteration", at_end="stop")

        @step()
        async def use(self) -> None: ...
    """
    summary = await ran(written(tmp_path, text), vus=4, duration="5s", processes=2)

    assert summary.iterations == 1


async def test_what_a_workflow_provides_reaches_those_that_come_after_it(
    target: TargetServer, tmp_path: Path, trial_file: Path
) -> None:
    text = """
    class Login(Workflow):
        iterations = 1
        @step()
        async def login(self) -> None:
            self.found = "secret"

        @state("Read")
        def token(self) -> Provide[str]:
            return self.found

        @state("Nobody")
        def other(self) -> Provide[str]:
            return "not for Read"

    class Nobody(Workflow):
        iterations = 1
        @step()
        async def rest(self) -> None: ...

    @depends("Login")
    class Read(Workflow):
        iterations = 4
        vus = 4
        @state("Login")
        def given(self, token: str = "", other: str = "nothing") -> Use[str]:
            return f"{token} {other}"

        @step()
        async def read(self, token: str) -> None:
            with open(os.environ["TRIAL_FILE"], "a") as file:
                file.write(f"{token}/{self.given()}/{self.context.get('token')}\\n")
    """
    summary = await ran(written(tmp_path, text), processes=2)

    assert (summary.ended, summary.skipped, summary.errors) == ("finished", {}, {})
    assert told(trial_file) == ["secret/secret nothing/secret"] * 4


async def test_a_provider_that_fails_skips_what_depends_on_it_and_the_run_says_so(
    target: TargetServer, tmp_path: Path
) -> None:
    text = """
    class Login(Workflow):
        iterations = 2
        @step()
        async def login(self) -> None:
            raise LookupError("no account")

    @depends("Login")
    class Read(Workflow):
        @step()
        async def read(self, url: URL = "/read") -> HTTPResponse:
            return await self.client.http.get(url)

    @depends("Read")
    class Last(Read): ...

    class Other(Workflow):
        iterations = 3
        @step()
        async def other(self, url: URL = "/") -> HTTPResponse:
            return await self.client.http.get(url)
    """
    output = ResultOutput()
    summary = await ran(written(tmp_path, text), base_url=target.url, outputs=[output])

    assert "/read" not in target.counts().paths
    assert summary.requests == 3
    assert "Login failed" in summary.skipped["Read"]
    assert "Read failed" in summary.skipped["Last"]
    assert "Other" not in summary.skipped
    # the result of each workflow, once, by layers
    assert sorted(output.results[:2]) == ["Login", "Other"]
    assert output.results[2:] == ["Read", "Last"]
    login, other, read = (output.by_name[name] for name in ("Login", "Other", "Read"))
    assert (login.iterations, "had errors" in login.error) == (2, True)
    assert (other.iterations, other.error, [step.requests for step in other.steps]) == (3, "", [3])
    assert (read.iterations, "Login failed" in read.error, read.steps) == (0, True, [])


async def test_a_setup_that_fails_keeps_its_workflow_from_running(target: TargetServer, tmp_path: Path) -> None:
    text = (
        GET
        + """
    @setup
    async def make(self):
        sys.exit("no database")
    """
    )

    summary = await ran(written(tmp_path, text), duration="200ms", processes=2, base_url=target.url)

    assert target.counts().begun == 0
    assert summary.ended.startswith("failed")
    assert summary.verdict == "failed"
    assert "make: SystemExit: no database" in summary.skipped["Shop"]


async def test_users_are_divided_by_weight(target: TargetServer, tmp_path: Path) -> None:
    text = """
    class Often(Workflow):
        vus, weight, duration = 40, 3, "1s"
        @step()
        async def a(self) -> None:
            self.gauge(f"often {self.vu.id}", 1)
            await asyncio.sleep(0.01)

    class Seldom(Workflow):
        vus, weight, duration = 40, 1, "1s"
        @step()
        async def b(self) -> None:
            self.gauge(f"seldom {self.vu.id}", 1)
            await asyncio.sleep(0.01)
    """
    summary = await ran(written(tmp_path, text), duration="1s", processes=2)

    seen = Counter(one.name.split()[0] for one in summary.metrics)
    assert seen == {"often": 30, "seldom": 10}
    assert summary.users == 40


# ends -----------------------------------------------------------------------------------------------


async def test_users_who_have_left_at_the_end_do_not_break_a_threshold(tmp_path: Path) -> None:
    text = f"""
    from pathlib import Path

    here, gone = Path({str(tmp_path / "here")!r}), Path({str(tmp_path / "gone")!r})

    class Shop(Workflow):
        thresholds = ["users == 2"]

        @step()
        async def act(self) -> None:
            # the first leaves when the second is there, which goes on alone
            if self.vu.process:
                here.touch()
            while not (gone if self.vu.process else here).exists():
                await asyncio.sleep(0.005)
            if self.vu.process:
                await asyncio.sleep(2.5)

        @on_stop
        async def go(self):
            gone.touch()
    """
    summary = await ran(written(tmp_path, text), vus=2, iterations=2, processes=2)

    assert 1 in [point.users for point in summary.points], "for longer than two seconds there was one alone"
    assert [(one.shown, one.passed) for one in summary.thresholds] == [("2", True)]


async def test_a_threshold_ends_the_run_early(target: TargetServer, tmp_path: Path) -> None:
    summary = await ran(
        written(tmp_path, GET),
        vus=2,
        duration="5m",
        thresholds=("error rate < 1%, stop as failed",),
        base_url=target.url,
    )

    assert summary.elapsed_s < 200
    assert (summary.verdict, summary.ended) == ("failed", "stopped by a threshold")
    assert summary.requests == target.counts().completed


@pytest.mark.parametrize("which", [0, 1])
async def test_a_generator_that_is_killed_ends_the_run_which_says_so(
    target: TargetServer, tmp_path: Path, which: int, trial_file: Path
) -> None:
    run = run_of(written(tmp_path, ONCE), vus=4, duration="5m", processes=2, base_url=target.url)
    task = asyncio.ensure_future(run.run())
    # what a generator has not told of yet is lost with it
    await until(lambda: run.so_far()[0].requests >= 50, task)
    pids = run_pids(run)
    os.kill(pids[which], signal.SIGKILL)
    summary = await asyncio.wait_for(task, 60)

    assert f"failed: generator {which} ended with signal 9" in summary.ended
    assert summary.requests > 0
    assert not any(map(alive, pids))
    assert ("teardown" in told(trial_file)) == (which == 1)


def run_pids(run: LoadRun) -> list[int]:
    assert isinstance(run._runner, Generators)
    return run._runner.pids


async def test_no_process_is_left_behind(target: TargetServer, tmp_path: Path) -> None:
    run = run_of(written(tmp_path, GET), vus=2, duration="300ms", processes=2, base_url=target.url)
    task = asyncio.ensure_future(run.run())
    await until(lambda: target.counts().completed, task)
    pids = run_pids(run)
    await task

    assert len(pids) == 2
    assert not any(map(alive, pids))
    # closed by the generators, not when they were ended
    assert target.counts().open == 0


async def test_a_run_that_is_given_up_leaves_no_process_behind_and_complains_of_nothing(
    target: TargetServer, tmp_path: Path
) -> None:
    said: list[str] = []
    run = run_of(
        written(tmp_path, GET),
        on_line=lambda _, line: said.append(line),
        vus=2,
        duration="1m",
        processes=2,
        base_url=target.url,
    )
    task = asyncio.ensure_future(run.run())
    await until(lambda: target.counts().completed, task)
    pids = run_pids(run)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not any(map(alive, pids))
    assert said == []


LEAVING = """
class Shop(Workflow):
    @step()
    async def browse(self, url: URL = "/?delay=1h") -> HTTPResponse:
        return await self.client.http.get(url)

    @teardown
    async def clean(self):
        open(os.environ["TRIAL_FILE"], "a").write("cleaning\\n")
        await asyncio.sleep({takes_s})
        open(os.environ["TRIAL_FILE"], "a").write("cleaned\\n")
"""


@pytest.mark.parametrize("model", [{"vus": 5}, {"rate": "50/s", "max_in_flight": 5}], ids=["closed", "open"])
async def test_a_run_that_is_stopped_and_given_up_aborts_what_is_under_way_and_cleans_up(
    target: TargetServer, tmp_path: Path, trial_file: Path, model: dict[str, Any]
) -> None:
    test = written(tmp_path, LEAVING.format(takes_s=0))
    run = run_of(test, duration="1h", drain="1h", timeout="1h", processes=2, base_url=target.url, **model)
    task = asyncio.ensure_future(run.run())
    await until(lambda: target.counts().under_way == 5, task)
    run.stop("interrupted")
    run.give_up()
    async with asyncio.timeout(60):
        summary = await task

    assert (summary.sent_calls, summary.answered_calls, summary.aborted) == (5, 0, 5)
    assert (summary.ended, summary.verdict, summary.skipped) == ("interrupted", "interrupted", {})
    assert told(trial_file) == ["cleaning", "cleaned"]


async def test_a_teardown_that_is_under_way_when_the_run_is_given_up_has_little_time(
    target: TargetServer, tmp_path: Path, trial_file: Path
) -> None:
    test = written(tmp_path, LEAVING.format(takes_s=3600).replace("/?delay=1h", "/"))
    run = run_of(test, iterations=1, base_url=target.url)
    task = asyncio.ensure_future(run.run())
    await until(lambda: told(trial_file), task)
    run.stop("interrupted")
    run.give_up()
    async with asyncio.timeout(60):
        summary = await task

    assert summary.skipped == {"Shop teardown": "failed: clean: was not done in time"}
    assert (summary.ended, summary.requests) == ("interrupted", 1)


async def test_a_run_that_is_killed_after_it_was_given_up_says_what_was_not_torn_down(
    target: TargetServer, tmp_path: Path, trial_file: Path
) -> None:
    run = run_of(written(tmp_path, LEAVING.format(takes_s=3600)), vus=3, duration="1h", base_url=target.url)
    task = asyncio.ensure_future(run.run())
    await until(lambda: target.counts().under_way == 3, task)
    run.stop("interrupted")
    run.give_up()
    await until(lambda: told(trial_file), task)
    run.kill()
    async with asyncio.timeout(60):
        summary = await task

    assert summary.skipped == {"Shop teardown": "was not run to its end: the run was given up"}
    assert (summary.ended, summary.aborted) == ("interrupted", 3)


async def test_a_generator_that_lets_go_of_nothing_is_ended_when_the_run_is_given_up(
    tmp_path: Path, trial_file: Path
) -> None:
    text = """
    class Shop(Workflow):
        @step()
        async def block(self):
            open(os.environ["TRIAL_FILE"], "w").write("blocked")
            while True: pass

        @teardown
        async def clean(self): ...
    """
    run = run_of(written(tmp_path, text), duration="1h", limits=Limits(let_go_s=0.2, tick_s=0.05))
    task = asyncio.ensure_future(run.run())
    await until(lambda: told(trial_file), task)
    run.stop("interrupted")
    run.give_up()
    async with asyncio.timeout(60):
        summary = await task

    assert summary.ended == "interrupted"
    assert summary.skipped == {"Shop teardown": "was not run to its end: the run was given up"}


async def test_a_run_that_is_given_up_while_it_loads_the_test_says_no_more_than_that(
    tmp_path: Path, trial_file: Path
) -> None:
    test = written(tmp_path, GET)
    (tmp_path / "shop.py").write_text(
        "import os, time\nopen(os.environ['TRIAL_FILE'], 'w').write('loading')\ntime.sleep(3600)\n"
    )
    run = run_of(test, limits=Limits(let_go_s=0.2, tick_s=0.05))
    task = asyncio.ensure_future(run.run())
    await until(lambda: told(trial_file), task)
    run.stop("interrupted")
    run.give_up()
    async with asyncio.timeout(60):
        summary = await task

    assert (summary.ended, summary.outputs) == ("interrupted", [])


async def test_a_run_that_is_stopped_before_it_began_sends_nothing(target: TargetServer, tmp_path: Path) -> None:
    run = run_of(written(tmp_path, GET), vus=2, duration="1m", base_url=target.url)
    run.stop("interrupted")

    summary = await run.run()

    assert target.counts().begun == 0
    assert (summary.ended, summary.requests) == ("interrupted", 0)


async def test_a_run_that_is_stopped_while_it_is_set_up_sends_nothing_and_cleans_up(
    target: TargetServer, tmp_path: Path, trial_file: Path
) -> None:
    text = (
        GET
        + """
    @setup
    async def make(self):
        open(os.environ["TRIAL_FILE"], "w").close()
        await asyncio.sleep(3600)

    @teardown
    async def clean(self):
        open(os.environ["TRIAL_FILE"], "a").write("cleaned")
    """
    )
    run = run_of(written(tmp_path, text), duration="1m", processes=2, base_url=target.url)
    task = asyncio.ensure_future(run.run())
    await until(trial_file.exists, task)
    run.stop("interrupted")
    summary = await asyncio.wait_for(task, 60)

    assert target.counts().begun == 0
    assert summary.ended == "interrupted"
    assert told(trial_file) == ["cleaned"]


async def test_errors_of_a_kind_have_an_example_of_each_step(target: TargetServer, tmp_path: Path) -> None:
    text = """
    class Shop(Workflow):
        iterations = 3
        @step()
        async def one(self) -> HTTPResponse:
            return await self.client.http.post("/close")
        @step()
        async def other(self) -> HTTPResponse:
            return await self.client.http.post("/reset")
    """
    summary = await ran(written(tmp_path, text), base_url=target.url)

    assert {one.step: one.errors for one in summary.steps} == {"one": {"closed": 3}, "other": {"closed": 3}}
    assert all("closed the connection" in one.examples["closed"] for one in summary.steps)


async def test_each_workflow_has_its_own_limit_for_its_calls(target: TargetServer, tmp_path: Path) -> None:
    text = """
    class Hasty(Workflow):
        timeout = "100ms"
        iterations = 1
        @step()
        async def hasty(self, url: URL = "/?delay=400ms") -> HTTPResponse:
            return await self.client.http.get(url)

    class Patient(Hasty):
        timeout = "60s"

    class Usual(Hasty):
        timeout = None
    """
    summary = await ran(written(tmp_path, text), base_url=target.url)

    assert {step.workflow: step.errors for step in summary.steps} == {
        "Hasty": {"total timeout": 1},
        "Patient": {},
        "Usual": {},
    }
    assert (summary.sent_calls, summary.answered_calls) == (3, 2)


async def test_what_is_known_of_a_run_that_is_given_up_is_put_out(target: TargetServer, tmp_path: Path) -> None:
    planned = PlannedRun(written(tmp_path, GET), LoadOptions(processes=1, duration="1m", base_url=target.url))
    report = tmp_path / "run.json"
    run = LoadRun(planned.spec(), "run-1", clock=SystemClock(), outputs=[FileOutput("json", report)])
    task = asyncio.ensure_future(run.run())
    await until(lambda: run.so_far()[0].requests > 0, task)
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    summary = from_json(report.read_bytes())
    assert summary.ended == "cancelled: given up"
    assert 0 < summary.requests <= target.counts().completed
    assert 0 < summary.requests <= summary.answered_calls <= summary.sent_calls <= target.counts().begun

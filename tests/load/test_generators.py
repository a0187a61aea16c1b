"""Windows of several processes become one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from mainstay.bundles import code_environment
from mainstay.errors import InvalidInput
from mainstay.event_loop import boot_time
from mainstay.load.engine.generator import Buckets, as_data
from mainstay.load.engine.messages import (
    Go,
    MessageReader,
    StartInstant,
    ToGenerator,
    WindowReport,
    WorkflowReport,
    WorkflowsDone,
    framed,
)
from mainstay.load.generator_process import GeneratorLost
from mainstay.load.generators import Generators, WindowMerger
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.run import failure_of
from mainstay.load.sources import bundled_source, relocated
from mainstay.load.stats.accounts import Account
from mainstay.load.stats.model import WINDOW_MS, Window
from mainstay.load.target import TargetOptions, TargetServer
from tests.load.test_run import alive
from tests.load.trials import GET, until, written


class Sent:
    """What a merger passed on."""

    def __init__(self, processes: int) -> None:
        self.windows: list[Window] = []
        self.merger = WindowMerger(processes, self.windows.append)
        self.merger.open(["Shop", "Blog"])

    @property
    def seen(self) -> list[tuple[int, int]]:
        return [(window.bucket, window.iterations) for window in self.windows]


def window(bucket: int, iterations: int = 1, process: int = 0) -> Window:
    return Window(bucket=bucket, iterations=iterations, process=process)


def test_a_window_is_passed_on_when_all_have_gone_beyond_it() -> None:
    sent = Sent(2)
    sent.merger.add(0, window(5))
    sent.merger.add(0, window(6))
    assert sent.seen == []

    sent.merger.add(1, window(5, 10))
    sent.merger.add(1, window(6, 10))
    assert sent.seen == [(5, 11)]

    sent.merger.close(0)
    sent.merger.close(1)
    assert sent.seen == [(5, 11), (6, 11)]


def test_a_process_that_ended_holds_nobody_up() -> None:
    sent = Sent(2)
    sent.merger.add(0, window(5))
    sent.merger.close(0)
    sent.merger.add(1, window(5))
    sent.merger.add(1, window(6))
    assert sent.seen == [(5, 2)]


def test_a_process_that_never_says_anything_and_ends_holds_nobody_up() -> None:
    sent = Sent(2)
    sent.merger.close(1)
    sent.merger.add(0, window(5))
    sent.merger.add(0, window(6))
    assert sent.seen == [(5, 1)]


def test_the_end_has_begun_when_it_has_in_some_process_for_each_workflow_and_not_in_the_window_of_that() -> None:
    sent = Sent(2)
    sent.merger.add(0, window(5), draining=["Shop"])
    sent.merger.close(0)
    sent.merger.add(1, window(5))
    sent.merger.add(1, window(6))
    sent.merger.add(1, window(7), draining=["Blog"])
    sent.merger.add(1, window(8), draining=["Blog"])
    sent.merger.close(1)
    assert [(one.bucket, one.draining) for one in sent.windows] == [(5, False), (6, False), (7, False), (8, True)]

    # what comes after it is another layer
    sent.merger.open(["Last"])
    for process in (0, 1):
        sent.merger.add(process, window(11))
        sent.merger.close(process)
    assert not sent.windows[-1].draining


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 9), max_size=8), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_nothing_is_lost_and_buckets_rise_whatever_the_order(parts: list[list[int]], chance: object) -> None:
    sent = Sent(len(parts))
    queues = [(process, sorted(buckets)) for process, buckets in enumerate(parts)]
    while queues:
        process, left = queues[chance.randrange(len(queues))]  # type: ignore[attr-defined] # a random.Random
        if left:
            sent.merger.add(process, window(left.pop(0), 1, process))
        else:
            sent.merger.close(process)
            queues.remove((process, left))

    buckets = [bucket for bucket, _ in sent.seen]
    assert sum(iterations for _, iterations in sent.seen) == sum(map(len, parts))
    assert buckets == sorted(set(buckets))


def test_buckets_of_all_processes_have_the_same_numbers() -> None:
    one, other = Buckets(1_000_000.0, 50.0), Buckets(1_000_000.0, 50.0)

    assert one.now() == other.now()
    assert 0 <= one.left_of(one.now()) <= WINDOW_MS / 1000


@pytest.mark.parametrize("value", [None, 5, "text", b"bytes", [1, {"a": None}], {1: "one"}, 1.5])
def test_plain_data_is_the_same_in_another_process(value: object) -> None:
    assert as_data(value) == value


@pytest.mark.parametrize("value", [object(), print, 2**80, "\ud800", [print]])
def test_what_is_no_data_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="cannot be encoded"):
        as_data(value)


async def test_messages_arrive_as_they_were_sent_and_a_torn_one_ends_the_talk() -> None:
    reader = asyncio.StreamReader()
    order = Go(workflows=["Größe"], shared={"Größe": {"token": b"x"}}, at=1.5, wall=2.5)
    reader.feed_data(framed(order) + framed(order)[:-1])
    reader.feed_eof()
    ear = MessageReader(reader, ToGenerator)

    assert await ear.read() == order
    assert await ear.read() is None


async def test_a_window_travels_whole() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(framed(WindowReport(window(7, 3))))

    assert await MessageReader(reader, WindowReport | WorkflowsDone).read() == WindowReport(window(7, 3))


# a slice that is lost and replaced --------------------------------------------------------------------


class SliceTrial:
    """Generators that are a part of the processes of a run, on a target that counts."""

    def __init__(self, target: TargetServer, folder: Path, **options: Any) -> None:
        self.windows: list[Window] = []
        self._target = target
        planned = PlannedRun(
            written(folder, GET), LoadOptions(base_url=target.url, preflight=False, processes=4, **options)
        )
        self._order = planned.order()

    @property
    def counted(self) -> int:
        return self._target.counts().completed

    @contextlib.asynccontextmanager
    async def slice(self) -> AsyncIterator[Generators]:
        """Processes 2 and 3 of four."""
        async with Generators(2, self.windows.append, first=2, of=4) as runner:
            await runner.prepare(self._order)
            yield runner

    async def lost_at(self, plan_s: float) -> int:
        """Begin, and kill the slice at this time of the plan; returns how many iterations it had sent."""
        async with self.slice() as runner:
            start = StartInstant(after_s=0.2, wall=time.time() + 0.2)
            going = asyncio.ensure_future(self.go(runner, start))
            await asyncio.sleep(0.2 + plan_s)
            runner.kill()
            _, lost = await going
            assert lost is not None
        return self.counted

    async def continued(self, *, begin_s: float = 0.0, done: int = 0) -> list[WorkflowReport]:
        async with self.slice() as runner:
            start = StartInstant(after_s=0.2, wall=time.time() + 0.2, begin_s=begin_s, done={"Shop": done})
            reports, lost = await self.go(runner, start)
            assert lost is None
            assert max(report.took for report in reports) < 10
        return [report.workflows["Shop"] for report in reports]

    async def go(self, runner: Generators, start: StartInstant) -> tuple[list[WorkflowsDone], GeneratorLost | None]:
        return await runner.go(["Shop"], {}, longest_s=30.0, drain_s=1.0, start=start)


async def test_a_replacement_makes_the_arrivals_that_are_due_after_the_gap(tmp_path: Path) -> None:
    async with TargetServer(TargetOptions()) as target:
        # processes 2 and 3 make half of the 400 arrivals
        trial = SliceTrial(target, tmp_path, rate="200/s", duration="2s")
        before = await trial.lost_at(0.6)
        reports = await trial.continued(begin_s=1.5)

        assert 0 < before < 200
        assert trial.counted - before == 50
    assert [report.account.arrivals for report in reports] == [25, 25]
    assert not any(report.nothing_left or report.account.error for report in reports)


async def test_a_replacement_makes_the_iterations_that_the_slice_had_not_begun(tmp_path: Path) -> None:
    async with TargetServer(TargetOptions()) as target:
        trial = SliceTrial(target, tmp_path, vus=8, iterations=4000, pacing="2ms")
        before = await trial.lost_at(0.3)
        assert 0 < before < 2000
        reports = await trial.continued(begin_s=0.5, done=before)

        assert trial.counted == 2000
    assert max(one.iterations for one in reports) - min(one.iterations for one in reports) <= 1


@pytest.mark.parametrize(
    ("options", "begin_s", "done"),
    [
        ({"rate": "100/s", "duration": "1s"}, 1.0, 0),
        ({"vus": 4, "duration": "1s"}, 3.0, 0),
        ({"vus": 4, "iterations": 40}, 3.0, 20),
    ],
)
async def test_a_replacement_after_the_end_of_the_plan_sends_nothing_and_has_not_failed(
    tmp_path: Path, options: dict[str, Any], begin_s: float, done: int
) -> None:
    async with TargetServer(TargetOptions()) as target:
        trial = SliceTrial(target, tmp_path, **options)
        reports = await trial.continued(begin_s=begin_s, done=done)

        assert trial.counted == 0
    assert [one.nothing_left for one in reports] == [True, True]
    assert failure_of(reports, options.get("iterations")) == ""


@pytest.mark.parametrize("suspended", [False, True])
async def test_generators_end_their_load_if_what_controls_them_is_suspended(
    tmp_path: Path, suspended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if suspended:
        monkeypatch.setattr(Generators, "_keep_alive", lambda _: asyncio.sleep(0))
    async with TargetServer(TargetOptions()) as target:
        planned = PlannedRun(
            written(tmp_path, GET),
            LoadOptions(base_url=target.url, preflight=False, processes=2, rate="100/s", duration="3s"),
        )
        async with Generators(2, lambda _: None, until=lambda: boot_time() + 1.0) as runner:
            await runner.prepare(planned.order())
            reports, lost = await runner.go(["Shop"], {}, longest_s=4.0, drain_s=1.0)

    assert lost is None
    assert all(report.took < 2 for report in reports) is suspended
    assert (sum(report.workflows["Shop"].iterations for report in reports) < 200) is suspended


EVERY_CLIENT = """
from mainstay.load import HTTP2Response, TCPResponse, UDPResponse, WebsocketResponse

class Kept(Workflow):
    vus = 4
    @step()
    async def visit(self, url: URL = "/kept") -> HTTPResponse:
        return await self.client.http.get(url)

class Reopened(Workflow):
    vus, new_session = 4, True
    @step()
    async def visit(self, url: URL = "/reopened") -> HTTPResponse:
        return await self.client.http.get(url)

class Due(Workflow):
    rate = "200/s"
    @step()
    async def visit(self, url: URL = "/due") -> HTTPResponse:
        return await self.client.http.get(url)

class Streams(Workflow):
    vus = 4
    @step()
    async def visit(self, url: URL = "/streams") -> HTTP2Response:
        return await self.client.http2.get(url)

class Lines(Workflow):
    vus = 4
    @step()
    async def talk(self) -> WebsocketResponse:
        async with self.client.websocket.connect("{ws}") as line:
            while True:
                await line.request("hello")

class Bytes(Workflow):
    vus = 4
    @step()
    async def talk(self) -> TCPResponse:
        return await self.client.tcp.bidirectional("{tcp}", b"hello\\n", until=b"\\n")

class Datagrams(Workflow):
    vus = 4
    @step()
    async def talk(self) -> UDPResponse:
        return await self.client.udp.bidirectional("{udp}", b"hello")
"""


async def test_a_generator_that_was_frozen_sends_nothing_after_its_limit(tmp_path: Path) -> None:
    async with TargetServer(TargetOptions(latency="20ms", tcp_port=0, udp_port=0)) as target:
        text = EVERY_CLIENT.format(ws=target.websocket_url, tcp=target.tcp_url, udp=target.udp_url)
        test = written(tmp_path, text)
        planned = PlannedRun(
            test, LoadOptions(base_url=target.url, preflight=False, processes=1, duration="60s", drain="1s")
        )
        # what leads it was frozen, too: it repeats what it knew before
        until_s = boot_time() + 30.0
        async with Generators(1, lambda _: None, until=lambda: until_s) as runner:
            await runner.prepare(planned.order())
            until_s = boot_time() + 1.5
            going = asyncio.ensure_future(runner.go(list(test.workflows), {}, longest_s=60.0, drain_s=1.0))
            await until(lambda: len(counted(target)) == 8 and min(counted(target).values()) >= 20, going)

            (pid,) = runner.pids
            os.kill(pid, signal.SIGSTOP)
            # what it had sent arrives meanwhile
            await asyncio.sleep(max(0.0, until_s - boot_time()) + 0.2)
            before = counted(target)
            os.kill(pid, signal.SIGCONT)
            reports, lost = await going

        assert lost is None
        # it may have been frozen between two instructions: those calls were as good as sent
        more = {path: count - before[path] for path, count in counted(target).items() if path != "bytes"}
        assert sum(more.values()) <= 4, more
        assert reports[0].took < 10


def counted(target: TargetServer) -> dict[str, int]:
    """What has arrived: requests by path, all bytes, and connections, which are new ones for each TCP call."""
    counts = target.counts()
    arrived = {path: of.begun for path, of in counts.paths.items()}
    return arrived | {"bytes": counts.received, "connections": counts.connections}


async def test_a_teardown_whose_setup_was_lost_with_its_process_is_told(tmp_path: Path) -> None:
    text = """
    class Shop(Workflow):
        iterations = 1
        @setup
        async def begin(self) -> None: ...
        @step()
        async def act(self) -> None: ...
        @teardown
        async def tidy(self) -> None: ...
    """
    order = PlannedRun(written(tmp_path, text), LoadOptions(processes=1)).order()
    for begun, failed in (
        (True, {}),
        (False, {"Shop": "tidy: was not run: the process that had set up Shop was lost"}),
    ):
        async with Generators(1, lambda _: None) as runner:
            await runner.prepare(order)
            if begun:
                await runner.set_up(["Shop"], {}, calls=1)
            await runner.go(["Shop"], {}, longest_s=30.0, drain_s=1.0)

            assert (await runner.tear_down(["Shop"], calls=1)).failed == failed


def test_a_workflow_without_iterations_has_failed_unless_others_may_have_made_them() -> None:
    none = WorkflowReport(iterations=0, clean=0, account=Account())
    over = replace(none, nothing_left=True)
    refused = replace(none, refusal="LookupError: no account")
    broken = replace(none, iterations=3)

    assert failure_of([none, none], None) == "no iteration was made"
    assert failure_of([none, over], None) == ""
    assert failure_of([over, refused], None).startswith("no iteration was made; users could not begin")
    assert failure_of([over, broken], None) == "all 3 iterations had errors"


# the code of a bundle -------------------------------------------------------------------------------


async def test_processes_run_the_code_of_a_bundle_before_that_of_their_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two folders have a module of the same name: the one of the bundle counts, and files are read below it."""
    ours, bundle = tmp_path / "ours", tmp_path / "bundle"
    for folder in (ours, bundle):
        folder.mkdir()
        (folder / "prices_of_the_bundle.py").write_text(f"PLACE = {folder.name!r}\n")
        (folder / "rows.csv").write_text(f"place\n{folder.name}\n")
    text = """
    import prices_of_the_bundle

    class Shop(Workflow):
        iterations = 1
        data = Feed.csv("rows.csv")

        @step()
        async def act(self) -> None:
            print(prices_of_the_bundle.PLACE, self.vu.data["place"], sys.dont_write_bytecode, "" in sys.path)
    """
    monkeypatch.setenv("PYTHONPATH", str(ours))
    monkeypatch.chdir(ours)
    monkeypatch.syspath_prepend(str(ours))
    order = PlannedRun(written(ours, text), LoadOptions(processes=1)).order()
    (ours / "shop.py").rename(bundle / "shop.py")
    lines: list[str] = []

    async with Generators(
        1,
        lambda _: None,
        on_line=lambda _, line: lines.append(line),
        environment=code_environment(str(bundle)),
        folder=str(bundle),
    ) as runner:
        await runner.prepare(replace(order, source=relocated(bundled_source(order.source, ours), bundle)))
        await runner.go(["Shop"], {}, longest_s=30.0, drain_s=1.0)

    assert lines == ["bundle bundle True False"]


async def test_a_module_that_is_missing_in_the_bundle_refuses_the_run(tmp_path: Path) -> None:
    order = PlannedRun(written(tmp_path, GET), LoadOptions(processes=2)).order()
    (tmp_path / "shop.py").write_text("import prices_that_are_missing\n")

    async with Generators(2, lambda _: None, environment=code_environment(str(tmp_path))) as runner:
        with pytest.raises(InvalidInput, match="test: module 'prices_that_are_missing' .* include it in the bundle"):
            await runner.prepare(replace(order, source=relocated(bundled_source(order.source, tmp_path), tmp_path)))


async def test_a_fleet_that_is_given_up_while_it_starts_leaves_no_process() -> None:
    fleet = Generators(2, lambda _: None)
    first, second = fleet._processes
    second.start = asyncio.Event().wait  # type: ignore[method-assign] # one that is never there
    entering = asyncio.ensure_future(fleet.__aenter__())
    while first._writer is None:
        await asyncio.sleep(0.01)

    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering

    assert not alive(first.pid)

"""One slice and a bus: commands may be lost, repeated and out of date."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from mainstay.bus import MemoryBus, MemoryBusNetwork
from mainstay.errors import RequestTimeout
from mainstay.load.engine.messages import (
    CollectProvided,
    SetUp,
    StartInstant,
    StopRun,
    Values,
    WorkflowReport,
    WorkflowsDone,
)
from mainstay.load.fleet import FleetSettings, SliceOutcome, SliceService
from mainstay.load.fleet.messages import (
    AdoptGo,
    AnswerPart,
    CollectEnd,
    CommandAccepted,
    CommandPending,
    CommandRefused,
    GoAdopted,
    PingSlice,
    PrepareSlice,
    ReleaseSlice,
    SliceBeat,
    SliceCommand,
    SliceEnd,
    SliceOrder,
    SliceWindow,
    StartSlice,
    command_subject,
    decode_answer,
    decode_lines,
    decode_windows,
    encode,
    encode_windows,
)
from mainstay.load.fleet.slice_work import divided
from mainstay.load.generator_process import GeneratorLost, Limits
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.run_spec import RunOrder
from mainstay.load.stats.accounts import Account
from mainstay.load.stats.model import Health, StepStats, Window
from mainstay.load.stats.tally import merge_windows
from tests.load.trials import GET, written


class ScriptedRunner:
    """A runner that does what the test wants, and writes down what it was asked."""

    def __init__(self, processes: int, on_window: Callable[[Window], None], **named: Any) -> None:
        self.named = named
        self.on_window = on_window
        self.asked: list[str] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.values = Values(values={"Shop": {"token": "abc"}})
        self.reports = [WorkflowsDone(workflows={}, took=1.0, loaded=1.0)]
        self.stopped = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.asked.append("end")

    async def prepare(self, order: RunOrder) -> None:
        self.asked.append(f"prepare {order.name}")

    async def set_up(self, workflows: Sequence[str], shared: object, *, calls: int) -> Values:
        self.asked.append("set up")
        return self.values

    async def go(
        self, workflows: Sequence[str], shared: object, *, longest_s: float, drain_s: float, start: StartInstant
    ) -> tuple[list[WorkflowsDone], GeneratorLost | None]:
        self.asked.append("go")
        await self.stopped.wait()
        return self.reports, None

    def stop(self, *, hurry: bool) -> None:
        self.asked.append("stop")
        self.stopped.set()

    def give_up(self) -> None:
        self.asked.append("give up")
        self.stopped.set()

    def kill(self) -> None:
        self.asked.append("kill")

    async def collect_provided(self, workflows: Sequence[str], *, calls: int) -> Values:
        return self.values

    async def tear_down(self, workflows: Sequence[str], *, calls: int) -> Values:
        return Values()


class Desk:
    """A leader without a mind of its own, and the slice that it commands."""

    def __init__(self, folder: Path) -> None:
        network = MemoryBusNetwork()
        self.bus: MemoryBus = network.client("leader")
        self.runners: list[ScriptedRunner] = []
        self.now_s = 100.0
        self.starts = 0
        self.store = asyncio.Event()
        """set: it is there"""
        self.store.set()
        self.ends: list[SliceEnd] = []
        self.service = SliceService(
            network.client("node"),
            self._make,
            job="job-1",
            number=3,
            node="node-b",
            token=7,
            settings=FleetSettings(poll_s=0.01),
            steady=lambda: self.now_s,
            on_start=self._start,
            on_end=self._keep,
        )
        self.order = PlannedRun(written(folder, GET), LoadOptions(processes=1)).order()
        self.numbers = 0

    async def _start(self) -> None:
        self.starts += 1
        await self.store.wait()

    async def _keep(self, end: SliceEnd) -> None:
        self.ends.append(end)

    def _make(self, *given: Any, **named: Any) -> ScriptedRunner:
        self.runners.append(ScriptedRunner(*given, **named))
        return self.runners[-1]

    @property
    def runner(self) -> ScriptedRunner:
        return self.runners[0]

    async def ask(
        self,
        order: SliceOrder,
        *,
        number: int | None = None,
        token: int = 7,
        epoch: int = 1,
        part: int = 0,
        key: str = "",
    ) -> Any:
        if number is None:
            self.numbers += 1
            number = self.numbers
        command = SliceCommand(
            job="job-1", slice=3, token=token, epoch=epoch, number=number, part=part, key=key, order=order
        )
        return decode_answer(await self.bus.request(command_subject("node-b", "job-1", 3), encode(command), 5))

    async def prepare(self) -> None:
        order = PrepareSlice(order=self.order, limits=Limits(), processes=2, first=4, of=9)
        assert await self.ask(order) == CommandAccepted()

    async def go(self, *, in_s: float = 0.5) -> Any:
        return await self.ask(self.start(in_s))

    def start(self, in_s: float) -> StartSlice:
        at_s = self.now_s + in_s
        return StartSlice(go=1, workflows=["Shop"], shared={}, at_s=at_s, wall=0.0, longest_s=9.0, drain_s=1.0)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path)
    serving = asyncio.ensure_future(desk.service.run())
    await asyncio.sleep(0)
    yield desk
    serving.cancel()
    await asyncio.wait([serving])


async def test_a_slice_makes_its_part_of_the_processes(desk: Desk) -> None:
    await desk.prepare()

    assert (desk.runner.named["first"], desk.runner.named["of"]) == (4, 9)
    assert desk.runner.asked == ["prepare shop"]


async def test_a_command_that_is_repeated_is_executed_once_and_answered_alike(desk: Desk) -> None:
    await desk.prepare()

    first = await desk.ask(SetUp(["Shop"], {}), number=5)
    again = await desk.ask(SetUp(["Shop"], {}), number=5)

    assert first == again == Values(values={"Shop": {"token": "abc"}})
    assert desk.runner.asked.count("set up") == 1


async def test_a_command_whose_answer_was_lost_is_answered_when_it_is_sent_again(desk: Desk) -> None:
    await desk.prepare()
    order = desk.start(0.5)
    command = SliceCommand(job="job-1", slice=3, token=7, epoch=1, number=2, order=order)
    await desk.bus.publish(command_subject("node-b", "job-1", 3), encode(command))
    while "go" not in desk.runner.asked:
        await asyncio.sleep(0)

    # after the instant, too: it had heard the order in time
    desk.now_s += 5
    assert await desk.ask(order, number=2) == CommandAccepted()
    assert desk.runner.asked.count("go") == 1


async def test_a_command_of_long_ago_is_not_executed_again(desk: Desk) -> None:
    await desk.prepare()
    await desk.ask(SetUp(["Shop"], {}))
    for _ in range(80):
        await desk.ask(CollectProvided(["Shop"]))

    assert await desk.ask(SetUp(["Shop"], {}), number=2) == CommandRefused(rule="command 2 was executed long ago")
    assert desk.runner.asked.count("set up") == 1


async def test_an_older_token_is_refused_by_name_and_counted(desk: Desk) -> None:
    await desk.prepare()

    answer = await desk.ask(StopRun(True), token=6)

    assert answer == CommandRefused(rule="the command has token 6, and this slice has token 7")
    assert desk.service.counts["stale"] == 1
    assert "stop" not in desk.runner.asked


async def test_a_newer_token_ends_the_load_of_an_older_one(desk: Desk) -> None:
    await desk.prepare()
    await desk.go()

    answer = await desk.ask(PingSlice(), token=8, number=0)

    assert answer == CommandRefused(rule="the command has token 8, and this slice has token 7")
    while "end" not in desk.runner.asked:
        await asyncio.sleep(0)
    assert desk.runner.asked == ["prepare shop", "go", "give up", "end"]


async def test_an_older_leader_is_refused(desk: Desk) -> None:
    await desk.prepare()
    await desk.ask(PingSlice(), number=0, epoch=2)

    answer = await desk.ask(StopRun(True), epoch=1)

    assert answer == CommandRefused(rule="the command is from a leader of epoch 1; the leader has epoch 2", epoch=2)
    assert "stop" not in desk.runner.asked


async def test_nothing_starts_that_was_not_prepared_or_is_too_late(desk: Desk) -> None:
    assert await desk.go() == CommandRefused(rule="the slice is not prepared")
    await desk.prepare()

    late = await desk.go(in_s=-0.5)

    assert isinstance(late, CommandRefused)
    assert "s after the agreed instant" in late.rule
    assert desk.runner.asked == ["prepare shop"]


async def test_a_stop_is_read_while_another_command_is_executed(desk: Desk) -> None:
    await desk.prepare()
    await desk.go()
    assert await desk.ask(CollectEnd(1), number=50) == CommandPending()

    await desk.ask(StopRun(True))

    end = CommandPending()
    while isinstance(end, CommandPending):
        end = await desk.ask(CollectEnd(1), number=50)
    assert isinstance(end, SliceEnd)
    assert (end.loss, end.isolated, end.windows, end.total) == ("", False, 0, None)


async def test_windows_that_are_wanted_are_sent_again_until_they_are_confirmed(desk: Desk) -> None:
    await desk.prepare()
    await desk.go()
    for bucket in range(6):
        desk.runner.on_window(Window(bucket=bucket, iterations=bucket))

    beat = await desk.ask(PingSlice(go=1, upto=2, gaps=[(2, 3), (4, 6)]), number=0)
    assert isinstance(beat, SliceBeat)
    assert [(part.number, part.count, part.window.iterations) for part in beat.repaired] == [(2, 1, 2), (4, 2, 9)]
    assert beat.windows == 6

    beat = await desk.ask(PingSlice(go=1, upto=6, gaps=[(2, 3)]), number=0)
    assert beat.repaired == []


async def test_the_health_of_a_process_names_its_node_in_windows_and_in_their_sum(desk: Desk) -> None:
    await desk.prepare()
    await desk.go()

    async with await desk.bus.subscribe("data.window.node-b.job-1.3") as messages:
        for bucket in range(2):
            desk.runner.on_window(Window(bucket=bucket, health={4: Health(cpu=0.5), 5: Health(cpu=0.7)}))
        sent = decode_windows((await anext(messages)).body)
    adopted = await desk.ask(AdoptGo(1))

    assert isinstance(adopted, GoAdopted)
    assert adopted.total is not None
    for window in (sent[0].window, adopted.total):
        assert [(number, health.node) for number, health in window.health.items()] == [(4, "node-b"), (5, "node-b")]


async def test_a_window_that_is_too_large_for_a_message_is_divided(desk: Desk) -> None:
    await desk.prepare()
    await desk.go()
    steps = [StepStats(workflow="Shop", step=f"step {number:03}", skipped=number) for number in range(120)]
    window = Window(bucket=9, users=4, iterations=9, steps=steps)

    async with await desk.bus.subscribe("data.window.node-b.job-1.3") as messages:
        desk.runner.on_window(window)
        parts = decode_windows((await anext(messages)).body)

    assert [(part.number, len(part.window.steps)) for part in parts] == [(0, 50), (1, 50), (2, 20)]
    assert merge_windows(part.window for part in parts) == window


async def test_windows_are_sent_some_at_a_time_up_to_the_same_bucket_in_every_slice(desk: Desk) -> None:
    await desk.prepare()
    await desk.go()

    async with await desk.bus.subscribe("data.window.node-b.job-1.3") as messages:
        for bucket in range(13, 21):
            desk.runner.on_window(Window(bucket=bucket))
        sent = [decode_windows((await anext(messages)).body)]
        beat = await desk.ask(PingSlice(go=1), number=0)
        await desk.ask(StopRun(True))
        sent.append(decode_windows((await anext(messages)).body))

    assert [[part.window.bucket for part in parts] for parts in sent] == [[*range(13, 20)], [20]]
    # the leader would take those that are not sent yet for lost
    assert isinstance(beat, SliceBeat)
    assert beat.windows == 7


async def test_windows_that_do_not_fit_into_one_message_go_in_several() -> None:
    texts = {"error": "x" * 300_000}
    waiting = deque(
        SliceWindow(token=1, go=1, number=number, window=Window(bucket=number, examples=texts)) for number in range(3)
    )

    sent = [decode_windows(encode_windows(waiting)) for _ in range(3)]

    assert [[part.number for part in parts] for parts in sent] == [[0], [1], [2]]
    assert not waiting


async def test_printed_lines_are_sent_on(desk: Desk) -> None:
    await desk.prepare()
    async with await desk.bus.subscribe("telemetry.line.node-b.job-1.3") as messages:
        for number in range(300):
            desk.runner.named["on_line"](4, f"line {number}")
        lines = decode_lines((await anext(messages)).body).lines

    # a flood of them keeps the newest
    assert lines == [(4, f"line {number}") for number in range(100, 300)]


async def test_a_long_answer_comes_in_parts(desk: Desk) -> None:
    await desk.prepare()
    account, why = Account(begun=1, failed=1), "x" * 1_200_000
    report = WorkflowReport(iterations=1, clean=0, account=account, refusal=why)
    desk.runner.reports = [WorkflowsDone(workflows={"Shop": report}, took=1.0, loaded=1.0)]
    await desk.go()
    desk.runner.stopped.set()

    parts = [await desk.ask(CollectEnd(1), number=9, part=part) for part in range(3)]

    assert [isinstance(part, AnswerPart) and part.of for part in parts] == [3, 3, 3]
    end = decode_answer(b"".join(part.body for part in parts))
    assert isinstance(end, SliceEnd)
    assert end.reports == desk.runner.reports


async def test_a_setup_that_returns_more_than_the_context_takes_has_failed(desk: Desk) -> None:
    await desk.prepare()
    desk.runner.values = Values(values={"Shop": {"token": "x" * 1_200_000}}, failed={"Buy": "y" * 1_200_000})

    answer = await desk.ask(SetUp(["Shop", "Buy"], {}), number=9)

    assert isinstance(answer, Values)
    assert answer.values == {}
    rule = "token returned 1172 KiB; the context of a run on nodes has at most 480 KiB"
    assert answer.failed["Shop"].startswith(rule)
    assert answer.failed["Buy"] == "y" * 2000


async def test_what_cannot_be_read_is_counted_and_not_answered(desk: Desk) -> None:
    with pytest.raises(RequestTimeout):
        await desk.bus.request(command_subject("node-b", "job-1", 3), b"nonsense", 0.05)

    assert desk.service.counts["unreadable"] == 1


async def test_a_released_slice_ends(desk: Desk) -> None:
    await desk.prepare()
    await desk.go()

    answer: Any = CommandPending()
    while isinstance(answer, CommandPending):
        answer = await desk.ask(ReleaseSlice(), number=9)

    assert answer == CommandAccepted()
    assert desk.runner.asked[-1] == "end"


# more than one leader -------------------------------------------------------------------------------


async def test_an_order_with_a_key_is_executed_once_for_all_leaders(desk: Desk) -> None:
    await desk.prepare()

    first = await desk.ask(SetUp(["Shop"], {}), key="set_up/1")
    again = await desk.ask(SetUp(["Shop"], {}), key="set_up/1", epoch=2)

    assert first == again == Values(values={"Shop": {"token": "abc"}})
    assert desk.runner.asked.count("set up") == 1


async def test_a_successor_gets_the_sum_of_all_windows_and_the_number_of_the_next_one(desk: Desk) -> None:
    await desk.prepare()
    await desk.go()
    for bucket in range(5):
        desk.runner.on_window(Window(bucket=bucket, iterations=bucket))
    # the first leader has confirmed some of them
    await desk.ask(PingSlice(go=1, upto=3), number=0)

    adopted = await desk.ask(AdoptGo(1), epoch=2)

    assert isinstance(adopted, GoAdopted)
    assert (adopted.began, adopted.windows, adopted.at_s) == (True, 5, 100.5)
    assert adopted.total is not None
    assert adopted.total.iterations == 10
    desk.runner.on_window(Window(bucket=5, iterations=7))
    beat = await desk.ask(PingSlice(go=1, upto=5, gaps=[(4, 6)]), number=0, epoch=2)
    assert [(part.number, part.window.iterations) for part in beat.repaired] == [(5, 7)]


@pytest.mark.parametrize(("order", "epoch"), [(AdoptGo(1), 2), (CollectEnd(1), 1)])
async def test_a_go_that_was_said_never_to_have_begun_does_not_begin_any_more(
    desk: Desk, order: SliceOrder, epoch: int
) -> None:
    await desk.prepare()

    answer = await desk.ask(order, epoch=epoch)

    assert not answer.began
    assert isinstance(await desk.go(), CommandRefused)
    assert "go" not in desk.runner.asked


# stops and ends -------------------------------------------------------------------------------------


async def test_an_order_to_go_that_arrives_after_a_stop_starts_nothing(desk: Desk) -> None:
    await desk.prepare()
    await desk.ask(StopRun(True))

    assert await desk.go() == CommandRefused(rule="the run was stopped before")


async def test_the_end_says_that_a_leader_has_stopped_the_load(desk: Desk) -> None:
    await desk.prepare()
    await desk.go()
    await desk.ask(StopRun(True))

    end: Any = CommandPending()
    while isinstance(end, CommandPending):
        end = await desk.ask(CollectEnd(1), number=50)

    assert (end.began, end.stopped) == (True, True)
    assert desk.ends == [end]


async def test_the_load_does_not_wait_for_the_note_of_its_start(desk: Desk) -> None:
    await desk.prepare()
    assert desk.starts == 0
    desk.store.clear()

    await desk.go()
    await asyncio.sleep(0)

    assert desk.starts == 1
    assert "go" in desk.runner.asked
    desk.store.set()


@pytest.mark.parametrize("lost", ["", "a generator died"])
async def test_a_released_slice_says_whether_it_has_to_be_done_again(tmp_path: Path, lost: str) -> None:
    desk = Desk(tmp_path)
    serving = asyncio.ensure_future(desk.service.run())
    await asyncio.sleep(0)
    await desk.prepare()

    await desk.ask(ReleaseSlice(lost=lost))

    assert await serving == SliceOutcome(lost=lost)


class SlowRunner(ScriptedRunner):
    """One whose processes take long to begin and to end."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.beginning = asyncio.Event()
        self.may_end = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.beginning.set()
        try:
            await asyncio.Event().wait()
        finally:
            await self.may_end.wait()
            self.asked.append("ended")
        return self


@pytest.mark.parametrize("how", ["released", "cancelled", "both"])
async def test_a_service_returns_after_the_processes_that_it_had_begun_have_ended(tmp_path: Path, how: str) -> None:
    desk, runners = Desk(tmp_path), list[SlowRunner]()

    def make(*given: Any, **named: Any) -> SlowRunner:
        runners.append(SlowRunner(*given, **named))
        return runners[-1]

    desk.service._work._make = make
    serving = asyncio.ensure_future(desk.service.run())
    await asyncio.sleep(0)
    assert await desk.ask(PrepareSlice(order=desk.order, limits=Limits(), processes=1, first=0, of=1)) == (
        CommandPending()
    )
    await runners[0].beginning.wait()

    if how != "cancelled":
        assert await desk.ask(ReleaseSlice()) == CommandPending()
    if how != "released":
        serving.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not serving.done()

    runners[0].may_end.set()
    if how == "released":
        assert await desk.ask(ReleaseSlice(), number=2) == CommandAccepted()
    await asyncio.wait([serving])
    assert runners[0].asked == ["ended"]


async def test_windows_of_one_gap_are_sent_again_as_one_sum(desk: Desk) -> None:
    await desk.prepare()
    await desk.go()
    steps = [StepStats(workflow="Shop", step=f"step {number:03}", skipped=1) for number in range(120)]
    for bucket in range(40):
        desk.runner.on_window(Window(bucket=bucket, iterations=1, users=bucket, steps=steps))

    beat = await desk.ask(PingSlice(go=1, upto=3, gaps=[(3, 30), (33, 120)]), number=0)

    assert isinstance(beat, SliceBeat)
    assert [(part.number, part.count, part.window.bucket, part.window.width) for part in beat.repaired] == [
        (3, 27, 1, 9),
        (33, 87, 11, 29),
    ]
    assert [part.window.iterations for part in beat.repaired] == [9, 29]


async def test_a_gap_that_no_message_has_room_for_comes_in_several_sums(desk: Desk) -> None:
    await desk.prepare()
    await desk.go()
    for bucket in range(8):
        desk.runner.on_window(Window(bucket=bucket, iterations=1, examples={f"kind {bucket}": "x" * 200_000}))

    taken, upto = list[SliceWindow](), 0
    while upto < 8:
        beat = await desk.ask(PingSlice(go=1, upto=upto, gaps=[(upto, 8)]), number=0)
        assert isinstance(beat, SliceBeat)
        taken += beat.repaired
        upto += sum(part.count for part in beat.repaired)

    assert [number for part in taken for number in range(part.number, part.number + part.count)] == list(range(8))
    assert max(part.count for part in taken) == 2
    assert sum(part.window.iterations for part in taken) == 8


async def test_a_window_that_is_too_large_in_bytes_is_divided() -> None:
    steps = [
        StepStats(workflow="Shop", step=f"step {number}", skipped=number, examples={"timeout": "x" * 300_000})
        for number in range(5)
    ]
    window = Window(bucket=9, users=4, iterations=9, steps=steps)

    parts = divided(window)

    assert [len(part.steps) for part in parts] == [1] * 5
    assert merge_windows(parts) == window


async def test_a_slice_sends_one_sum_of_many_buckets_while_its_leader_asks_for_that(desk: Desk) -> None:
    await desk.prepare()
    await desk.go()

    async with await desk.bus.subscribe("data.window.node-b.job-1.3") as messages:
        await desk.ask(PingSlice(go=1, together=10), number=0)
        for bucket in range(13, 30):
            desk.runner.on_window(Window(bucket=bucket, iterations=1, users=bucket))
        sent = [decode_windows((await anext(messages)).body) for _ in range(1)]
        # the word of a leader that is not heard again does not hold
        desk.now_s += 5.1
        for bucket in range(30, 32):
            desk.runner.on_window(Window(bucket=bucket, iterations=1))
        sent.append(decode_windows((await anext(messages)).body))

    [(first, second), later] = sent
    assert [(part.number, part.count, part.window.bucket, part.window.width) for part in (first, second)] == [
        (0, 7, 13, 7),
        (7, 10, 20, 10),
    ]
    assert (second.window.iterations, second.window.users) == (10, 29)
    assert [(part.number, part.count, part.window.bucket) for part in later] == [(17, 1, 30), (18, 1, 31)]

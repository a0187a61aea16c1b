"""A node that does harm: what it sends ends its slice, and neither the leader nor the numbers of other slices."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from mainstay.load.engine.messages import Values, WorkflowsDone
from mainstay.load.fleet.messages import (
    AnswerPart,
    CollectEnd,
    CommandAccepted,
    CommandPending,
    CommandRefused,
    GoAdopted,
    KillSlice,
    PingSlice,
    ReleaseSlice,
    SliceAnswer,
    SliceBeat,
    SliceCommand,
    SliceEnd,
    SliceOrder,
    SliceWindow,
    encode,
    window_subject,
)
from mainstay.load.stats.model import Health, Sketch, StepStats, Window
from mainstay.testing import BusFaults
from tests.load.fleet.fleet_trials import FleetTrial, with_fleet

CALM = BusFaults(latency_s=0.005)
#: the one that does harm, of three
BAD = 1
TORN = Sketch(at=[5, 9], n=[1], count=1, total=1.0, squares=1.0, low=1.0, high=1.0)
FAR = Sketch(at=[-(1 << 50), 1 << 50], n=[1, 1], count=2, total=1.0, squares=1.0, low=1.0, high=1.0)


def judge_others(trial: FleetTrial, why: str) -> None:
    """The slice is lost for that reason; all calls of the others were counted, once."""
    reports = {report.slice: report for report in trial.fleet.leaders[-1].reports()}
    assert why in reports[BAD].loss, reports[BAD].loss
    for number, target in enumerate(trial.fleet.targets):
        if number != BAD:
            assert (reports[number].requests, reports[number].loss) == (target.total, "")


def of_step(sketch: Sketch) -> Callable[[Window], Window]:
    return lambda window: replace(window, steps=[StepStats(workflow="Shop", step="browse", ok=sketch)])


WINDOWS: dict[str, Callable[[Window], Window]] = {
    "a bucket of the far future": lambda window: replace(window, bucket=1 << 45),
    "a bucket of tomorrow": lambda window: replace(window, bucket=window.bucket + 864_000),
    "a bucket of the past": lambda window: replace(window, bucket=0),
    "a bucket below zero": lambda window: replace(window, bucket=-(1 << 40)),
    "a wide window": lambda window: replace(window, width=1 << 40),
    "no width": lambda window: replace(window, width=0),
    "iterations below zero": lambda window: replace(window, iterations=-5),
    "more than can be stored": lambda window: replace(window, sent_calls=1 << 63),
    "a torn sketch": of_step(TORN),
    "a sketch of a large span": of_step(FAR),
    "the health of another slice": lambda window: replace(window, health={0: Health()}),
}
NUMBERS = {
    "a number of the far future": (1 << 40, 1),
    "a number below zero": (-1, 1),
    "a sum of too many": (0, 1 << 40),
}


async def send(trial: FleetTrial, *parts: SliceWindow) -> None:
    member = trial.fleet.members[BAD]
    bus = trial.fleet.network.client(f"{member.node}.forged", host=member.node)
    await bus.publish(window_subject(member.node, trial.fleet.job, BAD), encode(list(parts)))
    await bus.close()


def next_window(trial: FleetTrial) -> SliceWindow:
    """The one that the leader waits for."""
    link = trial.fleet.leaders[-1]._slices[BAD].link
    assert link is not None
    bucket = round(trial.fleet.clock.now_ms() / 100)
    return SliceWindow(token=1, go=1, number=link.windows.upto, window=Window(bucket=bucket))


def harmed(folder: Path, harm: Callable[[FleetTrial], Any], why: str, *, on_loss: str = "continue") -> None:
    async def test(trial: FleetTrial) -> None:
        running = asyncio.ensure_future(trial.run.run())
        await trial.until_loaded()
        await asyncio.sleep(2)
        done = harm(trial)
        if done is not None:
            await done

        summary = await running

        assert summary.ended == "finished", summary.ended
        judge_others(trial, why)
        assert all(window.width == 1 for window in trial.output.windows)
        assert summary.elapsed_s == pytest.approx(10, abs=1)

    with_fleet(test, folder, [1, 1, 1], fleet={"faults": CALM, "on_loss": on_loss}, rate="30/s", duration="10s")


@pytest.mark.parametrize("what", WINDOWS)
def test_a_window_that_cannot_be_true_ends_its_slice_only(tmp_path: Path, what: str) -> None:
    def harm(trial: FleetTrial) -> Any:
        part = next_window(trial)
        return send(trial, replace(part, window=WINDOWS[what](part.window)))

    harmed(tmp_path, harm, "it sent a window that cannot be true: ")


@pytest.mark.parametrize("what", NUMBERS)
def test_a_number_that_cannot_be_true_ends_its_slice_only(tmp_path: Path, what: str) -> None:
    number, count = NUMBERS[what]
    harmed(
        tmp_path,
        lambda trial: send(trial, replace(next_window(trial), number=number, count=count)),
        "it sent a window that cannot be true: ",
    )


BEATS: dict[str, tuple[Callable[[SliceBeat], Any], str]] = {
    "windows of the far future": (lambda beat: replace(beat, windows=1 << 40), "a state that cannot be true"),
    "windows below zero": (lambda beat: replace(beat, windows=-1), "a state that cannot be true"),
    "a clock that is no number": (lambda beat: replace(beat, steady_s=math.nan), "a state that cannot be true"),
    "a clock without end": (lambda beat: replace(beat, steady_s=math.inf), "a state that cannot be true"),
    "another answer": (lambda beat: CommandAccepted(), "it answered a ping with CommandAccepted"),
    "no answer yet": (lambda beat: CommandPending(), "it answered a ping with CommandPending"),
    "a leader that nothing knows": (
        lambda beat: CommandRefused(rule="you are late", epoch=1 << 40),
        "names a leader of epoch 1099511627776, which the store does not know",
    ),
    "a part of an answer": (lambda beat: AnswerPart(body=b"", of=1 << 40), "it answered a ping with AnswerPart"),
}


@pytest.mark.parametrize("what", BEATS)
def test_a_state_that_cannot_be_true_ends_its_slice_only(tmp_path: Path, what: str) -> None:
    forge, why = BEATS[what]

    def harm(trial: FleetTrial) -> None:
        answering(trial, lambda order, answer: forge(answer) if isinstance(order, PingSlice) else answer)

    harmed(tmp_path, harm, why)


def answering(trial: FleetTrial, forge: Callable[[SliceOrder, Any], Any]) -> None:
    """Have the slice answer what this returns, to an order and its own answer."""
    service = trial.fleet.members[BAD].service
    beat, answer = service._work.beat, service._answer

    async def forged(command: SliceCommand) -> bytes:
        given = await answer(command)
        if isinstance(command.order, PingSlice):
            return bytes(encode(forge(command.order, beat(command.order))))
        made = forge(command.order, None)
        return given if made is None else bytes(encode(made))

    service._answer = forged  # type: ignore[method-assign] # as no slice of ours would


ENDS: dict[str, tuple[SliceAnswer, str]] = {
    "another answer": (Values(), "it answered with Values"),
    "an end of another go": (SliceEnd(go=7, reports=[], loss="", isolated=False, windows=0, total=None), "of go 7"),
    "more windows than ever": (
        SliceEnd(go=1, reports=[], loss="", isolated=False, windows=1 << 40, total=None),
        "the end of its load cannot be true: it has 1099511627776 windows",
    ),
    "a load of years": (
        SliceEnd(
            go=1,
            reports=[WorkflowsDone(workflows={}, took=1e12, loaded=1.0)],
            loss="",
            isolated=False,
            windows=0,
            total=None,
        ),
        "the end of its load cannot be true: took is 1000000000000.0 s",
    ),
    "a load that is no time": (
        SliceEnd(
            go=1,
            reports=[WorkflowsDone(workflows={}, took=math.nan, loaded=1.0)],
            loss="",
            isolated=False,
            windows=0,
            total=None,
        ),
        "the end of its load cannot be true: took is nan s",
    ),
    "a torn answer": (AnswerPart(body=b"\xc1", of=1), "sent an answer that cannot be read"),
    "an answer without end": (AnswerPart(body=b"x", of=1 << 40), "it sent part 0 of 1099511627776 of an answer"),
    "an answer of no part": (AnswerPart(body=b"x", of=0), "it sent part 0 of 0 of an answer"),
    "no answer yet, and no window": (CommandPending(), "it is stuck"),
}


@pytest.mark.parametrize("what", ENDS)
def test_an_end_that_cannot_be_true_ends_its_slice_only(tmp_path: Path, what: str) -> None:
    forged, why = ENDS[what]

    def harm(trial: FleetTrial) -> None:
        def forge(order: SliceOrder, answer: Any) -> Any:
            return forged if isinstance(order, CollectEnd) else answer

        answering(trial, forge)

    harmed(tmp_path, harm, why)


def test_a_load_that_does_not_end_ends_its_slice_only(tmp_path: Path) -> None:
    def harm(trial: FleetTrial) -> None:
        more = 0

        def forge(order: SliceOrder, answer: Any) -> Any:
            nonlocal more
            if isinstance(order, PingSlice):
                more += 1
                return replace(answer, windows=answer.windows + more)
            return CommandPending() if isinstance(order, CollectEnd) else answer

        answering(trial, forge)

    harmed(tmp_path, harm, "it was not done 1")


def test_a_lost_slice_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = asyncio.ensure_future(trial.run.run())
        await trial.until_loaded()

        def forge(order: SliceOrder, answer: Any) -> Any:
            if isinstance(order, PingSlice):
                return replace(answer, windows=-1)
            return CommandPending() if isinstance(order, ReleaseSlice | KillSlice) else answer

        answering(trial, forge)
        summary = await running

        assert summary.ended == "finished"
        [(number, token, why)] = trial.fleet.assignments.given_up
        assert (number, token) == (BAD, 1)
        assert "a state that cannot be true" in why
        assert [report.token for report in summary.slices if report.slice == BAD] == [1, 2]

    with_fleet(test, tmp_path, [1, 1, 1], fleet={"faults": CALM}, rate="6/s", duration="200s")


ADOPTED = {
    "no time": GoAdopted(began=True, at_s=math.nan, wall=0.0),
    "a start of the future": GoAdopted(began=True, at_s=1e8, wall=0.0),
    "a wall clock of no time": GoAdopted(began=True, at_s=1.0, wall=math.nan),
    "a wall clock of long ago": GoAdopted(began=True, at_s=1.0, wall=-1e15),
    "windows below zero": GoAdopted(began=True, at_s=1.0, wall=0.0, windows=-4),
    "windows without a sum": GoAdopted(began=True, at_s=1.0, wall=0.0, windows=4),
    "a sum of the far future": GoAdopted(began=True, at_s=1.0, windows=4, total=Window(bucket=1 << 45)),
    "a torn sum": GoAdopted(
        began=True,
        at_s=1.0,
        windows=4,
        total=of_step(TORN)(Window(bucket=0)),
    ),
    "another answer": CommandAccepted(),
    "no answer yet": CommandPending(),
}


@pytest.mark.parametrize("what", ADOPTED)
def test_what_a_slice_says_to_a_successor_ends_that_slice_only(tmp_path: Path, what: str) -> None:
    async def test(trial: FleetTrial) -> None:
        host = trial.fleet.loop.host("leader-0")

        async def lead() -> None:
            asyncio.ensure_future(trial.run.run()).add_done_callback(lambda _: None)

        host.start(lead())
        await trial.until_loaded()
        await asyncio.sleep(5)
        host.crash()
        forged = ADOPTED[what]
        if isinstance(forged, GoAdopted) and not forged.wall:
            # the rest of it is as it was
            order = trial.fleet.members[BAD].service._work._order
            assert order is not None
            forged = replace(forged, wall=order.wall)

        def forge(order: SliceOrder, answer: Any) -> Any:
            return forged if type(order).__name__ == "AdoptGo" else answer

        answering(trial, forge)
        summary = await trial.succeed().run()

        assert summary.ended == "finished"
        judge_others(trial, "")
        # one that says nothing may have come to its end meanwhile, which it has stored
        harmed = next(report for report in summary.slices if report.slice == BAD)
        assert harmed.loss or (what, harmed.requests) == ("no answer yet", trial.fleet.targets[BAD].total)

    with_fleet(test, tmp_path, [1, 1, 1], fleet={"faults": CALM, "on_loss": "continue"}, rate="30/s", duration="30s")


INTS = st.integers(-2, 3) | st.sampled_from([1 << 20, 1 << 40, (1 << 63) - 1, -(1 << 62)])
TIMES = st.floats() | st.floats(-1, 20)
SKETCHES = st.builds(
    Sketch,
    at=st.lists(INTS, max_size=3),
    n=st.lists(INTS, max_size=3),
    count=INTS,
    total=TIMES,
    squares=TIMES,
    low=TIMES,
    high=TIMES,
)
FORGED_WINDOWS = st.builds(
    SliceWindow,
    token=st.just(1),
    go=st.just(1),
    number=INTS | st.integers(0, 60),
    count=INTS,
    window=st.builds(
        Window,
        bucket=INTS | st.integers(0, 200),
        width=INTS,
        process=INTS,
        users=INTS,
        iterations=INTS,
        draining=st.booleans(),
        steps=st.lists(
            st.builds(StepStats, workflow=st.just("Shop"), step=st.just("browse"), ok=st.none() | SKETCHES), max_size=1
        ),
        health=st.dictionaries(INTS, st.builds(Health, cpu=TIMES, memory=INTS), max_size=1),
    ),
)
ANSWERS = st.one_of(
    st.just(CommandAccepted()),
    st.just(CommandPending()),
    st.builds(CommandRefused, rule=st.just("no"), epoch=INTS),
    st.builds(
        SliceBeat,
        steady_s=TIMES,
        prepared=st.booleans(),
        over=st.booleans(),
        go=st.integers(0, 2),
        windows=INTS,
        repaired=st.lists(FORGED_WINDOWS, max_size=2),
    ),
    st.builds(
        SliceEnd,
        go=st.integers(0, 2),
        reports=st.lists(st.builds(WorkflowsDone, workflows=st.just({}), took=TIMES, loaded=TIMES, late_s=TIMES)),
        loss=st.sampled_from(["", "it broke"]),
        isolated=st.booleans(),
        windows=INTS,
        total=st.none(),
        stopped=st.just(False),
        began=st.booleans(),
    ),
    st.builds(AnswerPart, body=st.binary(max_size=3), of=INTS),
    st.just(Values()),
)


@given(st.lists(FORGED_WINDOWS, max_size=3), ANSWERS, ANSWERS)
@settings(max_examples=20, deadline=None)
def test_nothing_that_can_be_read_hangs_or_ends_the_leader(
    tmp_path_factory: pytest.TempPathFactory,
    windows: list[SliceWindow],
    to_ping: SliceAnswer,
    to_order: SliceAnswer,
) -> None:
    async def test(trial: FleetTrial) -> None:
        running = asyncio.ensure_future(trial.run.run())
        await trial.until_loaded()
        first = round(trial.fleet.clock.now_ms() / 100)
        near = [replace(one, window=replace(one.window, bucket=one.window.bucket + first)) for one in windows]
        await send(trial, *windows, *near)
        answering(trial, lambda order, _: to_ping if isinstance(order, PingSlice) else to_order)

        summary = await asyncio.wait_for(running, 3600)

        assert summary.ended == "finished" or summary.ended.startswith("failed: slice 1 "), summary.ended
        reports = {report.slice: report for report in trial.fleet.leaders[-1].reports()}
        for number in (0, 2):
            assert (reports[number].requests, reports[number].loss) == (trial.fleet.targets[number].total, "")

    with_fleet(
        test,
        tmp_path_factory.mktemp("any"),
        [1, 1, 1],
        fleet={"faults": CALM, "on_loss": "continue"},
        rate="30/s",
        duration="5s",
    )

"""A fleet on a bus with faults: it starts together or not at all, counts everything once, and never sends more than
planned."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import pytest

from mainstay.errors import InvalidInput
from mainstay.load.engine.messages import StopRun
from mainstay.load.fleet import FleetSettings
from mainstay.load.fleet.messages import (
    CollectEnd,
    CommandRefused,
    ReleaseSlice,
    SliceCommand,
    SliceEnd,
    SliceLines,
    SliceOrder,
    command_subject,
    decode_answer,
    encode,
    line_subject,
    window_subject,
)
from mainstay.load.generator_process import GeneratorLost
from mainstay.load.stats.model import Summary
from mainstay.testing import BusFaults
from tests.load.fleet.fleet_trials import FleetTrial, with_fleet

CALM = BusFaults(latency_s=0.005)


async def asked(trial: FleetTrial, number: int, order: SliceOrder, *, epoch: int, command: int = 1) -> Any:
    """What another leader hears from a slice."""
    bus = trial.fleet.network.client("successor")
    whole = SliceCommand(job=trial.fleet.job, slice=number, token=1, epoch=epoch, number=command, order=order)
    try:
        return decode_answer(
            await bus.request(
                command_subject(trial.fleet.members[number].node, trial.fleet.job, number), encode(whole), 5
            )
        )
    finally:
        await bus.close()


# seeds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_whatever_the_bus_does_totals_are_exact_and_load_is_never_above_the_plan(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    processes = [chance.randint(1, 3) for _ in range(chance.randint(1, 5))]
    faults = BusFaults(
        latency_s=chance.choice([0.0, 0.01, 0.06]),
        jitter_s=chance.choice([0.0, 0.05]),
        lost=chance.choice([0.0, 0.05, 0.2]),
        duplicated=chance.choice([0.0, 0.2]),
        reordered=chance.choice([0.0, 0.3]),
        late_s=chance.choice([0.2, 2.0]),
    )

    async def disturb(trial: FleetTrial) -> None:
        for _ in range(chance.randint(0, 3)):
            await asyncio.sleep(chance.uniform(0, 12))
            number = chance.randrange(len(processes))
            trial.fleet.cut(number, to=chance.random() < 0.7, back=chance.random() < 0.7)
            await asyncio.sleep(chance.choice([0.5, 3, 8, 40]))
            trial.fleet.join(number)

    async def test(trial: FleetTrial) -> None:
        disturbing = asyncio.ensure_future(disturb(trial))
        (outcome,) = await asyncio.gather(trial.run.run(), return_exceptions=True)
        disturbing.cancel()
        if isinstance(outcome, GeneratorLost):
            assert "not all slices are ready: " in str(outcome)
            assert trial.fleet.sent == 0
        else:
            judge(trial, outcome)
        # what is cut off stops, and all of it ends by itself
        trial.fleet.network.join_all()
        trial.fleet.network.faults = CALM
        await trial.fleet.released()
        assert not any(member.is_loading for member in trial.fleet.members.values())

    def judge(trial: FleetTrial, summary: Summary | BaseException) -> None:
        assert isinstance(summary, Summary), summary
        leader = trial.fleet.leaders[0]
        lost = [report.slice for report in leader.reports() if report.loss]
        started = [report.slice for report in leader.reports() if trial.fleet.targets[report.slice].total]
        if lost or "not started together" in summary.ended:
            assert summary.ended.startswith("failed: "), summary.ended
            # a slice that is cut off may be lost after another one did not start
            # by its number: a slice that is lost before the load may be on another node
            named = [f"slice {number} (node-" in summary.ended for number in lost]
            assert any(named) or "not started together: slice" in summary.ended
            assert summary.requests <= trial.fleet.sent
        else:
            assert summary.ended == "finished" or "no contact" in summary.ended, summary.ended
            assert summary.requests == trial.fleet.sent
            assert not any("in the windows" in reason for reason in summary.trust.reasons), summary.trust.reasons
        if summary.ended == "finished":
            assert (summary.requests, started) == (600, list(range(len(processes))))
        assert trial.busiest <= 3
        buckets = [window.bucket for window in trial.output.windows]
        assert buckets == sorted(set(buckets))
        assert sum(window.iterations for window in trial.output.windows) == summary.iterations

    with_fleet(
        test, tmp_path, processes, seed=seed, fleet={"faults": faults, "on_loss": "fail"}, rate="30/s", duration="20s"
    )


# the start ------------------------------------------------------------------------------------------


def test_no_slice_starts_if_one_is_not_ready_and_the_error_names_it(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        with pytest.raises(GeneratorLost) as error:
            await trial.run.run()

        assert str(error.value) == (
            "not all slices are ready: slice 2 (node-2): it was not ready within 60 s; it was never heard"
        )
        await trial.fleet.released()
        assert trial.fleet.sent == 0

    with_fleet(
        test,
        tmp_path,
        [1, 1, 1],
        fleet={"absent": [2], "settings": FleetSettings(ready_s=60), "faults": CALM},
        vus=3,
        duration="5s",
    )


def test_a_test_that_one_slice_refuses_starts_nowhere(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        with pytest.raises(InvalidInput, match="no module named numpy"):
            await trial.run.run()

        await trial.fleet.released()
        assert trial.fleet.sent == 0

    traits = {1: {"refusal": "no module named numpy"}, 0: {"prepare_s": 30.0}}
    with_fleet(test, tmp_path, [1, 1], fleet={"traits": traits, "faults": CALM}, vus=2, duration="5s")


@pytest.mark.parametrize("seconds", [1.0, 10.0])
def test_a_slice_that_hears_the_order_after_the_instant_refuses_and_all_stop(tmp_path: Path, seconds: float) -> None:
    async def test(trial: FleetTrial) -> None:
        running = asyncio.ensure_future(trial.run.run())
        while not trial.fleet.leaders or any(one.ready is None for one in trial.fleet.leaders[0]._slices):
            await asyncio.sleep(0.01)
        trial.fleet.cut(1)
        await asyncio.sleep(seconds)
        trial.fleet.join(1)

        summary = await running

        assert summary.ended.startswith("failed: not started together: slice 1 (node-1)")
        assert ("after the agreed instant" if seconds == 1 else "had not confirmed the start") in summary.ended
        assert trial.fleet.targets[1].total == 0
        assert summary.requests == trial.fleet.sent <= 3 * 100
        await trial.fleet.released()

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM, "on_loss": "fail"}, rate="100/s", duration="60s")


def test_a_run_that_is_given_up_does_not_wait_for_a_slice_that_is_not_ready(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = asyncio.ensure_future(trial.run.run())
        await asyncio.sleep(30)
        trial.run.stop("cancelled: by the user")
        trial.run.give_up()
        given_up_s = trial.fleet.loop.time()

        summary = await running

        assert summary.ended == "cancelled: by the user"
        assert trial.fleet.loop.time() - given_up_s < 10
        await trial.fleet.released()
        assert trial.fleet.sent == 0

    with_fleet(test, tmp_path, [1, 1], fleet={"absent": [1], "faults": CALM}, vus=2, duration="5s")


def test_a_stop_before_the_instant_ends_the_load_before_it_begins(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        async with trial.fleet.make(2, print) as leader:
            await leader.prepare(trial.planned.order())
            going = asyncio.ensure_future(leader.go(["Shop"], {}, longest_s=60, drain_s=1))
            await asyncio.sleep(0.1)
            leader.stop(hurry=True)

            reports, lost = await going

            assert (len(reports), lost) == (2, None)
            assert trial.fleet.sent == 0

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM, "on_loss": "fail"}, vus=2, duration="60s")


def test_clocks_that_are_minutes_apart_start_together(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        summary = await trial.run.run()

        firsts = {min(target.calls) for target in trial.fleet.targets}
        assert len(firsts) == 1
        assert summary.requests == 500
        leader = trial.fleet.leaders[0]
        assert leader.start_skew_s < 0.02
        assert leader.doubts() == []

    fleet = {"clocks_s": [0.0, 600.0, -600.0], "faults": CALM}
    with_fleet(test, tmp_path, [1, 2, 1], fleet=fleet, rate="100/s", duration="5s")


def test_a_clock_that_can_be_measured_badly_only_is_reported(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        summary = await trial.run.run()

        assert summary.requests == 500
        assert trial.fleet.leaders[0].doubts() == [
            "the clock of slice 0 (node-0) is uncertain by 150 ms",
            "the slices started up to 300 ms apart",
        ]

    with_fleet(test, tmp_path, [1], fleet={"faults": BusFaults(latency_s=0.15)}, rate="100/s", duration="5s")


def test_a_clock_that_was_measured_badly_when_the_load_began_is_reported_though_it_is_known_well_later(
    tmp_path: Path,
) -> None:
    async def test(trial: FleetTrial) -> None:
        running = asyncio.ensure_future(trial.run.run())
        await trial.until_loaded()
        trial.fleet.network.faults = CALM
        await running

        assert trial.fleet.leaders[0].start_skew_s == pytest.approx(0.3)

    with_fleet(test, tmp_path, [1], fleet={"faults": BusFaults(latency_s=0.15)}, rate="100/s", duration="5s")


# contact --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("to", "back"), [(True, True), (True, False), (False, True)])
def test_a_slice_that_is_cut_off_stops_by_its_own_clock_before_it_counts_as_lost(
    tmp_path: Path, to: bool, back: bool
) -> None:
    async def test(trial: FleetTrial) -> None:
        running = asyncio.ensure_future(trial.run.run())
        await trial.until_loaded()
        await asyncio.sleep(5)
        trial.fleet.cut(1, to=to, back=back)
        cut_s = trial.fleet.loop.time()

        while trial.fleet.members[1].is_loading:
            await asyncio.sleep(0.05)
        assert 18 < trial.fleet.loop.time() - cut_s < 21
        assert not running.done()
        summary = await running

        assert trial.fleet.loop.time() - cut_s < 32
        assert summary.ended.startswith(
            "failed: slice 1 (node-1) was lost, while it was under load: it has not answered"
        )
        assert "since 22:13:" in summary.ended
        assert summary.requests <= trial.fleet.sent
        assert trial.busiest == 10
        assert not trial.fleet.members[0].is_loading

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM, "on_loss": "fail"}, rate="100/s", duration="10m")


def test_a_slice_that_stopped_itself_is_counted_exactly_if_it_is_reached_again_in_time(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = asyncio.ensure_future(trial.run.run())
        await trial.until_loaded()
        trial.fleet.cut(1)
        await asyncio.sleep(22.5)
        trial.fleet.join(1)

        summary = await running

        assert "slice 1 (node-1): it had no contact for 20 s, and stopped its load" in summary.ended
        assert summary.requests == trial.fleet.sent

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM, "on_loss": "fail"}, rate="100/s", duration="10m")


def test_a_machine_that_ends_is_named_and_its_windows_are_kept(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = asyncio.ensure_future(trial.run.run())
        await trial.until_loaded()
        await asyncio.sleep(3)
        trial.fleet.members[0].crash()
        await asyncio.sleep(1)
        trial.fleet.assignments.end(0, 1, "its machine has ended")

        summary = await running

        assert re.search(
            r"slice 0 \(node-0\) was lost, while it was under load: its machine has ended; "
            r"what it did later than (2\.[89]|3\.\d) s after the start is unknown",
            summary.ended,
        )
        assert trial.fleet.sent - 20 <= summary.requests <= trial.fleet.sent

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM, "on_loss": "fail"}, rate="100/s", duration="10m")


def test_a_successor_of_the_leader_gets_the_result_that_a_slice_has_kept(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        host = trial.fleet.loop.host("leader")
        host.start(trial.run.run())
        await trial.until_loaded()
        await asyncio.sleep(7)
        host.crash()
        await asyncio.sleep(60)

        for number in (0, 1):
            end = await asked(trial, number, CollectEnd(1), epoch=5)
            assert isinstance(end, SliceEnd)
            assert end.isolated
            assert end.total is not None
            assert end.total.iterations == trial.fleet.targets[number].total > 500
            assert [report.workflows["Shop"].iterations for report in end.reports] == [end.total.iterations]

            refused = await asked(trial, number, StopRun(True), epoch=4)
            assert refused == CommandRefused(
                rule="the command is from a leader of epoch 4; the leader has epoch 5", epoch=5
            )
            await asked(trial, number, ReleaseSlice(), epoch=5, command=2)
        await trial.fleet.released()

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM, "on_loss": "fail"}, rate="100/s", duration="10m")


def test_a_slice_that_waits_for_a_start_gives_itself_back_without_its_leader(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        async with trial.fleet.make(2, print) as leader:
            await leader.prepare(trial.planned.order())
            trial.fleet.cut(0)
            trial.fleet.cut(1)
            began_s = trial.fleet.loop.time()
            await trial.fleet.released()
            assert 18 < trial.fleet.loop.time() - began_s < 25

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM, "on_loss": "fail"}, vus=2, duration="5s")


# windows --------------------------------------------------------------------------------------------


def test_a_run_whose_windows_are_all_lost_has_exact_totals_and_stops_at_once(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        async def lose(subject: str, body: bytes, *, reply: str | None = None) -> None:
            if not subject.startswith("data."):
                await publish(subject, body, reply=reply)

        bus = trial.fleet.members[1].service._bus
        publish, bus.publish = bus.publish, lose
        running = asyncio.ensure_future(trial.run.run())
        await asyncio.sleep(60)
        assert not running.done()
        stopped_s = trial.fleet.loop.time()
        trial.run.stop("enough")

        summary = await running

        assert trial.fleet.loop.time() - stopped_s < 3
        assert summary.requests == trial.fleet.sent > 5_800
        assert trial.fleet.leaders[0].reports()[1].repaired_windows > 570

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM, "on_loss": "fail"}, rate="100/s", duration="1h")


def test_layers_of_workflows_run_one_after_the_other_on_all_slices(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        async with trial.fleet.make(3, trial.output.windows.append) as leader:
            await leader.prepare(trial.planned.order())
            for _ in range(3):
                reports, lost = await leader.go(["Shop"], {}, longest_s=5, drain_s=1)
                assert (len(reports), lost) == (3, None)
        assert sum(window.iterations for window in trial.output.windows) == trial.fleet.sent == 3 * 200

    faults = BusFaults(latency_s=0.01, lost=0.1, duplicated=0.2, reordered=0.2)
    # an order that is lost is sent again before the instant, several times
    fleet = {"faults": faults, "on_loss": "fail", "settings": FleetSettings(ahead_s=3.0)}
    with_fleet(test, tmp_path, [2, 1], fleet=fleet, rate="100/s", duration="2s")


def test_lines_that_steps_print_reach_the_leader(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        lines: list[tuple[int, str]] = []
        async with trial.fleet.make(2, print, on_line=lambda process, line: lines.append((process, line))) as leader:
            await leader.prepare(trial.planned.order())
            trial.fleet.members[1].service._work._on_line(1, "hello")
            await asyncio.sleep(1)
        assert lines == [(1, "hello")]

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM, "on_loss": "fail"}, vus=2, duration="5s")


def test_what_other_nodes_publish_about_a_run_does_not_disturb_it(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        lines: list[str] = []
        running = asyncio.ensure_future(trial.run.run())
        trial.run._on_line = lambda _, line: lines.append(line)
        await trial.until_loaded()
        stranger, member = trial.fleet.network.client("x.1", host="x"), trial.fleet.members[0]
        unreadable = b"\x81\xa5lines\x91\x92\x00\xa1\xff"
        forged = encode(SliceLines(lines=[(0, "forged")]))
        for node, body in (("x", forged), ("x", unreadable), (member.node, unreadable)):
            await stranger.publish(line_subject(node, trial.fleet.job, 0), body)
            await stranger.publish(window_subject(node, trial.fleet.job, 0), body)

        summary = await running

        assert (summary.ended, summary.requests, lines) == ("finished", 500, [])

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="5s")


# shares ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_processes_are_numbered_over_all_members(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    processes = [chance.randint(1, 4) for _ in range(chance.randint(1, 6))]

    async def test(trial: FleetTrial) -> None:
        summary = await trial.run.run()

        made = [one for member in trial.fleet.members.values() for one in member.runners[0].generators]
        assert [one.number for one in made] == list(range(sum(processes)))
        assert summary.requests == trial.fleet.sent == 997

    with_fleet(test, tmp_path, processes, seed=seed, fleet={"faults": CALM, "on_loss": "fail"}, vus=40, iterations=997)

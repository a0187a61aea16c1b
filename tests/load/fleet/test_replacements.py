"""Slices that are lost under load: others take their place, nothing is counted twice, and what is unknown is named."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from mainstay.errors import InvalidInput
from mainstay.load.fleet import FleetSettings
from mainstay.load.generator_process import GeneratorLost
from mainstay.load.report.slices import slice_losses
from mainstay.load.runner import RestartNeeded
from mainstay.load.stats.model import Summary
from mainstay.testing import BusFaults
from tests.load.fleet.fleet_trials import FleetTrial, with_fleet

CALM = BusFaults(latency_s=0.005)


async def under_load(trial: FleetTrial, seconds: float) -> asyncio.Future[Summary]:
    """A run that has been under load for some seconds."""
    running = asyncio.ensure_future(trial.run.run())
    await trial.until_loaded()
    await asyncio.sleep(seconds)
    return running


def unknown(trial: FleetTrial, summary: Summary) -> int:
    """How many calls the target counted that the report does not."""
    return trial.fleet.sent - summary.requests


def test_a_slice_whose_machine_dies_goes_on_elsewhere_and_the_gap_is_named(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 10)
        trial.fleet.crash(1)

        summary = await running

        assert (summary.ended, summary.verdict) == ("finished", "passed")
        # windows are sent two at a time
        assert 0 <= unknown(trial, summary) <= 10
        first, lost, again = summary.slices
        assert [(one.slice, one.token, one.node) for one in summary.slices] == [
            (0, 1, "node-0"),
            (1, 1, "node-1"),
            (1, 2, "node-2"),
        ]
        assert first.requests == 3000
        assert lost.loss.startswith("slice 1 (node-1) was lost, while it was under load: its node node-1 has ended")
        assert lost.end_s == pytest.approx(10, abs=0.5)
        assert lost.gap_s == pytest.approx(again.begin_s - (lost.end_s or 0))
        assert lost.gap_s < 6
        assert again.requests == round((60 - again.begin_s) * 50)
        assert sum(one.requests for one in summary.slices) == summary.requests
        assert trial.busiest == 10
        (doubt,) = summary.trust.reasons
        assert "Its part of the load (1 of 2 processes) is missing or unknown from " in doubt
        assert not any(member.is_loading for member in trial.fleet.all_members)
        assert [member.starts for member in trial.fleet.all_members] == [1, 1, 1]

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="60s")


def test_the_iterations_that_a_lost_slice_began_are_not_made_again(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 5)
        trial.fleet.crash(0)
        await asyncio.sleep(6)
        trial.fleet.crash(0)

        summary = await running

        assert summary.ended == "finished"
        assert len(summary.slices) == 4
        assert summary.iterations == 2000
        assert 2000 <= trial.fleet.sent <= 2020

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, vus=2, iterations=2000)


def test_a_generator_that_dies_ends_its_slice_whose_numbers_are_whole(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 5)
        trial.fleet.members[1].runners[0].generators[1].kill()

        summary = await running

        assert summary.ended == "finished"
        assert unknown(trial, summary) <= 10
        assert [one.token for one in summary.slices] == [1, 1, 2]
        assert summary.slices[1].loss.startswith("slice 1 (node-1): generator 2 ended with signal 9")
        assert summary.slices[1].gap_s < 5
        # the node's handler has heard that it is to be done again
        assert trial.fleet.assignments.ended[1, 1].startswith("slice 1 (node-1): generator 2 ended with signal 9")
        assert trial.fleet.assignments.given_up == []

    with_fleet(test, tmp_path, [1, 2], fleet={"faults": CALM}, rate="90/s", duration="30s")


@pytest.mark.parametrize(("to", "back"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("closes", [True, False])
def test_a_slice_that_is_cut_off_is_replaced_when_it_has_stopped(
    tmp_path: Path, to: bool, back: bool, closes: bool
) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 10)
        cut_off = trial.fleet.members[1]
        trial.fleet.cut(1, to=to, back=back, closes=closes)

        while trial.fleet.members[1] is cut_off:
            await asyncio.sleep(0.05)
        assert not cut_off.is_loading
        summary = await running

        assert summary.ended == "finished"
        assert trial.busiest == 10
        lost = summary.slices[1]
        assert lost.gap_s < (32 if back else 12)
        # what it sent since then is all that is missing
        assert unknown(trial, summary) == pytest.approx(20 * 50 if back else 0, abs=80)

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="2m")


def test_a_leader_takes_a_slice_from_a_node_that_is_fine_for_others(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 10)
        trial.fleet.cut(1)

        summary = await running

        ((number, token, why),) = trial.fleet.assignments.given_up
        assert (number, token) == (1, 1)
        assert "it has not answered for 2" in why
        assert summary.ended == "finished"

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="2m")


def test_a_slice_whose_machine_was_suspended_never_doubles_the_load(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 10)
        frozen = trial.fleet.members[1]
        frozen.freeze()
        await asyncio.sleep(60)
        before = trial.fleet.sent
        frozen.thaw()
        # at this moment, the generators of the other machine and of the replacement send nothing
        await asyncio.sleep(0.05)

        assert trial.fleet.sent == before
        assert not frozen.is_loading
        summary = await running
        assert summary.ended == "finished"
        assert [one.token for one in summary.slices] == [1, 1, 2]

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="2m")


def test_a_loss_shortly_before_the_end_is_not_replaced(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 29)
        trial.fleet.crash(1)

        summary = await running

        assert summary.ended == "finished"
        assert [one.token for one in summary.slices] == [1, 1]
        assert trial.fleet.loop.time() < 45

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM, "replace_s": 5.0}, rate="100/s", duration="30s")


def test_a_run_continues_without_the_slices_that_it_has_lost(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 10)
        trial.fleet.crash(1)

        summary = await running

        assert (summary.ended, summary.verdict) == ("finished", "passed")
        assert [one.token for one in summary.slices] == [1, 1]
        assert summary.slices[1].gap_s == pytest.approx(20, abs=1)
        assert unknown(trial, summary) <= 10
        assert "from 9.8 s" in summary.trust.reasons[0]
        assert "to 30.0 s" in summary.trust.reasons[0]
        await trial.fleet.released()

    fleet = {"faults": CALM, "on_loss": "continue"}
    with_fleet(test, tmp_path, [1, 1], fleet=fleet, rate="100/s", duration="30s")


def test_a_run_that_has_lost_all_its_slices_cannot_continue(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 10)
        trial.fleet.crash(0)
        trial.fleet.crash(1)

        summary = await running

        assert summary.ended == "failed: all slices were lost"
        assert 0 <= unknown(trial, summary) <= 20

    fleet = {"faults": CALM, "on_loss": "continue"}
    with_fleet(test, tmp_path, [1, 1], fleet=fleet, rate="100/s", duration="30s")


def test_a_run_that_is_to_be_started_again_has_ended_before_that_is_said(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 10)
        trial.fleet.crash(1)

        with pytest.raises(RestartNeeded, match="slice 1"):
            await running

        assert not trial.fleet.is_loading
        await trial.fleet.released()

    fleet = {"faults": CALM, "on_loss": "restart"}
    with_fleet(test, tmp_path, [1, 1], fleet=fleet, rate="100/s", duration="30s")


def test_a_slice_that_will_not_be_assigned_again_ends_the_run(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 10)
        trial.fleet.crash(1)

        summary = await running

        assert summary.ended == "failed: slice 1 was lost 1 times"
        assert not trial.fleet.is_loading

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM, "budget": 0}, rate="100/s", duration="60s")


# before the load ------------------------------------------------------------------------------------


def test_a_slice_that_is_lost_while_it_prepares_is_prepared_at_its_next_assignment(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = asyncio.ensure_future(trial.run.run())
        await asyncio.sleep(5)
        trial.fleet.crash(1)

        summary = await running

        assert summary.ended == "finished"
        assert summary.requests == trial.fleet.sent == 1000
        assert summary.trust.ok

    fleet = {"faults": CALM, "traits": {0: {"prepare_s": 20.0}}, "on_loss": "fail"}
    with_fleet(test, tmp_path, [1, 1], fleet=fleet, rate="100/s", duration="10s")


def test_who_has_no_machine_is_named_with_what_it_waits_for(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        with pytest.raises(GeneratorLost) as error:
            await trial.run.run()

        assert str(error.value) == "not all slices are ready: slice 1: slice 1 waits for a free core"
        assert trial.fleet.sent == 0

    fleet = {"faults": CALM, "unplaced": [1], "settings": FleetSettings(ready_s=60)}
    with_fleet(test, tmp_path, [1, 1], fleet=fleet, vus=2, duration="5s")


def test_a_machine_may_come_late(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = asyncio.ensure_future(trial.run.run())
        await asyncio.sleep(60)
        assert trial.fleet.sent == 0
        trial.fleet.place(1, 1)

        assert (await running).requests == 500

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM, "unplaced": [1]}, rate="100/s", duration="5s")


def test_a_test_that_a_replacement_refuses_ends_the_run(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 10)
        trial.fleet.traits[1] = {"refusal": "no module named numpy"}
        trial.fleet.crash(1)

        summary = await running

        assert summary.ended.startswith("failed: ")
        assert "no module named numpy" in summary.ended
        assert not trial.fleet.is_loading

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="60s")


# stopping -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "give up", "kill"])
def test_a_run_that_waits_for_a_replacement_ends_at_once_and_nothing_starts_after(tmp_path: Path, how: str) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 10)
        trial.fleet.crash(1)
        await asyncio.sleep(5)
        stopped_s = trial.fleet.loop.time()
        trial.run.stop("cancelled: by the user")
        if how != "stop":
            trial.run.give_up()
        if how == "kill":
            trial.run.kill()

        summary = await running

        assert summary.ended == "cancelled: by the user"
        assert trial.fleet.loop.time() - stopped_s < 3
        assert trial.fleet.targets[1].total <= 510
        trial.fleet.place(1, 2)
        await asyncio.sleep(400)
        assert trial.fleet.targets[1].total <= 510

    fleet = {"faults": CALM, "replace_s": 1e6}
    with_fleet(test, tmp_path, [1, 1], fleet=fleet, rate="100/s", duration="60s")


@pytest.mark.parametrize("how", ["stop", "give up"])
def test_a_run_that_waits_for_its_machines_ends_at_once(tmp_path: Path, how: str) -> None:
    async def test(trial: FleetTrial) -> None:
        running = asyncio.ensure_future(trial.run.run())
        await asyncio.sleep(20)
        stopped_s = trial.fleet.loop.time()
        trial.run.stop("cancelled: by the user")
        if how != "stop":
            trial.run.give_up()

        summary = await running

        assert summary.ended == "cancelled: by the user"
        assert trial.fleet.loop.time() - stopped_s < 3
        assert trial.fleet.sent == 0

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM, "unplaced": [1]}, vus=2, duration="5s")


def test_a_slice_that_cannot_be_told_to_stop_is_named_as_unconfirmed(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 10)
        trial.fleet.cut(1)
        await asyncio.sleep(1)
        stopped_s = trial.fleet.loop.time()
        trial.run.stop("cancelled: by the user")

        summary = await running

        assert 13 < trial.fleet.loop.time() - stopped_s < 19
        assert summary.ended == "cancelled: by the user"
        assert "its stop is unconfirmed: it has not answered for 1" in summary.slices[1].loss
        assert any("its stop is unconfirmed" in reason for reason in summary.trust.reasons)
        assert [one.stop for one in summary.slices] == ["stopped", "unconfirmed"]
        assert slice_losses(summary)[-1] == "the stop: 1 slice stopped, 0 had ended, 1 unconfirmed"
        await asyncio.sleep(10)
        assert not trial.fleet.is_loading

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="60s")


# stuck ----------------------------------------------------------------------------------------------


def test_a_slice_that_answers_but_makes_no_progress_is_replaced(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 10)
        for generator in trial.fleet.members[1].runners[0].generators:
            generator.host.freeze()

        summary = await running

        assert summary.ended == "finished"
        assert "it is stuck: it answers, but has sent no window for 120 s" in summary.slices[1].loss
        assert summary.slices[1].gap_s == pytest.approx(125, abs=5)

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="5m")


def test_a_test_whose_slices_are_stuck_again_and_again_fails_by_name(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        running = await under_load(trial, 10)

        async def freeze_all() -> None:
            while True:
                for member in trial.fleet.all_members:
                    for generator in [each for runner in member.runners for each in runner.generators]:
                        if generator.is_loading and not generator.host.frozen:
                            generator.host.freeze()
                await asyncio.sleep(1)

        freezing = asyncio.ensure_future(freeze_all())
        summary = await running
        freezing.cancel()

        assert summary.ended.startswith("failed: slice ")
        told = "it is stuck: it answers, but has sent no window for 120 s"
        assert any(told in reason for reason in summary.trust.reasons)
        assert summary.verdict == "failed"

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM, "budget": 3}, rate="100/s", duration="1h")


def test_a_plan_that_is_silent_for_minutes_is_not_stuck(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        for target in trial.fleet.targets:
            target.call_s = 200.0

        summary = await trial.run.run()

        assert (summary.ended, summary.requests) == ("finished", 2 * 3)
        assert [one.loss for one in summary.slices] == ["", ""]

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, vus=2, duration="11m")


def test_a_steady_soak_whose_windows_are_shed_is_never_stuck(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        async def lose(subject: str, body: bytes, *, reply: str | None = None) -> None:
            if not subject.startswith("data."):
                await publish(subject, body, reply=reply)

        bus = trial.fleet.members[1].service._bus
        publish, bus.publish = bus.publish, lose

        summary = await trial.run.run()

        assert summary.ended == "finished"
        assert summary.requests == trial.fleet.sent == 6000
        assert summary.trust.ok

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="10/s", duration="10m")


# seeds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_whatever_is_lost_the_report_is_exact_and_load_is_never_above_the_plan(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    processes = [chance.randint(1, 3) for _ in range(chance.randint(1, 4))]
    faults = BusFaults(
        latency_s=chance.choice([0.0, 0.01, 0.06]),
        jitter_s=chance.choice([0.0, 0.05]),
        lost=chance.choice([0.0, 0.05, 0.2]),
        duplicated=chance.choice([0.0, 0.2]),
        reordered=chance.choice([0.0, 0.3]),
        late_s=chance.choice([0.2, 2.0]),
    )

    async def disturb(trial: FleetTrial) -> None:
        for _ in range(chance.randint(1, 4)):
            await asyncio.sleep(chance.uniform(0, 20))
            number = chance.randrange(len(processes))
            member = trial.fleet.members[number]
            match chance.choice(["crash", "cut", "kill"]):
                case "crash" if member.host.alive:
                    trial.fleet.crash(number, proven_s=chance.choice([0.2, 25.0]))
                case "cut":
                    node = member.node
                    trial.fleet.cut(number, to=chance.random() < 0.7, back=chance.random() < 0.7)
                    await asyncio.sleep(chance.choice([0.5, 8, 40]))
                    trial.fleet.network.join("leader", node)
                    trial.fleet.network.join(node, "leader")
                case "kill" if member.runners:
                    chance.choice(member.runners[0].generators).kill()

    async def test(trial: FleetTrial) -> None:
        disturbing = asyncio.ensure_future(disturb(trial))
        (outcome,) = await asyncio.gather(trial.run.run(), return_exceptions=True)
        disturbing.cancel()
        if isinstance(outcome, Summary):
            judge(trial, outcome)
        else:
            # a generator that dies while it prepares is an error of the test, as on one machine
            assert isinstance(outcome, GeneratorLost | InvalidInput), outcome
            assert trial.fleet.sent == 0
        trial.fleet.network.join_all()
        trial.fleet.network.faults = CALM
        await trial.fleet.released()
        assert not trial.fleet.is_loading

    def judge(trial: FleetTrial, summary: Summary) -> None:
        assert summary.ended == "finished" or "not started together" in summary.ended, summary.ended
        assert trial.busiest <= 3
        assert sum(one.requests for one in summary.slices) == summary.requests
        assert not any("do not add up" in reason for reason in summary.trust.reasons), summary.trust.reasons
        lost = [one for one in summary.slices if one.loss]
        assert 0 <= unknown(trial, summary) <= 30 * 30 * len(lost)
        if summary.ended == "finished":
            assert len([reason for reason in summary.trust.reasons if "is missing or unknown" in reason]) == len(lost)
            gaps = sum(one.gap_s * one.processes for one in lost)
            # each window of a process that was not sent is in a gap
            assert summary.requests >= 30 * (60 - gaps / sum(processes)) - 5 * len(lost) - 1
        buckets = [window.bucket for window in trial.output.windows]
        assert buckets == sorted(set(buckets))
        assert sum(window.iterations for window in trial.output.windows) == summary.iterations

    with_fleet(test, tmp_path, processes, seed=seed, fleet={"faults": faults}, rate="30/s", duration="60s")

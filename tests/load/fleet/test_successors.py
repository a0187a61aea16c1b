"""Leaders of a fleet that die: another one leads the same run on. Nothing restarts, and nothing is counted twice."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainstay.errors import StaleClaim
from mainstay.load.fleet import FleetRecord, FleetSettings
from mainstay.load.generator_process import GeneratorLost
from mainstay.load.stats.model import Point, Summary
from mainstay.testing import BusFaults, SimulatedHost
from sim.load_runner import SimulatedRunner
from tests.load.fleet.fleet_trials import FleetTrial, with_fleet

CALM = BusFaults(latency_s=0.005)

LAYERS = """
class Shop(Workflow):
    @setup
    async def log_in(self) -> str:
        return "token"

    @step()
    async def browse(self, url: URL = "/") -> HTTPResponse:
        return await self.client.http.get(url)

    @teardown
    async def log_out(self) -> None:
        pass


@depends("Shop")
class Checkout(Workflow):
    @step()
    async def pay(self, url: URL = "/") -> HTTPResponse:
        return await self.client.http.get(url)
"""


class Leaders:
    """Leaders of one run, each on a host of its own."""

    def __init__(self, trial: FleetTrial) -> None:
        self.trial = trial
        self.hosts: list[SimulatedHost] = []
        self.runnings: list[asyncio.Task[Summary]] = []

    def lead(self, *, earlier: Summary | None = None) -> SimulatedHost:
        """A new leader."""
        run = self.trial.succeed(earlier=earlier)
        self.hosts.append(self.trial.fleet.loop.host(f"leader-{len(self.hosts)}"))

        async def lead() -> None:
            # a task of its own, whose errors the test looks at
            self.runnings.append(asyncio.ensure_future(run.run()))

        self.hosts[-1].start(lead())
        return self.hosts[-1]

    async def outcome(self, number: int = -1) -> Any:
        """The summary of a leader, or its error."""
        while len(self.runnings) < len(self.hosts):
            await asyncio.sleep(0)
        (outcome,) = await asyncio.gather(self.runnings[number], return_exceptions=True)
        return outcome

    async def until(self, seconds: float) -> None:
        """Until there has been load for some seconds."""
        await self.trial.until_loaded()
        await asyncio.sleep(seconds)

    async def result(self) -> Summary:
        """What the last leader reports."""
        outcome = await self.outcome()
        assert isinstance(outcome, Summary), outcome
        return outcome


def judge_whole(trial: FleetTrial, summary: Summary, requests: int) -> None:
    """Every call was counted once, and no slice began again."""
    assert summary.ended == "finished"
    assert summary.requests == summary.iterations == trial.fleet.sent == requests
    assert summary.trust.reasons == []
    assert [member.starts for member in trial.fleet.all_members] == [1] * len(trial.fleet.processes)
    assert all(len(member.runners) == 1 for member in trial.fleet.all_members)
    assert [one.token for one in summary.slices] == [1] * len(trial.fleet.processes)
    assert sum(one.requests for one in summary.slices) == requests


def test_a_load_goes_on_when_its_leader_dies_and_its_successor_counts_it_all(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        first = leaders.lead()
        await leaders.until(20)
        so_far, points = trial.run.so_far()
        so_far.points = [msgspec.msgpack.decode(point, type=Point) for point in points]
        first.crash()
        await asyncio.sleep(5)
        leaders.lead(earlier=so_far)

        summary = await leaders.result()

        judge_whole(trial, summary, 6000)
        assert summary.header.started_ms == so_far.header.started_ms
        assert summary.elapsed_s == pytest.approx(60, abs=0.3)
        # the curve has no hole, and nothing twice
        at_s = 0.0
        for point in summary.points:
            assert point.at_s == pytest.approx(at_s, abs=0.01)
            at_s = point.at_s + point.width_s
        assert at_s == pytest.approx(60, abs=0.3)
        assert sum(point.rate * point.width_s for point in summary.points) == pytest.approx(6000)
        buckets = [window.bucket for window in trial.output.windows]
        assert buckets == sorted(set(buckets))

    with_fleet(test, tmp_path, [1, 2], fleet={"faults": CALM}, rate="100/s", duration="60s")


def test_leaders_may_die_again_and_again(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        await trial.until_loaded()
        for _ in range(5):
            await asyncio.sleep(8)
            leaders.hosts[-1].crash()
            await asyncio.sleep(2)
            leaders.lead()

        judge_whole(trial, await leaders.result(), 6000)

    with_fleet(test, tmp_path, [1, 1, 1], fleet={"faults": CALM}, rate="100/s", duration="60s")


def test_a_load_that_ended_without_a_leader_is_counted(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        await leaders.until(15)
        leaders.hosts[0].crash()
        await asyncio.sleep(10)
        assert not trial.fleet.is_loading
        leaders.lead()

        judge_whole(trial, await leaders.result(), 2000)

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="20s")


@pytest.mark.parametrize("sent", [False, True])
def test_a_leader_that_dies_at_go_starts_the_load_once(tmp_path: Path, sent: bool) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        first = leaders.lead()

        def crash(record: FleetRecord) -> None:
            if record.gos and len(leaders.hosts) == 1:
                trial.fleet.loop.call_later(0.1 if sent else 0.0, first.crash)
                if not sent:
                    first.crash()

        trial.fleet.on_saved = crash
        while first.alive:
            await asyncio.sleep(0.01)
        await asyncio.sleep(3)
        assert (trial.fleet.sent > 0) is sent
        leaders.lead()

        judge_whole(trial, await leaders.result(), 1000)
        assert [go.void for go in trial.fleet.record.gos] == ([False] if sent else [True, False])

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="10s")


# with seed 6, a leader dies before both slices have its order to go, and the run is "not started together"
@pytest.mark.parametrize("seed", range(7, 19))
def test_a_leader_that_dies_anywhere_between_layers_repeats_nothing(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noted(name: str) -> None:
        method = getattr(SimulatedRunner, name)

        async def note(self: SimulatedRunner, workflows: list[str], *given: Any, **named: Any) -> Any:
            asked.extend(f"{name} {workflow}" for workflow in workflows)
            await asyncio.sleep(1)
            return await method(self, workflows, *given, **named)

        monkeypatch.setattr(SimulatedRunner, name, note)

    for name in ("set_up", "collect_provided", "tear_down"):
        noted(name)

    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        chance = random.Random(seed)
        while True:
            await asyncio.sleep(chance.uniform(0.2, 8))
            if leaders.runnings[-1].done():
                break
            leaders.hosts[-1].crash()
            await asyncio.sleep(chance.uniform(0.1, 4))
            leaders.lead()

        summary = await leaders.result()

        judge_whole(trial, summary, 1000)
        once = ["set_up Shop", "collect_provided Shop", "set_up Checkout", "collect_provided Checkout"]
        assert asked[:4] == once
        # each where it was set up, which may be two slices
        assert sorted(asked[4:]) == ["tear_down Checkout", "tear_down Shop"]

    faults = BusFaults(latency_s=0.01, lost=0.05, duplicated=0.1, reordered=0.1)
    fleet = {"faults": faults, "settings": FleetSettings(ahead_s=5.0)}
    with_fleet(test, tmp_path, [1, 1], seed=seed, fleet=fleet, text=LAYERS, rate="50/s", duration="10s")


@pytest.mark.parametrize("on_loss", ["replace", "fail"])
def test_a_teardown_that_was_done_is_done_although_its_slice_is_lost_later(tmp_path: Path, on_loss: str) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        torn_down = asyncio.Event()

        def saved(record: FleetRecord) -> None:
            if "tear_down/0/1" in record.answers:
                torn_down.set()

        trial.fleet.on_saved = saved
        leaders.lead()
        await torn_down.wait()
        leaders.hosts[-1].crash()
        trial.fleet.crash(0)
        await asyncio.sleep(1)
        leaders.lead()

        summary = await leaders.result()

        assert (summary.ended, summary.skipped) == ("finished", {})

    with_fleet(
        test, tmp_path, [1, 1], fleet={"faults": CALM, "on_loss": on_loss}, text=LAYERS, rate="50/s", duration="5s"
    )


def test_a_slice_that_was_lost_without_a_leader_is_replaced_and_what_is_unknown_is_named(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        await leaders.until(15)
        leaders.hosts[0].crash()
        trial.fleet.crash(1)
        await asyncio.sleep(5)
        leaders.lead()

        summary = await leaders.result()

        assert summary.ended == "finished"
        assert [(one.slice, one.token) for one in summary.slices] == [(0, 1), (1, 1), (1, 2)]
        lost = summary.slices[1]
        assert lost.loss == "slice 1 (node-1) was lost while the run had no leader"
        assert (lost.requests, lost.begin_s, lost.end_s) == (0, 0.0, 0.0)
        assert lost.gap_s == summary.slices[2].begin_s > 15
        assert trial.fleet.sent - summary.requests == pytest.approx(50 * 15, abs=15)
        assert "is missing or unknown from 0.0 s to 2" in summary.trust.reasons[0]
        assert trial.busiest == 10

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="60s")


def test_what_was_noted_with_the_numbers_so_far_is_kept_of_a_slice_that_is_lost_without_a_leader(
    tmp_path: Path,
) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        await leaders.until(15)
        trial.run.so_far()
        trial.fleet.stored = msgspec.msgpack.encode(trial.fleet.leaders[0].record)
        await asyncio.sleep(1)
        leaders.hosts[0].crash()
        trial.fleet.crash(1)
        await asyncio.sleep(5)
        leaders.lead()

        summary = await leaders.result()

        assert summary.ended == "finished"
        lost = summary.slices[1]
        assert lost.loss == "slice 1 (node-1) was lost while the run had no leader"
        assert lost.requests == pytest.approx(750, abs=20)
        assert lost.end_s == pytest.approx(15, abs=0.5)
        assert lost.gap_s == pytest.approx(summary.slices[2].begin_s - 15, abs=0.5)
        assert trial.fleet.sent - summary.requests == pytest.approx(50, abs=15)
        assert not any("do not add up" in reason for reason in summary.trust.reasons)

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="60s")


def test_what_was_noted_is_counted_if_no_slice_is_left_without_a_leader(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        await leaders.until(15)
        trial.run.so_far()
        trial.fleet.stored = msgspec.msgpack.encode(trial.fleet.leaders[0].record)
        leaders.hosts[0].crash()
        trial.fleet.crash(0)
        await asyncio.sleep(5)
        leaders.lead()

        summary = await leaders.result()

        assert summary.ended.startswith("failed: ")
        assert [one.requests for one in summary.slices] == [summary.requests]
        assert summary.requests == pytest.approx(1500, abs=40)

    fleet = {"faults": CALM, "on_loss": "continue"}
    with_fleet(test, tmp_path, [1], fleet=fleet, rate="100/s", duration="60s")


def test_what_was_noted_of_a_slice_is_kept_while_it_does_not_answer_the_successor(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        await leaders.until(15)
        trial.run.so_far()
        trial.fleet.stored = msgspec.msgpack.encode(trial.fleet.leaders[0].record)
        leaders.hosts[0].crash()
        trial.fleet.crash(1, proven_s=15)
        leaders.lead()
        await asyncio.sleep(10)
        trial.run.so_far()

        summary = await leaders.result()

        assert summary.slices[1].requests == pytest.approx(750, abs=20)

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="60s")


def test_what_a_leader_had_received_of_a_lost_slice_outlives_it(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        await leaders.until(15)
        trial.fleet.crash(1)
        await asyncio.sleep(1)
        leaders.hosts[0].crash()
        await asyncio.sleep(2)
        leaders.lead()

        summary = await leaders.result()

        assert summary.ended == "finished"
        assert summary.slices[1].requests == pytest.approx(750, abs=20)
        # windows are sent two at a time
        assert 0 <= trial.fleet.sent - summary.requests <= 10
        assert summary.slices[1].gap_s < 8
        assert trial.busiest == 10

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="60s")


def test_slices_that_waited_too_long_for_a_leader_are_replaced_and_their_numbers_are_kept(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        await leaders.until(15)
        leaders.hosts[0].crash()
        await asyncio.sleep(40)
        assert not trial.fleet.is_loading
        leaders.lead()

        summary = await leaders.result()

        assert summary.ended == "finished"
        assert summary.requests == trial.fleet.sent
        assert [one.token for one in summary.slices] == [1, 2, 1, 2]
        assert "it had no contact for 20 s, and stopped its load" in summary.slices[0].loss
        assert trial.busiest == 10

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="2m")


def test_a_leader_that_was_suspended_is_refused_and_disturbs_nothing(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        first = leaders.lead()
        await leaders.until(15)
        first.freeze()
        await asyncio.sleep(5)
        leaders.lead()
        await asyncio.sleep(10)
        first.thaw()

        judge_whole(trial, await leaders.result(), 6000)
        assert isinstance(await leaders.outcome(0), StaleClaim)

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="60s")


def test_a_leader_that_leaves_sends_nothing_any_more(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        await leaders.until(15)
        first = trial.output
        trial.fleet.leaders[0].leave()
        assert isinstance(await leaders.outcome(0), StaleClaim)
        assert first.stopped == 1
        leaders.lead()

        judge_whole(trial, await leaders.result(), 6000)

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="60s")


def test_a_leader_that_cannot_store_what_it_is_about_to_do_does_not_do_it(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        await asyncio.sleep(0.5)
        trial.fleet.stored_by = 2

        assert isinstance(await leaders.outcome(0), PermissionError)
        assert trial.fleet.sent == 0
        assert not any(member.released.is_set() for member in trial.fleet.all_members)

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="60s")


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.5, 3.0])
def test_a_stop_that_races_a_takeover_ends_the_load_and_counts_it(tmp_path: Path, after_s: float) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        await leaders.until(15)
        leaders.hosts[0].crash()
        await asyncio.sleep(5)
        leaders.lead()
        await asyncio.sleep(after_s)
        trial.run.stop("cancelled: by the user")
        stopped_s = trial.fleet.loop.time()

        summary = await leaders.result()

        assert summary.ended == "cancelled: by the user"
        assert trial.fleet.loop.time() - stopped_s < 8
        assert not trial.fleet.is_loading
        assert summary.requests == trial.fleet.sent
        sent = trial.fleet.sent
        await asyncio.sleep(60)
        assert trial.fleet.sent == sent

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="60s")


@pytest.mark.parametrize("seed", range(24))
def test_whatever_dies_the_run_ends_once_and_exactly(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    processes = [chance.randint(1, 2) for _ in range(chance.randint(1, 4))]
    faults = BusFaults(
        latency_s=chance.choice([0.0, 0.01, 0.06]),
        lost=chance.choice([0.0, 0.05, 0.2]),
        duplicated=chance.choice([0.0, 0.2]),
        reordered=chance.choice([0.0, 0.3]),
        late_s=chance.choice([0.2, 2.0]),
    )

    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        for _ in range(chance.randint(1, 5)):
            await asyncio.sleep(chance.uniform(0, 15))
            if leaders.runnings[-1].done():
                break
            if chance.random() < 0.6:
                leaders.hosts[-1].crash()
                await asyncio.sleep(chance.choice([0.1, 3, 12, 30]))
                leaders.lead()
            else:
                number = chance.randrange(len(processes))
                if trial.fleet.members[number].host.alive:
                    trial.fleet.crash(number, proven_s=chance.choice([0.2, 25.0]))
        outcome = await leaders.outcome()
        if isinstance(outcome, GeneratorLost):
            assert trial.fleet.sent == 0, outcome
        else:
            judge(trial, outcome)
        await trial.fleet.released()
        assert not trial.fleet.is_loading

    def judge(trial: FleetTrial, summary: Summary) -> None:
        assert isinstance(summary, Summary), summary
        ends = ("finished", "failed: not started together", "failed: all slices were lost")
        assert summary.ended.startswith(ends), summary.ended
        assert trial.busiest <= 3
        assert sum(one.requests for one in summary.slices) == summary.requests
        assert not any("do not add up" in reason for reason in summary.trust.reasons), summary.trust.reasons
        lost = [one for one in summary.slices if one.loss]
        missing = sum(30 * (one.gap_s + 1) * one.processes / sum(processes) for one in lost)
        assert 0 <= trial.fleet.sent - summary.requests <= missing
        if summary.ended == "finished":
            gaps = sum(one.gap_s * one.processes for one in lost)
            assert summary.requests >= 30 * (60 - gaps / sum(processes)) - 5 * len(lost) - 1
        buckets = [window.bucket for window in trial.output.windows]
        assert buckets == sorted(set(buckets))

    with_fleet(test, tmp_path, processes, seed=seed, fleet={"faults": faults}, rate="30/s", duration="60s")


def test_the_sum_of_a_slice_that_dies_with_its_leader_is_in_no_single_bucket(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        await leaders.until(15)
        trial.run.so_far()
        trial.fleet.stored = msgspec.msgpack.encode(trial.fleet.leaders[0].record)
        leaders.hosts[0].crash()
        trial.fleet.crash(1, proven_s=15)
        leaders.lead()

        summary = await leaders.result()

        assert summary.ended == "finished"
        history, *later = trial.output.windows
        assert history.width >= 140
        assert max(window.iterations for window in later) <= 10

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="60s")


def test_an_end_that_its_node_has_stored_is_counted_exactly_though_no_leader_has_asked(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        await leaders.until(15)
        leaders.hosts[0].crash()
        while not trial.fleet.members[1].ends:
            await asyncio.sleep(1)
        trial.fleet.crash(1)
        await asyncio.sleep(1)
        leaders.lead()

        summary = await leaders.result()

        assert summary.ended == "finished"
        assert summary.requests == summary.iterations == trial.fleet.sent == 2000
        assert [(one.slice, one.token, one.loss, one.requests) for one in summary.slices][:2] == [
            (0, 1, "", 1000),
            (1, 1, "", 1000),
        ]
        assert summary.trust.reasons == []

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="20s")


def test_what_a_slice_stored_before_it_was_lost_is_counted_exactly(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        await leaders.until(15)
        leaders.hosts[0].crash()
        # it stops by itself, and stores what it has measured
        while not trial.fleet.members[1].ends:
            await asyncio.sleep(1)
        trial.fleet.crash(1)
        await asyncio.sleep(1)
        leaders.lead()

        summary = await leaders.result()

        assert summary.ended == "finished"
        lost = next(one for one in summary.slices if (one.slice, one.token) == (1, 1))
        assert lost.requests == pytest.approx(50 * 35, abs=60)
        assert lost.end_s == pytest.approx(34, abs=2)
        assert summary.requests == trial.fleet.sent

    with_fleet(test, tmp_path, [1, 1], fleet={"faults": CALM}, rate="100/s", duration="100s")


def test_a_leader_that_fails_leaves_nothing_that_asks(tmp_path: Path) -> None:
    async def test(trial: FleetTrial) -> None:
        leaders = Leaders(trial)
        leaders.lead()
        await leaders.until(5)
        trial.fleet.stored_by = 2
        # the leader cannot record the loss, and leaves
        trial.fleet.crash(1)
        assert isinstance(await leaders.outcome(0), PermissionError)
        await asyncio.sleep(1)

        working = {str(task.get_coro()).split()[2] for task in asyncio.all_tasks()}
        assert not [name for name in working if name.startswith(("SliceLink.", "SliceGo.", "FleetLoad."))]

    with_fleet(test, tmp_path, [1, 1, 1], fleet={"faults": CALM}, rate="30/s", duration="60s")

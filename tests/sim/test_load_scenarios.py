"""Scripted faults of load runs on nodes, in virtual time: what is replaced when, and whether all of it is counted."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainstay.cluster.isolation import Isolation
from mainstay.control import Control
from mainstay.errors import InvalidInput
from mainstay.load.engine.messages import Values
from mainstay.load.fleet import FleetSettings, fleet_work
from mainstay.load.fleet.fleet_load import FleetLoad
from mainstay.load.fleet.fleet_runner import FleetRunner
from mainstay.load.fleet.messages import CommandRefused, command_subject, decode_answer, window_subject
from mainstay.load.fleet.slice_service import SliceOutcome, SliceService
from mainstay.load.fleet.slice_work import SliceWork
from mainstay.load.fleet.spec import SLICE
from mainstay.load.generator_process import GeneratorLost
from mainstay.load.handler import summary_of as summary_from
from mainstay.load.placement import decisions
from mainstay.load.stats.model import Header, Summary
from mainstay.model import Job
from mainstay.task import Sealer
from mainstay.testing import BusFaults, StoreFaults
from mainstay.worker import Context
from mainstay.worker.engine_session import EngineSession
from sim.cluster import STOPS_S
from sim.load_cluster import UnrecordedStream
from sim.load_plans import CONTEXTS
from sim.load_runner import SimulatedRunner
from tests.sim.load_scenes import LoadScene, lost_parts, play_in

pytestmark = pytest.mark.usefixtures("quiet")

PROVEN_S, UNPROVEN_S = 5.0, 30.0
"""within this time a slice is under load again: if its end was seen, and if its machine is only silent"""


def play(script: Callable[[LoadScene], Awaitable[None]], *, seed: int = 1) -> None:
    play_in(LoadScene, script, seed=seed)


def test_a_run_without_faults_counts_what_the_target_counts() -> None:
    async def script(scene: LoadScene) -> None:
        first = await scene.submit_run(layers=2, vus=8, duration="8s", demand={"processes": 6})
        second = await scene.submit_run(vus=4, iterations=120, duration="60s", demand={"nodes": 2})
        one, two = await scene.finished(first, second)
        assert one.requests == 8 * 80 + 8 * 40 * 2
        assert two.requests == 120
        assert not lost_parts(one)
        assert one.trust.ok, one.trust.reasons

    play(script)


@pytest.mark.parametrize("seed", [1, 4])
def test_a_run_starts_also_over_links_whose_round_trips_vary(seed: int) -> None:
    """All of them may take longer than twice the fastest one."""

    async def script(scene: LoadScene) -> None:
        scene.network.faults = BusFaults(latency_s=0.001, jitter_s=0.3)
        job = await scene.submit_run(duration="10s")
        [summary] = await scene.finished(job)
        assert summary.requests == 400
        # windows that came after their time are counted: for the node, and in the metrics of the manager that led
        managers = [machine.manager.info() for machine in scene.manager_machines.values()]
        late = sum(report.late_windows for report in summary.slices)
        assert sum(manager.windows_late for manager in managers) == late > 0

    play(script, seed=seed)


# dispatch --------------------------------------------------------------------------------------------


def test_a_placement_leader_that_dies_after_its_write_leaves_assignments_that_are_found() -> None:
    """Scenario 8."""

    async def script(scene: LoadScene) -> None:
        def crash(row: Job) -> None:
            if row.status == "dispatched" and row.name == SLICE:
                scene.watchers.clear()
                # before it has read the answer of the store, and before a wake can be sent
                scene.hosts[scene.leader()].crash()

        scene.watchers.append(crash)
        job = await scene.submit_run(duration="10s")
        await scene.until(lambda: not scene.watchers)
        [summary] = await scene.finished(job)
        assert [row.token for row in scene.slices(job)] == [1, 1, 1, 1]
        assert summary.requests == 400

    play(script)


def test_messages_that_arrive_twice_and_late_start_nothing_twice() -> None:
    """Scenario 9."""

    async def script(scene: LoadScene) -> None:
        scene.network.faults = BusFaults(latency_s=0.002, duplicated=0.5, late_s=4.0)
        job = await scene.submit_run(duration="20s")
        [summary] = await scene.finished(job)
        assert scene.network.counts["duplicated"] > 100
        assert summary.requests == 800
        assert [row.token for row in scene.slices(job)] == [1, 1, 1, 1]

    play(script)


def test_what_comes_late_for_an_assignment_that_was_replaced_is_refused_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scenario 9, late: all commands of the first assignment reach the second one, and its node confirms it again."""
    services: list[SliceService] = []
    run = SliceService.run

    async def noted(self: SliceService) -> SliceOutcome:
        services.append(self)
        return await run(self)

    monkeypatch.setattr(SliceService, "run", noted)

    async def script(scene: LoadScene) -> None:
        job = await scene.submit_run(duration="45s", demand={"nodes": 3, "processes": 3})
        heard = await scene.network.client("operator.ear", host="c2").subscribe(command_subject("*", job, 0))
        written: list[Job] = []
        scene.watchers.append(written.append)
        await scene.until_loaded(job)
        scene.watchers.clear()
        first = scene.slices(job)[0].id
        assigned = next(row for row in written if row.id == first and row.status == "dispatched")
        late = [await anext(heard) for _ in range(heard.waiting)]
        node = scene.node_with(scene.slices(job)[0])
        await power_off(scene, node)
        await scene.is_replaced(job, 0)
        before = scene.row(assigned.id)
        second, bus = scene.node_with(before), scene.network.client("manager.late", host="m1")

        answers = [decode_answer(await bus.request(command_subject(second, job, 0), each.body, 5)) for each in late]
        remote = await scene.remote("node", node)
        [outcome] = await Control(remote).claims.confirm([assigned])

        await asyncio.sleep(5)
        assert all(isinstance(answer, CommandRefused) and "has token 2" in answer.rule for answer in answers)
        assert services[-1].counts["stale"] == len(late) > 5
        assert outcome.outcome == "already_applied"
        assert scene.row(assigned.id).token == before.token == 2
        assert len(scene.loads(job)) == 3
        await scene.finished(job)

    play(script)


async def assigned_and_mute(scene: LoadScene, mute_s: float, *, state: str) -> tuple[str, str, Job]:
    """Submit a run, and make the first node that gets a slice mute for some time. Returns job, node and its row."""
    got: list[tuple[str, Job]] = []

    def mute(row: Job) -> None:
        if row.status == "dispatched" and row.name == SLICE and not got:
            got.append((scene.node_with(row), row))
            scene.weather.cut(scene.weather.pairs("mute", got[0][0]))

    scene.watchers.append(mute)
    job = await scene.submit_run(duration="10s", demand={"nodes": 3, "processes": 3})
    await scene.until(lambda: got)
    await asyncio.sleep(mute_s)
    assert scene.state_of(got[0][0]) == state
    scene.weather.join(scene.weather.pairs("mute", got[0][0]))
    return job, *got[0]


def test_a_node_that_is_mute_for_less_than_its_window_keeps_its_slice() -> None:
    """Scenario 10, the first part: with a beat every 2 s, its managers hear nothing of it for 18 s."""

    async def script(scene: LoadScene) -> None:
        job, _, assigned = await assigned_and_mute(scene, 16.1, state="away")
        [summary] = await scene.finished(job)
        assert scene.row(assigned.id).token == 1
        assert summary.requests == 400

    play(script)


def test_a_node_that_is_mute_for_longer_than_its_window_never_loads() -> None:
    """Scenario 10, the second part."""

    async def script(scene: LoadScene) -> None:
        job, node, assigned = await assigned_and_mute(scene, 40.0, state="closed")
        remote, number = await scene.remote("node", node), scene.call_of(assigned).number
        [late] = await Control(remote).claims.confirm([assigned])
        [summary] = await scene.finished(job)
        assert late.outcome == "stale"
        assert sum(each.manager.calls.stale for each in scene.manager_machines.values() if each.manager) > 0
        assert scene.row(assigned.id).token >= 2
        assert scene.sent_by(job, number=number, token=1) == 0
        assert node not in {one.node for one in summary.slices if one.slice == number and not one.loss}
        assert summary.requests == 400

    play(script)


# losses under load -----------------------------------------------------------------------------------


async def kill_generator(scene: LoadScene, node: str) -> None:
    next(each for each in scene.generators[node] if each.host.alive).kill()


async def kill_engine(scene: LoadScene, node: str) -> None:
    worker = scene.node_machines[node].worker
    assert worker is not None
    worker.processes.running[0].kill()


async def kill_worker(scene: LoadScene, node: str) -> None:
    worker = scene.node_machines[node].worker
    assert worker is not None
    worker.kill()


async def power_off(scene: LoadScene, node: str) -> None:
    scene.node_machines[node].crash()


async def freeze(scene: LoadScene, node: str) -> None:
    scene.freezing = asyncio.create_task(scene._stand_still(node, 60))  # type: ignore[attr-defined]


async def cut_off(scene: LoadScene, node: str) -> None:
    scene.weather.cut(scene.weather.pairs("split", node))


Loss = Callable[[LoadScene, str], Awaitable[None]]
LOSSES = [
    (kill_generator, PROVEN_S),
    (kill_engine, PROVEN_S),
    (kill_worker, PROVEN_S),
    (power_off, UNPROVEN_S),
    (freeze, UNPROVEN_S),
    (cut_off, UNPROVEN_S),
]


def is_replaced_and_counted(lose: Loss, within_s: float) -> None:
    async def script(scene: LoadScene) -> None:
        job = await scene.run_under_load(duration="45s", demand={"nodes": 3, "processes": 3})
        await asyncio.sleep(5)
        node = scene.node_with(scene.slices(job)[1])
        number = scene.slice_on(job, node)
        await lose(scene, node)
        assert await scene.is_replaced(job, number) <= within_s
        assert {load.host.name.partition("/")[0] for load in scene.loads(job)} - {node} or within_s == PROVEN_S
        [summary] = await scene.finished(job)
        [lost] = lost_parts(summary)
        assert (lost.slice, lost.token, lost.node) == (number, 1, node)
        assert lost.gap_s > 0
        assert not summary.trust.ok
        # 40 arrivals a second for 45 s, without a third of them during the gap
        assert 1800 - 40 / 3 * (within_s + 1) - 20 < summary.requests < 1800

    play(script)


@pytest.mark.parametrize(("lose", "within_s"), LOSSES)
def test_a_lost_slice_is_replaced_in_time_and_the_gap_is_told(lose: Loss, within_s: float) -> None:
    """Scenario 11."""
    is_replaced_and_counted(lose, within_s)


async def cut_off_under_load(scene: LoadScene, leaders: Sequence[FleetRunner] = ()) -> None:
    """A node stops its load before it is replaced, and its late windows are refused."""
    job = await scene.run_under_load(duration="45s", demand={"nodes": 3, "processes": 3})
    await asyncio.sleep(5)
    node = scene.node_with(scene.slices(job)[0])
    number = scene.slice_on(job, node)
    # on the same machine, which is not cut off from itself
    sent = await scene.network.client("node.ear", host=node).subscribe(window_subject(node, job, number))

    def loads_there() -> bool:
        return any(load.host.name.startswith(f"{node}/") for load in scene.loads(job))

    async with scene.fault("split", node):
        stopped_s = await scene.until(lambda: not loads_there())
        replaced_s = stopped_s + await scene.is_replaced(job, number)
        assert 18 <= stopped_s < 24
        assert 23 < replaced_s <= UNPROVEN_S
    windows = [await anext(sent) for _ in range(sent.waiting)]
    for late in windows:
        await scene.network.client("node.late", host=node).publish(late.subject, late.body)
    [summary] = await scene.finished(job)
    [lost] = lost_parts(summary)
    assert sum(leader.refused_windows for leader in leaders) == len(windows) > 60
    # 18 s of what it made are unknown
    assert lost.requests < scene.sent_by(job, number=number, token=1) - 18 * 40 / 3


def test_a_node_that_is_cut_off_stops_its_load_before_it_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenario 12."""
    leaders: list[FleetRunner] = []
    enter = FleetRunner.__aenter__

    async def noted(self: FleetRunner) -> FleetRunner:
        leaders.append(self)
        return await enter(self)

    monkeypatch.setattr(FleetRunner, "__aenter__", noted)
    play(functools.partial(cut_off_under_load, leaders=leaders))


@pytest.mark.parametrize("on_loss", ["continue", "fail", "restart"])
def test_a_loss_is_treated_as_the_run_wants(on_loss: str) -> None:
    async def script(scene: LoadScene) -> None:
        job = await scene.run_under_load(on_loss=on_loss, duration="20s", demand={"nodes": 3, "processes": 3})
        await asyncio.sleep(5)
        await kill_generator(scene, scene.node_with(scene.slices(job)[0]))
        [row] = await scene.settled(job)
        await scene.all_left()
        if on_loss == "fail":
            assert row.status == "failed"
            assert row.error is not None
            assert "generator" in row.error.message
            return
        assert row.status == "succeeded", row.error
        scene.check_totals(row)
        assert scene.ledgers[job].rounds == ([1, 2] if on_loss == "restart" else [1])
        summary = summary_of(row)
        assert summary.requests == 800 if on_loss == "restart" else 500 < summary.requests < 800

    play(script)


def test_a_run_that_loses_a_slice_each_time_is_started_again_three_times_at_most() -> None:
    async def script(scene: LoadScene) -> None:
        job = await scene.submit_run(on_loss="restart", duration="20s", demand={"nodes": 3, "processes": 3})
        for start in range(1, 5):
            await scene.until(lambda start=start: len(scene.loads(job)) == 3 and scene.ledgers[job].rounds[-1] == start)
            await kill_generator(scene, scene.node_with(scene.slices(job)[0]))
        [row] = await scene.settled(job)
        assert row.error is not None
        assert "was started again 3 times, and lost a slice each time: slice 0" in row.error.message
        assert scene.ledgers[job].rounds == [1, 2, 3, 4]
        await scene.all_left()

    play(script)


def summary_of(row: Job) -> Summary:
    return msgspec.msgpack.decode(row.result or b"", type=Summary)


# leaders ---------------------------------------------------------------------------------------------


def test_a_store_that_is_away_when_a_manager_claims_a_run_fails_nothing() -> None:
    async def script(scene: LoadScene) -> None:
        away = StoreFaults(unavailable=True, calls=("find", "report"))

        def cut(row: Job) -> None:
            if row.kind == "load" and row.parent is None and row.status == "running":
                scene.watchers.clear()
                for link in scene.links.values():
                    link.faults = away

        scene.watchers.append(cut)
        job = await scene.submit_run(duration="10s")
        await asyncio.sleep(6)
        for link in scene.links.values():
            link.faults = StoreFaults()
        [summary] = await scene.finished(job)
        assert summary.requests == 400

    play(script)


async def leader_ends(scene: LoadScene, *, polite: bool) -> None:
    """The manager that leads stops, or dies: nothing restarts, and all is counted."""
    job = await scene.run_under_load(duration="30s")
    await asyncio.sleep(5)
    first = scene.leader_of(job)
    if polite:
        await scene.manager_machines[first].stop()
    else:
        scene.hosts[first].crash()
    await scene.until(lambda: scene.leader_of(job) not in ("", first))
    assert len(scene.loads(job)) == 4
    [summary] = await scene.finished(job)
    assert [row.token for row in scene.slices(job)] == [1, 1, 1, 1]
    assert not lost_parts(summary)
    assert summary.requests == 1200


@pytest.mark.parametrize("polite", [True, False])
def test_when_the_manager_that_leads_ends_nothing_restarts_and_all_is_counted(polite: bool) -> None:
    play(functools.partial(leader_ends, polite=polite))


def test_a_successor_that_cannot_record_leads_the_run_on_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(self: UnrecordedStream, header: Header) -> None:
        if header.token > 2:  # the first leader claims it to wait for cores, and again to lead
            raise InvalidInput("stream", "its disk is full")

    monkeypatch.setattr(UnrecordedStream, "start", full)

    async def script(scene: LoadScene) -> None:
        job = await scene.run_under_load(duration="20s")
        scene.hosts[scene.leader_of(job)].crash()
        [summary] = await scene.finished(job)
        assert summary.requests == 800
        errors = {each.name: each.error for each in summary.outputs}
        assert errors["stream"] == "MainstayError: stream: its disk is full"

    play(script)


def test_a_run_that_a_threshold_has_stopped_stays_stopped_when_its_leader_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although every loss would start it again."""
    save = fleet_work._Lead._save

    async def script(scene: LoadScene) -> None:
        crashed: list[str] = []

        async def save_and_crash(self: fleet_work._Lead, summary: bytes) -> None:
            await save(self, summary)
            found = msgspec.msgpack.decode(summary, type=Summary)
            if any(one.stopped for one in found.thresholds) and not crashed:
                crashed.append(scene.leader_of(job))
                scene.hosts[crashed[0]].crash()

        monkeypatch.setattr(fleet_work._Lead, "_save", save_and_crash)
        job = await scene.run_under_load(
            duration="60s", on_loss="restart", thresholds=("requests < 200, stop as failed",)
        )
        [row] = await scene.settled(job)
        assert crashed
        assert row.error is not None
        assert "requests < 200" in row.error.message
        assert scene.ledgers[job].rounds == [1]
        assert sum(made.total for _, made in scene._made(job)) < 400
        await scene.all_left()

    play(script)


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.3, 0.6])
def test_a_leader_that_dies_between_two_layers_is_followed_by_the_next_layer(after_s: float) -> None:
    """Scenario 18: the same context, and nothing twice."""

    async def script(scene: LoadScene) -> None:
        job = await scene.run_under_load(layers=2, vus=8, duration="10s")
        await scene.until(lambda: not scene.loads(job))
        await asyncio.sleep(after_s)
        scene.hosts[scene.leader_of(job)].crash()
        [summary] = await scene.finished(job)
        code = scene.ledgers[job].code(1)
        assert code.contexts == {name: [context] * 4 for name, context in CONTEXTS.items()}
        ran = ("set_up Search", "collect Search", "set_up Checkout", "collect Checkout", "tear_down Search")
        assert {name: code.runs[name] for name in ran} == dict.fromkeys(ran, 1)
        assert summary.requests == 8 * 100 + 8 * 50 * 2
        assert scene.ledgers[job].rounds == [1]
        assert [row.token for row in scene.slices(job)] == [1, 1, 1, 1]

    play(script)


@pytest.mark.parametrize("after_s", [0.0, 0.2, 0.45, 0.55, 1.0])
def test_a_leader_that_dies_at_go_has_the_run_started_once_or_ended(after_s: float) -> None:
    async def script(scene: LoadScene) -> None:
        job = await scene.submit_run(duration="20s")
        await scene.until(lambda: scene.gone)
        await asyncio.sleep(after_s)
        scene.hosts[scene.leader_of(job)].crash()
        [summary] = await scene.finished(job)
        assert summary.requests == 800

    play(script)


# the end of its time ---------------------------------------------------------------------------------

TIME_S = 30 + 15 + 7.5 + 3.75 + 1.875 + 1.0
"""thirty seconds, and all that progress can earn"""


@pytest.mark.parametrize("died_after_s", [(), (25.0, 15.0)])
def test_a_run_ends_on_time_whenever_its_leaders_die_and_progress_earns_time_once(
    died_after_s: tuple[float, ...],
) -> None:
    async def script(scene: LoadScene) -> None:
        job = await scene.submit_run(vus=8, iterations=1_000_000, job={"timeout": "30s"})
        await scene.until_loaded(job)
        began_s = scene.loop.time()
        for after_s in died_after_s:
            await asyncio.sleep(after_s)
            await scene.until(lambda: scene.leader_of(job))
            name = scene.leader_of(job)
            scene.hosts[name].crash()
            await scene.until(lambda name=name: scene.leader_of(job) not in ("", name))
            scene.start_server(name)
        await scene.until(lambda: not scene.loads(job))
        assert scene.loop.time() - began_s == pytest.approx(TIME_S, abs=1.3)
        [row] = await scene.settled(job)
        assert "timed_out" in [event.to for event in await scene.store.events(job)]
        told = "still running .* after its load began \\(run timeout 30s, and 29.* that its progress had earned\\)"
        assert row.error is not None
        assert re.fullmatch(told, row.error.message), row.error.message
        assert len([event for event in await scene.store.events(job) if "grant" in event.data]) == 5
        scene.check_totals(row)
        await scene.all_left()

    play(script)


def test_the_time_that_nodes_need_to_prepare_is_none_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(scene: LoadScene) -> None:
        make = scene._slice_runner

        def slow(folder: Path | None) -> Any:
            made: Any = make(folder)
            return functools.partial(made, prepare_s=200.0)

        monkeypatch.setattr(scene, "_slice_runner", slow)
        job = await scene.submit_run(duration="20s", job={"timeout": "25s"})
        await scene.until_loaded(job, within_s=250)
        [summary] = await scene.finished(job)
        assert summary.requests == 800

    play(script)


def test_a_run_without_progress_earns_nothing_and_ends_on_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Context, "progress", lambda *_: None)

    async def script(scene: LoadScene) -> None:
        job = await scene.submit_run(vus=8, iterations=1_000_000, job={"timeout": "30s"})
        await scene.until_loaded(job)
        began_s = scene.loop.time()
        await scene.until(lambda: not scene.loads(job))
        assert scene.loop.time() - began_s == pytest.approx(30, abs=1.3)
        [row] = await scene.settled(job)
        assert row.error is not None
        assert row.error.message.endswith("after its load began (run timeout 30s)")

    play(script)


# cancels ---------------------------------------------------------------------------------------------


async def at_dispatch(scene: LoadScene, job: str) -> None:
    await scene.until(lambda: any(row.status in ("dispatched", "running") for row in scene.slices(job)))


async def at_go(scene: LoadScene, job: str) -> None:
    del job
    await scene.until(lambda: scene.gone)


async def at_completion(scene: LoadScene, job: str) -> None:
    await scene.until_loaded(job)
    await scene.until(lambda: not scene.loads(job))


async def at_takeover(scene: LoadScene, job: str) -> None:
    await scene.until_loaded(job)
    scene.hosts[scene.leader_of(job)].crash()


@pytest.mark.parametrize("moment", [at_dispatch, at_go, at_completion, at_takeover])
def test_a_cancel_that_races_settles_the_run_once_and_nothing_begins_after_it(
    moment: Callable[[LoadScene, str], Awaitable[None]],
) -> None:
    """Scenario 19."""

    async def script(scene: LoadScene) -> None:
        job = await scene.submit_run(duration="20s")
        await moment(scene, job)
        scene.cancelled.add(job)
        with contextlib.suppress(Exception):
            await scene.control.operations.cancel(job, actor="ann")
            scene.cancel_was_answered(job)
        [row] = await scene.settled(job)
        assert row.status in ("cancelled", "succeeded")
        ends = [event.to for event in await scene.store.events(job) if event.to in ("cancelled", "succeeded", "failed")]
        assert ends == [row.status]
        await scene.until(lambda: not scene.loads(job), within_s=10)
        await scene.all_left()

    play(script)


def test_a_cancel_under_load_ends_it_within_seconds_and_keeps_what_was_measured() -> None:
    async def script(scene: LoadScene) -> None:
        job = await scene.run_under_load(duration="30s")
        await asyncio.sleep(5)
        scene.cancelled.add(job)
        await scene.control.operations.cancel(job, actor="ann")
        scene.cancel_was_answered(job)
        assert await scene.until(lambda: not scene.loads(job)) <= 1
        [row] = await scene.settled(job)
        assert row.status == "cancelled"
        scene.check_totals(row)
        await scene.all_left()

    play(script)


def test_a_cancel_whose_push_is_lost_ends_the_load_with_the_next_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hear_nothing(self: EngineSession) -> None:
        del self
        await asyncio.Event().wait()

    monkeypatch.setattr(EngineSession, "listen", hear_nothing)

    async def script(scene: LoadScene) -> None:
        job = await scene.run_under_load(duration="30s")
        await asyncio.sleep(5)
        scene.cancelled.add(job)
        await scene.control.operations.cancel(job, actor="ann")
        assert 0 < await scene.until(lambda: not scene.loads(job)) <= 3
        await scene.settled(job)

    play(script)


def test_no_layer_begins_after_a_cancel_between_two_of_them() -> None:
    """Scenario 19, between two layers."""

    async def script(scene: LoadScene) -> None:
        job = await scene.run_under_load(layers=2, vus=8, duration="10s")
        await scene.until(lambda: not scene.loads(job))
        scene.cancelled.add(job)
        await scene.control.operations.cancel(job, actor="ann")
        scene.cancel_was_answered(job)
        [row] = await scene.settled(job)
        assert row.status == "cancelled"
        by_workflow = [each.by_workflow for each in scene.ledgers[job].assignments.values()]
        assert sum(sent["Search"] for sent in by_workflow) == 800
        assert not any(sent["Checkout"] for sent in by_workflow)
        scene.check_totals(row)
        await scene.all_left()

    play(script)


def test_a_cancel_that_a_node_does_not_hear_is_counted_as_unconfirmed() -> None:
    async def script(scene: LoadScene) -> None:
        job = await scene.run_under_load(duration="60s")
        leader = scene.leader_of(job)
        async with scene.fault("deaf", scene.node_with(scene.slices(job)[0])):
            scene.cancelled.add(job)
            await scene.control.operations.cancel(job, actor="ann")
            [row] = await scene.settled(job)
        manager = scene.manager_machines[leader].manager
        assert manager is not None
        assert manager.info().cancels_unconfirmed == 1
        summary = summary_from(row, Sealer(None))
        assert summary is not None
        assert sorted(one.stop for one in summary.slices) == ["stopped", "stopped", "stopped", "unconfirmed"]
        await scene.all_left()

    play(script)


def test_a_cancelled_run_whose_teardown_hangs_is_killed_and_disturbs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(self: SimulatedRunner, workflows: Sequence[str], *, calls: int) -> Values:
        del workflows, calls
        await self.ended
        raise GeneratorLost("it was killed while it tore down")

    async def script(scene: LoadScene) -> None:
        options: dict[str, Any] = {"duration": "60s", "demand": {"nodes": 1, "processes": 1}}
        # one of them has the same leader: there are three managers
        others = [await scene.run_under_load(**options) for _ in range(4)]
        with monkeypatch.context() as patch:
            patch.setattr(SimulatedRunner, "tear_down", hang)
            job = next(
                each for each in others if [scene.leader_of(one) for one in others].count(scene.leader_of(each)) > 1
            )
            others.remove(job)
            led = {other: scene.row(other).token for other in others}
            scene.cancelled.add(job)
            await scene.control.operations.cancel(job, actor="ann")
            scene.cancel_was_answered(job)
            [row] = await scene.settled(job)
            assert row.status == "cancelled"
            scene.check_totals(row)
        summaries = await scene.finished(*others)
        assert {other: scene.row(other).token for other in others} == led
        assert [summary.requests for summary in summaries] == [40 * 60] * 3

    play(script)


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.1, 1.0])
def test_a_cancel_after_a_takeover_keeps_what_was_measured(after_s: float) -> None:
    async def script(scene: LoadScene) -> None:
        job = await scene.run_under_load(duration="40s")
        await asyncio.sleep(5)
        scene.hosts[scene.leader_of(job)].crash()
        await scene.until(lambda: scene.store._rows.jobs[job].token == 3 and scene.store._rows.jobs[job].session)
        await asyncio.sleep(after_s)
        scene.cancelled.add(job)
        await scene.control.operations.cancel(job, actor="ann")
        scene.cancel_was_answered(job)
        [row] = await scene.settled(job)
        assert row.status == "cancelled"
        scene.check_totals(row)
        await scene.all_left()

    play(script)


# time ------------------------------------------------------------------------------------------------


def test_a_steady_load_whose_windows_are_refused_for_minutes_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenario 22."""
    publish = SliceService._publish
    refused = True

    async def shed(self: SliceService, subject: str, body: bytes) -> None:
        if not (refused and subject.startswith("data.")):
            await publish(self, subject, body)

    monkeypatch.setattr(SliceService, "_publish", shed)

    async def script(scene: LoadScene) -> None:
        nonlocal refused
        options: dict[str, Any] = {"rate": "4/s", "duration": "330s", "max_in_flight": 4}
        demand = {"nodes": 1, "processes": 1}
        job = await scene.run_under_load(demand=demand, **options)
        other = await scene.run_under_load(demand=demand, **options)
        await asyncio.sleep(300)
        scene.cancelled.add(other)
        await scene.control.operations.cancel(other, actor="ann")
        assert await scene.until(lambda: not scene.loads(other)) <= 4
        refused = False
        [summary] = await scene.finished(job)
        assert summary.requests == 4 * 330
        assert not lost_parts(summary)

    play(script)


def test_when_all_lost_their_power_every_run_goes_on_whatever_their_clocks_say() -> None:
    """Scenario 24: the store keeps what it acknowledged. One manager comes back that reads from a replica which is
    behind. The steady clocks of all machines begin again, at any time. Their wall clocks are not asked: managers and
    nodes take the time from the store."""

    async def script(scene: LoadScene) -> None:
        running = await scene.run_under_load(duration="60s", demand={"nodes": 3, "processes": 3})
        before = dict(scene.store._rows.jobs)
        waiting = await scene.submit_run(demand={"share": "exclusive"}, duration="10s")
        await asyncio.sleep(5)
        for name in scene.nodes:
            scene.node_machines[name].crash()
        for name in scene.managers:
            scene.hosts[name].crash()
        await asyncio.sleep(20)
        for name in scene.servers:
            scene.start_server(name)
        # a replica that was cut off before the load began, and catches up late
        scene.stale["m3"] = before
        assert await scene.until(lambda: scene.leader() and not scene.disagreement()) <= 30
        scene.stale.clear()
        rows = await scene.settled(running, waiting)
        assert [row.status for row in rows] == ["succeeded", "succeeded"], [row.error for row in rows]
        for row in rows:
            scene.check_totals(row)
        assert len(lost_parts(summary_of(rows[0]))) == 3
        await scene.all_left()

    play(script)


# cores -----------------------------------------------------------------------------------------------


async def two_runs_at_once(scene: LoadScene) -> None:
    """They need more cores than the nodes have."""
    options: dict[str, Any] = {"vus": 12, "duration": "8s", "demand": {"processes": 10}}
    jobs = [await scene.submit_run(**options) for _ in range(2)]
    await scene.finished(*jobs)


def test_of_two_runs_that_need_more_cores_than_there_are_one_waits() -> None:
    play(two_runs_at_once)


def test_of_two_runs_over_an_exclusive_pool_the_second_waits_and_says_for_what() -> None:
    async def script(scene: LoadScene) -> None:
        demand = {"share": "exclusive"}
        options: dict[str, Any] = {"vus": 16, "duration": "20s", "demand": demand}
        first = await scene.run_under_load(**options)
        second = await scene.submit_run(**options)
        await asyncio.sleep(10)
        assert len(scene.loads(first)) == 16
        assert not scene.slices(second)
        row = scene.row(second)
        assert row.settled_ms is None
        assert "core" in (row.reason or ""), row.reason
        one, two = await scene.finished(first, second)
        assert one.requests == two.requests == 16 * 200

    play(script)


def test_a_frozen_node_that_goes_on_sends_nothing_and_stops_its_load_within_seconds() -> None:
    async def script(scene: LoadScene) -> None:
        job = await scene.run_under_load(duration="45s", demand={"nodes": 3, "processes": 3})
        node = scene.node_with(scene.slices(job)[0])
        [first] = {load.token for load in scene.loads(job)}
        await asyncio.sleep(2)
        own = [load for load in scene.ledgers[job].assignments.values() if load.node == node]
        sent = sum(load.total for load in own)
        await scene._stand_still(node, 40)
        await asyncio.sleep(STOPS_S)
        assert sum(load.total for load in own) == sent > 0
        assert not [load for load in scene.loads(job) if load.token == first and load.host.name.startswith(f"{node}/")]
        await scene.finished(job)

    play(script)


# planted bugs ----------------------------------------------------------------------------------------


def test_slices_that_ignore_their_isolation_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Isolation, "_isolate", lambda self: None)
    monkeypatch.setattr(SliceWork, "refuse", lambda self, why: None)
    with pytest.raises(AssertionError):
        play(cut_off_under_load)


def test_a_leader_that_replaces_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_work, "FleetSettings", lambda: FleetSettings(lost_s=4.0))
    with pytest.raises(AssertionError):
        play(cut_off_under_load)


def test_a_placement_that_forgets_cores_in_use_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions._Account, "_hold", lambda *_: None)
    with pytest.raises(AssertionError, match="cores, and slices with"):
        play(two_runs_at_once)


def test_a_successor_that_orders_a_go_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(self: FleetLoad, go: object, recorded: object) -> None:
        del go, recorded

    monkeypatch.setattr(FleetLoad, "_adopt", forget)
    with pytest.raises(AssertionError):
        play(functools.partial(leader_ends, polite=False))

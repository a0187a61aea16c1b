"""Node jobs on real nodes, each a `mainstay worker`, that are killed, frozen, stopped and restarted."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

import servers
from mainstay import NodeHandle, NodeJobResult
from mainstay.control import PLACEMENT_LEASE_S
from mainstay.control.check import check
from mainstay.worker.engine_session import _AUDIT_S
from servers import Postgres
from tests.chaos.conftest import SHORT
from tests.chaos.fleet import kill
from tests.node.node_fleet import NodeFleet, thaw
from tests.node.node_program import Summary

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

on_both_stores = pytest.mark.parametrize("node_fleet", ["sqlite", "postgres"], indirect=True)


async def _succeeded(fleet: NodeFleet, handle: NodeHandle) -> NodeJobResult:
    job = await fleet.settled(handle.id)
    assert job.status == "succeeded", await fleet.story(handle.id)
    assert (await fleet.path(handle.id)).count("succeeded") == 1
    report = await check(fleet.control.store)
    assert report.clean, report.violations
    return await handle.result()


async def _epochs(fleet: NodeFleet, job_id: str) -> set[int]:
    """The epochs of the leaders that moved a job."""
    return {event.data["epoch"] for event in await fleet.control.jobs.events(job_id) if "epoch" in event.data}


# -- the leader dies -------------------------------------------------------------------------------


@on_both_stores
async def test_a_leader_killed_before_the_leader_phase_is_replaced_and_the_phase_runs_once(
    node_fleet: NodeFleet,
) -> None:
    fleet = node_fleet
    await fleet.three()
    handle = await fleet.submit(local_gate="go")
    await fleet.began(handle, "n1", "n2", "n3")

    fleet.nodes["n1"].kill()
    successor = await fleet.lead(epoch=2)
    fleet.open_gate("go")
    result = await _succeeded(fleet, handle)

    assert len(fleet.traces(handle.id, "leader")) == 1
    assert (successor.node in ("n2", "n3"), result.succeeded, result.cancelled) == (True, ("n2", "n3"), ("n1",))
    assert result.value.nodes == ["n2", "n3"]
    assert await _epochs(fleet, handle.id) == {1, successor.epoch}
    lost = await fleet.unit(handle, "n1")
    assert lost.losses == 1, await fleet.story(lost.id)
    assert "was lost while it was running" in "\n".join(await fleet.control.jobs.story(lost.id))


@on_both_stores
async def test_a_leader_killed_within_the_leader_phase_is_replaced_and_the_phase_counts_once(
    node_fleet: NodeFleet,
) -> None:
    fleet = node_fleet
    await fleet.three()
    handle = await fleet.submit(quorum="all", leader_gate="go")
    first = await fleet.traced(handle.id, "leader")
    assert first.pid in fleet.nodes["n1"].everyone

    fleet.nodes["n1"].kill()
    second = await fleet.traced(handle.id, "leader", times=2)
    fleet.open_gate("go")
    result = await _succeeded(fleet, handle)

    assert len(fleet.traces(handle.id, "leader")) == 2, "it runs again, under a larger token"
    assert second.token > first.token
    assert result.value == Summary(["n1", "n2", "n3"], second.token, second.pid), "what counts is the second run"
    phase = await fleet.unit(handle, "leader")
    assert (await fleet.path(phase.id)).count("succeeded") == 1
    assert (phase.losses, phase.failures) == (1, 0), await fleet.story(phase.id)


@on_both_stores
async def test_a_leader_killed_after_the_leader_phase_is_replaced_and_the_phase_does_not_run_again(
    node_fleet: NodeFleet,
) -> None:
    """A node is still at work: the job cannot end before the leader dies."""
    fleet = node_fleet
    await fleet.three()
    handle = await fleet.submit(local_gate="go", stragglers="1m")
    fleet.open_gate("go.n1")
    fleet.open_gate("go.n2")
    first = await fleet.traced(handle.id, "leader-end")
    await fleet.unit_in(handle, "leader", "succeeded")

    fleet.nodes["n1"].kill()
    successor = await fleet.lead(epoch=2)
    fleet.open_gate("go.n3")
    result = await _succeeded(fleet, handle)

    assert [run.token for run in fleet.traces(handle.id, "leader")] == [first.token]
    assert (result.succeeded, result.value.token) == (("n1", "n2", "n3"), first.token)
    assert await _epochs(fleet, handle.id) == {1, successor.epoch}


# -- a node is frozen ------------------------------------------------------------------------------


@on_both_stores
async def test_a_frozen_node_is_replaced_and_its_late_write_is_refused_and_recorded(node_fleet: NodeFleet) -> None:
    """Its machine is suspended, and an operator starts the node again elsewhere."""
    fleet = node_fleet
    await fleet.three()
    handle = await fleet.submit(freezes="n2", stragglers="1m")
    frozen = fleet.nodes["n2"]
    first = await fleet.freeze(handle, "n2")
    await fleet.unit_in(handle, "n2", "pending")
    (fleet.folder / "thaw").touch()  # for the new one; the old one stands still
    fleet.node("n2")
    second = await fleet.traced(handle.id, "end/n2")
    result = await _succeeded(fleet, handle)

    kill(first.pid, signal.SIGCONT)
    unit = await fleet.unit(handle, "n2")
    refusal = await fleet.refused(unit)
    thaw(frozen)

    assert (second.pid in fleet.nodes["n2"].everyone, second.token > first.token) == (True, True)
    assert result.succeeded == ("n1", "n2", "n3")
    assert (refusal.wanted, refusal.token, unit.token) == ("succeeded", 1, 2), await fleet.story(unit.id)
    assert (await fleet.path(unit.id)).count("succeeded") == 1
    assert frozen.stop() == 0, "it goes on, as a node without work"


@on_both_stores
async def test_a_frozen_leader_is_replaced_and_its_part_is_cancelled(node_fleet: NodeFleet) -> None:
    fleet = node_fleet
    await fleet.three()
    handle = await fleet.submit(freezes="n1")
    first = await fleet.freeze(handle, "n1")

    successor = await fleet.lead(epoch=2)
    result = await _succeeded(fleet, handle)
    (fleet.folder / "thaw").touch()
    kill(first.pid, signal.SIGCONT)
    unit = await fleet.unit(handle, "n1")
    refusal = await fleet.refused(unit)
    thaw(fleet.nodes["n1"])
    again = await fleet.submit()
    after = await _succeeded(fleet, again)

    assert (successor.node in ("n2", "n3"), result.succeeded, result.cancelled) == (True, ("n2", "n3"), ("n1",))
    assert (refusal.wanted, refusal.token) == ("succeeded", 1), await fleet.story(unit.id)
    assert await _epochs(fleet, again.id) == {successor.epoch}
    assert set(after.succeeded) >= {"n2", "n3"}


# -- the store goes away ---------------------------------------------------------------------------


async def test_a_node_job_survives_a_restart_of_postgresql(tmp_path: Path) -> None:
    with servers.folder("mainstay-node-jobs-") as place:
        server = Postgres(place)
        fleet = await NodeFleet(tmp_path, f"{server.url()}?auto_migrate=on", **SHORT).open()
        try:
            await fleet.three()
            handle = await fleet.submit(local_gate="go", leader_gate="end", stragglers="1m")
            await fleet.began(handle, "n1", "n2", "n3")

            server.stop()
            fleet.open_gate("go")  # the runs end while there is no store to write their ends to
            for node in ("n1", "n2", "n3"):
                await fleet.traced(handle.id, f"end/{node}")
            server.start()
            await fleet.traced(handle.id, "leader")
            server.kill()
            server.start()
            fleet.open_gate("end")
            result = await _succeeded(fleet, handle)

            assert result.succeeded == ("n1", "n2", "n3")
            units = [await fleet.unit(handle, name) for name in ("n1", "n2", "n3", "leader")]
            assert [unit.failures for unit in units] == [0, 0, 0, 0]
            assert all(worker.alive for worker in fleet.workers), fleet.told()
        finally:
            await fleet.close()
            server.stop()


# -- planned stops, cancel, many -------------------------------------------------------------------


@on_both_stores
async def test_a_leader_that_is_stopped_hands_over_and_fails_nothing(node_fleet: NodeFleet) -> None:
    """Its own part ends within its grace period; the leader phase runs at its successor."""
    fleet = node_fleet
    await fleet.three()
    handle = await fleet.submit(local_gate="go")
    await fleet.began(handle, "n1", "n2", "n3")

    began_s = time.monotonic()
    fleet.nodes["n1"].process.send_signal(signal.SIGTERM)
    successor = await fleet.lead(epoch=2)
    fleet.open_gate("go")
    result = await _succeeded(fleet, handle)

    # within 2 s on a machine that does nothing else; without a handover it would lead until its grace period is over
    assert successor.at_s - began_s < PLACEMENT_LEASE_S
    assert result.succeeded == ("n1", "n2", "n3")
    assert len(fleet.traces(handle.id, "leader")) == 1
    assert fleet.nodes["n1"].process.wait(60) == 0
    await _assert_untroubled(fleet, handle, "n1", "n2", "n3", "leader")


@on_both_stores
async def test_engines_are_replaced_one_after_the_other_and_fail_nothing(node_fleet: NodeFleet) -> None:
    """SIGHUP to every node, to load new code, while a job runs: what runs ends in its old engine."""
    fleet = node_fleet
    await fleet.three()
    handle = await fleet.submit(local_gate="go")
    await fleet.began(handle, "n1", "n2", "n3")
    old = {name: worker.engines for name, worker in fleet.nodes.items()}

    for worker in fleet.nodes.values():
        worker.process.send_signal(signal.SIGHUP)
    await fleet.lead(epoch=2)
    fleet.open_gate("go")
    result = await _succeeded(fleet, handle)
    for name, worker in fleet.nodes.items():
        while worker.engines == old[name] or len(worker.engines) > 1:
            await asyncio.sleep(0.02)
    after = await _succeeded(fleet, again := await fleet.submit())

    assert (result.succeeded, after.succeeded) == (("n1", "n2", "n3"), ("n1", "n2", "n3"))
    await _assert_untroubled(fleet, handle, "n1", "n2", "n3", "leader")
    await _assert_untroubled(fleet, again, "n1", "n2", "n3", "leader")
    runs = {trace.pid for trace in fleet.traces(again.id)}
    assert runs <= {pid for worker in fleet.nodes.values() for pid in worker.engines}


async def _assert_untroubled(fleet: NodeFleet, handle: NodeHandle, *units: str) -> None:
    """No unit failed, crashed or was lost."""
    for name in units:
        unit = await fleet.unit(handle, name)
        assert (unit.failures, unit.crashes, unit.losses) == (0, 0, 0), await fleet.story(unit.id)
        assert unit.status == "succeeded", await fleet.story(unit.id)


@pytest.mark.parametrize("node_fleet", ["sqlite slow", "postgres slow"], indirect=True, ids=["sqlite", "postgres"])
async def test_a_cancel_reaches_running_code_with_a_wake(node_fleet: NodeFleet) -> None:
    fleet = node_fleet
    await fleet.three()
    handle = await fleet.submit(local_gate="never")
    await fleet.began(handle, "n1", "n2", "n3")

    began_s = time.monotonic()
    await fleet.control.operations.cancel(handle.id, actor="ann", reason="enough")
    stopped = [await fleet.traced(handle.id, f"stopped/{node}") for node in ("n1", "n2", "n3")]
    job = await fleet.settled(handle.id)

    assert (job.status, job.reason) == ("cancelled", "enough")
    # within 1 s on a machine that does nothing else; without the wake, two audits of the claims would find it
    assert max(trace.at for trace in stopped) - began_s < _AUDIT_S
    for node in ("n1", "n2", "n3"):
        assert (await fleet.unit(handle, node)).status == "cancelled"
    assert fleet.traces(handle.id, "leader") == []


@pytest.mark.parametrize("node_fleet", ["postgres slow"], indirect=True, ids=["postgres"])
async def test_thirty_nodes_run_one_job(node_fleet: NodeFleet) -> None:
    fleet = node_fleet
    names = [f"n{number:02}" for number in range(30)]
    for name in names:
        fleet.node(name)
    await fleet.ready(30)

    handle = await fleet.submit(local_gate="go")
    await fleet.began(handle, *names)
    fleet.open_gate("go")
    result = await _succeeded(fleet, handle)

    assert (result.members, result.succeeded, result.quorum_needed) == (tuple(names), tuple(names), 16)
    assert len({trace.pid for trace in fleet.traces(handle.id) if trace.what.startswith("begin/")}) == 30
    assert len(fleet.traces(handle.id, "leader")) == 1

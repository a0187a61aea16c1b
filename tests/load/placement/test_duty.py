"""The placement of runs on a store: from the wait for cores to the end of the last slice."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from mainstay.app import App
from mainstay.control import Control, MemberSessions, PlacementRounds
from mainstay.control.check import check
from mainstay.control.explain import explained
from mainstay.errors import NotLeader
from mainstay.load.kind import SLICE
from mainstay.load.placement import PlacedSlice, RunPlacementDuty, slice_id
from mainstay.load.placement.placed_rows import PlacedRows
from mainstay.load.placement.recent_cores import LEAVE_MS
from mainstay.model import PLACE_MS, PLACE_QUEUE, Job, Settings
from mainstay.stores import JobStore, Query, open_store
from mainstay.testing import LoopClock, MemoryStore, VirtualClock, VirtualLoop, run_virtual
from tests.load.placement.runs import Cluster, calls


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JobStore]:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    opened = await open_store(url, clock=VirtualClock())
    try:
        yield opened
        report = await check(opened)
        assert report.violations == ()
        await assert_no_core_twice(opened)
    finally:
        await opened.close()


async def assert_no_core_twice(store: JobStore) -> None:
    used: Counter[str] = Counter()
    sessions = {session.id: session for session in await store.sessions()}
    for session in sessions.values():
        for row in (await store.find(Query(session=session.id), limit=500)).jobs:
            if row.name == SLICE:
                used[session.node] += calls(row).cores
    for session in sessions.values():
        if session.offer is not None and session.node:
            assert used[session.node] <= session.offer.cores


# from the wait to the slices -------------------------------------------------------------------------


async def test_a_run_whose_submit_was_dated_by_a_clock_that_is_ahead_is_not_due_before_it(store: JobStore) -> None:
    cluster = await Cluster(store).open(8)
    job_id = await cluster.submit(processes=8)
    assert isinstance(store.clock, VirtualClock)
    store.clock.set_wall(store.clock.now_ms() - 9)

    await cluster.place()

    job = await cluster.job(job_id)
    assert (job.status, job.due_ms) == ("pending", job.created_ms)


async def test_a_run_gets_its_cores_and_its_slices_in_one_round(store: JobStore) -> None:
    cluster = await Cluster(store).open(8, 8, 8)
    job_id = await cluster.submit(processes=20)
    assert (await cluster.job(job_id)).due_ms == PLACE_MS

    await cluster.place()

    job = await cluster.job(job_id)
    assert (job.status, job.due_ms) == ("pending", store.clock.now_ms())
    assert job.reason == "got 20 cores: n1, n2, n3"
    rows = await cluster.slices(job_id)
    assert [row.id for row in rows] == [slice_id(job_id, 1, number) for number in range(3)]
    assert [(row.status, row.queue, row.unit) for row in rows] == [
        ("dispatched", PLACE_QUEUE, f"slice/1/{number}") for number in range(3)
    ]
    assert [calls(row).cores for row in rows] == [8, 8, 4]
    assert [(calls(row).of, calls(row).round, calls(row).code) for row in rows] == [(3, 1, "c0de")] * 3
    assert await cluster.where(job_id) == {"n1": 8, "n2": 8, "n3": 4}
    [claimed] = await cluster.claimed()
    assert claimed.id == job_id
    assert len(await cluster.confirm()) == 3


async def test_a_payload_that_is_too_long_to_read_each_time_is_read_once(store: JobStore) -> None:
    labels = {f"label-{at}": "x" * 100 for at in range(60)}
    cluster = await Cluster(store).open()
    await cluster.node("n1", 8, labels=labels)
    job_id = await cluster.submit(processes=8, labels=labels)
    await cluster.place()
    assert await cluster.where(job_id) == {"n1": 8}


async def test_every_write_of_the_leader_names_its_epoch(store: JobStore) -> None:
    cluster = await Cluster(store).open(8)
    job_id = await cluster.submit(processes=4)
    await cluster.place()
    lead = await cluster.lead()
    for row in [await cluster.job(job_id), *await cluster.slices(job_id)]:
        events = [event for event in await store.events(row.id) if event.source is not None]
        assert all(event.data["epoch"] == lead.epoch for event in events if "round" in event.data)
        assert events[-1].data["epoch"] == lead.epoch


async def test_two_runs_share_the_cores(store: JobStore) -> None:
    cluster = await Cluster(store).open(8, 8, 8)
    high, low = await cluster.submit(share="high"), await cluster.submit(share="low")
    await cluster.place()
    assert sum((await cluster.where(high)).values()) == 18
    assert sum((await cluster.where(low)).values()) == 6


async def test_a_later_run_gets_the_cores_that_an_earlier_one_frees(store: JobStore) -> None:
    cluster = await Cluster(store).open(8)
    first = await cluster.submit(processes=6)
    await cluster.place()
    second = await cluster.submit(processes=6)
    await cluster.place()
    assert await cluster.where(second) == {}
    assert (await cluster.job(second)).reason == "waits for 6 cores"

    await cluster.nodes["n1"].finish(await cluster.confirm())
    await cluster.place()

    assert await cluster.where(second) == {"n1": 6}
    assert await cluster.where(first) == {}


async def test_an_exclusive_run_waits_until_it_is_alone(store: JobStore) -> None:
    cluster = await Cluster(store).open(8, 8)
    await cluster.submit(processes=1)
    await cluster.place()
    alone = await cluster.submit(share="exclusive")
    behind = await cluster.submit(processes=1)
    await cluster.place()
    needs = "16 cores and no other run beside it"
    assert (await cluster.job(alone)).reason == f"waits for {needs}"
    assert (await cluster.job(behind)).reason == "waits for 1 core, behind earlier runs"

    [row] = await cluster.confirm()
    await cluster.nodes["n1"].finish([row])
    await cluster.place()
    assert await cluster.where(alone) == {"n1": 8, "n2": 8}
    cluster.pass_time(11)
    await cluster.beat()
    await cluster.place()
    assert (await cluster.job(behind)).reason == "waits for 1 core: a run that runs alone has its nodes"


async def test_the_reason_of_a_wait_is_written_when_it_changes_and_not_at_each_change(store: JobStore) -> None:
    cluster = await Cluster(store).open(4)
    job_id = await cluster.submit(processes=6)
    for _ in range(3):
        await cluster.place()
    seen = await cluster.job(job_id)
    assert seen.reason == "waits for nodes: it needs 6 cores, and they have 4 cores"
    assert seen.version == 4, "submitted, claimed, given back, and one note"

    await cluster.node("n2", 1)
    await cluster.place()
    assert (await cluster.job(job_id)).version == 4, "it changed less than ten seconds ago"
    cluster.pass_time(10)
    await cluster.beat()
    await cluster.place()
    assert (await cluster.job(job_id)).reason == "waits for nodes: it needs 6 cores, and they have 5 cores"


async def test_labels_choose_the_nodes(store: JobStore) -> None:
    cluster = await Cluster(store).open(8)
    await cluster.node("a1", 2, labels={"zone": "a"})
    job_id = await cluster.submit(labels={"zone": "a"})
    none = await cluster.submit(labels={"zone": "b"})
    await cluster.place()
    assert await cluster.where(job_id) == {"a1": 2}
    assert (await cluster.job(none)).reason == "waits for a node with zone=b"
    await cluster.node("b1", 3, labels={"zone": "b"})
    await cluster.place()
    assert await cluster.where(none) == {"b1": 3}


async def test_the_wait_for_cores_ends_at_the_queue_deadline(store: JobStore) -> None:
    cluster = await Cluster(store).open(4)
    job_id = await cluster.submit(processes=6, queue_deadline="5s")
    await cluster.place()
    cluster.pass_time(5)
    await cluster.control.sweeper.sweep()
    job = await cluster.job(job_id)
    assert (job.status, job.error and job.error.code) == ("timed_out", "queue_deadline")
    assert job.error is not None
    assert job.error.message.startswith("got no cores by ")
    needs = "waits for nodes: it needs 6 cores, and they have 4 cores"
    assert job.error.message.endswith(f"(queue deadline): {needs}")


async def test_nodes_that_are_away_or_drain_or_have_no_cores_get_nothing(store: JobStore) -> None:
    cluster = await Cluster(store).open(0)
    away = await cluster.node("away", 8)
    drains = await cluster.node("drains", 8, draining_ms=store.clock.now_ms(), draining_by="ann")
    cluster.pass_time(8.5)
    await store.beat([cluster.manager, drains.id, cluster.nodes["n1"].id])
    job_id = await cluster.submit()
    await cluster.place()
    assert await cluster.where(job_id) == {}
    await store.beat([away.id])
    await cluster.place()
    assert await cluster.where(job_id) == {"away": 8}


# slices that come back -------------------------------------------------------------------------------


async def running(cluster: Cluster, **demand: object) -> str:
    """A run whose slices have confirmed, led by the manager."""
    job_id = await cluster.submit(**demand)  # type: ignore[arg-type]
    await cluster.place()
    [job] = await cluster.claimed()
    await cluster.control.claims.start([job])
    await cluster.confirm()
    return job_id


async def leave(cluster: Cluster) -> None:
    """The processes of cancelled slices end."""
    cluster.pass_time(LEAVE_MS / 1000)
    await cluster.beat()


async def test_a_slice_of_a_lost_node_goes_to_another_one(store: JobStore) -> None:
    cluster = await Cluster(store).open(4, 4)
    await cluster.node("n3", 4)
    job_id = await running(cluster, processes=8)
    assert await cluster.where(job_id) == {"n1": 4, "n2": 4}

    await cluster.nodes["n1"].die()
    await cluster.place()

    assert await cluster.where(job_id) == {"n2": 4, "n3": 4}
    rows = await cluster.slices(job_id)
    assert [(row.status, row.token, row.losses) for row in rows] == [("dispatched", 2, 1), ("running", 1, 0)]


async def test_a_node_that_lost_a_slice_does_not_get_it_again_while_there_are_others(store: JobStore) -> None:
    cluster = await Cluster(store).open(4, 4)
    job_id = await running(cluster, processes=4)
    other = await running(cluster, processes=4)
    assert await cluster.where(job_id) == {"n1": 4}
    await cluster.nodes["n1"].die()
    cluster.pass_time(1)
    await cluster.node("n1", 4, number=2)
    await cluster.place()
    assert await cluster.where(job_id) == {}, "it waits for the other node"

    await cluster.nodes["n2"].finish([row for row in await cluster.slices(other) if row.status == "running"])
    await cluster.place()
    assert await cluster.where(job_id) == {"n2": 4}


async def test_a_slice_that_every_node_lost_goes_to_one_that_came_back(store: JobStore) -> None:
    cluster = await Cluster(store).open(4)
    job_id = await running(cluster, processes=4)
    await cluster.nodes["n1"].die()
    cluster.pass_time(1)
    await cluster.node("n1", 4, number=2)
    await cluster.place()
    assert await cluster.where(job_id) == {"n1": 4}


async def test_a_node_that_gave_a_slice_back_is_not_asked_for_half_a_minute(store: JobStore) -> None:
    cluster = await Cluster(store).open(8)
    job_id = await cluster.submit(processes=4)
    await cluster.place()
    node = cluster.nodes["n1"]
    for _ in range(5):
        await node.give_back(await node.assigned())
        await cluster.place()
        assert await cluster.where(job_id) == {}
        cluster.pass_time(29)
        await cluster.beat()
        await cluster.place()
        assert await cluster.where(job_id) == {}
        cluster.pass_time(1)
        await cluster.beat()
        await cluster.place()
    [row] = await cluster.slices(job_id)
    assert (row.status, row.error and row.error.code) == ("failed", "not_placed"), "five refusals are enough"


async def test_a_slice_that_was_refused_goes_to_another_node_at_once(store: JobStore) -> None:
    cluster = await Cluster(store).open(8, 8)
    job_id = await cluster.submit(processes=4)
    await cluster.place()
    [first] = await cluster.where(job_id)
    node = cluster.nodes[first]
    await node.give_back(await node.assigned())
    await cluster.place()
    [second] = await cluster.where(job_id)
    assert {first, second} == {"n1", "n2"}


async def test_a_slice_that_is_not_confirmed_is_asked_about_and_taken_back(store: JobStore) -> None:
    cluster = await Cluster(store).open(8)
    job_id = await cluster.submit(processes=4)
    await cluster.place()
    for _ in range(3):
        cluster.pass_time(5)
        await cluster.beat()
        await cluster.place()
    [row] = await cluster.slices(job_id)
    notes = [event for event in await store.events(row.id) if event.flag == "note"]
    assert [event.reason for event in notes] == [
        f"not confirmed for {waited} s; its session is asked again" for waited in (5, 10, 15)
    ]
    cluster.pass_time(5)
    await cluster.beat()
    await cluster.place()
    assert (await cluster.slices(job_id))[0].status == "pending"


async def test_a_slice_that_was_lost_three_times_fails(store: JobStore) -> None:
    cluster = await Cluster(store).open()
    await cluster.node("n0", 4)
    job_id = await running(cluster, processes=4)
    for number in range(1, 4):
        await cluster.node(f"n{number}", 4)
        await cluster.nodes[f"n{number - 1}"].die()
        await cluster.place()
        await cluster.confirm()
    [row] = await cluster.slices(job_id)
    assert (row.status, row.error and row.error.code) == ("failed", "node_lost")


async def test_a_slice_whose_generator_died_is_placed_again(store: JobStore) -> None:
    cluster = await Cluster(store).open(4, 4)
    job_id = await running(cluster, processes=4)
    await cluster.nodes["n1"].fail(await cluster.slices(job_id))
    await cluster.place()
    assert await cluster.where(job_id) == {"n2": 4}, "first where it has not failed"


@pytest.mark.parametrize("on_loss", ["continue", "fail", "restart"])
async def test_a_slice_lost_under_load_is_not_replaced_by_another_policy(store: JobStore, on_loss: str) -> None:
    cluster = await Cluster(store).open(4, 4)
    await cluster.node("n3", 4)
    job_id = await running(cluster, processes=8, on_loss=on_loss)
    prepared, loaded = await cluster.slices(job_id)
    await cluster.nodes["n2"].start([loaded])

    await cluster.nodes["n1"].die()
    await cluster.place()
    assert await cluster.where(job_id) == {"n2": 4, "n3": 4}, "it had no load yet"

    await cluster.nodes["n2"].die()
    await cluster.place()
    rows = {row.id: row for row in await cluster.slices(job_id)}
    assert rows[prepared.id].status == "dispatched"
    lost = rows[loaded.id]
    assert (lost.status, lost.error and lost.error.code) == ("failed", "slice_lost")
    assert lost.error is not None
    assert lost.error.message == f"lost under load with node n2; not placed again (on_loss={on_loss})"


async def test_no_other_run_gets_the_node_that_a_lost_slice_waits_for(store: JobStore) -> None:
    cluster = await Cluster(store).open(8, 8)
    big, small = await running(cluster, processes=8), await running(cluster, processes=4)
    assert (await cluster.where(big), await cluster.where(small)) == ({"n1": 8}, {"n2": 4})
    later = await cluster.submit(processes=2)
    await cluster.nodes["n1"].die()
    await cluster.place()
    assert (await cluster.job(later)).reason == "waits for 2 cores, behind earlier runs"
    await cluster.nodes["n2"].finish(await cluster.slices(small))
    await cluster.place()
    assert await cluster.where(big) == {"n2": 8}


# cancel, end, rounds ---------------------------------------------------------------------------------


async def test_a_run_that_is_cancelled_while_it_waits_gets_nothing(store: JobStore) -> None:
    cluster = await Cluster(store).open(8)
    job_id = await cluster.submit()
    await cluster.control.operations.cancel(job_id, actor="ann", reason="no need")
    await cluster.place()
    assert await cluster.slices(job_id) == []


async def test_a_run_that_is_cancelled_between_the_reading_and_the_write_gets_nothing(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await Cluster(store).open(8)
    job_id = await cluster.submit()
    apply = store.apply

    async def cancel_first(*args: object, **options: object) -> object:
        monkeypatch.undo()
        await cluster.control.operations.cancel(job_id, actor="ann", reason="no need")
        return await apply(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "apply", cancel_first)
    await cluster.place()
    assert await cluster.slices(job_id) == []


async def test_a_run_that_is_cancelled_after_its_slices_were_created_is_given_no_node(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await Cluster(store).open(8)
    job_id = await cluster.submit()
    apply = store.apply

    async def cancel_after(*args: object, **options: object) -> object:
        monkeypatch.undo()
        results = await apply(*args, **options)  # type: ignore[arg-type]
        await cluster.control.operations.cancel(job_id, actor="ann", reason="no need")
        return results

    monkeypatch.setattr(store, "apply", cancel_after)
    await cluster.place()
    await cluster.place()
    [row] = await cluster.slices(job_id)
    assert (row.status, row.token) == ("cancelled", 0)


async def test_a_run_that_is_being_cancelled_gets_no_replacement(store: JobStore) -> None:
    cluster = await Cluster(store).open(4, 4)
    job_id = await running(cluster, processes=4)
    await cluster.control.operations.cancel(job_id, actor="ann", reason="no need")
    assert (await cluster.job(job_id)).status == "cancelling"
    await cluster.nodes["n1"].die()
    await cluster.place()
    assert await cluster.where(job_id) == {}
    assert [row.status for row in await cluster.slices(job_id)] == ["cancelled"]


async def test_the_open_slices_of_a_settled_run_are_cancelled_and_their_cores_are_free(store: JobStore) -> None:
    cluster = await Cluster(store).open(4)
    job_id = await running(cluster, processes=4)
    await cluster.place()
    next_id = await cluster.submit(processes=4)
    await cluster.control.operations.force(job_id, "failed", actor="ann", reason="stuck")
    await cluster.place()
    await cluster.place()
    assert [row.status for row in await cluster.slices(job_id)] == ["cancelled"]
    assert await cluster.where(next_id) == {}, "its processes may still live"
    await leave(cluster)
    await cluster.place()
    assert await cluster.where(next_id) == {"n1": 4}


async def test_a_retry_by_an_operator_is_a_second_round(store: JobStore) -> None:
    cluster = await Cluster(store).open(4)
    job_id = await running(cluster, processes=4)
    await cluster.control.operations.force(job_id, "failed", actor="ann", reason="stuck")
    await cluster.place()
    await cluster.control.operations.retry(job_id, actor="ann")
    await cluster.give_back(job_id)
    await leave(cluster)
    await cluster.place()
    rows = await cluster.slices(job_id)
    assert [(row.status, row.unit) for row in rows] == [("cancelled", "slice/1/0"), ("dispatched", "slice/2/0")]


async def test_a_run_that_waits_for_cores_again_gives_back_those_it_has(store: JobStore) -> None:
    cluster = await Cluster(store).open(4)
    job_id = await running(cluster, processes=4)
    await cluster.control.drivers.await_placement(await cluster.job(job_id))
    await cluster.place()
    await leave(cluster)
    await cluster.place()
    rows = await cluster.slices(job_id)
    assert [(row.status, row.unit) for row in rows] == [("cancelled", "slice/1/0"), ("dispatched", "slice/2/0")]


async def test_a_run_whose_node_went_away_before_its_slices_were_assigned_is_placed_again(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await Cluster(store).open(8, 4)
    job_id = await cluster.submit(processes=12)
    with monkeypatch.context() as patched:
        patched.setattr("mainstay.load.placement.duty._MOST_STEPS", 1)
        await cluster.place()
    [job] = await cluster.claimed()
    await cluster.control.claims.start([job])
    await cluster.nodes["n1"].die()
    cluster.duty = RunPlacementDuty(Control(store))  # one that does not know of the lost node

    await cluster.place()

    job = await cluster.job(job_id)
    assert (job.status, job.awaits_cores) == ("pending", True)
    assert [row.status for row in await cluster.slices(job_id)] == ["cancelled", "cancelled"]
    other = await cluster.submit(processes=4)
    await cluster.place()
    assert await cluster.where(other) == {"n2": 4}
    await cluster.node("n3", 16)
    await cluster.place()
    assert await cluster.where(job_id) == {"n3": 12}


async def test_a_run_keeps_its_place_while_a_node_restarts(store: JobStore) -> None:
    cluster = await Cluster(store).open(4, 4)
    job_id = await cluster.submit(nodes=2, processes=8)
    held = await running(cluster, processes=1, priority=1)
    later = await cluster.submit(processes=1)
    await cluster.place()
    await cluster.nodes["n2"].die()
    await cluster.place()
    assert await cluster.where(later) == {}

    await cluster.node("n2", 4, number=2)
    await cluster.nodes["n1"].finish([row for row in await cluster.slices(held) if row.settled_ms is None])
    await cluster.place()
    assert await cluster.where(job_id) == {"n1": 4, "n2": 4}


async def test_a_run_gives_its_place_up_when_a_node_stays_away(store: JobStore) -> None:
    cluster = await Cluster(store).open(4, 4)
    first = await running(cluster, processes=1)
    await cluster.submit(nodes=2, processes=8)
    later = await cluster.submit(processes=1)
    await cluster.place()
    await cluster.nodes.pop("n2").die()
    await cluster.place()
    assert (await cluster.where(first), await cluster.where(later)) == ({"n1": 1}, {})
    for _ in range(10):
        cluster.pass_time(6)
        await cluster.beat()
    await cluster.place()
    assert await cluster.where(later) == {"n1": 1}


async def test_a_node_with_a_slice_that_cannot_be_read_gets_no_other_run(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await Cluster(store).open(4, 4)
    job_id = await running(cluster, processes=2)
    assert await cluster.where(job_id) == {"n1": 2}
    newer = PlacedRows._slice

    async def unreadable(rows: PlacedRows, unit: Job) -> PlacedSlice:
        if unit.parent == job_id:
            raise msgspec.DecodeError("a newer version wrote it")
        return await newer(rows, unit)

    monkeypatch.setattr(PlacedRows, "_slice", unreadable)
    cluster.duty = RunPlacementDuty(Control(store))
    other = await cluster.submit(processes=6)
    small = await cluster.submit(processes=4)
    await cluster.place()
    assert (await cluster.where(other), await cluster.where(small)) == ({}, {"n2": 4})


async def test_a_run_whose_slices_cannot_be_created_fails_and_keeps_no_cores(store: JobStore) -> None:
    cluster = await Cluster(store).open(4)
    # the payload of a slice repeats them, and has a little more beside them
    most = Settings().payload_limit - 100
    job_id = await cluster.submit(processes=4, code="", modules={"m" * most: ""})
    other = await cluster.submit(processes=4)
    await cluster.place()
    job = await cluster.job(job_id)
    assert (job.status, job.error and job.error.type) == ("failed", "InvalidInput")
    await cluster.place()
    assert await cluster.where(other) == {"n1": 4}


# leaders ---------------------------------------------------------------------------------------------


async def test_the_next_leader_continues_and_the_old_one_writes_nothing(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first leader has created the slices, and then loses its lead before it assigns them."""
    cluster = await Cluster(store).open(4, 4)
    job_id = await cluster.submit(processes=8)
    old = await cluster.lead()
    second = f"second.{2:032x}"
    await cluster.join(second)
    apply = store.apply

    async def lose_the_lead(*args: object, **options: object) -> object:
        monkeypatch.undo()
        results = await apply(*args, **options)  # type: ignore[arg-type]
        await store.resign(old)
        await cluster.lead(second)
        return results

    monkeypatch.setattr(store, "apply", lose_the_lead)
    with pytest.raises(NotLeader):
        await cluster.duty.round(old)
    rows = await cluster.slices(job_id)
    assert [(row.status, row.token) for row in rows] == [("pending", 0), ("pending", 0)]

    duty = RunPlacementDuty(Control(store))
    await duty.round(await cluster.lead(second))
    assert await cluster.where(job_id) == {"n1": 4, "n2": 4}
    assert [row.token for row in await cluster.slices(job_id)] == [1, 1]


async def test_a_new_leader_counts_the_cores_of_slices_whose_job_has_settled(store: JobStore) -> None:
    """They are in use until the slices are cancelled."""
    cluster = await Cluster(store).open(4)
    job_id = await running(cluster, processes=4)
    await cluster.control.operations.force(job_id, "failed", actor="ann", reason="stuck")
    next_id = await cluster.submit(processes=4)
    duty = RunPlacementDuty(Control(store))
    lead = await cluster.lead()
    jobs, _ = await duty._step(lead)
    assert jobs == 1
    assert await cluster.slices(next_id) == []
    assert [row.status for row in await cluster.slices(job_id)] == ["cancelled"]
    await leave(cluster)
    await duty.round(await cluster.lead())
    assert await cluster.where(next_id) == {"n1": 4}


async def test_slices_that_no_leader_saw_are_found_by_the_clean_up(store: JobStore) -> None:
    cluster = await Cluster(store).open(4)
    job_id = await cluster.submit(processes=4)
    await cluster.place()
    await cluster.nodes["n1"].give_back(await cluster.nodes["n1"].assigned())
    await cluster.control.operations.cancel(job_id, actor="ann", reason="no need")
    duty = RunPlacementDuty(Control(store))
    await duty.clean_up(await cluster.lead())
    await duty.round(await cluster.lead())
    assert [row.status for row in await cluster.slices(job_id)] == ["cancelled"]


async def test_the_duty_reacts_to_a_wake(store: JobStore) -> None:
    cluster = await Cluster(store).open(8)
    lead = await cluster.lead()
    duty = asyncio.create_task(cluster.duty.run(lead))
    try:
        await asyncio.sleep(0)
        async with store.wake([f"queue:{PLACE_QUEUE}"]) as wake:
            job_id = await cluster.submit(processes=8)
            async with asyncio.timeout(10):
                while not await cluster.where(job_id):
                    await wake.wait(0.05)
            later = await cluster.submit(processes=8)
            [row] = await cluster.confirm()
            await cluster.nodes["n1"].finish([row])
            async with asyncio.timeout(10):
                while not await cluster.where(later):
                    await wake.wait(0.05)
    finally:
        duty.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await duty


def test_a_burst_of_changes_is_a_few_rounds() -> None:
    """Each round reads all runs, and each change of a slice of any run wakes the leader."""
    rounds = 0

    async def count() -> float:
        nonlocal rounds
        rounds += 1
        return 5.0

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        cluster = await Cluster(MemoryStore(clock=LoopClock(loop))).open(4)
        running = asyncio.create_task(PlacementRounds(cluster.store, cluster.control.jobs).run(count))
        for _ in range(100):
            await cluster.submit(processes=1)
            await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.wait([running])
        await cluster.store.close()

    run_virtual(main())
    assert 1 < rounds < 6


async def test_an_app_without_load_tests_places_runs_on_the_nodes_that_managers_hear(store: JobStore) -> None:
    cluster = await Cluster(store).open()
    heard = {}
    for name in ("n1", "n2"):
        heard[(await cluster.node(name, 4, standing=True)).id] = 1.0
    del heard[cluster.nodes["n2"].id]
    placing = Control(MemberSessions(store, lambda: heard, away_s=10.0))
    duties = App("memory:").placement_duties(placing, cluster.manager)
    [duty] = [each for each in duties if each.name == "runs on nodes"]
    job_id = await cluster.submit(processes=4)
    owner = duty.run.__self__  # type: ignore[attr-defined]
    await owner.round(await cluster.lead())
    assert await cluster.where(job_id) == {"n1": 4}
    assert "n1" in str(await explained(store, job_id))

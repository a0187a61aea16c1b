"""Who holds the cores of nodes and who waits, as the cluster shows it; where slices were; and what is counted."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainstay.control import read_routes
from mainstay.load.placement.run_cores import RunCores
from mainstay.stores import JobStore, open_store
from mainstay.testing import VirtualClock
from tests.load.placement.runs import Cluster


@pytest.fixture
async def store() -> AsyncIterator[JobStore]:
    opened = await open_store("memory:", clock=VirtualClock())
    yield opened
    await opened.close()


async def test_runs_hold_cores_and_the_others_wait_with_their_place_and_the_reason(store: JobStore) -> None:
    cluster = await Cluster(store).open(4, 4)
    held = await cluster.submit(processes=6, nodes=2)
    await cluster.place()
    [first, _] = await cluster.nodes["n1"].confirm() + await cluster.nodes["n2"].assigned()
    front, behind = await cluster.submit(processes=4), await cluster.submit(processes=1)

    use = await RunCores(store).read()

    assert {(each.job, each.session, each.cores, each.status) for each in use.holdings} == {
        (held, cluster.nodes["n1"].id, 3, "running"),
        (held, cluster.nodes["n2"].id, 3, "dispatched"),
    }
    assert {each.part for each in use.holdings} == {"slice 0", "slice 1"}
    assert first.parent == held
    assert [(each.job, each.place, each.of, each.cores) for each in use.waiters] == [
        (front, 1, 2, 4),
        (behind, 2, 2, 1),
    ]
    assert use.waiters[0].reason == "It needs 4 cores; 2 of 8 are free on 2 nodes; place 1 of 2."
    assert f"behind {front}" in use.waiters[1].reason


async def test_a_slice_whose_node_is_lost_waits_in_front_of_all_runs(store: JobStore) -> None:
    cluster = await Cluster(store).open(4, 4)
    held = await cluster.submit(processes=8, nodes=2)
    await cluster.place()
    await cluster.claimed()
    await cluster.confirm()
    await cluster.nodes["n2"].die()
    await cluster.submit(processes=1)
    reader = RunCores(store)

    use = await reader.read()

    assert [each.session for each in use.holdings] == [cluster.nodes["n1"].id]
    first = use.waiters[0]
    assert (first.job, first.part, first.place) == (held, "slice 1", 0)
    assert "slice 1 waits for 4 free cores on one node" in first.reason.lower()
    # what does not change is remembered
    assert await reader.read() == use


async def test_the_route_of_a_slice_tells_who_refused_it_who_lost_it_and_where_it_is(store: JobStore) -> None:
    cluster = await Cluster(store).open(4)
    job_id = await cluster.submit(processes=4)
    await cluster.place()
    await cluster.claimed()
    await cluster.nodes["n1"].give_back(await cluster.nodes["n1"].assigned())
    await cluster.node("n2", 4)
    await cluster.place()
    await cluster.nodes["n2"].confirm()
    await cluster.nodes["n2"].die()
    await cluster.node("n3", 4)
    await cluster.place()

    found = await read_routes(store, job_id)

    [route] = found.units
    assert (found.id, route.unit, route.status) == (job_id, "slice/1/0", "dispatched")
    assert [(each.token, each.node, each.end) for each in route.assignments] == [
        (1, "n1", "given_back"),
        (2, "n2", "lost"),
        (3, "n3", ""),
    ]
    refused, lost, now = route.assignments
    assert (refused.why, refused.confirmed_ms) == ("no free cores", None)
    assert lost.confirmed_ms is not None
    assert (now.ended_ms, now.epoch) == (None, 1)
    assert (await read_routes(store, route.id)).units == (route,)
    assert cluster.duty.counts.by_outcome == {"assigned": 3, "replaced": 2, "given_back": 1, "lost": 1, "confirmed": 0}


async def test_a_new_leader_does_not_count_what_an_earlier_one_has_counted(store: JobStore) -> None:
    cluster = await Cluster(store).open(4, 4)
    await cluster.submit(processes=4, nodes=2)
    await cluster.place()
    await cluster.claimed()
    await cluster.nodes["n1"].confirm()
    await cluster.place()
    counted = cluster.duty.counts.by_outcome["confirmed"]
    later = await Cluster(store).open()
    await later.place()
    await cluster.nodes["n2"].confirm()
    await later.place()
    assert (counted, later.duty.counts.by_outcome["confirmed"]) == (1, 1)


async def test_a_job_without_placed_units_has_no_routes(store: JobStore) -> None:
    cluster = await Cluster(store).open()
    made = await cluster.control.jobs.submit("send", {})
    assert (await read_routes(store, made.id)).units == ()


async def test_the_routes_of_a_job_with_many_units_are_bounded(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstay.control.routes._MOST_UNITS", 2)
    cluster = await Cluster(store).open(1, 1, 1)
    job_id = await cluster.submit(nodes=3, processes=3)
    await cluster.place()
    found = await read_routes(store, job_id)
    assert (len(found.units), found.more) == (2, 1)

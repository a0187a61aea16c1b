"""What `jobs explain` says about runs on nodes and their slices."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainstay.control.explain import Explanation, explained
from mainstay.model import Offer, Session
from mainstay.stores import JobStore, open_store
from mainstay.testing import VirtualClock
from tests.load.placement.runs import Cluster


@pytest.fixture
async def store() -> AsyncIterator[JobStore]:
    opened = await open_store("memory:", clock=VirtualClock())
    yield opened
    await opened.close()


async def told(cluster: Cluster, job_id: str) -> str:
    return text_of(await explained(cluster.store, job_id))


def text_of(explanation: Explanation) -> str:
    return " ".join(line for section in explanation.sections for line in section.sentences)


async def test_a_run_without_cores_says_how_many_are_free_its_place_and_who_is_in_front(store: JobStore) -> None:
    cluster = await Cluster(store).open()
    await cluster.node("a1", 12, labels={"zone": "a"})
    await cluster.submit(processes=7, labels={"zone": "a"})
    await cluster.place()
    front = await cluster.submit(processes=6, labels={"zone": "a"})
    job_id = await cluster.submit(processes=8, labels={"zone": "a"}, queue_deadline="1m")
    await cluster.place()

    text = await told(cluster, job_id)

    assert "It is pending and waits for cores of nodes." in text
    needs = "It needs 8 cores on nodes with zone=a; 5 of 12 are free on 1 node; place 2 of 2"
    assert f"{needs}; behind {front}." in text
    assert "If it has no cores by " in text
    assert "The placement leader starts it as soon as nodes have the cores for it." in text


async def test_a_run_that_no_node_could_hold_says_why_and_what_to_start(store: JobStore) -> None:
    cluster = await Cluster(store).open(4, 4)
    large, other = await cluster.submit(processes=9), await cluster.submit(labels={"gpu": "1"})
    await cluster.place()
    needs = "It needs 9 cores. The 2 nodes that it may use have 8 cores and cannot hold it."
    assert needs in await told(cluster, large)
    explanation = await explained(store, other)
    assert "It needs 1 core on nodes with gpu=1, and no active node has gpu=1." in text_of(explanation)
    assert "mainstay node join URL --label gpu=1" in [advice.command for advice in explanation.advice]


async def test_a_wait_without_a_leader_of_placement_says_so(store: JobStore) -> None:
    cluster = await Cluster(store).open(4)
    assert "No manager leads placement now" in await told(cluster, await cluster.submit())


async def test_a_run_that_got_cores_waits_for_a_manager(store: JobStore) -> None:
    cluster = await Cluster(store).open(4)
    job_id = await cluster.submit(processes=4)
    await cluster.place()
    await cluster.confirm()
    assert "no manager is active on this store" in await told(cluster, job_id)
    await store.open_session(
        Session(id=f"m.{9:032x}", beat_ms=store.clock.lease_ms(), offer=Offer(queues=("@lead",), tasks={}))
    )
    assert "no manager" not in await told(cluster, job_id)


async def test_the_slices_of_a_run_that_are_not_at_work_are_named(store: JobStore) -> None:
    cluster = await Cluster(store).open(4, 4)
    await cluster.node("n3", 2)
    job_id = await cluster.submit(processes=8)
    await cluster.place()
    await cluster.claimed()
    await cluster.nodes["n1"].confirm()
    cluster.pass_time(2)
    assert "Slice 1: node n2 has not confirmed it for 2s. It is asked again every 5s" in await told(cluster, job_id)

    await cluster.nodes["n2"].give_back(await cluster.nodes["n2"].assigned())
    await cluster.place()
    _, row = await cluster.slices(job_id)
    waits = "Slice 1 waits for 4 free cores on one node: n1 has 0 free, n2 gave it back, n3 has 2 cores."
    for each in (job_id, row.id):
        assert waits in await told(cluster, each)
    assert "Nodes gave it back, or did not confirm it, 1 time (limit 5)." in await told(cluster, row.id)


async def test_a_slice_whose_node_is_silent_says_so(store: JobStore) -> None:
    cluster = await Cluster(store).open(4)
    job_id = await cluster.submit(processes=4)
    await cluster.place()
    await cluster.claimed()
    await cluster.confirm()
    cluster.pass_time(9)
    assert "Slice 0: node n1 is not heard." in await told(cluster, job_id)


async def test_a_load_test_that_a_worker_claims_is_explained_as_before(store: JobStore) -> None:
    cluster = await Cluster(store).open(4)
    job = await cluster.control.jobs.submit("shop", None, kind="load", queue="loads")
    text = await told(cluster, job.id)
    assert "has been ready to be claimed from queue loads" in text
    assert "cores" not in text

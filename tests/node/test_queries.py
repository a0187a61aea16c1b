"""The read model of node jobs and nodes."""

from __future__ import annotations

import pytest

from mainstay.control import Control
from mainstay.errors import InvalidInput, JobNotFound
from mainstay.node import NodeJobService, NodePolicy
from mainstay.node.queries import read_node_job, read_nodes
from mainstay.testing import MemoryStore, VirtualClock
from tests.node.fleet import FakeNode, pass_time, submit, units_of
from tests.node.phases import NAMES, phased_job

LONG = NodePolicy(quorum_wait_s=60.0, stragglers_s=60.0)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(VirtualClock())


async def test_each_member_has_its_phase(store: MemoryStore) -> None:
    job = await phased_job(store)

    view = await read_node_job(store, job.id)

    assert {member.node: member.phase for member in view.members} == {name: name for name in NAMES}
    assert view.counts == dict.fromkeys(
        ("lost", "failed", "running", "assigned", "waiting", "cancelled", "succeeded"), 1
    )
    assert (view.status, view.settled, view.leader.phase) == ("running", False, "not begun")


async def test_a_member_has_its_progress_its_result_and_its_error(store: MemoryStore) -> None:
    job = await phased_job(store)
    began_ms = store.clock.now_ms()
    pass_time(store, 30)

    view = await read_node_job(store, job.id)

    running, failed, succeeded = (view.member(name) for name in ("running", "failed", "succeeded"))
    assert running.progress is not None
    assert (running.progress.done, running.progress.message, running.attempts) == (3, "packing", 1)
    assert (running.session, running.since_ms) == (job.nodes["running"].id, began_ms)
    assert failed.error is not None
    assert (failed.error.type, failed.error.message) == ("Error", "it broke")
    assert (succeeded.result, succeeded.labels, succeeded.session) == (
        "node/succeeded by succeeded",
        {"zone": "b"},
        None,
    )


async def test_a_large_result_is_left_out_with_its_size(store: MemoryStore) -> None:
    node = await FakeNode(store, "a").open(standing=True)
    job_id = await submit(store, LONG)
    await node.duty().round(await node.lead())
    node.name = "x" * 40_000
    await node.work()

    [member] = (await read_node_job(store, job_id)).members

    assert (member.phase, member.result) == ("succeeded", None)
    assert member.result_bytes > 40_000


async def test_the_quorum_is_counted_over_the_members_and_has_its_limit(store: MemoryStore) -> None:
    job = await phased_job(store, policy=LONG)

    quorum = (await read_node_job(store, job.id)).quorum

    assert (quorum.policy, quorum.members, quorum.needed, quorum.reached) == ("majority", 7, 4, 1)
    assert (quorum.is_reached, quorum.then) == (False, "proceed")
    assert quorum.limit_ms == store.clock.now_ms() + 60_000


async def test_a_job_that_ended_has_its_value_and_its_warnings(store: MemoryStore) -> None:
    nodes = [await FakeNode(store, name, place).open(standing=True) for place, name in enumerate("abc", 1)]
    job_id = await submit(store, NodePolicy(quorum_wait_s=1.0, stragglers_s=1.0))
    leader, duty, lead = nodes[0], nodes[0].duty(), await nodes[0].lead()
    await duty.round(lead)
    await leader.work()
    pass_time(store, 2)
    await duty.round(lead)

    began = await read_node_job(store, job_id)
    assert (began.status, began.leader.phase, began.leader.node) == ("finalizing", "assigned", "a")
    assert began.warnings == ("the leader phase began without a quorum: 1 of 2 needed members succeeded",)

    await leader.work()
    waits = (await read_node_job(store, job_id)).waits
    assert waits[0] == "Its leader phase has ended. The other nodes have 1s more, then their units are cancelled."
    pass_time(store, 2)
    await duty.round(lead)
    ended = await read_node_job(store, job_id)
    assert (ended.status, ended.settled, ended.value) == ("succeeded", True, "leader by a")
    assert ended.warnings == ("the quorum was not reached: 1 of 3 nodes succeeded, 2 are needed",)
    assert (ended.counts, ended.quorum.is_reached, ended.waits) == ({"cancelled": 2, "succeeded": 1}, False, ())


async def test_a_job_that_has_not_begun_has_no_members_and_tells_why(store: MemoryStore) -> None:
    job_id = await submit(store, NodePolicy(labels={"disk": "ssd"}))
    assert (await read_node_job(store, job_id)).waits == ("No node is active on this store.",)

    node = await FakeNode(store, "a").open(standing=True, labels={"disk": "hdd"})
    await node.lead()

    view = await read_node_job(store, job_id)
    assert view.members == ()
    assert view.waits == ("No active node has the label disk=ssd. Active nodes: a.",)


async def test_a_unit_of_a_node_that_came_back_is_no_longer_lost(store: MemoryStore) -> None:
    job = await phased_job(store)
    await FakeNode(store, "lost", 99).open(standing=True)

    assert (await read_node_job(store, job.id)).member("lost").phase == "waiting"


async def test_a_unit_whose_session_is_gone_is_lost_before_a_sweep_takes_it(store: MemoryStore) -> None:
    job = await phased_job(store)
    await store.close_session(job.nodes["running"].id)

    assert (await read_node_job(store, job.id)).member("running").phase == "lost"


async def test_a_job_that_was_opened_again_for_a_node_shows_no_mark_of_it(store: MemoryStore) -> None:
    job = await phased_job(store)
    await NodeJobService(Control(store)).retry(job.id, ["failed"], actor="ann")

    failed = (await read_node_job(store, job.id)).member("failed")
    assert (failed.phase, failed.error) == ("waiting", None)


async def test_another_job_and_an_unknown_node_are_refused(store: MemoryStore) -> None:
    other = await Control(store).jobs.submit("mail.send")
    with pytest.raises(InvalidInput, match="is not a node job"):
        await read_node_job(store, other.id)
    with pytest.raises(JobNotFound):
        await read_node_job(store, "018bcfe5-6800-7000-8000-000000000001")
    job = await phased_job(store)
    with pytest.raises(InvalidInput, match="'x' is not a member of job .*; its members: assigned, cancelled"):
        (await read_node_job(store, job.id)).member("x")


async def test_units_with_large_arguments_are_read_without_them(store: MemoryStore) -> None:
    node = await FakeNode(store, "a").open(standing=True)
    job_id = await submit(store, LONG, arguments={"text": "x" * 100_000})
    await node.duty().round(await node.lead())

    view = await read_node_job(store, job_id)

    assert [member.node for member in view.members] == ["a"]
    assert view.quorum.members == 1


# nodes ----------------------------------------------------------------------------------------------


async def test_nodes_have_their_state_their_work_and_the_leader_its_epoch(store: MemoryStore) -> None:
    job = await phased_job(store, standing=False)
    await store.drain([job.nodes["running"].id], by="ann")
    pass_time(store, 3000)
    for name in ("assigned", "running", "succeeded"):
        await store.beat([job.nodes[name].id])
    pass_time(store, 1000)
    await job.round()

    found = await read_nodes(store)

    states = {node.name: node.state for node in found.nodes}
    assert list(states) == sorted(states)
    assert (states["running"], states["succeeded"], states["failed"]) == ("draining", "live", "silent")
    running = next(node for node in found.nodes if node.name == "running")
    assert (running.worker, running.host, running.draining_by) == ("worker-running", "box-7", "ann")
    assert [(work.job, work.name, work.unit, work.status) for work in running.work] == [
        (job.id, "compact", "node/running", "running")
    ]
    assert found.leader is not None
    assert (found.leader.node, found.leader.epoch) == ("succeeded", 1)
    assert [(node.name, node.epoch) for node in found.nodes if node.leads] == [("succeeded", 1)]
    assert running.jobs == ("compact",)


async def test_the_newest_live_session_of_a_node_counts(store: MemoryStore) -> None:
    await FakeNode(store, "a", 1).open(standing=True)
    pass_time(store, 1)
    newer = await FakeNode(store, "a", 2).open(standing=True)
    await Control(store).claims.open_session(worker="plain")

    found = await read_nodes(store)

    assert [(node.name, node.session) for node in found.nodes] == [("a", newer.id)]
    assert found.leader is None


async def test_the_view_holds_for_three_hundred_nodes(store: MemoryStore) -> None:
    job = await phased_job(store, more=300)

    view = await read_node_job(store, job.id)

    assert len(view.members) == 307
    assert len(await units_of(store, job.id)) == 307
    assert len(view.waits) < 10

"""`jobs explain` about node jobs and their units."""

from __future__ import annotations

import pytest

from mainstay.control import Control
from mainstay.control.explain import Explanation, explained
from mainstay.lifecycle import Move
from mainstay.model import Offer, Session
from mainstay.node import NodePolicy
from mainstay.stores import Change
from mainstay.testing import MemoryStore, VirtualClock
from tests.node.fleet import FakeNode, job_of, pass_time, submit, units_of
from tests.node.phases import PhasedJob, phased_job


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(VirtualClock())


@pytest.fixture
async def job(store: MemoryStore) -> PhasedJob:
    return await phased_job(store, policy=NodePolicy(quorum_wait_s=60.0))


def part(explanation: Explanation, title: str) -> list[str]:
    return [line for section in explanation.sections if section.title == title for line in section.sentences]


async def waits(store: MemoryStore, job_id: str) -> list[str]:
    return part(await explained(store, job_id), "waits for")


async def test_a_job_without_any_node_names_the_command_that_starts_one(store: MemoryStore) -> None:
    job_id = await submit(store)
    pass_time(store, 5)

    told = await explained(store, job_id)

    assert part(told, "now") == ["It is pending and has been waiting to be placed for 5s."]
    assert part(told, "waits for") == ["No node is active on this store."]
    assert [advice.command for advice in told.advice] == ["mainstay worker MODULE:APP --node NAME"]


async def test_a_job_whose_labels_no_node_has_names_them(store: MemoryStore) -> None:
    node = await FakeNode(store, "a").open(standing=True, labels={"zone": "b"})
    await node.lead()
    job_id = await submit(store, NodePolicy(labels={"zone": "a", "disk": "ssd"}))

    told = await explained(store, job_id)

    assert part(told, "waits for") == ["No active node has the labels disk=ssd, zone=a. Active nodes: a."]
    assert told.advice[0].command == "mainstay worker MODULE:APP --node NAME --label disk=ssd --label zone=a"


async def test_a_job_whose_quorum_is_more_nodes_than_are_active_tells_how_many(store: MemoryStore) -> None:
    node = await FakeNode(store, "a").open(standing=True)
    await node.lead()
    job_id = await submit(store, NodePolicy(quorum=3))

    assert await waits(store, job_id) == ["Its quorum is 3 nodes, and 1 active node has the job: a."]


async def test_a_job_that_no_program_has_names_the_nodes(store: MemoryStore) -> None:
    session = Session(id="a.1", node="a", standing=True, offer=Offer(tasks={"node:other:local": {}}))
    await store.open_session(session)
    await store.lead("placement", "a.1", 10.0)
    job_id = await submit(store)

    assert await waits(store, job_id) == ["No active node has the job compact in its program: a."]


async def test_a_job_waits_for_a_leader_and_for_nodes_that_do_not_drain(store: MemoryStore) -> None:
    node = await FakeNode(store, "a").open(standing=True)
    job_id = await submit(store)
    assert await waits(store, job_id) == [
        "No node leads the placement of work now. Another one takes over within seconds."
    ]

    await node.lead()
    await store.drain([node.id], by="ann")
    assert await waits(store, job_id) == ["Every node drains and gets no more work: a."]


async def test_a_running_job_tells_its_quorum_and_the_nodes_that_need_attention(
    store: MemoryStore, job: PhasedJob
) -> None:
    pass_time(store, 4)
    told = await explained(store, job.id)

    assert "Its nodes do the work. The placement leader advances it; no worker holds it." in part(told, "now")
    assert part(told, "waits for") == [
        (
            "It waits for its quorum: 1 of 7 members succeeded, 4 are needed. If it is not reached in 56s, the leader "
            "phase begins without it."
        ),
        (
            "Node assigned has not confirmed its unit for 4s. It is asked again every 5s, and the unit is taken back "
            "at 2023-11-14 22:13:40Z."
        ),
        "Node lost is away: none of its sessions is open. It was lost with its session 1 time.",
        "Node waiting gave its unit back, or did not confirm it, 1 time (limit 5). It is asked again in 26s.",
        "1 node is at work.",
    ]
    assert f"mainstay jobs cancel {job.id}" in [advice.command for advice in told.advice]


async def test_of_many_nodes_that_wait_the_first_are_named(store: MemoryStore) -> None:
    job = await phased_job(store, more=40)

    told = await waits(store, job.id)

    assert told[-2:] == ["38 more nodes wait.", "1 node is at work."]
    assert len(told) == 8


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ("assigned", [("Node assigned has not confirmed its unit for 2s. It is asked again every 5s, and the unit is "
                      "taken back at 2023-11-14 22:13:40Z.")]),
        ("lost", ["Node lost is away: none of its sessions is open. It was lost with its session 1 time."]),
        ("running", []),
        ("failed", []),
    ],
)  # fmt: skip
async def test_a_unit_tells_what_its_node_does(store: MemoryStore, job: PhasedJob, node: str, told: list[str]) -> None:
    pass_time(store, 2)
    assert await waits(store, await job.unit_id(node)) == told


async def test_an_assigned_unit_tells_until_when_it_is_to_be_confirmed(store: MemoryStore, job: PhasedJob) -> None:
    told = await explained(store, await job.unit_id("assigned"))
    assert part(told, "next")[0] == "If it is not confirmed by 2023-11-14 22:13:40Z (in 20s), it is taken back."


async def test_a_failed_unit_advises_a_retry_on_its_node(store: MemoryStore, job: PhasedJob) -> None:
    told = await explained(store, await job.unit_id("failed"))
    assert f"mainstay node retry {job.id} failed" in [advice.command for advice in told.advice]


async def test_a_failed_job_advises_a_look_and_both_retries(store: MemoryStore) -> None:
    node = await FakeNode(store, "a").open(standing=True)
    job_id = await submit(store)
    duty, lead = node.duty(), await node.lead()
    await duty.round(lead)
    await node.fail(await node.confirmed())
    await duty.round(lead)

    told = await explained(store, job_id)

    assert (await units_of(store, job_id))["node/a"].status == "failed"
    assert [advice.command.partition(job_id)[0] for advice in told.advice] == [
        "mainstay jobs show ",
        "mainstay node show ",
        "mainstay node retry ",
        "mainstay jobs retry ",
        "mainstay jobs cancel ",
    ]


async def test_a_leader_phase_that_waits_names_itself(store: MemoryStore) -> None:
    node = await FakeNode(store, "a").open(standing=True)
    job_id = await submit(store)
    duty, lead = node.duty(), await node.lead()
    await duty.round(lead)
    await node.work()
    await duty.round(lead)

    assert await waits(store, job_id) == ["It waits for its leader phase, which is assigned and not confirmed yet."]
    unit = (await units_of(store, job_id))["leader"]
    assert (await waits(store, unit.id))[0].startswith("Node a has not confirmed the leader phase for 0s.")


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ("assigned", "Claim 1: it was assigned to node assigned at {at}, which has not confirmed it."),
        ("running", "Claim 1: worker-running took it at {at} and still holds it."),
        ("waiting", "Claim 1: it was assigned to node waiting at {at}, which had not confirmed it after 0s: session "),
        ("failed", "Claim 1: worker-failed took it at {at}, held it for 0s, and it ended as failed: Error: it broke."),
    ],
)
async def test_the_history_of_a_unit_names_the_node_that_confirmed_it(
    store: MemoryStore, job: PhasedJob, node: str, told: str
) -> None:
    history = part(await explained(store, await job.unit_id(node)), "history")
    assert history[0].startswith("It was submitted by worker-succeeded at ")
    assert history[1].startswith(told.format(at="2023-11-14 22:13:20Z"))


async def test_the_leader_phase_after_a_retry_is_named_as_one(store: MemoryStore) -> None:
    node = await FakeNode(store, "a").open(standing=True)
    job_id = await submit(store, NodePolicy(quorum="all"))
    lead = await node.lead()
    await node.duty().round(lead)
    await node.work()
    await node.duty().round(lead)
    await node.fail(await node.confirmed())
    await node.duty().round(lead)
    job = await job_of(store, job_id)
    again = Move(to="running", fields={"started_ms": store.clock.now_ms(), "session": None})
    change = Change(before=job, moves=(Move(to="pending"), again), actor="ann", at_ms=store.clock.now_ms())
    await store.apply([change])
    await node.duty().round(lead)

    unit = (await units_of(store, job_id))["leader/2"]
    assert (await waits(store, unit.id))[0].startswith("Node a has not confirmed the leader phase for 0s.")


async def test_the_history_of_a_job_names_the_leader_that_started_it(store: MemoryStore, job: PhasedJob) -> None:
    history = part(await explained(store, job.id), "history")
    assert history[1] == "Start 1: worker-succeeded started it on its nodes at 2023-11-14 22:13:20Z."


async def test_a_unit_of_a_node_that_drains_waits_for_its_next_session(store: MemoryStore, job: PhasedJob) -> None:
    await store.drain([job.nodes["waiting"].id], by="ann")
    told = await explained(store, await job.unit_id("waiting"))
    assert part(told, "waits for") == ["Node waiting drains and gets no more work until it is started again."]
    assert told.advice[0].command == "mainstay worker MODULE:APP --node waiting"


async def test_a_unit_of_a_node_whose_new_program_lacks_the_job_says_so(store: MemoryStore, job: PhasedJob) -> None:
    session = Session(id="lost.9", node="lost", standing=True, offer=Offer(tasks={"node:other:local": {}}))
    await store.open_session(session)
    assert await waits(store, await job.unit_id("lost")) == ["No active node has the job compact in its program: lost."]


async def test_a_unit_that_waits_for_its_retry_tells_until_when(store: MemoryStore) -> None:
    node = await FakeNode(store, "a").open(standing=True)
    job_id = await submit(store, unit_options={"retries": 1, "backoff_base": "30s", "jitter": False})
    await node.duty().round(await node.lead())
    await node.fail(await node.confirmed(), retryable=None)

    unit = (await units_of(store, job_id))["node/a"]
    assert unit.status == "pending"
    assert (await waits(store, unit.id))[-1] == "Node a waits for its retry, until 2023-11-14 22:13:50Z, in 30s."


async def test_a_unit_of_a_job_that_has_ended_is_about_to_be_cancelled(store: MemoryStore, job: PhasedJob) -> None:
    unit = await job.unit_id("assigned")
    await Control(store).operations.force(job.id, "failed", actor="ann", reason="by hand")
    assert await waits(store, unit) == ["Its job is failed: the placement leader cancels it."]

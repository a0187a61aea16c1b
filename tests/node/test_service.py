"""The operations on submitted node jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainstay.errors import InvalidInput, InvalidTransition
from mainstay.node import NodeJobService, NodePolicy
from mainstay.stores import JobStore, open_store
from mainstay.testing import VirtualClock
from tests.node.fleet import FakeNode, job_of, submit, units_of


@pytest.fixture
async def store() -> AsyncIterator[JobStore]:
    opened = await open_store("memory:", clock=VirtualClock())
    yield opened
    await opened.close()


class Setting:
    """Two nodes and a job, of which the first node leads and the second fails."""

    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.nodes = [FakeNode(store, name) for name in ("n1", "n2")]
        self.service = NodeJobService(self.nodes[0].control)
        self.job_id = ""

    async def begin(self, policy: NodePolicy) -> None:
        for node in self.nodes:
            await node.open()
        self.job_id = await submit(self.store, policy)
        await self.round()

    async def round(self) -> None:
        await self.nodes[0].duty().round(await self.nodes[0].lead())


@pytest.fixture
async def setting(store: JobStore) -> Setting:
    return Setting(store)


async def test_the_status_has_the_units_by_node_and_the_phase(setting: Setting) -> None:
    await setting.begin(NodePolicy())
    status = await setting.service.status(setting.job_id)
    assert (status.phase, status.members, status.needed, status.reached) == ("local", ("n1", "n2"), 2, 0)
    assert {name: unit.status for name, unit in status.units.items()} == {"n1": "dispatched", "n2": "dispatched"}
    assert status.leader is None


async def test_a_job_of_another_kind_is_refused(setting: Setting, store: JobStore) -> None:
    other = (await setting.nodes[0].control.jobs.submit("mail", None)).id
    with pytest.raises(InvalidInput, match="is not a node job"):
        await setting.service.status(other)


async def test_a_failed_node_of_a_running_job_is_retried(setting: Setting, store: JobStore) -> None:
    await setting.begin(NodePolicy(quorum=1, has_leader=False))
    await setting.nodes[1].fail(await setting.nodes[1].confirmed())
    assert await setting.service.retry(setting.job_id, ["n2"], actor="me") == ["n2"]
    await setting.round()
    assert (await units_of(store, setting.job_id))["node/n2"].status == "dispatched"
    assert [await node.work() for node in setting.nodes] == [1, 1]
    await setting.round()
    assert (await job_of(store, setting.job_id)).status == "succeeded"


async def test_a_failed_job_goes_on_with_the_retried_nodes_under_the_same_token(
    setting: Setting, store: JobStore
) -> None:
    await setting.begin(NodePolicy(quorum="all"))
    await setting.nodes[0].work()
    await setting.nodes[1].fail(await setting.nodes[1].confirmed())
    await setting.round()
    assert (await job_of(store, setting.job_id)).status == "failed"
    await setting.service.retry(setting.job_id, actor="me")
    for _ in range(3):
        await setting.round()
        for node in setting.nodes:
            await node.work()
    job = await job_of(store, setting.job_id)
    assert (job.status, job.token, job.error) == ("succeeded", 1, None)
    assert [unit.unit for unit in setting.nodes[0].done] == ["node/n1", "leader"]


async def test_a_retry_that_could_not_reach_the_quorum_is_refused_and_opens_no_unit(
    setting: Setting, store: JobStore
) -> None:
    await setting.begin(NodePolicy(quorum="all"))
    await setting.nodes[1].fail(await setting.nodes[1].confirmed())
    await setting.round()  # the quorum is impossible: the job fails, and the unit of the other node is cancelled
    with pytest.raises(InvalidInput, match="at most 1 of 2 that the quorum needs") as refusal:
        await setting.service.retry(setting.job_id, actor="me")
    assert refusal.value.field == "nodes"
    assert (await units_of(store, setting.job_id))["node/n2"].status == "failed"


async def test_nodes_that_did_not_fail_or_do_not_exist_are_refused_by_field(setting: Setting) -> None:
    await setting.begin(NodePolicy())
    for nodes, rule in ((["n9"], "is not a node of job"), (["n1"], "only failed ones"), ([], "has no failed node")):
        with pytest.raises(InvalidInput, match=rule) as refusal:
            await setting.service.retry(setting.job_id, nodes, actor="me")
        assert refusal.value.field == "nodes"


async def test_a_cancelled_job_and_one_in_its_leader_phase_are_not_retried(setting: Setting) -> None:
    await setting.begin(NodePolicy(quorum=1))
    await setting.nodes[0].work()
    await setting.round()
    with pytest.raises(InvalidInput, match="in its leader phase"):
        await setting.service.retry(setting.job_id, actor="me")
    await setting.nodes[0].control.operations.cancel(setting.job_id, actor="me", reason="enough")
    with pytest.raises(InvalidTransition):
        await setting.service.retry(setting.job_id, actor="me")

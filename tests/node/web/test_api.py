"""Nodes and node jobs over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mainstay.client import AsyncClient
from mainstay.node import NodePolicy
from mainstay.testing import MemoryStore
from tests.node.fleet import FakeNode, submit
from tests.node.phases import PhasedJob, phased_job
from tests.web.conftest import Server, serving


class NodeServer:
    """A server on a store with a node job."""

    def __init__(self, server: Server, job: PhasedJob) -> None:
        self.server = server
        self.job = job
        self.path = f"/api/v1/jobs/{job.id}/nodes"

    async def get(self, path: str, **query: object) -> dict[str, Any]:
        answer = await self.server.client.get(path, params={name: str(value) for name, value in query.items()})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture
async def site() -> AsyncIterator[NodeServer]:
    store = MemoryStore()
    job = await phased_job(store, arguments={"password": "hush-hush"})
    async with serving(store=store) as server:
        yield NodeServer(server, job)


async def test_nodes_are_listed_with_the_leader_of_placement(site: NodeServer) -> None:
    found = await site.get("/api/v1/nodes")

    assert {node["name"]: node["state"] for node in found["nodes"]}["running"] == "live"
    assert (found["leader"]["node"], found["leader"]["epoch"]) == ("succeeded", 1)


async def test_a_node_job_has_its_nodes_its_quorum_and_its_leader_phase(site: NodeServer) -> None:
    found = await site.get(site.path)

    assert {member["node"]: member["phase"] for member in found["members"]}["lost"] == "lost"
    assert (found["quorum"]["needed"], found["quorum"]["reached"]) == (4, 1)
    assert found["leader"]["phase"] == "not begun"
    some = await site.get(site.path, phase="failed,lost")
    assert [member["node"] for member in some["members"]] == ["failed", "lost"]
    assert some["counts"] == found["counts"]


async def test_a_failed_node_is_retried_in_the_name_of_the_caller(site: NodeServer) -> None:
    send = site.server.client.post
    done = await send(f"{site.path}/failed/retry", json={"reason": "the disk is new"})
    assert (done.status_code, done.json()) == (200, {"id": site.job.id, "nodes": ["failed"]})
    event = (await site.server.control.jobs.events(await site.job.unit_id("failed")))[-1]
    assert (event.to, event.actor, event.reason) == ("pending", "web:local", "the disk is new")

    for node, problem in (("failed", "is pending"), ("succeeded", "is succeeded"), ("x", "is not a node of job")):
        refused = await send(f"{site.path}/{node}/retry")
        assert refused.status_code == 422, refused.text
        assert problem in refused.json()["detail"]


async def test_secrets_in_results_and_errors_are_masked() -> None:
    store = MemoryStore()
    nodes = [await FakeNode(store, name, place).open(standing=True) for place, name in enumerate("ab", 1)]
    job_id = await submit(store, NodePolicy(quorum_wait_s=60.0), arguments={"password": "hush-hush"})
    await nodes[0].duty().round(await nodes[0].lead())
    await nodes[0].complete_with(await nodes[0].confirmed(), {"password": "hush-hush", "rows": 1})
    await nodes[1].fail(await nodes[1].confirmed(), "hush-hush is the wrong password")
    async with serving(store=store) as server:
        answer = await server.client.get(f"/api/v1/jobs/{job_id}/nodes")
    members = answer.json()["members"]
    assert members[0]["result"] == {"password": "***", "rows": 1}
    assert members[1]["error"]["message"] == "*** is the wrong password"
    assert "hush" not in answer.text


async def test_without_payloads_neither_results_nor_messages_are_shown(site: NodeServer) -> None:
    async with serving(store=site.job.store, show_payloads=False) as server:
        found = await NodeServer(server, site.job).get(site.path)
        members = {member["node"]: member for member in found["members"]}
        assert members["succeeded"]["result"] is None
        assert members["failed"]["error"]["message"] == "***"


async def test_another_job_is_refused(site: NodeServer) -> None:
    other = await site.server.control.jobs.submit("mail.send")
    for method, path in (("GET", "nodes"), ("POST", "nodes/a/retry")):
        refused = await site.server.client.request(method, f"/api/v1/jobs/{other.id}/{path}")
        assert (refused.status_code, refused.json()["field"]) == (422, "job")


async def test_the_client_reads_nodes_and_retries(site: NodeServer) -> None:
    transport = httpx.ASGITransport(site.server.app)
    async with AsyncClient("http://127.0.0.1:8330", transport=transport) as client:
        nodes = await client.nodes.all()
        job = await client.nodes.job(site.job.id)
        assert [node.name for node in nodes.nodes if node.leads] == ["succeeded"]
        assert job.member("running").phase == "running"
        assert (await client.nodes.retry(site.job.id, "failed", reason="again")).nodes == ["failed"]

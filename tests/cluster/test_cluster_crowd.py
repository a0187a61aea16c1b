"""Many nodes at once, and many starts of the same parts: everybody gets in, and nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from mainstay.bus.nats import PING_VARZ, parse_servers
from mainstay.cluster.address import ClusterAddress
from mainstay.cluster.manager import Manager, ManagerOptions
from mainstay.cluster.nats_server import LocalNats
from mainstay.control import JobRequest
from mainstay.stores import open_store
from tests.cluster.idle_load import idle
from tests.cluster.joined_nodes import joined_node
from tests.cluster.local_clusters import running_cluster, until

pytestmark = pytest.mark.slow


async def test_fifty_nodes_that_join_at_once_are_all_active_and_work(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(50)]
    async with running_cluster(tmp_path / "c", managers=3, nodes=0) as cluster, contextlib.AsyncExitStack() as stack:
        made = await cluster.control.jobs.submit_many(JobRequest("add", {"a": n, "b": n}, {}) for n in range(500))
        url = cluster.file.node_url

        nodes = await asyncio.gather(*(stack.enter_async_context(joined_node(url, name)) for name in names))
        status = await cluster.status(lambda found: sum(node.state == "active" for node in found.nodes) == 50)
        done = await asyncio.gather(*(node.work() for node in nodes))
        rows = await cluster.rows([each.id for each in made])

        assert {node.name for node in status.nodes} == set(names)
        assert sum(done) == 500
        assert {(row.status, row.token) for row in rows} == {("succeeded", 1)}
        assert [node.lost for node in nodes] == [[]] * 50
        assert status.alarms == []
        assert dict(status.refused) == {}


async def test_two_hundred_starts_in_one_process_leave_no_task_descriptor_or_subscription(tmp_path: Path) -> None:
    bus = await LocalNats.start(tmp_path)
    store = await open_store(f"sqlite:///{tmp_path / 'jobs.db'}")
    system = Client()
    await system.connect(bus.url("manager"), inbox_prefix=b"_INBOX.manager.test")
    address = {role: ClusterAddress(servers=parse_servers(bus.url(role))) for role in ("manager", "node")}

    async def left() -> tuple[int, int, dict[str, int]]:
        counts = await server_counts(system)
        return len(asyncio.all_tasks()), len(list(Path("/proc/self/fd").iterdir())), counts

    async def cycle() -> None:
        client = await address["manager"].connect("manager", "m1", timeout_s=30)
        manager = Manager(store, client, ManagerOptions(name="m1", state=str(tmp_path / "m1")), sample_load=idle)
        await manager.start()
        async with joined_node(address["node"].url, "n1") as node:
            async with node.store.wake(["queue:default"]):
                assert len(await node.store.sessions()) == 1
            await node.control.claims.close_session(node.session.id)
        await manager.stop()
        await client.close()

    for _ in range(5):  # what is made once is there now
        await cycle()
    before = await left()
    for _ in range(195):
        await cycle()

    async def same() -> bool | None:
        return await left() == before or None

    await until(same)
    await system.close()
    await store.close()
    await bus.stop()


async def server_counts(system: Client) -> dict[str, int]:
    answer: dict[str, Any] = json.loads((await system.request(PING_VARZ, timeout=20)).data)
    return {name: answer["data"][name] for name in ("connections", "subscriptions")}

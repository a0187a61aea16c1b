"""Real clusters whose parts are killed, frozen or cut off while they work: it goes on, and none of it counts twice."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from mainstay.control import JobRequest
from mainstay.stores import RefusedWrite
from servers import Proxy
from tests.cluster.local_clusters import RunningCluster, running_cluster, until
from tests.cluster.marked_processes import descendants, is_alive

pytestmark = pytest.mark.slow

#: a silent node is closed after 4 s instead of 25, also if most of the nodes are silent
QUICK = {
    "BEAT": "0.5s",
    "AWAY": "1.5s",
    "ISOLATION": "3s",
    "ASK": "3s",
    "ASK_EVERY": "0.5s",
    "ASK_TIMEOUT": "0.4s",
    "CLOSED": "4s",
    "MASS_NODES": "10",
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUICK.items():
        monkeypatch.setenv(f"MAINSTAY_CLUSTER_{name}", value)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


async def test_a_thousand_running_tasks_survive_killed_leaders_and_a_killed_bus(tmp_path: Path, store_url: str) -> None:
    options = {"managers": 3, "nodes": 2, "concurrency": 600, "store": store_url}
    async with running_cluster(tmp_path / "c", **options) as cluster:
        before = await cluster.ready(2)
        file = tmp_path / "go"
        made = await cluster.control.jobs.submit_many(JobRequest("hold", {"file": str(file)}, {}) for _ in range(1000))
        ids = [each.id for each in made]
        await cluster.running(ids)
        epochs = {lead.name: lead.epoch for lead in before.leads}

        for leader in {lead.manager for lead in before.leads}:
            cluster.kill(leader)
        after = await cluster.status(
            # a manager that was just started again has not heard the nodes yet
            lambda found: (
                len(found.nodes) == 2 and all(lead.manager and lead.epoch > epochs[lead.name] for lead in found.leads)
            )
        )
        cluster.kill("nats")
        file.touch()
        rows = await cluster.settled(ids)

        assert set(epochs) == {"leader", "placement"}
        assert {(row.status, row.token, row.starts) for row in rows} == {("succeeded", 1, 1)}
        assert {node.state for node in after.nodes} == {"active"}
        assert await cluster.store.check() == []


async def test_work_of_a_node_that_is_cut_off_frozen_or_killed_runs_elsewhere_and_counts_once(
    tmp_path: Path, quick: None
) -> None:
    harmed = ["cut", "deaf", "mute", "frozen", "killed"]
    async with contextlib.AsyncExitStack() as stack, running_cluster(tmp_path / "c", nodes=0) as cluster:
        proxies = {name: stack.enter_context(Proxy.before(cluster.file.node_url)) for name in harmed[:3]}
        urls = {name: proxy.url for name, proxy in proxies.items()}
        parents = {name: await cluster.join(name, url=urls.get(name, ""), queues=name) for name in harmed}
        before = await cluster.ready(len(harmed))
        folders = {name: tmp_path / name for name in harmed}
        for folder in folders.values():
            folder.mkdir()
        ids = [await cluster.submit("hold_attempt", queue=name, folder=str(folders[name])) for name in harmed]
        child = await cluster.submit("hold_process", queue="killed", file=str(folders["killed"] / "2"))
        started = await cluster.running([*ids, child])
        for proxy in proxies.values():
            proxy.cut()  # for a moment: nothing moves
        await cluster.status(lambda found: all(node.state == "active" for node in found.nodes))
        await cluster.join("healthy", queues=",".join(harmed))

        proxies["cut"].refuse()
        proxies["cut"].cut()
        (folders["cut"] / "1").touch()  # its end is known after it was cut off
        proxies["deaf"].stall("down")
        proxies["mute"].stall("up")
        frozen = next(node.beat.pid for node in before.nodes if node.name == "frozen")
        os.kill(frozen, signal.SIGSTOP)
        family = descendants(parents["killed"].pid)
        parents["killed"].kill()
        await cluster.taken_back([*ids, child])
        left = [pid for pid in family if is_alive(pid)]
        proxies["cut"].accept()
        for name in ("deaf", "mute"):
            (folders[name] / "1").touch()
            proxies[name].flow()
        os.kill(frozen, signal.SIGCONT)
        await cluster.status(lambda found: sum(node.state == "active" for node in found.nodes) == len(harmed))
        for folder in folders.values():
            (folder / "2").touch()
        rows = await cluster.settled([*ids, child])
        refusals = await until(lambda: refused(cluster, ids[0]))

        assert [(row.status, row.token, row.losses, row.crashes) for row in rows] == [("succeeded", 2, 1, 0)] * 6
        assert {row.result for row in rows[:5]} == {b"\x02"}
        assert {refusal.session for refusal in refusals} == {started[0].session}
        assert len(family) == 4  # its worker, two engines and the process of a task
        assert left == []
        assert await cluster.store.check() == []


async def refused(cluster: RunningCluster, job: str) -> list[RefusedWrite] | None:
    """For `until`: the writes that came too late."""
    return await cluster.store.refusals(job) or None

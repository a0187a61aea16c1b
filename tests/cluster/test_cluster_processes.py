"""Managers, nodes and a bus as real processes: work runs on nodes, and survives the death of each of them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from mainstay.control.explain import explained
from tests.cluster.local_clusters import TARGET, running_cluster, until
from tests.cluster.marked_processes import MarkedProcesses

pytestmark = pytest.mark.slow


async def test_tasks_of_all_kinds_run_on_a_node_without_the_database(tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "c") as cluster:
        await cluster.ready()
        ids = [await cluster.submit("add", a=n, b=1) for n in range(50)]
        ids += [await cluster.submit("where"), await cluster.submit("chain")]

        rows = await cluster.settled(ids)

        assert {row.status for row in rows} == {"succeeded"}
        assert [row.result for row in rows[:3]] == [b"\x01", b"\x02", b"\x03"]
        sessions = {session.id: session for session in await cluster.store.sessions()}
        events = await cluster.store.events(ids[0])
        assert sessions[events[-1].actor].standing
        assert await cluster.store.check() == []


async def test_a_node_job_runs_on_every_node_and_its_leader_phase_on_one(tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "c", nodes=2) as cluster:
        await cluster.ready(2)
        from tests.cluster.cluster_program import names

        request = names.job().request()
        made = await cluster.control.jobs.submit_request(request)
        [row] = await cluster.settled([made.id])

        assert row.status == "succeeded"
        assert row.result is not None
        assert names.returns.unpack(row.result, job_id=row.id).value == ["n1", "n2"]


async def test_a_queue_for_each_kind_of_node_selects_the_nodes_of_tasks(tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "c", managers=1, nodes=0) as cluster:
        ids = [await cluster.submit("add", queue=queue, a=1, b=2) for queue in ("gpu", "gpu", "default")]
        await cluster.join("n1", queues="default")
        [plain] = await cluster.settled(ids[2:])
        waiting = [row.status for row in await cluster.rows(ids[:2])]
        why = str(await explained(cluster.store, ids[0]))
        await cluster.join("g1", queues="gpu", label="kind=gpu")

        rows = await cluster.settled([ids[0], ids[1]])
        sessions = {session.id: session for session in await cluster.store.sessions()}
        at = [sessions[(await cluster.store.events(row.id))[-1].actor].worker for row in (*rows, plain)]

    assert waiting == ["pending", "pending"]
    assert "gpu" in why, why
    assert at == ["g1", "g1", "n1"]


async def test_a_killed_worker_of_a_node_is_proven_dead_and_its_job_runs_again(tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "c", nodes=2) as cluster:
        status = await cluster.ready(2)
        file = tmp_path / "go"
        [job] = [await cluster.submit("hold", file=str(file))]
        [row] = await cluster.running([job])
        victim = next(node for node in status.nodes if row.session in node.beat.sessions)

        os.kill(victim.beat.pid, signal.SIGKILL)

        async def taken() -> bool | None:
            [now] = await cluster.rows([job])
            return now.token > row.token or None

        await until(taken)
        file.touch()
        [done] = await cluster.settled([job])
        events = [event.to for event in await cluster.store.events(job)]

        assert (done.status, done.losses, done.crashes) == ("succeeded", 1, 0)
        assert events == ["pending", "running", "timed_out", "pending", "running", "succeeded"]
        entries = await cluster.client.journal(most=100)
        assert any(entry.event == "node_closed" and "parent" in entry.text for entry in entries)


async def test_a_drained_node_finishes_its_job_and_ends(tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "c", nodes=2, grace_s=30.0) as cluster:
        status = await cluster.ready(2)
        file = tmp_path / "go"
        job = await cluster.submit("hold", file=str(file))
        [row] = await cluster.running([job])
        node = next(node.name for node in status.nodes if row.session in node.beat.sessions)

        assert await cluster.client.drain(node, by="ann")
        await cluster.status(lambda found: any(each.name == node and each.state == "draining" for each in found.nodes))
        file.touch()
        [done] = await cluster.settled([job])

        assert (done.status, done.token) == ("succeeded", 1)
        await cluster.status(lambda found: all(each.state != "draining" for each in found.nodes))
        assert not await cluster.client.drain("n9", by="ann")


async def joined(folder: Path, *words: str) -> asyncio.subprocess.Process:
    """`mainstay node join` in the folder of a cluster."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mainstay", "node", "join", *words, "--folder", str(folder)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def test_another_terminal_joins_a_local_cluster_with_the_name_of_the_app(tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "c", managers=1, nodes=0) as cluster:
        process = await joined(tmp_path / "c", TARGET)
        try:
            await cluster.ready()
        finally:
            process.terminate()
            await process.communicate()
        assert process.returncode == 0


async def test_a_node_of_another_environment_is_refused_and_says_why(tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "c", managers=1, nodes=0) as cluster:
        process = await joined(tmp_path / "c", f"{cluster.file.node_url}?environment=staging", TARGET)
        output, _ = await process.communicate()

        assert process.returncode == 2
        assert b"this is the cluster local/default, not local/staging" in output
        assert (await cluster.client.status()).refused["cluster"] >= 1


async def test_nothing_is_left_after_many_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, temporary = tmp_path / "c", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    processes = MarkedProcesses(monkeypatch)
    left: list[tuple[set[Path], int]] = []
    for number in range(3):
        async with running_cluster(folder, managers=1) as cluster:
            if number % 2:  # the others are stopped while their node starts
                await cluster.ready()
            assert len(processes.alive()) >= 3
            port = cluster.cluster.bus.port
        files = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
        left.append((files, len(list(Path("/proc/self/fd").iterdir()))))
        assert processes.alive() == {}
        assert list(temporary.iterdir()) == []
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)

    assert left[-1] == left[1]

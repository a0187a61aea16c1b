"""Node jobs from submit to result, with the engines and leads of workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

import msgspec
import pytest

from mainstay import App, JobFailed, LeaderRun, Node, NodeHandle, NodeJob, NodeResult, context
from mainstay.errors import StoreUnavailable
from mainstay.lifecycle import Event
from mainstay.stores import JobStore, StoreProxy, open_store
from tests.node.engines import AppNode


class Report(msgspec.Struct):
    node: str
    rows: int


class Compact:
    """Plain methods, which run in threads."""

    def local(self, node: Node, table: str, *, fails: str = "") -> Report:
        if node.name == fails:
            raise ValueError(f"{node.name} is broken")
        return Report(node.name, len(table) + len(node.members))

    def leader(self, results: list[NodeResult], run: LeaderRun, table: str, *, fails: str = "") -> dict[str, object]:
        assert all(isinstance(each.result, Report) for each in results if each.state == "succeeded")
        return {"table": table, "nodes": [each.node for each in results], "job": run.job_id, "token": run.token}


class CompactAsync:
    async def local(self, node: Node, seconds: float = 0.0) -> str:
        await asyncio.sleep(seconds)
        return node.name

    async def leader(self, results: list[NodeResult], seconds: float = 0.0) -> list[str]:
        return [each.result for each in results]


@pytest.fixture
async def store() -> AsyncIterator[JobStore]:
    opened = await open_store("memory:")
    yield opened
    await opened.close()


class Fleet:
    """Three nodes that run one app."""

    def __init__(self, app: App, store: JobStore) -> None:
        self.app = app
        self.nodes = [AppNode(app, store, name) for name in ("n1", "n2", "n3")]

    async def __aenter__(self) -> Self:
        for node in self.nodes:
            await node.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            await node.stop()


async def result_of(app: App, job: NodeJob, store: JobStore, **arguments: object) -> tuple[NodeHandle, object]:
    with app.using(store):
        async with Fleet(app, store):
            handle = await job.submit(**arguments)
            return handle, await handle.result("20s")


async def test_plain_methods_run_on_every_node_and_then_once_at_the_leader(store: JobStore) -> None:
    app = App("memory:")
    job = app.node_job(name="compact", quorum="all")(Compact)
    with app.using(store):
        async with Fleet(app, store):
            handle = await job.submit("events")
            result = await handle.result("20s")
            nodes = await handle.nodes()
    assert result.value == {"table": "events", "nodes": ["n1", "n2", "n3"], "job": handle.id, "token": 1_000_001}
    assert (result.succeeded, result.quorum_needed) == (("n1", "n2", "n3"), 3)
    assert [each.result for each in nodes] == [Report(name, 9) for name in ("n1", "n2", "n3")]
    assert all(each.started_ms and each.ended_ms and each.started_ms <= each.ended_ms for each in nodes)


async def test_async_methods_run_on_the_loop(store: JobStore) -> None:
    app = App("memory:")
    job = app.node_job(name="compact", quorum="all")(CompactAsync)
    _, result = await result_of(app, job, store)
    assert getattr(result, "value", None) == ["n1", "n2", "n3"]


async def test_a_job_without_a_quorum_fails_and_names_its_nodes(store: JobStore) -> None:
    app = App("memory:")
    job = app.node_job(name="compact", quorum="all", retries=0)(Compact)
    with app.using(store):
        async with Fleet(app, store):
            handle = await job.submit("events", fails="n2")
            with pytest.raises(JobFailed, match="the quorum can no longer be reached"):
                await handle.result("20s")
            (failed,) = [each for each in await handle.nodes() if each.state == "failed"]
    assert failed.node == "n2"
    assert failed.error is not None
    assert failed.error.message == "n2 is broken"


async def test_a_cancel_stops_running_work_on_every_node(store: JobStore) -> None:
    app = App("memory:")
    stopped: list[str] = []

    class Slow:
        async def local(self, node: Node) -> None:
            running.release()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                stopped.append(node.name)
                raise

    running = asyncio.Semaphore(0)
    job = app.node_job(name="slow")(Slow)
    with app.using(store):
        async with Fleet(app, store):
            handle = await job.submit()
            async with asyncio.timeout(20):
                for _ in range(3):
                    await running.acquire()
                await handle.cancel()
                assert (await handle.wait("20s")).status == "cancelled"
                while len(stopped) < 3:
                    await asyncio.sleep(0.01)
    assert sorted(stopped) == ["n1", "n2", "n3"]


async def test_failed_nodes_are_retried_and_the_leader_phase_follows_again(store: JobStore) -> None:
    app = App("memory:")
    broken = {"n2"}
    leads: list[int] = []

    class Flaky:
        async def local(self, node: Node) -> str:
            if node.name in broken:
                raise ValueError("not yet")
            return f"{node.name} in {context().job.attempt}"

        async def leader(self, results: list[NodeResult], run: LeaderRun) -> int:
            leads.append(run.token)
            return len(results)

    job = app.node_job(name="flaky", require="all", retries=0)(Flaky)
    with app.using(store):
        async with Fleet(app, store):
            handle = await job.submit()
            with pytest.raises(JobFailed, match="not all nodes succeeded: n2"):
                await handle.result("20s")
            broken.clear()
            assert await handle.retry() == ["n2"]
            result = await handle.result("20s")
    assert (result.value, result.failed) == (3, ())
    assert leads == sorted(leads)
    assert len(leads) == 2


async def test_a_leader_phase_gets_its_results_from_a_store_that_answers_only_now_and_then(store: JobStore) -> None:
    class Forgetful(StoreProxy):
        """Of the reads of events it answers one after each refusal."""

        refuses = False

        async def events(self, *args: Any, **options: Any) -> list[Event]:
            self.refuses = not self.refuses
            if self.refuses:
                raise StoreUnavailable("not now")
            return await store.events(*args, **options)

    app = App("memory:")
    job = app.node_job(name="compact", quorum="all")(CompactAsync)
    _, result = await result_of(app, job, Forgetful(store))
    assert getattr(result, "value", None) == ["n1", "n2", "n3"]


async def test_results_are_sealed_by_the_codec(store: JobStore) -> None:
    class Reverse:
        def encode(self, data: bytes) -> bytes:
            return data[::-1]

        def decode(self, data: bytes) -> bytes:
            return data[::-1]

    app = App("memory:", codec=Reverse())
    job = app.node_job(name="compact", quorum="all")(CompactAsync)
    handle, result = await result_of(app, job, store)
    assert getattr(result, "value", None) == ["n1", "n2", "n3"]
    with app.using(store):
        row = await handle.job()
    assert row.result is not None
    assert msgspec.msgpack.decode(row.result)["sealed"]

"""A manager keeps bundles for its cluster: it refuses by role, counts, and knows what its nodes run."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from mainstay.bundles import BundleClient, BundleLimits, collect_bundle, publish_bundle
from mainstay.bus import MemoryBusNetwork
from mainstay.cluster.manager import Manager, ManagerOptions
from mainstay.cluster.manager_program import ManagerConfig, run_manager
from mainstay.cluster.status import NodeBeat
from mainstay.control import Control, JobRequest, Plan
from mainstay.errors import InvalidInput, PayloadTooLarge, RoleRefused
from mainstay.load.placement import CoreDemand, RunDemand
from mainstay.model import LEAD_QUEUE, Options
from mainstay.outputs import open_blobs
from mainstay.stores.memory import MemoryStore
from tests.bundles.program import OURS, shop
from tests.cluster.idle_load import idle
from tests.cluster.local_clusters import until


@contextlib.asynccontextmanager
async def running(
    *, blobs: str = "memory:", store: MemoryStore | None = None, **options
) -> AsyncIterator[tuple[Manager, MemoryBusNetwork]]:
    network, store = MemoryBusNetwork(), store or MemoryStore()
    files = await open_blobs(blobs) if blobs else None
    given = {"blobs": files, "sample_load": idle, **options}
    manager = Manager(store, network.client("m1"), ManagerOptions(name="m1", **OURS), **given)
    await manager.start()
    try:
        yield manager, network
    finally:
        await manager.stop()
        await store.close()


def client(network: MemoryBusNetwork, role: str) -> BundleClient:
    return BundleClient(network.client(role), role=role, name=role, **OURS)


async def test_refusals_are_in_the_status_of_the_cluster() -> None:
    async with running() as (manager, network):
        with pytest.raises(RoleRefused, match="node node may not remove a bundle"):
            await client(network, "node").remove("shop")

        assert (await manager.status()).refused == {"role": 1}


async def test_a_manager_without_blobs_names_the_option() -> None:
    async with running(blobs="") as (_, network):
        with pytest.raises(InvalidInput, match="--blobs URL"):
            await client(network, "operator").listing()


async def test_the_limits_of_a_manager_are_those_of_its_callers(tmp_path: Path) -> None:
    limits = BundleLimits(code_bytes=10)
    async with running(bundle_limits=limits) as (_, network):
        operator = client(network, "operator")
        assert await operator.limits() == limits
        with pytest.raises(PayloadTooLarge, match=r"at most 10 are allowed.*shop/tasks\.py"):
            collect_bundle("shop.tasks:app", shop(tmp_path), limits=await operator.limits())


async def test_a_bundle_that_a_node_reports_is_not_removed(tmp_path: Path) -> None:
    async with running() as (manager, network):
        operator = client(network, "operator")
        done = await publish_bundle(operator, collect_bundle("shop.tasks:app", shop(tmp_path)))
        beat = NodeBeat(node="n1", number=1, incarnation="i", digest=done.digest, version=manager.info().version)
        await network.client("n1").publish("control.beat.n1", msgspec.msgpack.encode(beat))

        async def heard() -> bool | None:
            return any(node.beat.digest == done.digest for node in (await manager.status()).nodes) or None

        await until(heard)
        with pytest.raises(InvalidInput, match="node n1 runs it"):
            await operator.remove(done.digest)


async def test_the_bundle_of_a_load_test_is_kept_until_the_run_has_ended(tmp_path: Path) -> None:
    """It has no name, and no node may have fetched it yet. A slice whose node is lost needs it on another one."""
    control = Control(MemoryStore())
    async with running(store=control.store) as (_, network):
        operator = client(network, "operator")
        done = await publish_bundle(operator, collect_bundle("shop.tasks:app", shop(tmp_path)))
        payload = msgspec.msgpack.encode(RunDemand(demand=CoreDemand(processes=8), code=done.digest))
        plan = Plan(options=Options(), kind="load", queue=LEAD_QUEUE)
        job = await control.jobs.submit_request(JobRequest("shop", msgspec.Raw(payload), plan))

        with pytest.raises(InvalidInput, match=f"job {job.id} needs it"):
            await operator.remove(done.digest)

        await control.operations.cancel(job.id, actor="ann", reason="no need")
        assert [bundle.digest for bundle in (await operator.remove(done.digest)).removed] == [done.digest]


async def test_blobs_in_memory_are_refused_for_a_manager_process(tmp_path: Path) -> None:
    config = ManagerConfig(
        url="nats://127.0.0.1:1/shop", store=f"sqlite:///{tmp_path}/jobs.db", name="m1", blobs="memory:"
    )

    with pytest.raises(InvalidInput, match="memory is not shared by managers"):
        await run_manager(config)

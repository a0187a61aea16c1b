"""A node and its bundle: what it waits for, what it keeps, and what ends it."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path

import pytest

from mainstay.bundles import BundleCache, BundleClient, bundle_address, collect_bundle, collect_code, publish_bundle
from mainstay.bus import Bus
from mainstay.bus.nats import parse_servers
from mainstay.cluster.address import ClusterAddress
from mainstay.cluster.node_bundle import NodeBundle
from mainstay.cluster.node_config import NodeBundleOptions, NodeConfig
from mainstay.cluster.node_parent import NodeParent
from mainstay.errors import BundleCorrupt, InvalidInput
from mainstay.worker import STOPPED, UNFIT, WorkerOptions
from tests.bundles.program import OURS, Side, managed, shop

ADDRESS = ClusterAddress(servers=parse_servers("nats://127.0.0.1:4222"), **OURS)


def node_bundle(folder: Path, reference: str = "shop", *, cache_bytes: int = 2**30, **options) -> NodeBundle:
    values = {"reference": reference, "cache": str(folder), "cache_bytes": cache_bytes, "cache_age_s": 1e6}
    return NodeBundle(NodeBundleOptions(**values), ADDRESS, "n1", **options)


async def push(side: Side, root: Path, rate: str, name: str = "shop") -> str:
    bundle = collect_bundle("shop.tasks:app", shop(root / rate, rate=rate))
    return (await publish_bundle(side.client("operator", "ann"), bundle, name=name)).digest


async def test_a_node_keeps_its_bundle_when_the_name_moves_and_a_restart_takes_the_new_one(tmp_path: Path) -> None:
    async with managed() as side:
        first = await push(side, tmp_path, "1")
        node, bus = node_bundle(tmp_path / "cache"), side.network.client("n1")
        assert (await node.ready(bus)).manifest.digest == first
        second = await push(side, tmp_path, "2")

        assert (await node.ready(bus)).manifest.digest == first  # its worker is started again
        restarted = node_bundle(tmp_path / "cache")
        assert (await restarted.ready(bus)).manifest.digest == second
        for each in (node, restarted):
            each.release()


async def test_a_node_waits_until_a_manager_answers(tmp_path: Path) -> None:
    async with managed() as side:
        digest = await push(side, tmp_path, "1")
        await side.service.stop()
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 6:
                await side.service.start()

        used = await node_bundle(tmp_path / "cache", sleep=sleep).ready(side.network.client("n1"))

        assert used.manifest.digest == digest
        assert len(waits) == 6


async def test_an_intact_bundle_starts_again_without_a_manager(tmp_path: Path) -> None:
    async with managed() as side:
        await push(side, tmp_path, "1")
        node, bus = node_bundle(tmp_path / "cache"), side.network.client("n1")
        used = await node.ready(bus)
        await side.service.stop()

        assert (await node.ready(bus)).folder == used.folder


async def test_a_bundle_that_is_damaged_at_the_managers_ends_the_node_with_its_digest(tmp_path: Path) -> None:
    async with managed(recent_bytes=0) as side:
        digest = await push(side, tmp_path, "1")
        part = collect_bundle("shop.tasks:app", tmp_path / "1").manifest.parts[0]
        (good,) = await side.blobs.read([bundle_address(part)])
        await side.blobs.write(bundle_address(part), bytes(reversed(good)) + b"x")

        with pytest.raises(BundleCorrupt, match=part):
            await node_bundle(tmp_path / "cache", digest).ready(side.network.client("n1"))


async def test_a_name_that_is_unknown_ends_the_node(tmp_path: Path) -> None:
    async with managed() as side:
        with pytest.raises(InvalidInput, match="no bundle has the name 'shop'"):
            await node_bundle(tmp_path / "cache").ready(side.network.client("n1"))


async def test_code_without_an_app_ends_the_node(tmp_path: Path) -> None:
    async with managed() as side:
        code = collect_code(["shop/prices.py"], shop(tmp_path))
        await publish_bundle(side.client("operator", "ann"), code, name="shop")

        with pytest.raises(InvalidInput, match="shop has no app"):
            await node_bundle(tmp_path / "cache").ready(side.network.client("n1"))


async def test_a_node_prunes_the_cache_but_not_what_another_node_of_the_machine_uses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mainstay.cluster")
    async with managed() as side:
        digests = [await push(side, tmp_path, rate) for rate in "123"]
        bus, folder = side.network.client("n1"), tmp_path / "cache"
        fetch = BundleClient(side.network.client("n2"), role="node", name="n2", **OURS).fetch
        with await BundleCache(folder, fetch).use(digests[0]):
            (await BundleCache(folder, fetch).use(digests[1])).release()

            used = await node_bundle(folder, cache_bytes=0).ready(bus)

            assert used.manifest.digest == digests[2]
            kept = {path.name for path in (folder / "bundles").iterdir() if path.is_dir()}
            assert kept == {digests[0], digests[2]}
        assert f"bundle removed from the cache digest={digests[1]}" in caplog.text
        used.release()


def parent(folder: Path) -> NodeParent:
    bundle = NodeBundleOptions(reference="shop", cache=str(folder), cache_bytes=2**30, cache_age_s=1e6)
    options = WorkerOptions(target="bundle:shop", name="n1", node="n1", joined=True)
    url = f"nats://127.0.0.1:4222/{OURS['cluster']}?environment={OURS['environment']}"
    return NodeParent(NodeConfig(url=url, options=options, incarnation="", parent=0, bundle=bundle))


async def connected(bus: Bus) -> Bus:
    return bus


async def test_the_worker_gets_the_app_the_digest_and_the_folder_of_the_bundle(tmp_path: Path) -> None:
    async with managed() as side:
        digest = await push(side, tmp_path, "1")
        node = parent(tmp_path / "cache")
        connecting = asyncio.create_task(connected(side.network.client("n1")))

        assert await node._prepare(node._bundle, connecting) is None

        config = node._config
        assert (config.options.target, config.options.bundle, config.digest) == ("shop.tasks:app", digest, digest)
        assert config.code == str(tmp_path / "cache/bundles" / digest)


async def test_a_node_that_is_stopped_while_it_waits_ends_cleanly(tmp_path: Path) -> None:
    async with managed() as side:
        await side.service.stop()
        node = parent(tmp_path / "cache")
        preparing = asyncio.create_task(
            node._prepare(node._bundle, asyncio.create_task(connected(side.network.client("n1"))))
        )
        await asyncio.sleep(0)
        assert not preparing.done()

        node.stop(signal.SIGTERM)

        assert await preparing == STOPPED


async def test_a_bundle_that_cannot_be_had_is_an_error_with_the_exit_code_2(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with managed() as side:
        node = parent(tmp_path / "cache")
        connecting = asyncio.create_task(connected(side.network.client("n1")))

        assert await node._prepare(node._bundle, connecting) == UNFIT
        assert "node n1 cannot start with bundle shop: bundle: no bundle has the name 'shop'" in caplog.text

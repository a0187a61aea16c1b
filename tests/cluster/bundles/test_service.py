"""The manager's side: parts by digest, refusals in order, uploads that any manager of the group can take."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import pytest

from mainstay.bus import MemoryBusNetwork
from mainstay.cluster.bundles import (
    PART_BYTES,
    BundleCache,
    BundleClient,
    BundleService,
    bundle_address,
    collect_bundle,
    publish_bundle,
)
from mainstay.errors import (
    BundleCorrupt,
    BundleMissing,
    InvalidInput,
    NoResponders,
    RoleRefused,
    VersionSkew,
    WrongCluster,
)
from mainstay.outputs import open_blobs
from tests.cluster.bundles.program import OURS, managed, shop, write_program


async def test_an_operator_publishes_and_a_node_reads_the_manifest(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path), ["data/*"])
    async with managed() as side:
        assert await side.client("operator", "ann").publish(bundle) == bundle.digest
        assert await side.client().manifest(bundle.digest) == bundle.manifest
        assert "parts" not in {folder.split("/")[1] async for folder, _ in side.blobs.walk("bundles/")}


async def test_a_node_may_not_publish(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path))
    async with managed() as side:
        with pytest.raises(RoleRefused, match="node n1 may not publish a bundle"):
            await side.client().publish(bundle)
        assert side.service.refused == {"role": 1}
        assert not await side.blobs.tops()


@pytest.mark.parametrize(
    ("changed", "error", "reason"),
    [
        ({"cluster": "other", "version": "9.0"}, WrongCluster, "cluster"),
        ({"environment": "prod"}, WrongCluster, "cluster"),
        ({"version": "1.1.0"}, VersionSkew, "version"),
        ({"version": "0.3.0"}, VersionSkew, "version"),
        ({"version": "x"}, VersionSkew, "version"),
    ],
)
async def test_a_stranger_is_refused_and_counted(changed, error, reason: str) -> None:
    async with managed(version="0.1.0") as side:
        with pytest.raises(error):
            await side.client(**changed).fetch("0" * 64, 0, 1)
        assert side.service.refused == {reason: 1}


async def test_bad_requests_are_refused_and_the_service_goes_on(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path))
    async with managed() as side:
        await publish_bundle(side.blobs, bundle)
        node, bus = side.client(), side.network.client("x")
        for body in (b"", b"\xc1", msgspec.msgpack.encode({"v": 1})):
            answer = msgspec.msgpack.decode(await bus.request("data.bundle.node.x.fetch", body, 5))
            assert (answer["error"]["code"], answer["m"]) == ("invalid_input", "m1")
        answer = msgspec.msgpack.decode(await bus.request("data.bundle.node.x", b"", 5))
        assert answer["error"]["code"] == "invalid_input"
        for digest, offset, length in [
            ("../../etc", 0, 1), ("0" * 63, 0, 1), (bundle.digest, -1, 1), (bundle.digest, 0, 0),
            (bundle.digest, 0, PART_BYTES + 1),
        ]:  # fmt: skip
            with pytest.raises(InvalidInput):
                await node.fetch(digest, offset, length)
        with pytest.raises(BundleMissing, match="0000 is not stored"):
            await node.fetch("0" * 64, 0, 1)
        with pytest.raises(BundleCorrupt):  # a file is not a manifest
            await node.manifest(bundle.manifest.files[-1].sha256)
        assert await node.manifest(bundle.digest) == bundle.manifest


async def test_bombs_do_not_end_the_service_and_answers_go_to_inboxes_only(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path))
    async with managed() as side:
        await publish_bundle(side.blobs, bundle)
        bus = side.network.client("x")
        drains = await side.network.client("node.n2").subscribe("control.node.n2.drain")
        for body in (b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\x81\xa1v\xa2\xff\xff") * 4:
            answer = msgspec.msgpack.decode(await bus.request("data.bundle.node.x.fetch", body, 5))
            assert answer["error"]["code"] == "invalid_input"
        await bus.publish("data.bundle.node.x.fetch", b"", reply="control.node.n2.drain")
        assert await side.client().manifest(bundle.digest) == bundle.manifest
        assert drains.waiting == 0


async def test_a_damaged_blob_is_not_sent_and_publishing_again_repairs_it(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path))
    file = bundle.manifest.files[-1]
    async with managed() as side:
        await publish_bundle(side.blobs, bundle)
        (good,) = await side.blobs.read([bundle_address(file.sha256)])
        await side.blobs.write(bundle_address(file.sha256), good[:-1] + bytes([good[-1] ^ 1]))

        with pytest.raises(BundleCorrupt, match=file.sha256):
            await side.client().fetch(file.sha256, 0, 100)
        await side.client("operator", "ann").publish(bundle)
        assert (await side.client().fetch(file.sha256, 0, PART_BYTES)).data == good


async def test_the_parts_of_an_upload_may_go_to_different_managers(tmp_path: Path) -> None:
    import random

    content = random.Random(1).randbytes(3 * PART_BYTES + 7)
    bundle = collect_bundle("main:app", write_program(tmp_path / "p", {"main.py": "", "big.bin": content}), ["*.bin"])
    network, blobs = MemoryBusNetwork(), await open_blobs("memory:")
    async with contextlib.AsyncExitStack() as stack:
        for name in ("m1", "m2", "m3"):
            await stack.enter_async_context(BundleService(blobs, network.client(name), name=name, **OURS))
        await BundleClient(network.client("ann"), role="operator", name="ann", **OURS).publish(bundle)
        node = BundleClient(network.client("n1"), role="node", name="n1", **OURS)
        with await BundleCache(tmp_path / "cache", node.fetch).use(bundle.digest) as used:
            assert (used.folder / "big.bin").read_bytes() == content


async def test_a_client_asks_again_until_a_manager_answers(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path))
    network, blobs = MemoryBusNetwork(), await open_blobs("memory:")
    await publish_bundle(blobs, bundle)
    waits: list[float] = []
    service = BundleService(blobs, network.client("m1"), name="m1", **OURS)

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            await service.__aenter__()

    client = BundleClient(network.client("n1"), role="node", name="n1", **OURS, sleep=sleep)
    assert await client.manifest(bundle.digest) == bundle.manifest
    assert len(waits) == 2
    await service.close()
    await service.close()
    waits[:] = [0.0] * 5
    with pytest.raises(NoResponders):
        await client.manifest(bundle.digest)
    assert len(waits) == 8

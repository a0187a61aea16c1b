"""The manager's side: parts by digest, refusals in order, names with a history, and removal beside publication."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import msgspec
import pytest

from mainstay.bundles import (
    PART_BYTES,
    Bundle,
    BundleCache,
    BundleClient,
    BundleLimits,
    BundleService,
    BundleStorage,
    PublishProgress,
    bundle_address,
    collect_bundle,
    no_bundles_in_use,
    prune_bundles,
    publish_bundle,
    remove_bundle,
)
from mainstay.bus import MemoryBusNetwork
from mainstay.errors import (
    BundleCorrupt,
    BundleMissing,
    InvalidInput,
    NoResponders,
    Overloaded,
    PayloadTooLarge,
    RoleRefused,
    VersionSkew,
    WrongCluster,
)
from mainstay.outputs import open_blobs
from tests.bundles.program import OURS, managed, shop, stored, write_program
from tests.outputs.adapters import ADAPTERS, Adapter


class SetClock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def lease_ms(self) -> int:
        return self.ms


def in_use(found: dict[str, str]):
    async def read() -> dict[str, str]:
        return found

    return read


def version(root: Path, rate: str) -> Bundle:
    return collect_bundle("shop.tasks:app", shop(root / rate, rate=rate))


async def test_an_operator_publishes_and_a_node_reads_the_manifest(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path), ["data/*"])
    async with managed() as side:
        done = await publish_bundle(side.client("operator", "ann"), bundle, name="shop", by="ann@desk")

        assert (done.digest, done.sent_parts, done.present_parts) == (bundle.digest, 4, 0)
        found = await side.client().find("shop")
        assert (found.digest, found.target, found.by) == (bundle.digest, "shop.tasks:app", "ann@desk")
        assert (found.files, found.code_bytes, found.data_bytes) == (
            4, bundle.manifest.code_bytes, bundle.manifest.data_bytes,
        )  # fmt: skip
        assert await side.client().find(bundle.digest[:8]) == found
        assert await side.client().manifest(bundle.digest) == bundle.manifest


async def test_only_what_is_not_stored_is_sent_and_the_progress_counts_all(tmp_path: Path) -> None:
    async with managed() as side:
        operator = side.client("operator", "ann")
        await publish_bundle(operator, version(tmp_path, "1"))
        seen: list[PublishProgress] = []

        done = await publish_bundle(operator, version(tmp_path, "2"), progress=seen.append)

        assert (done.sent_parts, done.present_parts) == (1, 2)  # prices.py; tasks.py and an empty file
        assert done.sent_bytes + done.present_bytes == done.bytes == seen[-1].done_bytes == seen[-1].total_bytes
        again = await publish_bundle(operator, version(tmp_path, "2"))
        assert (again.sent_parts, again.present_parts) == (0, 3)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda node: node.put("0" * 64, b""), "publish a bundle"),
        (lambda node: node.missing([]), "publish a bundle"),
        (lambda node: node.begin("0" * 64, by="n1"), "publish a bundle"),
        (lambda node: node.commit("0" * 64, name="shop", by="n1"), "publish a bundle"),
        (lambda node: node.remove("shop"), "remove a bundle"),
        (lambda node: node.prune(keep=0), "prune bundles"),
        (lambda node: node.listing(), "list bundles"),
        (lambda node: node.history("shop"), "read the history of a name"),
    ],
)
async def test_a_node_may_only_find_and_fetch(call, what: str) -> None:
    async with managed() as side:
        with pytest.raises(RoleRefused, match=f"node n1 may not {what}"):
            await call(side.client())
        with pytest.raises(RoleRefused, match="the roles are manager, node, operator"):
            await side.client("gate", "g1").find("shop")
        assert side.service.refused == {"role": 2}
        assert not await side.blobs.tops()


async def test_a_cluster_without_blobs_says_which_option_to_set() -> None:
    network = MemoryBusNetwork()
    async with BundleService(None, network.client("m1"), name="m1", **OURS) as service:
        client = BundleClient(network.client("n1"), role="node", name="n1", **OURS)

        with pytest.raises(InvalidInput, match="the same --blobs URL"):
            await client.find("shop")
        assert service.refused == {"input": 1}


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
            await side.client(**changed).fetch("0" * 64)
        assert side.service.refused == {reason: 1}


async def test_bad_requests_are_refused_and_the_service_goes_on(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path))
    async with managed() as side:
        await stored(side.blobs, bundle)
        node, operator, bus = side.client(), side.client("operator", "ann"), side.network.client("x")
        for body in (b"", b"\xc1", msgspec.msgpack.encode({"v": 1})):
            answer = msgspec.msgpack.decode(await bus.request("data.bundle.node.x.fetch", body, 5))
            assert (answer["error"]["code"], answer["m"]) == ("invalid_input", "m1")
        answer = msgspec.msgpack.decode(await bus.request("data.bundle.node.x", b"", 5))
        assert answer["error"]["code"] == "invalid_input"
        for digest in ("../../etc", "0" * 63, ""):
            with pytest.raises(InvalidInput):
                await node.fetch(digest)
        for name in ("a/b", "../x", "", "x" * 101, "deadbeef", ".hidden"):
            with pytest.raises((InvalidInput, BundleMissing)):
                await node.find(name)
        with pytest.raises(InvalidInput, match="looks like a digest"):
            await operator.commit(bundle.digest, name="deadbeef", by="ann")
        with pytest.raises(PayloadTooLarge, match="at most 256"):
            await operator.missing(["0" * 64] * 257)
        with pytest.raises(BundleMissing, match="0000 is not stored"):
            await node.fetch("0" * 64)
        with pytest.raises(BundleCorrupt):  # a file is not a manifest
            await node.manifest(bundle.manifest.files[-1].sha256)
        assert await node.manifest(bundle.digest) == bundle.manifest


async def test_bytes_that_do_not_belong_to_their_digest_are_not_stored() -> None:
    async with managed() as side:
        operator = side.client("operator", "ann")
        with pytest.raises(BundleCorrupt, match="0000 was refused"):
            await operator.put("0" * 64, b"\x00other")
        with pytest.raises(PayloadTooLarge, match="at most 1000000 fit"):
            await operator.put("0" * 64, bytes(1_000_001))
        assert not await side.blobs.tops()


async def test_a_question_about_many_parts_reads_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them would be a quarter of a gigabyte in the memory of a manager."""
    blobs = await open_blobs("memory:")
    sizes: list[int] = []
    read = blobs.read

    async def counted(keys):
        sizes.append(len(keys))
        return await read(keys)

    monkeypatch.setattr(blobs, "read", counted)
    digests = [f"{number:064x}" for number in range(256)]
    assert await BundleStorage(blobs).missing(digests) == digests
    assert max(sizes) <= 8


async def test_a_bundle_above_the_limits_of_the_managers_is_refused(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path))
    async with managed(limits=BundleLimits(code_bytes=40)) as side:
        operator = side.client("operator", "ann")
        assert (await operator.limits()).code_bytes == 40
        with pytest.raises(PayloadTooLarge, match=r"at most 40 are allowed. The largest file is shop/tasks\.py"):
            await publish_bundle(operator, bundle)
        assert (await operator.listing()).bundles == []


async def test_a_file_that_changed_since_it_was_collected_is_not_published(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path))
    (tmp_path / "shop/prices.py").write_text("RATE = 2")
    async with managed() as side:
        with pytest.raises(InvalidInput, match=r"prices\.py: the file has changed"):
            await publish_bundle(side.client("operator", "ann"), bundle, name="shop")
        assert (await side.client("operator", "ann").listing()).names == {}


async def test_bombs_do_not_end_the_service_and_answers_go_to_inboxes_only(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path))
    async with managed() as side:
        await publish_bundle(side.client("operator", "ann"), bundle)
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
        await stored(side.blobs, bundle)
        (good,) = await side.blobs.read([bundle_address(file.sha256)])
        await side.blobs.write(bundle_address(file.sha256), good[:-1] + bytes([good[-1] ^ 1]))

        with pytest.raises(BundleCorrupt, match=file.sha256):
            await side.client().fetch(file.sha256)
        assert (await publish_bundle(side.client("operator", "ann"), bundle)).sent_parts == 1
        assert await side.client().fetch(file.sha256) == good


async def test_the_parts_of_a_bundle_may_go_to_different_managers(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(3 * PART_BYTES + 7)
    bundle = collect_bundle("main:app", write_program(tmp_path / "p", {"main.py": "", "big.bin": content}), ["*.bin"])
    network, blobs = MemoryBusNetwork(), await open_blobs("memory:")
    async with contextlib.AsyncExitStack() as stack:
        for name in ("m1", "m2", "m3"):
            await stack.enter_async_context(BundleService(blobs, network.client(name), name=name, **OURS))
        await publish_bundle(BundleClient(network.client("ann"), role="operator", name="ann", **OURS), bundle)
        node = BundleClient(network.client("n1"), role="node", name="n1", **OURS)
        with await BundleCache(tmp_path / "cache", node.fetch).use(bundle.digest) as used:
            assert (used.folder / "big.bin").read_bytes() == content


async def test_a_client_asks_again_until_a_manager_answers(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path))
    network, blobs = MemoryBusNetwork(), await open_blobs("memory:")
    await stored(blobs, bundle)
    waits: list[float] = []
    service = BundleService(blobs, network.client("m1"), name="m1", **OURS)

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            await service.start()

    client = BundleClient(network.client("n1"), role="node", name="n1", **OURS, sleep=sleep)
    assert await client.manifest(bundle.digest) == bundle.manifest
    assert len(waits) == 2
    await service.stop()
    await service.stop()
    waits[:] = [0.0] * 5
    with pytest.raises(NoResponders):
        await client.manifest(bundle.digest)
    assert len(waits) == 8


async def test_a_name_moves_and_keeps_its_history(tmp_path: Path) -> None:
    clock = SetClock()
    one, two = version(tmp_path, "1"), version(tmp_path, "2")
    async with managed(clock=clock) as side:
        operator = side.client("operator", "ann")
        await publish_bundle(operator, one, name="shop", by="ann")
        await publish_bundle(operator, one, name="shop", by="ann")  # it points there already
        clock.ms -= 1000  # a move is later than the one before it, whatever the clock says
        await publish_bundle(operator, two, name="shop", by="bob")
        await publish_bundle(operator, one, name="shop", by="ann")

        assert (await side.client().find("shop")).digest == one.digest
        moves = await operator.history("shop")
        assert [(move.digest, move.by) for move in moves] == [
            (one.digest, "ann"), (two.digest, "bob"), (one.digest, "ann"),
        ]  # fmt: skip
        assert sorted(move.at_ms for move in moves) == [move.at_ms for move in reversed(moves)]
        listing = await operator.listing()
        assert ({bundle.digest for bundle in listing.bundles}, listing.names) == (
            {one.digest, two.digest}, {"shop": one.digest},
        )  # fmt: skip
        with pytest.raises(InvalidInput, match=r"no bundle has the name 'shoop' \(names: shop\)"):
            await side.client().find("shoop")


async def test_a_bundle_that_has_a_name_or_runs_on_a_node_is_not_removed(tmp_path: Path) -> None:
    one, two, three = (version(tmp_path, rate) for rate in "123")
    async with managed(in_use=in_use({two.digest: "node n7 runs it"})) as side:
        operator = side.client("operator", "ann")
        for bundle, name in ((one, "shop"), (two, ""), (three, "")):
            await publish_bundle(operator, bundle, name=name)

        with pytest.raises(InvalidInput, match="the name shop points to it"):
            await operator.remove(one.digest)
        with pytest.raises(InvalidInput, match="node n7 runs it"):
            await operator.remove(two.digest)
        gone = await operator.remove(three.digest[:12])
        assert [bundle.digest for bundle in gone.removed] == [three.digest]
        assert gone.parts == 2  # its manifest and its prices.py; the rest belongs to the others, too
        with pytest.raises(BundleMissing):
            await side.client().find(three.digest)
        for bundle in (one, two):
            with await BundleCache(tmp_path / bundle.digest, side.client().fetch).use(bundle.digest):
                pass
        assert (await operator.remove("shop")).name == "shop"
        assert [bundle.digest for bundle in (await operator.remove(one.digest)).removed] == [one.digest]


async def test_a_prune_keeps_the_newest_the_named_and_those_in_use(tmp_path: Path) -> None:
    clock = SetClock()
    bundles = [version(tmp_path, rate) for rate in "12345"]
    async with managed(clock=clock, in_use=in_use({bundles[1].digest: "job 7 needs it"})) as side:
        operator = side.client("operator", "ann")
        for bundle in bundles:
            clock.ms += 3_600_000
            await publish_bundle(operator, bundle, name="old" if bundle is bundles[0] else "")
        with pytest.raises(InvalidInput, match="--keep N, --older-than AGE"):
            await operator.prune()

        assert (await operator.prune(keep=1, older_than_s=86_400)).removed == []
        done = await operator.prune(keep=1)

        assert [bundle.digest for bundle in done.removed] == [bundles[3].digest, bundles[2].digest]
        assert sorted(done.kept) == sorted([bundles[0].digest, bundles[1].digest])
        assert (await operator.prune(older_than_s=0)).removed == []  # the newest was published just now
        left = {bundle.digest for bundle in (await operator.listing()).bundles}
        assert left == {bundles[0].digest, bundles[1].digest, bundles[4].digest}
        for digest in left:
            (await BundleCache(tmp_path / "cache", side.client().fetch).use(digest)).release()


async def test_a_prune_keeps_a_bundle_that_a_run_may_be_on_its_way_with(tmp_path: Path) -> None:
    """It has no name, and the job that needs it is not stored yet."""
    clock = SetClock()
    old, new = version(tmp_path, "1"), version(tmp_path, "2")
    async with managed(clock=clock) as side:
        operator = side.client("operator", "ann")
        for bundle in (old, new):
            await publish_bundle(operator, bundle)
        clock.ms += 3_600_000
        await publish_bundle(operator, old)  # again: nothing is sent, and another run begins with it

        done = await operator.prune(keep=0)
        assert ([bundle.digest for bundle in done.removed], list(done.kept)) == ([new.digest], [old.digest])
        assert "on its way" in done.kept[old.digest]
        clock.ms += 600_000
        assert [bundle.digest for bundle in (await operator.prune(keep=0)).removed] == [old.digest]


async def test_what_is_in_use_is_read_while_no_bundle_can_be_begun(tmp_path: Path) -> None:
    """A job that is stored before a prune begins is seen by it."""
    blobs = await open_blobs("memory:")
    storage, bundle = BundleStorage(blobs), version(tmp_path, "1")
    await publish_bundle(storage, bundle)

    async def read() -> dict[str, str]:
        assert await storage.is_pruning()
        return {bundle.digest: "job 7 needs it"}

    with pytest.raises(InvalidInput, match="job 7 needs it"):
        await remove_bundle(storage, bundle.digest, in_use=read)


class Interrupted(BundleStorage):
    """Storage in whose calls something else happens first."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.before: dict[str, list] = {}

    async def _turn(self, name: str) -> None:
        for action in self.before.pop(name, []):
            await action()

    async def begin(self, digest, **options):
        await self._turn("begin")
        await super().begin(digest, **options)

    async def missing(self, digests):
        await self._turn("missing")
        return await super().missing(digests)

    async def commit(self, digest, **options):
        await self._turn("commit")
        return await super().commit(digest, **options)

    async def put(self, digest, packed):
        await self._turn("put")
        await super().put(digest, packed)


@pytest.mark.parametrize("moment", ["put", "begin", "missing", "commit"])
async def test_a_prune_at_any_moment_of_a_publication_breaks_no_bundle(tmp_path: Path, moment: str) -> None:
    blobs = await open_blobs("memory:")
    bundle = version(tmp_path, "1")
    ours, others = Interrupted(blobs), BundleStorage(blobs)
    # the parts are stored, and no bundle needs them
    await publish_bundle(others, bundle)
    await blobs.delete([f"bundles/published/{bundle.digest}"])

    async def prune() -> None:
        await prune_bundles(others, keep=0, older_than_s=None, in_use=no_bundles_in_use)

    ours.before = {moment: [prune]}
    await publish_bundle(ours, bundle, name="shop")

    assert (await others.find("shop")).digest == bundle.digest
    assert [part for part in bundle.manifest.parts if part not in await others.listed("bundles/sha256")] == []


@pytest.mark.parametrize("moment", ["missing", "commit"])
async def test_a_bundle_that_is_published_again_is_not_removed_meanwhile(tmp_path: Path, moment: str) -> None:
    blobs, bundle = await open_blobs("memory:"), version(tmp_path, "1")
    ours, others = Interrupted(blobs), BundleStorage(blobs)
    await publish_bundle(others, bundle)

    async def remove() -> None:
        with pytest.raises(InvalidInput, match="it is being published"):
            await remove_bundle(others, bundle.digest, in_use=no_bundles_in_use)

    ours.before = {moment: [remove]}
    await publish_bundle(ours, bundle, name="shop")

    assert (await others.find("shop")).digest == bundle.digest
    assert ours.before == {}


async def test_no_bundle_is_begun_while_parts_are_removed(tmp_path: Path) -> None:
    clock, blobs = SetClock(), await open_blobs("memory:")
    bundle, storage = version(tmp_path, "1"), BundleStorage(blobs, clock=clock)
    await blobs.write(f"bundles/pruning/{clock.ms + 1000:015d}.abc", b"")
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock.ms += 600

    await publish_bundle(storage, bundle, sleep=sleep)

    assert waits == [1.0, 1.0]
    await blobs.write(f"bundles/pruning/{clock.ms + 1000:015d}.abc", b"")
    with pytest.raises(Overloaded):
        await storage.begin(bundle.digest, by="ann")
    clock.ms += 1001  # the prune was killed
    await storage.begin(bundle.digest, by="ann")


async def test_a_publication_that_was_given_up_leaves_nothing_after_a_day(tmp_path: Path) -> None:
    clock, blobs = SetClock(), await open_blobs("memory:")
    bundle, storage = version(tmp_path, "1"), BundleStorage(blobs, clock=clock)
    await publish_bundle(storage, bundle)
    await blobs.delete([f"bundles/published/{bundle.digest}"])
    await storage.begin(bundle.digest, by="ann")

    assert (await prune_bundles(storage, keep=0, older_than_s=None, in_use=no_bundles_in_use)).parts == 0
    clock.ms += 86_400_001
    assert (await prune_bundles(storage, keep=0, older_than_s=None, in_use=no_bundles_in_use)).parts == 4
    assert await blobs.tops() == []
    with pytest.raises(InvalidInput, match="no bundle has the name 'shop'"):
        await remove_bundle(storage, "shop", in_use=no_bundles_in_use)


@pytest.mark.parametrize(
    "adapter", [each for each in ADAPTERS if each.name in ("folder", "s3")], ids=lambda each: each.name
)
async def test_bundles_live_in_a_folder_and_in_a_bucket(tmp_path: Path, adapter: Adapter) -> None:
    url = adapter.at(tmp_path)
    if adapter.prepare is not None:
        await adapter.prepare(url)
    one, two = version(tmp_path, "1"), version(tmp_path, "2")
    clock = SetClock()
    async with managed(url, clock=clock) as side:
        operator = side.client("operator", "ann")
        await publish_bundle(operator, one, name="shop")
        await publish_bundle(operator, two, name="shop")
        clock.ms += 600_000

        assert (await operator.listing()).names == {"shop": two.digest}
        assert [move.digest for move in await operator.history("shop")] == [two.digest, one.digest]
        assert [bundle.digest for bundle in (await operator.prune(keep=0)).removed] == [one.digest]
        with await BundleCache(tmp_path / "cache", side.client().fetch).use(two.digest) as used:
            assert (used.folder / "shop/prices.py").read_text() == "RATE = 2\n"
        await operator.remove("shop")
        await operator.remove(two.digest)
        assert await side.blobs.tops() == []

"""The node's side: what is used is complete and intact, whatever happened before."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import mainstay
from mainstay.bundles import (
    PART_BYTES,
    Bundle,
    BundleCache,
    BundleManifest,
    bundle_address,
    collect_bundle,
)
from mainstay.errors import BundleCorrupt, BundleMissing
from tests.bundles.program import Recorded, managed, shop, stored, write_program

ROOT = Path(__file__).parents[3]


class SetClock:
    def __init__(self) -> None:
        self.ms = 1_000_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def lease_ms(self) -> int:
        return self.ms


def contents(manifest: BundleManifest, folder: Path) -> dict[str, bytes]:
    return {file.path: (folder / file.path).read_bytes() for file in manifest.files}


def child(code: str, *arguments: str) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(Path(mainstay.__file__).parents[1]), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


async def test_a_bundle_is_imported_from_the_cache_and_fetched_once(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path / "p"), ["data/*"])
    async with managed() as side:
        await stored(side.blobs, bundle)
        fetch = Recorded(side.client())
        cache = BundleCache(tmp_path / "cache", fetch)
        with await cache.use(bundle.digest) as used:
            assert contents(used.manifest, used.folder) == contents(bundle.manifest, bundle.root)
            assert not (used.folder / "shop/unused.py").exists()
            # as the engines of a node do: root may write bytecode into the folder, although it is read-only
            code = "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv[1]); "
            code += "import shop.tasks as t; print(t.app, t.__file__)"
            with child(code, str(used.folder)) as importing:
                assert importing.communicate()[0].split() == ["1.5", str(used.folder / "shop/tasks.py")]
            before = len(fetch.calls)
        with await cache.use(bundle.digest):
            assert len(fetch.calls) == before
        # another version fetches only what differs: its manifest and the file that has changed
        other = collect_bundle("shop.tasks:app", shop(tmp_path / "q", rate="2"), ["data/*"])
        await stored(side.blobs, other)
        with await cache.use(other.digest):
            assert len(fetch.calls) == before + 2


async def test_a_byte_flipped_on_the_way_is_fetched_again_once_and_then_refused_by_name(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path / "p"))
    prices = next(file for file in bundle.manifest.files if file.path == "shop/prices.py")
    async with managed() as side:
        await stored(side.blobs, bundle)
        fetch = Recorded(side.client())
        fetch.flips[prices.sha256] = 2
        with pytest.raises(BundleCorrupt, match=r"file shop/prices\.py of a bundle"):
            await BundleCache(tmp_path / "cache", fetch).use(bundle.digest)
        assert fetch.calls.count(prices.sha256) == 2
        assert not (tmp_path / "cache/bundles" / bundle.digest).exists()

        fetch.flips[prices.sha256] = 1
        with await BundleCache(tmp_path / "cache", fetch).use(bundle.digest) as used:
            assert contents(used.manifest, used.folder) == contents(bundle.manifest, bundle.root)


async def test_damage_on_the_nodes_disk_is_repaired(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path / "p"))
    async with managed() as side:
        await stored(side.blobs, bundle)
        cache = BundleCache(tmp_path / "cache", side.client().fetch)
        with await cache.use(bundle.digest) as used:
            for number, name in enumerate(["shop/prices.py", "shop/tasks.py", ".mainstay-bundle"]):
                damaged = used.folder / name
                damaged.parent.chmod(0o700)
                if number == 1:
                    damaged.unlink()
                else:
                    damaged.chmod(0o600)
                    damaged.write_bytes(b"x" * damaged.stat().st_size)
                with await cache.use(bundle.digest) as again:
                    assert contents(again.manifest, again.folder) == contents(bundle.manifest, bundle.root)


async def test_what_was_added_to_a_bundle_on_the_disk_is_removed(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path / "p"))
    async with managed() as side:
        await stored(side.blobs, bundle)
        cache = BundleCache(tmp_path / "cache", side.client().fetch)
        (await cache.use(bundle.digest)).release()
        folder = tmp_path / "cache/bundles" / bundle.digest
        assert {path.stat().st_mode & 0o222 for path in [folder, *folder.rglob("*")]} == {0}

        folder.chmod(0o700)
        (folder / "json.py").write_text("raise SystemExit")
        (folder / "planted").symlink_to("/etc")
        outside = tmp_path / "outside"
        (outside / "sub").mkdir(parents=True)
        (outside / "sub").chmod(0o500)
        (folder / "shop").chmod(0o700)
        (folder / "shop/prices.py").unlink()
        (folder / "shop/prices.py").symlink_to(outside)
        with await cache.use(bundle.digest) as used:
            assert sorted(path.name for path in used.folder.iterdir()) == [".mainstay-bundle", "shop"]
            assert {path.stat().st_mode & 0o222 for path in [folder, *folder.rglob("*")]} == {0}
        assert (outside / "sub").stat().st_mode & 0o777 == 0o500


async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path / "p"))
    async with managed() as side:
        await stored(side.blobs, bundle)
        await side.blobs.delete([bundle_address(bundle.manifest.files[-1].sha256)])
        cache = BundleCache(tmp_path / "cache", side.client().fetch)
        with pytest.raises(BundleMissing, match=r"shop/tasks\.py"):
            await cache.use(bundle.digest)
        await stored(side.blobs, bundle)
        (await cache.use(bundle.digest)).release()


async def test_a_bundle_with_a_traversal_path_is_refused_before_a_file_is_written(tmp_path: Path) -> None:
    import hashlib

    body = collect_bundle("shop.tasks:app", shop(tmp_path / "p")).manifest.canonical
    evil = body.replace(b"shop/__init__.py", b"../../__init__.py")
    digest = hashlib.sha256(evil).hexdigest()
    async with managed() as side:
        await side.blobs.write(bundle_address(digest), b"\x00" + evil)
        with pytest.raises(BundleCorrupt, match="cannot be in a bundle"):
            await BundleCache(tmp_path / "cache", side.client().fetch).use(digest)
    assert not list(tmp_path.rglob("cache/**/__init__.py"))


async def test_two_caches_on_one_folder_fetch_each_file_once(tmp_path: Path) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path / "p"), ["data/*"])
    async with managed() as side:
        await stored(side.blobs, bundle)
        fetches = [Recorded(side.client(name=f"n{number}")) for number in range(3)]
        caches = [BundleCache(tmp_path / "cache", fetch) for fetch in fetches]
        used = await asyncio.gather(*(cache.use(bundle.digest) for cache in caches))
        calls = [call for fetch in fetches for call in fetch.calls]
        assert len(calls) == len(set(calls))
        for one in used:
            assert contents(one.manifest, one.folder) == contents(bundle.manifest, bundle.root)
            one.release()


async def test_prune_removes_old_and_large_but_never_a_bundle_in_use(tmp_path: Path) -> None:
    clock = SetClock()
    async with managed() as side:
        cache = BundleCache(tmp_path / "cache", side.client().fetch, clock=clock)
        bundles: list[Bundle] = []
        for rate in ("1", "2", "3"):
            bundles.append(collect_bundle("shop.tasks:app", shop(tmp_path / rate, rate=rate)))
            await stored(side.blobs, bundles[-1])
        first = await cache.use(bundles[0].digest)
        for bundle in bundles[1:]:
            clock.ms += 1000
            (await cache.use(bundle.digest)).release()

        everything = await cache.prune()
        assert everything.removed == ()
        fewer = await cache.prune(most_bytes=everything.kept_bytes - 1)
        assert fewer.removed == (bundles[1].digest,)  # the first is older, but in use
        clock.ms += 100_000
        assert (await cache.prune(oldest_s=50)).removed == (bundles[2].digest,)
        assert contents(first.manifest, first.folder) == contents(bundles[0].manifest, bundles[0].root)
        first.release()
        last = await cache.prune(most_bytes=0)
        assert (last.removed, last.kept_bytes) == ((bundles[0].digest,), 0)
        assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.name != "lock"]
        (await cache.use(bundles[1].digest)).release()


async def test_a_prune_does_not_wait_for_another_process_that_fetches(tmp_path: Path) -> None:
    async with managed() as side:
        bundle = collect_bundle("shop.tasks:app", shop(tmp_path / "p"))
        await stored(side.blobs, bundle)
        begun, go = asyncio.Event(), asyncio.Event()
        client = side.client()

        async def fetch(digest: str) -> bytes:
            begun.set()
            await go.wait()
            return await client.fetch(digest)

        fetching = asyncio.create_task(BundleCache(tmp_path / "cache", fetch).use(bundle.digest))
        await begun.wait()

        assert await BundleCache(tmp_path / "cache", client.fetch).prune(most_bytes=0) is None
        go.set()
        (await fetching).release()


HALF = """
import asyncio, sys
from pathlib import Path
from mainstay.bundles import BundleCache
from tests.bundles.program import managed

async def main(blobs, cache, digest, parts):
    async with managed(blobs) as side:
        client, asked = side.client(), 0
        async def fetch(digest):
            nonlocal asked
            asked += 1
            if asked > int(parts):
                print("midway", flush=True)
                await asyncio.Event().wait()
            return await client.fetch(digest)
        await BundleCache(Path(cache), fetch).use(digest)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
async def test_a_fetch_that_is_killed_goes_on_where_it_ended(tmp_path: Path) -> None:
    content = random.Random(2).randbytes(10 * PART_BYTES + 5)
    root = write_program(tmp_path / "p", {"main.py": "x = 1", "big.bin": content})
    bundle, url = collect_bundle("main:app", root, ["*.bin"]), f"file://{tmp_path}/blobs"
    big = bundle.manifest.files[0]
    async with managed(url) as side:
        await stored(side.blobs, bundle)
        # the manifest, main.py, and 7 of the 11 parts of big.bin
        with child(HALF, url, str(tmp_path / "cache"), bundle.digest, "9") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "midway\n"
            process.send_signal(signal.SIGKILL)
        fetch = Recorded(side.client())
        with await BundleCache(tmp_path / "cache", fetch).use(bundle.digest) as used:
            assert contents(used.manifest, used.folder) == contents(bundle.manifest, root)
        asked = [number for number, part in enumerate(big.parts) if part.sha256 in fetch.calls]
        assert set(asked) >= {8, 9, 10}
        assert asked[0] >= 4


async def test_a_bundle_is_fetched_while_another_one_still_is(tmp_path: Path) -> None:
    """A large bundle of one program keeps no other one of the machine waiting, also if they share files."""
    slow, quick = [collect_bundle("shop.tasks:app", shop(tmp_path / rate, rate=rate)) for rate in ("1", "2")]
    prices = next(file for file in slow.manifest.files if file.path == "shop/prices.py")
    asked, answers = asyncio.Event(), asyncio.Event()
    async with managed() as side:
        for bundle in (slow, quick):
            await stored(side.blobs, bundle)

        async def fetch(digest: str) -> bytes:
            if digest == prices.sha256:
                asked.set()
                await answers.wait()
            return await side.client().fetch(digest)

        cache = BundleCache(tmp_path / "cache", fetch)
        using = asyncio.create_task(cache.use(slow.digest))
        await asked.wait()
        with await cache.use(quick.digest) as used:
            assert contents(used.manifest, used.folder) == contents(quick.manifest, quick.root)
            assert await cache.prune(most_bytes=0) is None
        answers.set()
        with await using as used:
            assert contents(used.manifest, used.folder) == contents(slow.manifest, slow.root)


async def test_a_fetch_that_was_killed_at_its_very_end_is_repeated(tmp_path: Path) -> None:
    """Its draft is complete, and was made read-only before it got its name."""
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path / "p"))
    drafts = tmp_path / "cache/drafts"
    drafts.mkdir(parents=True)
    left = [drafts / digest for digest in (bundle.digest, *(file.sha256 for file in bundle.manifest.files))]
    for draft in left:
        draft.write_bytes(b"")
        draft.chmod(0o400)
    modes: set[int] = set()
    async with managed() as side:
        await stored(side.blobs, bundle)

        async def fetch(digest: str) -> bytes:
            if digest != bundle.digest:
                modes.add((drafts / digest).stat().st_mode & 0o777)
            return await side.client().fetch(digest)

        (await BundleCache(tmp_path / "cache", fetch).use(bundle.digest)).release()
    assert modes == {0o600}, "whoever may not override permissions could not write to them"


async def test_a_cancelled_use_keeps_its_locks_until_its_folder_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = collect_bundle("shop.tasks:app", shop(tmp_path / "p"))
    building, goes_on = threading.Event(), threading.Event()
    build = BundleCache._build

    def slow(cache: BundleCache, manifest: BundleManifest) -> None:
        building.set()
        goes_on.wait()
        build(cache, manifest)

    monkeypatch.setattr(BundleCache, "_build", slow)
    async with managed() as side:
        await stored(side.blobs, bundle)
        cache = BundleCache(tmp_path / "cache", side.client().fetch)
        using = asyncio.create_task(cache.use(bundle.digest))
        await asyncio.to_thread(building.wait)
        using.cancel()
        await asyncio.sleep(0)
        assert await cache.prune(most_bytes=0) is None
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await using
        assert await cache.prune(most_bytes=0) is not None


async def test_a_damaged_part_of_a_large_file_is_fetched_again_and_no_other(tmp_path: Path) -> None:
    content = random.Random(3).randbytes(3 * PART_BYTES)
    bundle = collect_bundle("main:app", write_program(tmp_path / "p", {"main.py": "", "big.bin": content}), ["*.bin"])
    parts = [part.sha256 for part in bundle.manifest.files[0].parts]
    async with managed() as side:
        await stored(side.blobs, bundle)
        fetch = Recorded(side.client())
        fetch.flips[parts[1]] = 1
        with await BundleCache(tmp_path / "cache", fetch).use(bundle.digest) as used:
            assert (used.folder / "big.bin").read_bytes() == content
        assert [fetch.calls.count(part) for part in parts] == [1, 2, 1]


LARGE = """
import asyncio, resource, sys
from pathlib import Path
from mainstay.bundles import BundleCache, collect_bundle, publish_bundle
from tests.bundles.program import managed, shop

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

async def run(folder, root, data, number):
    async with managed(f"file://{folder}/{number}?sync=off", recent_bytes=2**22) as side:
        bundle = collect_bundle("shop.tasks:app", root, data=data)
        await publish_bundle(side.client("operator", "ann"), bundle)
        with await BundleCache(Path(folder, f"cache{number}"), side.client().fetch).use(bundle.digest) as used:
            return [file.size for file in used.manifest.files if file.data]

async def main(folder):
    root = shop(Path(folder, "p"))
    await run(folder, root, [], 0)
    before = peak()
    with (root / "big.bin").open("wb") as big, open("/dev/urandom", "rb") as noise:
        for _ in range(60):
            big.write(noise.read(2**20))
    sizes = await run(folder, root, ["big.bin"], 1)
    print(sizes[0], peak() - before)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_data_file_of_60_mb_needs_little_memory(tmp_path: Path) -> None:
    with child(LARGE, str(tmp_path)) as process:
        size, grown = map(int, process.communicate()[0].split())

    assert size == 60 * 2**20
    assert grown < 40

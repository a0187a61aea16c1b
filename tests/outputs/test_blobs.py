"""What every adapter of files does alike."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mainstay.errors import InvalidInput, StoreClosed
from mainstay.outputs import OutputStore
from mainstay.outputs.blobs import OutputFile


def sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


async def test_a_file_is_read_as_it_was_written_from_memory_or_disk(store: OutputStore, tmp_path: Path) -> None:
    big = bytes(range(256)) * 5_000
    (tmp_path / "big").write_bytes(big)
    one = await store.blobs.write("a/b/one", b"first")
    two = await store.blobs.write("a/b/two", tmp_path / "big")

    assert await store.blobs.read(["a/b/one", "a/b/two", "a/b/none", "x/none"]) == [b"first", big, None, None]
    assert await store.blobs.digests(["a/b/two", "a/b/none"]) == [OutputFile(len(big), sha(big)), None]
    assert await store.blobs.find(["a/b", "a/none"]) == [{"one": one, "two": two}, {}]
    assert (one.size, two.size) == (5, len(big))


async def test_a_file_that_is_written_again_has_another_tag(store: OutputStore) -> None:
    before = await store.blobs.write("a/x", b"first")
    after = await store.blobs.write("a/x", b"other")

    assert before.tag != after.tag
    assert await store.blobs.read(["a/x"]) == [b"other"]
    assert await store.blobs.find(["a"]) == [{"x": after}]


async def test_a_file_is_saved_to_the_disk_with_its_digest(store: OutputStore, tmp_path: Path) -> None:
    body = b"0123456789" * 200_000
    await store.blobs.write("a/x", body)

    assert await store.blobs.save("a/x", tmp_path / "copy") == OutputFile(len(body), sha(body))
    assert (tmp_path / "copy").read_bytes() == body
    assert await store.blobs.save("a/none", tmp_path / "none") is None


async def test_folders_are_walked_in_order_below_a_prefix(store: OutputStore) -> None:
    for path in ("v1/s/aa/u2/f", "v1/s/aa/u1/f", "v1/s/aa/u1/g", "v1/s2/aa/u/f", "v1/s/ab/u/f", "old/x/f"):
        await store.blobs.write(path, b"x")

    async def walked(prefix: str) -> dict[str, list[str]]:
        return {folder: sorted(files) async for folder, files in store.blobs.walk(prefix)}

    found = await walked("v1/s/")
    assert found == {"v1/s/aa/u1": ["f", "g"], "v1/s/aa/u2": ["f"], "v1/s/ab/u": ["f"]}
    assert list(found) == sorted(found)
    assert list(await walked("v1/s/aa/u")) == ["v1/s/aa/u1", "v1/s/aa/u2"]
    assert await walked("none/") == {}
    assert await store.blobs.tops() == ["old", "v1"]


async def test_many_folders_are_found_at_once_among_others(store: OutputStore) -> None:
    for shard in ("aa", "bb"):
        for n in range(6):
            await store.blobs.write(f"v1/s/{shard}/u{n}/f", b"x" * n)
    asked = ["v1/s/bb/u5", "v1/s/aa/u1", "v1/s/aa/u", "v1/s/aa/u2", "v1/s/cc/u1"]

    found = await store.blobs.find(asked)

    assert [{name: blob.size for name, blob in files.items()} for files in found if isinstance(files, dict)] == [
        {"f": 5}, {"f": 1}, {}, {"f": 2}, {},
    ]  # fmt: skip


async def test_removing_is_done_once_and_harmless_twice(store: OutputStore) -> None:
    await store.blobs.write("a/x", b"1")
    await store.blobs.write("a/y", b"2")

    await store.blobs.delete(["a/x", "a/none", "none/none"])
    await store.blobs.delete(["a/x"])

    assert await store.blobs.read(["a/x", "a/y"]) == [None, b"2"]


async def test_names_that_some_storage_cannot_hold_are_refused(store: OutputStore) -> None:
    for path in ("../x", "a//b", "/a", "a/.b", "a b"):
        with pytest.raises(InvalidInput, match="key: "):
            await store.blobs.write(path, b"")


async def test_what_was_closed_says_so(store: OutputStore) -> None:
    await store.close()

    for call in (store.blobs.read(["a/x"]), store.blobs.write("a/x", b""), store.blobs.find(["a"]), store.blobs.tops()):
        with pytest.raises(StoreClosed):
            await call

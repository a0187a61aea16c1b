"""What a bucket can do to outputs: be away, be denied; and what a look at one costs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from urllib.parse import quote

import pytest

import servers
from mainstay.errors import StoreDenied, StoreError, StoreUnavailable
from mainstay.outputs import OutputStore, Unit, open_outputs
from mainstay.outputs.blobs.objects import ObjectsBlobs
from mainstay.stores.versioned import objects
from servers.azurite import azure_url
from servers.moto import s3_url
from tests.places import server_url

FILES: dict[str, Path | bytes] = {"result.npy": b"0123456789"}
IMPATIENT = "&tries=1&timeout=5s"


async def s3(prefix: str) -> OutputStore:
    url = s3_url(server_url("moto"), f"{prefix}-{os.getpid()}")
    await objects.prepare(url)
    return await open_outputs(url)


async def test_storage_that_is_down_is_unreadable_and_back_when_it_is_back(unit: Unit, tmp_path: Path) -> None:
    server = servers.Gcs(tmp_path)
    try:
        url = server.database("down") + IMPATIENT
        absent = Unit("sir", "1", {}, 1)
        async with await open_outputs(url) as store:
            await store.publish(unit, FILES)
            server.stop()
            down = await store.look([unit, absent], list(FILES), verify="content")
            for call in (store.read(unit, "result.npy"), store.publish(unit, FILES)):
                with pytest.raises(StoreUnavailable):
                    await call
            server.start()
            back = await store.look([unit, absent], list(FILES), verify="content")
    finally:
        server.kill()

    assert [one.outputs["result.npy"].state for one in down] == ["unreadable", "unreadable"]
    assert isinstance(down[0].outputs["result.npy"].error, StoreUnavailable)
    assert [one.outputs["result.npy"].state for one in back] == ["present", "missing"]


async def test_credentials_that_are_refused_are_told_apart_from_absence(unit: Unit) -> None:
    url = azure_url(server_url("azurite"), f"denied-{os.getpid()}")
    await objects.prepare(url)
    async with await open_outputs(url) as store:
        await store.publish(unit, FILES)
    key = url.partition("account_key=")[2]
    wrong = url.replace(key, quote("A" * 86 + "==", safe=""))

    async with await open_outputs(wrong) as store:
        (found,) = await store.look([unit], list(FILES))
        with pytest.raises(StoreDenied, match="the service denies it"):
            await store.read(unit, "result.npy")

    assert found.outputs["result.npy"].state == "unreadable"
    assert isinstance(found.outputs["result.npy"].error, StoreDenied)
    assert "A" * 10 not in found.outputs["result.npy"].detail


async def test_a_bucket_that_is_not_there_is_not_an_empty_one(unit: Unit) -> None:
    url = s3_url(server_url("moto"), "x").replace("//registry/", "//no-such-bucket/")

    async with await open_outputs(url) as store:
        (found,) = await store.look([unit], list(FILES))
        with pytest.raises(StoreError, match="no such bucket"):
            await store.read(unit, "result.npy")

    assert found.outputs["result.npy"].state == "unreadable"


@pytest.mark.parametrize("crowded", [False, True], ids=["alone", "among many others"])
async def test_many_units_are_found_by_few_lists(crowded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    units = [Unit("few", "1", {"n": n}, 1) for n in range(400)]
    shards = {one.address[:2] for one in units}
    async with await s3(f"few-{crowded}") as store:
        assert isinstance(store.blobs, ObjectsBlobs)
        await asyncio.gather(*(store.publish(one, FILES) for one in units[:10]))
        if crowded:
            monkeypatch.setattr("mainstay.outputs.blobs.objects._PAGE", 1)
        before = store.blobs.lists

        seen = await store.look(units, list(FILES))

        assert [one.whole for one in seen] == [n < 10 for n in range(400)]
        # all of the study in one; or one for each folder of folders, after a try. And one for an older layout
        assert store.blobs.lists - before <= (len(shards) + 60 if crowded else 2)


async def test_a_few_units_among_many_are_not_found_by_listing_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstay.outputs.blobs.objects._PAGE", 5)
    async with await s3("crowd") as store:
        assert isinstance(store.blobs, ObjectsBlobs)
        await asyncio.gather(*(store.blobs.write(f"v1/s/aa/u{n:03}/f", b"x") for n in range(60)))

        found = await store.blobs.find(["v1/s/aa/u050", "v1/s/aa/u051", "v1/s/aa/none"])

        assert [sorted(files) for files in found if isinstance(files, dict)] == [["f"], ["f"], []]
        assert store.blobs.lists <= 8


@pytest.mark.parametrize("kind", ["s3", "azure"])
async def test_a_big_file_is_sent_in_parts_and_reads_back(kind: str, tmp_path: Path, unit: Unit) -> None:
    with (tmp_path / "big").open("wb") as file:
        for n in range(9):
            file.write(bytes([n]) * (1 << 20))
    url = (
        s3_url(server_url("moto"), f"big-{os.getpid()}")
        if kind == "s3"
        else azure_url(server_url("azurite"), f"big-{os.getpid()}")
    )
    await objects.prepare(url)

    async with await open_outputs(url) as store:
        await store.publish(unit, {"big": tmp_path / "big"})
        copy = await store.save_to(unit, "big", tmp_path / "copy")
        (found,) = await store.look([unit], ["big"], verify="content", fresh=True)

    assert found.whole
    assert copy.read_bytes() == (tmp_path / "big").read_bytes()

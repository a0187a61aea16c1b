"""Values in a table: limits, and a wire that loses answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay.errors import InvalidInput, PayloadTooLarge, StoreError, StoreUnavailable
from mainstay.stores.versioned import open_versioned, update
from mainstay.stores.versioned.dynamodb import LARGEST, prepare
from servers import Proxy
from servers.moto import dynamodb_url
from tests.places import server_url
from tests.stores.versioned.conformance.counting import one_more


def url_of(folder: Path, server: str = "") -> str:
    return dynamodb_url(server or server_url("moto"), f"own/{folder.name}")


async def test_a_value_that_no_item_holds_is_refused_with_advice(tmp_path: Path) -> None:
    await prepare(url_of(tmp_path))
    store = await open_versioned(url_of(tmp_path))

    assert await store.create_if_absent("k" * 512, bytes(LARGEST)) is not None
    with pytest.raises(PayloadTooLarge, match="keep large values in a bucket"):
        await store.create_if_absent("b", bytes(LARGEST + 1))
    await store.close()


async def test_a_list_goes_on_where_an_answer_of_the_service_ended(tmp_path: Path) -> None:
    # a table of its own: what an answer leaves out is counted in megabytes
    url = url_of(tmp_path).replace("://registry/", "://large/")
    await prepare(url)
    store = await open_versioned(url)
    keys = [f"k/{n}" for n in range(5)]
    for key in keys:
        assert await store.create_if_absent(key, bytes(390_000))

    found = await store.list_keys("k/")
    await store.close()

    assert found == keys


async def test_a_table_that_is_not_there_is_no_absence_and_can_be_made(tmp_path: Path) -> None:
    # a name of its own: the server is shared, and the table stays
    table = tmp_path.name
    url = url_of(tmp_path).replace("://registry/", f"://{table}/")
    store = await open_versioned(url)

    with pytest.raises(StoreError, match="no such table; create it first: mainstay store init"):
        await store.get("a")
    assert await prepare(url) == [f"created the table {table}"]
    assert await prepare(url) == []
    assert await store.get("a") is None
    await store.close()


async def test_a_server_that_is_away_is_an_outage_for_every_call(tmp_path: Path) -> None:
    with Proxy.before(server_url("moto")) as proxy:
        store = await open_versioned(url_of(tmp_path, proxy.url) + "&tries=2&timeout=2s")
        proxy.refuse()
        for call in (
            lambda: store.get("a"),
            lambda: store.put("a", b"", "1"),
            lambda: store.create_if_absent("a", b""),
            lambda: store.delete("a", "1"),
            store.list_keys,
        ):
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await call()
        await store.close()


async def test_a_write_whose_answer_was_lost_is_no_conflict_with_itself(tmp_path: Path) -> None:
    await prepare(url_of(tmp_path))
    with Proxy.before(server_url("moto")) as proxy:
        store = await open_versioned(url_of(tmp_path, proxy.url))
        proxy.cut_after(down=0)
        version = await store.create_if_absent("a", b"1")
        found = await store.get("a")
        assert found is not None
        assert (found.value, found.version) == (b"1", version)
        proxy.cut_after(down=0)
        # what is gone does not say who removed it
        with pytest.raises(StoreUnavailable, match="may or may not have been written"):
            await store.delete("a", found.version)
        assert await store.get("a") is None
        await store.close()

        assert proxy.cut_by_bytes == 2


async def test_a_counter_counts_once_where_an_answer_was_lost(tmp_path: Path) -> None:
    await prepare(url_of(tmp_path))
    with Proxy.before(server_url("moto")) as proxy:
        store = await open_versioned(url_of(tmp_path, proxy.url) + "&tries=1")

        def change(value: bytes | None) -> bytes:
            proxy.cut_after(down=0)
            return one_more(value)

        for n in range(1, 3):
            done = await update(store, "a", change, base_s=0.01)
            assert done == await store.get("a")
            assert done is not None
            assert done.value == b"%d" % n
        await store.close()

        assert proxy.cut_by_bytes == 2


async def test_a_url_without_a_table_is_refused() -> None:
    with pytest.raises(InvalidInput, match="names no table"):
        await open_versioned("dynamodb:///prefix?region=us-east-1")

"""Values in a key-value bucket of NATS: its keys, its limits, and a server that goes and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

import servers
from mainstay.errors import InvalidInput, PayloadTooLarge, StoreError, StoreUnavailable
from mainstay.stores.versioned import WriteUnsure, open_versioned, update
from mainstay.stores.versioned.nats import NatsVersioned, prepare
from servers import Proxy
from tests.places import server_url
from tests.stores.versioned.conformance.counting import one_more


def url_of(folder: Path, server: str = "") -> str:
    return f"{server or server_url('nats')}/own/{folder.name}"


async def test_keys_are_subjects_whose_parts_are_those_of_the_key(tmp_path: Path) -> None:
    await prepare(url_of(tmp_path))
    store = await open_versioned(url_of(tmp_path))
    assert isinstance(store, NatsVersioned)
    await store.create_if_absent("jobs/v1/a.json", b"1")

    entry = await store._values.get(f"{tmp_path.name}.jobs.v1.a/json")
    await store.close()

    assert entry.value == b"1"


async def test_a_value_that_the_server_does_not_take_is_refused_with_advice(tmp_path: Path) -> None:
    await prepare(url_of(tmp_path))
    store = await open_versioned(url_of(tmp_path))

    with pytest.raises(PayloadTooLarge, match="raise its max_payload"):
        await store.create_if_absent("a", bytes(8 * 1024 * 1024))
    await store.close()


async def test_a_bucket_that_is_not_there_is_said_and_can_be_made(tmp_path: Path) -> None:
    url = f"{server_url('nats')}/nowhere"

    with pytest.raises(StoreError, match="no such bucket; create it first: mainstay store init"):
        await open_versioned(url)
    assert await prepare(url) == ["created the bucket nowhere"]
    assert await prepare(url) == []


async def test_what_was_answered_is_there_after_a_kill_of_the_server_and_an_outage_is_said_meanwhile() -> None:
    with servers.folder("mainstay-nats-") as place:
        server = servers.Nats(place)
        try:
            url = server.database("kept")
            await prepare(url)
            store = await open_versioned(f"{url}?timeout=1s")
            version = await store.create_if_absent("a", b"1")
            server.kill()
            with pytest.raises(StoreUnavailable):
                await store.get("a")
            await store.close()
            server.start()
            again = await open_versioned(url)
            found = await again.get("a")
            await again.close()
        finally:
            server.stop()

    assert found is not None
    assert (found.value, found.version) == (b"1", version)


async def test_a_write_whose_answer_was_lost_is_not_done_twice(tmp_path: Path) -> None:
    await prepare(url_of(tmp_path))
    with Proxy.before(server_url("nats")) as proxy:
        store = await open_versioned(url_of(tmp_path, proxy.url) + "?timeout=1s&tries=1")
        proxy.cut_after(down=0)
        with pytest.raises(WriteUnsure):
            await store.create_if_absent("a", b"1")
        await store.close()
    direct = await open_versioned(url_of(tmp_path))
    found = await direct.get("a")
    await direct.close()

    assert found is not None
    assert found.value == b"1"


async def test_a_counter_counts_once_where_an_answer_was_lost(tmp_path: Path) -> None:
    await prepare(url_of(tmp_path))
    with Proxy.before(server_url("nats")) as proxy:
        store = await open_versioned(url_of(tmp_path, proxy.url) + "?timeout=1s")

        def change(value: bytes | None) -> bytes:
            proxy.cut_after(down=0)
            return one_more(value)

        for n in range(1, 3):
            done = await update(store, "a", change)
            assert done == await store.get("a")
            assert done is not None
            assert done.value == b"%d" % n
        await store.close()

        assert proxy.cut_by_bytes == 2


async def test_no_server_is_an_outage_and_no_bucket_in_the_url_a_mistake() -> None:
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await open_versioned("nats://127.0.0.1:1/bucket?connect_timeout=300ms")
    with pytest.raises(InvalidInput, match="names no bucket"):
        await open_versioned("nats://127.0.0.1:1")

"""Values in buckets: what is written, what a refusal means, and a wire that loses answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import obstore
import pytest

from mainstay.errors import InvalidInput, StoreError, StoreUnavailable, UnknownOption
from mainstay.stores.versioned import open_versioned, update
from mainstay.stores.versioned.objects import prepare
from mainstay.stores.versioned.objects.store import ObjectsVersioned
from servers import Proxy
from servers.azurite import azure_url
from servers.gcs import gcs_url
from servers.moto import s3_url
from tests.places import server_url
from tests.stores.versioned.conformance.counting import one_more

SERVICES = {"moto": s3_url, "gcs": gcs_url, "azurite": azure_url}
pytestmark = pytest.mark.parametrize("kind", SERVICES)


def url_of(kind: str, folder: Path, server: str = "") -> str:
    return SERVICES[kind](server or server_url(kind), f"own/{folder.name}")


async def opened(kind: str, folder: Path) -> ObjectsVersioned:
    url = url_of(kind, folder)
    await prepare(url)
    found = await open_versioned(url)
    assert isinstance(found, ObjectsVersioned)
    return found


async def test_no_two_writes_are_alike_byte_for_byte(kind: str, tmp_path: Path) -> None:
    store = await opened(kind, tmp_path)
    bodies = []
    version = await store.create_if_absent("a", b"same")
    for _ in range(3):
        found = await store._stored("a")
        assert found is not None
        bodies.append(found[0])
        version = await store.put("a", b"same", str(version))
    await store.close()

    assert len(set(bodies)) == 3


async def test_what_is_removed_leaves_a_mark_that_is_used_again(kind: str, tmp_path: Path) -> None:
    store = await opened(kind, tmp_path)
    version = await store.create_if_absent("a", b"1")
    assert await store.delete("a", str(version))
    mark = await store._stored("a")
    listed = await store.list_keys()
    again = await store.create_if_absent("a", b"2")
    found = await store.get("a")
    await store.close()

    assert mark is not None
    assert len(mark[0]) == 20
    assert listed == []
    assert again not in (None, version)
    assert found is not None
    assert found.value == b"2"


async def test_an_object_of_somebody_else_is_said_to_be_one(kind: str, tmp_path: Path) -> None:
    store = await opened(kind, tmp_path)
    await obstore.put_async(store._writes, f"{store._root}a", b"a text that somebody has put there")

    with pytest.raises(StoreError, match=r"a in .* was not written by Mainstay"):
        await store.get("a")
    await store.close()


async def test_a_bucket_that_is_not_there_is_no_absence_and_no_conflict(kind: str, tmp_path: Path) -> None:
    url = url_of(kind, tmp_path).replace("://registry/", "://nowhere/")
    store = await open_versioned(url)

    for call in (
        lambda: store.get("a"),
        lambda: store.put("a", b"", "1"),
        lambda: store.create_if_absent("a", b""),
        lambda: store.delete("a", "1"),
        store.list_keys,
    ):
        with pytest.raises(
            StoreError, match="no such (bucket|container); create it first: mainstay store init"
        ) as told:
            await call()
        assert not isinstance(told.value, StoreUnavailable)
    await store.close()


@pytest.mark.parametrize("version", ["", "*", "0", "nobody's", '"a", "b"'])
async def test_what_is_no_version_is_a_conflict_even_if_the_service_would_take_it_for_any(
    kind: str, tmp_path: Path, version: str
) -> None:
    store = await opened(kind, tmp_path)
    await store.create_if_absent("a", b"1")

    assert await store.put("a", b"2", version) is None
    assert await store.delete("a", version) is False
    assert await store.put("b", b"2", version) is None
    await store.close()


async def test_a_server_that_is_away_is_an_outage_for_every_call(kind: str, tmp_path: Path) -> None:
    with Proxy.before(f"http://127.0.0.1:{urlsplit(server_url(kind)).port}") as proxy:
        server = server_url(kind).replace(f":{urlsplit(server_url(kind)).port}", f":{proxy.port}")
        store = await open_versioned(url_of(kind, tmp_path, server) + "&tries=2&timeout=2s")
        proxy.refuse()
        for call in (
            lambda: store.get("a"),
            lambda: store.put("a", b"", "1"),
            lambda: store.create_if_absent("a", b""),
            lambda: store.delete("a", "1"),
            store.list_keys,
        ):
            with pytest.raises(StoreUnavailable, match="the outcome of the request is unknown"):
                await call()
        await store.close()


async def test_a_write_whose_answer_was_lost_is_no_conflict_with_itself(kind: str, tmp_path: Path) -> None:
    await (await opened(kind, tmp_path)).close()
    port = urlsplit(server_url(kind)).port
    with Proxy.before(f"http://127.0.0.1:{port}") as proxy:
        store = await open_versioned(url_of(kind, tmp_path, server_url(kind).replace(f":{port}", f":{proxy.port}")))
        proxy.cut_after(down=0)
        version = await store.create_if_absent("a", b"1")
        found = await store.get("a")
        assert found is not None
        assert (found.value, found.version) == (b"1", version)
        proxy.cut_after(down=0)
        version = await store.put("a", b"2", found.version)
        found = await store.get("a")
        await store.close()

        assert proxy.cut_by_bytes == 2
    assert found is not None
    assert (found.value, found.version) == (b"2", version)


async def test_a_counter_counts_once_where_an_answer_was_lost(kind: str, tmp_path: Path) -> None:
    await (await opened(kind, tmp_path)).close()
    port = urlsplit(server_url(kind)).port
    with Proxy.before(f"http://127.0.0.1:{port}") as proxy:
        server = server_url(kind).replace(f":{port}", f":{proxy.port}")
        store = await open_versioned(url_of(kind, tmp_path, server) + "&tries=1")
        for n in range(1, 3):
            done = await update(store, "a", cutting(proxy), base_s=0.01)
            assert done == await store.get("a")
            assert done is not None
            assert done.value == b"%d" % n
        await store.close()

        assert proxy.cut_by_bytes == 2


def cutting(proxy: Proxy) -> Callable[[bytes | None], bytes]:
    """Counts, and has the answer to what is asked next lost."""

    def change(value: bytes | None) -> bytes:
        proxy.cut_after(down=0)
        return one_more(value)

    return change


async def test_secrets_are_in_no_message(kind: str, tmp_path: Path) -> None:
    url = url_of(kind, tmp_path)
    store = await open_versioned(url)
    await store.close()

    assert store.place == url.partition("?")[0]
    with pytest.raises(UnknownOption, match="did you mean 'timeout'"):
        await open_versioned(f"{url}&timeoutt=1s")
    with pytest.raises(InvalidInput, match="names no bucket"):
        await open_versioned(f"{urlsplit(url).scheme}:///prefix")


async def test_what_is_there_already_is_not_made_again(kind: str, tmp_path: Path) -> None:
    await prepare(url_of(kind, tmp_path))

    assert await prepare(url_of(kind, tmp_path)) == []


async def test_a_bucket_is_made_or_the_command_for_it_is_said(kind: str, tmp_path: Path) -> None:
    url = url_of(kind, tmp_path).replace("://registry/", "://another/")

    if kind == "gcs":
        with pytest.raises(StoreError, match="gcloud storage buckets create gs://another"):
            await prepare(url)
    else:
        assert await prepare(url) in (["created the bucket another"], ["created the container another"])

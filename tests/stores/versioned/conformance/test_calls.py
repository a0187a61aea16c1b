"""What each of the five calls answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mainstay.errors import StoreClosed
from mainstay.stores.versioned import Versioned, VersionedStore
from tests.stores.versioned.conformance.adapter import Adapter
from tests.stores.versioned.conformance.calls import CALLS, KEY, made


async def test_what_was_never_made_is_none(store: VersionedStore) -> None:
    assert await store.get(KEY) is None


async def test_what_was_made_is_read_with_the_version_it_was_given(store: VersionedStore) -> None:
    version = await made(store)

    assert await store.get(KEY) == Versioned(b"first", version)


async def test_a_second_maker_gets_none_and_changes_nothing(store: VersionedStore) -> None:
    version = await made(store)

    assert await store.create_if_absent(KEY, b"second") is None
    assert await store.get(KEY) == Versioned(b"first", version)


async def test_of_many_makers_at_once_one_wins(store: VersionedStore) -> None:
    answers = await asyncio.gather(*(store.create_if_absent(KEY, b"%d" % n) for n in range(10)))

    (winner,) = [n for n, version in enumerate(answers) if version is not None]
    assert await store.get(KEY) == Versioned(b"%d" % winner, str(answers[winner]))


async def test_a_put_replaces_the_value_and_gives_a_new_version(store: VersionedStore) -> None:
    first = await made(store)

    second = await store.put(KEY, b"second", first)

    assert second not in (None, first)
    assert await store.get(KEY) == Versioned(b"second", str(second))


async def test_a_put_with_an_old_version_gets_none_and_changes_nothing(store: VersionedStore) -> None:
    first = await made(store)
    second = await store.put(KEY, b"second", first)

    assert await store.put(KEY, b"third", first) is None
    assert await store.get(KEY) == Versioned(b"second", str(second))


async def test_of_many_puts_at_once_with_one_version_one_wins(store: VersionedStore) -> None:
    first = await made(store)

    answers = await asyncio.gather(*(store.put(KEY, b"%d" % n, first) for n in range(10)))

    (winner,) = [n for n, version in enumerate(answers) if version is not None]
    assert await store.get(KEY) == Versioned(b"%d" % winner, str(answers[winner]))


async def test_a_put_where_nothing_is_gets_none_and_makes_nothing(store: VersionedStore) -> None:
    version = await made(store, "other")

    assert await store.put(KEY, b"x", version) is None
    assert await store.get(KEY) is None


async def test_a_version_nobody_gave_is_a_conflict(store: VersionedStore) -> None:
    version = await made(store)

    for nonsense in ("", "0", "-1", "abc", '"etag"', "9" * 30):
        assert await store.put(KEY, b"x", nonsense) is None
        assert await store.delete(KEY, nonsense) is False
    assert await store.get(KEY) == Versioned(b"first", version)


async def test_a_version_of_another_key_is_a_conflict(store: VersionedStore) -> None:
    await made(store, "a", b"same")
    other = await made(store, "b", b"same")

    assert await store.put("a", b"x", other) is None
    assert await store.delete("a", other) is False


async def test_what_is_deleted_is_gone(store: VersionedStore) -> None:
    version = await made(store)

    assert await store.delete(KEY, version) is True
    assert await store.get(KEY) is None
    assert await store.list_keys() == []


async def test_a_delete_with_an_old_version_is_false_and_changes_nothing(store: VersionedStore) -> None:
    first = await made(store)
    second = await store.put(KEY, b"second", first)

    assert await store.delete(KEY, first) is False
    assert await store.get(KEY) == Versioned(b"second", str(second))


async def test_a_delete_where_nothing_is_is_false(store: VersionedStore) -> None:
    version = await made(store)
    await store.delete(KEY, version)

    assert await store.delete(KEY, version) is False
    assert await store.delete("never", version) is False


async def test_a_put_after_a_delete_gets_none_and_brings_nothing_back(store: VersionedStore) -> None:
    version = await made(store)
    await store.delete(KEY, version)

    assert await store.put(KEY, b"x", version) is None
    assert await store.get(KEY) is None


async def test_the_same_bytes_written_again_have_another_version(store: VersionedStore) -> None:
    first = await made(store, value=b"A")
    second = await store.put(KEY, b"B", first)
    third = await store.put(KEY, b"A", str(second))
    fourth = await store.put(KEY, b"A", str(third))

    assert len({first, second, third, fourth, None}) == 5
    assert await store.put(KEY, b"late", first) is None
    assert await store.put(KEY, b"late", str(third)) is None


async def test_what_was_deleted_and_made_again_has_another_version(store: VersionedStore) -> None:
    seen = set()
    for n in range(5):
        version = await made(store, value=b"same")
        assert version not in seen
        for old in seen:
            assert await store.put(KEY, b"late", old) is None
            assert await store.delete(KEY, old) is False
        seen.add(version)
        assert await store.delete(KEY, version), n


@pytest.mark.parametrize("call", [*CALLS, "list_keys"])
async def test_a_closed_store_says_so(store: VersionedStore, call: str) -> None:
    await made(store, "there")
    await store.close()

    with pytest.raises(StoreClosed):
        await (CALLS[call](store, "a") if call in CALLS else store.list_keys())


async def test_closing_twice_is_closing(store: VersionedStore) -> None:
    await asyncio.gather(store.close(), store.close())
    await store.close()


async def test_whoever_opens_it_again_finds_what_was_there(adapter: Adapter, tmp_path: Path) -> None:
    if not adapter.shared:
        pytest.skip("a store of this kind is gone when it is closed")
    store = await adapter.open(tmp_path)
    version = await made(store)
    await store.close()

    again = await adapter.open(tmp_path)
    try:
        assert await again.get(KEY) == Versioned(b"first", version)
        assert await again.put(KEY, b"second", version) is not None
    finally:
        await again.close()


async def test_a_write_that_was_answered_is_seen_through_every_other_opening(adapter: Adapter, tmp_path: Path) -> None:
    if not adapter.shared:
        pytest.skip("nobody else can open a store of this kind")
    one, other = await adapter.open(tmp_path), await adapter.open(tmp_path)
    try:
        version = await made(one)
        for n in range(20):
            writer, reader = (one, other) if n % 2 else (other, one)
            version = str(await writer.put(KEY, b"%d" % n, version))
            assert await reader.get(KEY) == Versioned(b"%d" % n, version)
            assert await reader.list_keys() == [KEY]
        assert await one.delete(KEY, version)
        assert await other.get(KEY) is None
        assert await other.list_keys() == []
    finally:
        await one.close()
        await other.close()


async def test_it_says_where_it_is(store: VersionedStore, adapter: Adapter, tmp_path: Path) -> None:
    assert store.place == adapter.at(tmp_path).partition("?")[0]
    assert isinstance(store, VersionedStore)

"""What each of the five calls answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mainstay.errors import InvalidInput, StoreClosed
from mainstay.stores.versioned import Versioned, VersionedStore
from tests.stores.versioned.conformance.adapter import Adapter

KEY = "jobs/v1/a.json"
CALLS: dict[str, Callable[[VersionedStore, Any], Awaitable[object]]] = {
    "get": lambda store, key: store.get(key),
    "put": lambda store, key: store.put(key, b"x", "1"),
    "create_if_absent": lambda store, key: store.create_if_absent(key, b"x"),
    "delete": lambda store, key: store.delete(key, "1"),
}

NO_KEYS: list[Any] = [
    *("", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.b", "a b", "a\n", "ä", "a\\b", "a*", "a" * 513),
    *(None, 5, b"a"),
]


async def made(store: VersionedStore, key: str = KEY, value: bytes = b"first") -> str:
    version = await store.create_if_absent(key, value)
    assert version is not None
    return version


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


@pytest.mark.parametrize(
    "value",
    [b"", b"\n", b"\0", bytes(range(256)) * 3, b"mainstay-value 1 x 5\n", "snow ☃".encode()],
    ids=["empty", "newline", "zero", "every byte", "a head", "text"],
)
async def test_every_value_comes_back_byte_for_byte(store: VersionedStore, value: bytes) -> None:
    version = await made(store, value=value)
    assert await store.get(KEY) == Versioned(value, version)

    await store.put(KEY, b"between", version)
    found = await store.get(KEY)
    assert found is not None
    again = await store.put(KEY, value, found.version)
    assert await store.get(KEY) == Versioned(value, str(again))


async def test_an_empty_value_is_a_value(store: VersionedStore) -> None:
    await made(store, value=b"")

    assert await store.create_if_absent(KEY, b"x") is None
    assert await store.list_keys() == [KEY]


async def test_a_large_value_comes_back_byte_for_byte(store: VersionedStore, adapter: Adapter) -> None:
    value = (bytes(range(256)) * (adapter.largest // 256 + 1))[: adapter.largest]
    version = await made(store, value=value)

    assert await store.get(KEY) == Versioned(value, version)


async def test_keys_that_look_alike_are_different_keys(store: VersionedStore) -> None:
    keys = ["a", "A", "a/b", "a/B", "A/b", "a/b/c", "a-b", "a.b", "a=b", "a_b", "a.", "aa", "-", "_", "=", "a0"]
    versions = {key: await made(store, key, key.encode()) for key in keys}

    assert {key: await store.get(key) for key in keys} == {
        key: Versioned(key.encode(), version) for key, version in versions.items()
    }
    assert await store.list_keys() == sorted(keys)
    assert await store.delete("a", versions["a"])
    assert await store.get("a/b") == Versioned(b"a/b", versions["a/b"])
    assert await store.get("a") is None


@pytest.mark.parametrize(
    "key",
    [
        "a" * 512,
        "A" * 512,
        "/".join("a" * 256),
        "a" * 99,
        "a" * 100,
        "a" * 101,
        "A" * 200 + "/" + "b" * 100,
        "a" * 100 + ".b",
    ],
    ids=["one part", "capitals", "256 parts", "99", "100", "101", "two long parts", "a dot after the cut"],
)
async def test_the_longest_keys_are_keys_like_others(store: VersionedStore, key: str) -> None:
    version = await made(store, key)

    assert await store.get(key) == Versioned(b"first", version)
    assert await store.list_keys() == [key]
    assert await store.list_keys(key[:-1]) == [key]
    assert await store.delete(key, version)


@pytest.mark.parametrize("call", CALLS)
async def test_what_is_no_key_is_refused_by_every_call(store: VersionedStore, call: str) -> None:
    for key in NO_KEYS:
        with pytest.raises(InvalidInput) as refused:
            await CALLS[call](store, key)
        assert refused.value.field == "key", key


async def test_what_is_not_bytes_is_refused(store: VersionedStore) -> None:
    wrong: list[Any] = ["text", None, 5, ["x"]]
    for value in wrong:
        for call in (store.create_if_absent(KEY, value), store.put(KEY, value, "1")):
            with pytest.raises(InvalidInput) as refused:
                await call
            assert refused.value.field == "value", value
    assert await store.get(KEY) is None


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

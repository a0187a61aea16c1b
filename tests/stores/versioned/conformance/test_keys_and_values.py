"""Which keys there can be, and which values; each comes back as it was."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay.errors import InvalidInput
from mainstay.stores.versioned import Versioned, VersionedStore
from tests.stores.versioned.conformance.adapter import Adapter
from tests.stores.versioned.conformance.calls import CALLS, KEY, made

NO_KEYS: list[Any] = [
    *("", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.b", "a b", "a\n", "ä", "a\\b", "a*", "a" * 513),
    *(None, 5, b"a"),
]


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

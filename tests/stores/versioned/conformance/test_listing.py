"""Keys in order, page by page."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainstay.errors import InvalidInput
from mainstay.stores.versioned import VersionedStore
from tests.stores.versioned.conformance.adapter import Adapter

#: `-` and `.` come before `/` in the order of bytes, digits and letters after it
KEYS = [
    *("a", "a-", "a-/b", "a.b", "a/b", "a/b-c", "a/b/c", "a/b/d", "a/b0", "a0", "aA", "aa", "aa/b", "A/b", "b"),
    *("c" * 100, "c" * 100 + "-", "c" * 100 + "/d", "c" * 100 + "/d/e", "c" * 100 + "0", "c" * 99, "c" * 250 + "/C"),
]

WRONG: dict[str, list[Any]] = {
    "prefix": ["/", "a//", "../", ".", "a b", "a" * 513, None, 5],
    "after": ["/", "a//", "..", "a b", "a" * 513, None, 5],
    "limit": [0, -1, 10_001, 1.5, "5", None, True],
}


async def fill(store: VersionedStore, keys: list[str]) -> None:
    for some in (keys[at : at + 100] for at in range(0, len(keys), 100)):
        assert all(await asyncio.gather(*(store.create_if_absent(key, b"x") for key in some)))


async def pages(store: VersionedStore, prefix: str = "", *, limit: int) -> list[list[str]]:
    found = [await store.list_keys(prefix, limit=limit)]
    while len(found[-1]) == limit:
        found.append(await store.list_keys(prefix, after=found[-1][-1], limit=limit))
    return found


async def test_an_empty_store_has_no_keys(store: VersionedStore) -> None:
    assert await store.list_keys() == []
    assert await store.list_keys("a/", after="a/b") == []


async def test_keys_come_in_the_order_of_their_bytes(store: VersionedStore) -> None:
    await fill(store, KEYS)

    assert await store.list_keys() == sorted(KEYS)


async def test_a_prefix_may_end_anywhere(store: VersionedStore) -> None:
    await fill(store, KEYS)
    prefixes = {key[:n] for key in KEYS for n in (1, 2, 3, 4, 99, 100, 101, 102)}

    for prefix in prefixes:
        assert await store.list_keys(prefix) == [key for key in sorted(KEYS) if key.startswith(prefix)], prefix
    assert await store.list_keys("zzz") == []


async def test_only_keys_after_another_are_listed_whether_it_is_there_or_not(store: VersionedStore) -> None:
    await fill(store, KEYS)

    for after in [*KEYS, "0", "a/", "a/b/cc", "aZ", "c" * 100 + "/", "c" * 101, "zz"]:
        assert await store.list_keys(after=after) == [key for key in sorted(KEYS) if key > after], after
        assert await store.list_keys("a/", after=after) == [
            key for key in sorted(KEYS) if key > after and key.startswith("a/")
        ], after


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_pages_joined_are_the_whole(store: VersionedStore, limit: int) -> None:
    await fill(store, KEYS)

    found = await pages(store, limit=limit)

    assert [key for page in found for key in page] == sorted(KEYS)
    assert all(len(page) == limit for page in found[:-1])
    assert len(found[-1]) < limit


@pytest.mark.slow
async def test_a_full_store_is_listed_in_three_pages_or_in_one(store: VersionedStore, adapter: Adapter) -> None:
    keys = sorted(f"jobs/{n % 7}/{n:05}.json" for n in range(adapter.many))
    await fill(store, keys)
    page = adapter.many // 5 * 2

    assert await store.list_keys() == keys[:1000]
    found = await pages(store, "jobs/", limit=page)

    assert [len(some) for some in found] == [page, page, page // 2]
    assert [key for some in found for key in some] == keys
    assert await store.list_keys(limit=10_000) == keys
    assert await store.list_keys("jobs/3/", limit=10_000) == [key for key in keys if key.startswith("jobs/3/")]


async def test_what_stays_is_listed_once_while_others_come_go_and_change(store: VersionedStore) -> None:
    staying = [f"k/{n:03}" for n in range(0, 300, 3)]
    await fill(store, staying)
    stop = asyncio.Event()

    async def come_and_go(start: int) -> None:
        while not stop.is_set():
            for n in range(start, 300, 30):
                version = await store.create_if_absent(f"k/{n:03}", b"x")
                assert version is not None
                assert await store.delete(f"k/{n:03}", version)
                changing = staying[n % len(staying)]
                if found := await store.get(changing):
                    await store.put(changing, b"y", found.version)

    others = [asyncio.create_task(come_and_go(start)) for start in (1, 2, 4)]
    try:
        for limit in (7, 50, 1000):
            found = [key for page in await pages(store, "k/", limit=limit) for key in page]
            assert found == sorted(set(found))
            assert [key for key in found if key in staying] == staying
    finally:
        stop.set()
        await asyncio.gather(*others)
    assert await store.list_keys() == staying


async def test_a_key_that_goes_between_two_pages_does_not_end_the_listing(store: VersionedStore) -> None:
    await fill(store, ["a", "b", "c", "d"])
    first = await store.list_keys(limit=2)
    found = await store.get("b")
    assert found is not None
    await store.delete("b", found.version)

    assert await store.list_keys(after=first[-1], limit=2) == ["c", "d"]


@pytest.mark.parametrize("field", WRONG)
async def test_a_listing_that_makes_no_sense_is_refused(store: VersionedStore, field: str) -> None:
    for wrong in WRONG[field]:
        with pytest.raises(InvalidInput) as refused:
            await store.list_keys(**{field: wrong})
        assert refused.value.field == field, wrong

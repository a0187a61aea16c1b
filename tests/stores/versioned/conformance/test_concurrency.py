"""Many writers at once: nothing is lost, and few have to try again."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from mainstay.stores.versioned import UpdateCounts, VersionedStore, update
from tests.stores.sqlite.process import Child
from tests.stores.versioned.conformance import counting
from tests.stores.versioned.conformance.adapter import Adapter

PROCESSES = 3
WRITERS, KEYS = 16, 1000


@pytest.mark.slow
async def test_processes_that_count_together_miss_nothing(adapter: Adapter, tmp_path: Path) -> None:
    if not adapter.shared:
        pytest.skip("other processes cannot open a store of this kind")
    store = await adapter.open(tmp_path)
    children = [Child(Path(counting.__file__), adapter.at(tmp_path), "visits", adapter.busy) for _ in range(PROCESSES)]
    try:
        assert [child.line() for child in children] == ["ready"] * PROCESSES
        for child in children:
            child.tell()
        costs = [[int(word) for word in child.line().split()] for child in children]
        found = await store.get("visits")
    finally:
        for child in children:
            child.end()
        await store.close()

    assert found is not None
    assert int(found.value) == PROCESSES * adapter.busy
    for updates, conflicts, retries, gave_up in costs:
        assert (updates, retries, gave_up) == (adapter.busy, conflicts, 0)


async def test_tasks_that_count_together_miss_nothing(store: VersionedStore) -> None:
    counts = UpdateCounts()

    async def count() -> None:
        for _ in range(5):
            await update(store, "visits", counting.one_more, tries=1000, base_s=0.002, counts=counts)

    await asyncio.gather(*(count() for _ in range(8)))

    found = await store.get("visits")
    assert found is not None
    assert int(found.value) == 40
    assert (counts.updates, counts.gave_up) == (40, 0)


@pytest.mark.slow
async def test_writers_on_a_thousand_keys_seldom_have_to_try_again(store: VersionedStore, adapter: Adapter) -> None:
    counts = UpdateCounts()

    async def write(rng: random.Random) -> None:
        for _ in range(adapter.busy):
            await update(store, f"k/{rng.randrange(KEYS)}", counting.one_more, counts=counts, rng=rng, base_s=0.01)

    await asyncio.gather(*(write(random.Random(n)) for n in range(WRITERS)))

    values = await asyncio.gather(*map(store.get, await store.list_keys("k/")))
    assert sum(int(found.value) for found in values if found) == counts.updates == WRITERS * adapter.busy
    assert counts.retries / counts.updates < 0.05

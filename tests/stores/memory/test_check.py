"""Damage that only the store itself can see, planted into its tables."""

from __future__ import annotations

import random

import msgspec

from mainstay.model import IdSource, Lane, Session
from mainstay.stores.memory import MemoryStore
from mainstay.testing import VirtualClock, new_job

CLOCK = VirtualClock()


async def store_with(n: int, **fields: object) -> tuple[MemoryStore, list[str]]:
    store = MemoryStore(CLOCK)
    ids = IdSource(random.Random(1))
    made = await store.insert([new_job(CLOCK, ids, **fields) for _ in range(n)])  # type: ignore[arg-type]
    return store, [one.id for one in made]


async def found(store: MemoryStore) -> list[str]:
    """What the check finds; a repair must leave a clean store behind."""
    codes = [violation.code for violation in await store.check()]
    assert [violation.code for violation in await store.check(repair=True)] == codes
    assert all(violation.repaired for violation in await store.check(repair=True))
    return codes


async def test_events_without_a_job_are_found_and_removed() -> None:
    store, [job_id] = await store_with(1)
    store._rows.events["ghost"] = store._rows.events[job_id]
    assert await found(store) == ["stray_events"]
    assert await store.check() == []


async def test_wrong_counts_are_found_and_counted_anew() -> None:
    store, _ = await store_with(2)
    store._rows.counts["default"]["pending"] = 7
    assert await found(store) == ["tally_wrong"]
    assert (await store.stats()).queues["default"].counts == {"pending": 2}


async def test_a_stranded_key_is_found_and_its_next_job_let_through() -> None:
    store, ids = await store_with(3, concurrency_key="k")
    await store.set_limit("k", 1)
    for job_id in ids:
        store._rows.write(msgspec.structs.replace(store._rows.jobs[job_id], lane=Lane.BLOCKED), (), CLOCK.now_ms())
    store._rows.freed.clear()

    assert await found(store) == ["key_stranded"]

    await store.open_session(Session(id="s1"))
    assert [job.id for job in await store.claim(["default"], "s1", 5)] == ids[:1]


async def test_two_holders_of_one_unique_key_are_found_and_left_to_a_person() -> None:
    store, ids = await store_with(2)
    for job_id in ids:
        row = store._rows.jobs[job_id]
        store._rows.write(msgspec.structs.replace(row, unique_key="u"), (), CLOCK.now_ms())
    [violation] = await store.check(repair=True)
    assert (violation.code, violation.job_id, violation.repaired) == ("duplicate_unique", ids[1], None)


async def test_an_end_that_was_missed_is_found_and_told() -> None:
    store, [first, job_id] = await store_with(2)
    waits = store._rows.waits
    await store.delete([first], actor="ann", reason="gone")
    waits.add(job_id, [first])
    assert await found(store) == ["wait_missed"]
    assert waits.open == {}
    assert await store.check() == []

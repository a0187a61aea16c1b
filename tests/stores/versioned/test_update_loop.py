"""Read, decide, write: who wins, who waits how long, who gives up, and what an outage leaves."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from mainstay.errors import Conflict, InvalidInput, StoreUnavailable, TooManyConflicts
from mainstay.stores.versioned import UpdateCounts, Versioned, VersionedStore, WriteUnsure, update
from mainstay.stores.versioned.memory import MemoryVersioned

KEY = "jobs/1"


class Rival:
    """A store that does something else just before, or just after, a write; all calls reach the real one."""

    def __init__(self, store: MemoryVersioned) -> None:
        self._store = store
        self.before: list[Callable[[], Awaitable[Any]]] = []
        self.outages: list[str] = []
        """of the next writes: `lost` is not done, `unheard` is done and not answered, `late` is done just before the
        next, `refused` is known not to be done, `` is no outage"""
        self.reads_fail = False
        self.place = store.place
        self.list_keys = store.list_keys
        self.delete = store.delete
        self.close = store.close

    async def get(self, key: str) -> Versioned | None:
        if self.reads_fail:
            raise StoreUnavailable("away")
        return await self._store.get(key)

    async def put(self, key: str, value: bytes, version: str) -> str | None:
        return await self._write(lambda: self._store.put(key, value, version))

    async def create_if_absent(self, key: str, value: bytes) -> str | None:
        return await self._write(lambda: self._store.create_if_absent(key, value))

    async def _write(self, write: Callable[[], Awaitable[Any]]) -> str | None:
        if self.before:
            await self.before.pop(0)()
        outage = self.outages.pop(0) if self.outages else ""
        if outage == "refused":
            raise StoreUnavailable("away")
        answers: list[str | None] = []

        async def arrive() -> None:
            answers.append(await write())

        async def mine() -> str | None:
            found = await self.get(KEY)
            return found.version if found and found.version in answers else None

        if outage == "late":
            self.before.insert(0, arrive)
        elif outage != "lost":
            await arrive()
        if outage:
            raise WriteUnsure("away", mine)
        return answers[0]


class Waits:
    """Nobody sleeps; what was asked for is noted."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.then: Callable[[], Awaitable[Any]] | None = None

    async def __call__(self, wait_s: float) -> None:
        self.asked.append(wait_s)
        if self.then:
            await self.then()


@pytest.fixture
async def store() -> AsyncIterator[MemoryVersioned]:
    store = MemoryVersioned()
    yield store
    await store.close()


def one_more(value: bytes | None) -> bytes:
    return b"%d" % (int(value or 0) + 1)


async def write(store: VersionedStore, value: bytes) -> None:
    found = await store.get(KEY)
    assert await (store.put(KEY, value, found.version) if found else store.create_if_absent(KEY, value))


async def value_of(store: VersionedStore) -> bytes | None:
    found = await store.get(KEY)
    return found.value if found else None


async def test_what_is_not_there_is_made(store: MemoryVersioned) -> None:
    done = await update(store, KEY, one_more)

    assert done == await store.get(KEY)
    assert done is not None
    assert done.value == b"1"


async def test_what_is_there_is_changed(store: MemoryVersioned) -> None:
    await write(store, b"5")

    done = await update(store, KEY, one_more)

    assert done == await store.get(KEY)
    assert await value_of(store) == b"6"


@pytest.mark.parametrize("there", [None, b"5"])
async def test_none_leaves_it_alone_and_says_what_is_there(store: MemoryVersioned, there: bytes | None) -> None:
    if there:
        await write(store, there)
    before = await store.get(KEY)

    assert await update(store, KEY, lambda _: None) == before
    assert await store.get(KEY) == before


async def test_a_conflict_is_decided_again_from_what_is_there_by_then(store: MemoryVersioned) -> None:
    await write(store, b"5")
    rival, counts, waits = Rival(store), UpdateCounts(), Waits()
    rival.before = [lambda: write(store, b"10"), lambda: write(store, b"20")]

    await update(rival, KEY, one_more, counts=counts, sleep=waits)

    assert await value_of(store) == b"21"
    assert counts == UpdateCounts(updates=1, conflicts=2, retries=2, gave_up=0)


async def test_whoever_makes_it_first_is_a_conflict_too(store: MemoryVersioned) -> None:
    rival, counts = Rival(store), UpdateCounts()
    rival.before = [lambda: write(store, b"10")]

    await update(rival, KEY, one_more, counts=counts, sleep=Waits())

    assert await value_of(store) == b"11"
    assert counts.conflicts == 1


async def test_waits_are_drawn_from_a_range_that_doubles(store: MemoryVersioned) -> None:
    rival = Rival(store)
    drawn = []
    for seed in range(200):
        rival.before = [lambda: write(store, b"1")] * 4
        waits = Waits()
        await update(rival, KEY, one_more, rng=random.Random(seed), sleep=waits)
        drawn.append(waits.asked)

    for n, most_s in enumerate([0.1, 0.2, 0.4, 0.8]):
        column = [asked[n] for asked in drawn]
        assert 0 <= min(column) < most_s * 0.1
        assert most_s * 0.9 < max(column) <= most_s


async def test_no_wait_is_longer_than_the_longest(store: MemoryVersioned) -> None:
    rival, waits = Rival(store), Waits()
    rival.before = [lambda: write(store, b"1")] * 60

    await update(rival, KEY, one_more, tries=100, sleep=waits)

    assert len(waits.asked) == 60
    assert max(waits.asked) <= 10.0


async def test_after_the_last_try_it_gives_up_and_says_what_to_do(store: MemoryVersioned) -> None:
    rival, counts, waits = Rival(store), UpdateCounts(), Waits()
    rival.before = [lambda: write(store, b"1")] * 9

    with pytest.raises(TooManyConflicts, match=r"jobs/1 in memory: .* each of 3 tries; nothing was written.* Try") as e:
        await update(rival, KEY, one_more, tries=3, counts=counts, sleep=waits)

    assert isinstance(e.value, Conflict)
    assert (e.value.key, e.value.tries) == (KEY, 3)
    assert counts == UpdateCounts(updates=1, conflicts=3, retries=2, gave_up=1)
    assert len(waits.asked) == 2, "nobody waits for a try that does not come"
    assert await value_of(store) == b"1"


async def test_a_write_that_an_outage_lost_is_done_again(store: MemoryVersioned) -> None:
    await write(store, b"5")
    rival, counts = Rival(store), UpdateCounts()
    rival.outages = ["lost"]

    await update(rival, KEY, one_more, counts=counts, sleep=Waits())

    assert await value_of(store) == b"6"
    assert counts == UpdateCounts(updates=1, conflicts=0, retries=1, gave_up=0)


@pytest.mark.parametrize("there", [None, b"5"])
async def test_a_write_that_was_done_and_not_heard_of_is_not_done_again(
    store: MemoryVersioned, there: bytes | None
) -> None:
    if there:
        await write(store, there)
    rival = Rival(store)
    rival.outages = ["unheard"]

    done = await update(rival, KEY, one_more, sleep=Waits())

    assert done == await store.get(KEY)
    assert await value_of(store) == one_more(there)


async def test_the_same_bytes_of_another_are_not_taken_for_a_write(store: MemoryVersioned) -> None:
    await write(store, b"5")
    rival, waits = Rival(store), Waits()
    rival.outages = ["lost"]
    waits.then = lambda: write(store, b"6")  # another one counts, too

    await update(rival, KEY, one_more, sleep=waits)

    assert await value_of(store) == b"7"


async def test_a_write_that_arrives_late_is_known_in_the_conflict_with_it(store: MemoryVersioned) -> None:
    await write(store, b"5")
    rival = Rival(store)
    rival.outages = ["late"]

    done = await update(rival, KEY, one_more, sleep=Waits())

    assert done == await store.get(KEY)
    assert await value_of(store) == b"6"


async def test_a_write_that_was_not_begun_is_done_again(store: MemoryVersioned) -> None:
    rival = Rival(store)
    rival.outages = ["refused"]

    await update(rival, KEY, one_more, sleep=Waits())

    assert await value_of(store) == b"1"


async def test_conflicts_after_a_write_in_doubt_end_in_doubt_and_not_in_nothing_was_written(
    store: MemoryVersioned,
) -> None:
    rival, waits = Rival(store), Waits()
    rival.outages = ["unheard"]
    waits.then = lambda: write(store, b"10")
    rival.before = [lambda: write(store, b"1")] * 3

    with pytest.raises(WriteUnsure):
        await update(rival, KEY, one_more, tries=3, sleep=waits)


async def test_what_others_wrote_after_an_outage_is_shown_to_the_change(store: MemoryVersioned) -> None:
    rival, waits, seen = Rival(store), Waits(), []
    rival.outages = ["unheard"]
    waits.then = lambda: write(store, b"mine, theirs")

    def change(value: bytes | None) -> bytes | None:
        seen.append(value)
        return None if value and b"mine" in value else b"mine"

    await update(rival, KEY, change, sleep=waits)

    assert seen == [None, b"mine, theirs"]
    assert await value_of(store) == b"mine, theirs"


async def test_an_outage_at_every_try_is_an_outage_and_no_conflict(store: MemoryVersioned) -> None:
    rival, counts = Rival(store), UpdateCounts()
    rival.outages = ["lost"] * 3

    with pytest.raises(StoreUnavailable):
        await update(rival, KEY, one_more, tries=3, counts=counts, sleep=Waits())

    assert (counts.conflicts, counts.gave_up) == (0, 0)
    assert await value_of(store) is None


async def test_the_last_write_is_looked_for_too(store: MemoryVersioned) -> None:
    rival = Rival(store)
    rival.outages = ["lost", "unheard"]

    done = await update(rival, KEY, one_more, tries=2, sleep=Waits())

    assert done == await store.get(KEY)
    assert await value_of(store) == b"1"


async def test_a_store_that_cannot_be_read_is_an_outage_and_nothing_is_written(store: MemoryVersioned) -> None:
    rival = Rival(store)
    rival.reads_fail = True

    with pytest.raises(StoreUnavailable):
        await update(rival, KEY, one_more, sleep=Waits())

    assert await value_of(store) is None


async def test_no_tries_at_all_are_refused(store: MemoryVersioned) -> None:
    with pytest.raises(InvalidInput, match="^tries: 0"):
        await update(store, KEY, one_more, tries=0)

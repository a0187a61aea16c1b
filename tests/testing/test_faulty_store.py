"""The store that misbehaves on demand."""

from __future__ import annotations

import asyncio
import random

import pytest

from mainstay.errors import InvalidInput, StoreUnavailable
from mainstay.model import IdSource
from mainstay.testing import FaultyStore, MemoryStore, StoreFaults, VirtualClock, new_job, run_virtual


def faulty(faults: StoreFaults, seed: int = 1) -> FaultyStore:
    return FaultyStore(MemoryStore(VirtualClock()), rng=random.Random(seed), faults=faults)


def test_a_lost_call_has_no_effect() -> None:
    async def main() -> None:
        store, job = faulty(StoreFaults(lost_calls=1)), new_job(VirtualClock(), IdSource(random.Random(1)))
        with pytest.raises(StoreUnavailable, match="the call insert was lost"):
            await store.insert([job])
        store.faults = StoreFaults()
        assert await store.get([job.job.id]) == [None]

    run_virtual(main())


def test_a_call_whose_answer_is_lost_takes_effect() -> None:
    async def main() -> None:
        store, job = faulty(StoreFaults(lost_answers=1)), new_job(VirtualClock(), IdSource(random.Random(1)))
        with pytest.raises(StoreUnavailable, match="the answer to insert was lost"):
            await store.insert([job])
        store.faults = StoreFaults()
        (row,) = await store.get([job.job.id])
        assert row is not None

    run_virtual(main())


def test_calls_and_answers_take_time() -> None:
    async def main() -> float:
        await faulty(StoreFaults(delay_s=10)).stats()
        return asyncio.get_running_loop().time()

    assert 0 < run_virtual(main()) < 20


def test_a_seed_decides_which_calls_fail() -> None:
    async def outcomes(seed: int) -> list[bool]:
        store, found = faulty(StoreFaults(lost_calls=0.3, lost_answers=0.3), seed), []
        for _ in range(40):
            try:
                await store.stats()
            except StoreUnavailable:
                found.append(False)
            else:
                found.append(True)
        return found

    first = run_virtual(outcomes(5))
    assert first == run_virtual(outcomes(5))
    assert first != run_virtual(outcomes(6))
    assert 10 < sum(first) < 30


@pytest.mark.parametrize(("field", "value"), [("lost_calls", 1.5), ("lost_answers", -0.1), ("delay_s", -1.0)])
def test_faults_out_of_range_are_refused_by_field(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=field):
        StoreFaults(**{field: value})


def test_a_call_whose_caller_is_gone_arrives() -> None:
    async def main() -> None:
        store, job = faulty(StoreFaults(delay_s=10)), new_job(VirtualClock(), IdSource(random.Random(1)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await store.insert([job])
        await asyncio.sleep(20)
        (row,) = await store._store.get([job.job.id])
        assert row is not None

    run_virtual(main())

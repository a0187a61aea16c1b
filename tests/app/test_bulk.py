"""Submitting many: any iterable, chunk by chunk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from mainstay import App, Call, Task
from mainstay.errors import InvalidInput, KeyConflict


@pytest.fixture
def app() -> App:
    return App("memory:")


@pytest.fixture
def double(app: App) -> Task[[int], int]:
    @app.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    return double


async def stored(app: App) -> int:
    return sum(sum(queue.counts.values()) for queue in (await app.control.store.stats()).queues.values())


async def test_lists_and_generators_are_taken_in_their_order(app: App, double: Task[[int], int]) -> None:
    listed = await app.submit_many([double.job(n) for n in range(3)])
    generated = await app.submit_many(double.job(n) for n in range(5))

    assert [double.arguments((await job.job()).payload) for job in listed] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert len(generated) == 5
    assert all(job.created for job in generated)


async def test_async_iterables_are_taken_and_not_read_ahead(app: App, double: Task[[int], int]) -> None:
    seen: list[tuple[int, int]] = []

    async def rows() -> AsyncIterator[Call[int]]:
        for n in range(7):
            seen.append((n, await stored(app)))
            yield double.job(n)

    await app.open()
    jobs = await app.submit_many(rows(), chunk=3)

    assert len(jobs) == 7
    # the fourth row was asked for when the first chunk was stored
    assert seen[3] == (3, 3)
    assert seen[6] == (6, 6)


async def test_progress_is_told_after_each_chunk(app: App, double: Task[[int], int]) -> None:
    told: list[int] = []

    await app.submit_many((double.job(n) for n in range(7)), chunk=3, progress=told.append)

    assert told == [3, 6, 7]


async def test_a_chunk_is_stored_whole_or_not_at_all_and_the_error_says_what_is_stored(
    app: App, double: Task[[int], int]
) -> None:
    await double.options(key="taken").submit(99)
    calls = [double.job(n) for n in range(5)]
    calls[4] = double.options(key="taken").job(1)

    with pytest.raises(KeyConflict) as refused:
        await app.submit_many(calls, chunk=3)

    assert refused.value.__notes__ == ["the 3 jobs before this chunk are stored; submit the rest from there"]
    assert str(refused.value).startswith("requests[4]: ")
    assert await stored(app) == 1 + 3


async def test_an_error_in_the_iterable_is_raised_and_what_was_stored_stays(app: App, double: Task[[int], int]) -> None:
    def rows() -> Iterator[Call[int]]:
        yield double.job(1)
        yield double.job("two")  # type: ignore[arg-type]

    with pytest.raises(InvalidInput, match="double.n: expected int, got str"):
        await app.submit_many(rows(), chunk=1)
    assert await stored(app) == 1


async def test_nothing_is_nothing(app: App) -> None:
    assert await app.submit_many([]) == []


@pytest.mark.parametrize("wrong", [5, [5], ["double"]])
async def test_what_is_no_list_of_jobs_is_refused(app: App, wrong: object) -> None:
    with pytest.raises(InvalidInput, match="jobs: .* write "):
        await app.submit_many(wrong)  # type: ignore[arg-type]


async def test_a_job_of_another_app_is_refused(app: App) -> None:
    other = App("memory:").task(name="other")(lambda: None)

    with pytest.raises(InvalidInput, match="belongs to another app"):
        await app.submit_many([other.job()])


async def test_a_chunk_of_no_jobs_is_refused(app: App) -> None:
    with pytest.raises(InvalidInput, match="chunk: 0 is out of range"):
        await app.submit_many([], chunk=0)

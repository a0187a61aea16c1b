"""Many who submit one job each share the server's commits, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import psycopg
import pytest

from mainstay.errors import Conflict, StoreLocked, StoreUnavailable
from mainstay.stores import InsertResult, NewJob
from mainstay.stores.port import Key
from servers import Proxy
from tests.conformance.world import World

from .stands import Stores, ask, until

MANY = 50


def schema(url: str) -> str:
    return url.partition("schema=")[2].partition("&")[0]


def commits(url: str) -> list[int]:
    """How many of the stored jobs each commit brought, the greatest first."""
    rows = ask(url, f"SELECT count(*) FROM {schema(url)}.jobs GROUP BY xmin ORDER BY 1 DESC")
    return [int(str(n)) for (n,) in rows]


class Jam:
    """Nothing can be inserted until it is over. The first that tries is under way, and the others wait behind it."""

    def __init__(self, url: str, world: World) -> None:
        self._url = url
        self._world = world

    async def submit(self, *batches: list[NewJob]) -> list[asyncio.Task[list[InsertResult]]]:
        """One after the other; the first is at the server by then."""
        calls = []
        for batch in batches:
            calls.append(asyncio.create_task(self._world.store.insert(batch)))
            if len(calls) == 1:
                await until(self._is_at_the_server)
        for _ in range(3):  # a call of the home loop comes back after all that were sent there before
            await self._world.store.sessions()
        return calls

    async def _is_at_the_server(self) -> bool:
        waits = (
            "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = "
            f"'{schema(self._url)}.jobs'::regclass AND mode = 'RowExclusiveLock'"
        )
        return bool(ask(self._url, waits))


@contextlib.asynccontextmanager
async def jammed(url: str, world: World) -> AsyncIterator[Jam]:
    with psycopg.connect(url.partition("?")[0]) as other:
        other.execute(f"LOCK TABLE {schema(url)}.jobs IN SHARE MODE")
        yield Jam(url, world)


async def test_many_who_submit_at_once_take_few_commits(postgres_url: str, world: World) -> None:
    async with jammed(postgres_url, world) as jam:
        calls = await jam.submit(*([world.new()] for _ in range(MANY)))

    answers = await asyncio.gather(*calls)

    assert commits(postgres_url) == [MANY - 1, 1]
    assert len({made.id for [made] in answers}) == MANY
    assert all(made.created for [made] in answers)


async def test_everybody_gets_the_answer_to_what_was_asked(postgres_url: str, world: World) -> None:
    batches = [[world.new() for _ in range(n)] for n in (1, 3, 1, 2)]
    async with jammed(postgres_url, world) as jam:
        calls = await jam.submit(*batches)

    answers = await asyncio.gather(*calls)

    assert [[made.id for made in each] for each in answers] == [[new.job.id for new in batch] for batch in batches]


async def test_one_that_is_refused_is_refused_alone(postgres_url: str, world: World) -> None:
    there = await world.submit()
    other = world.new(queue="elsewhere")
    clash = msgspec.structs.replace(other, job=msgspec.structs.replace(other.job, id=there.id))
    good = [[world.new()] for _ in range(20)]
    async with jammed(postgres_url, world) as jam:
        calls = await jam.submit(*good[:10], [clash], *good[10:])

    answers = await asyncio.gather(*calls, return_exceptions=True)

    refused = answers.pop(10)
    assert isinstance(refused, Conflict)
    assert there.id in str(refused)
    assert answers == [[InsertResult(new.job.id, True)] for [new] in good]
    assert len(commits(postgres_url)) <= 2 + 6, "found by halves, not one by one"


async def test_one_that_was_stored_before_and_is_asked_for_again_is_told_so_among_others(
    postgres_url: str, world: World
) -> None:
    again = world.new()
    await world.store.insert([again])
    async with jammed(postgres_url, world) as jam:
        calls = await jam.submit([world.new()], [world.new()], [again], [again], [world.new()])

    answers = await asyncio.gather(*calls)

    assert answers[2] == answers[3] == [InsertResult(again.job.id, True)]
    assert len(await world.story(again.job)) == len(again.events)
    assert sum(commits(postgres_url)) == 4


async def test_who_is_cancelled_while_it_waits_is_not_stored(postgres_url: str, world: World) -> None:
    batches = [[world.new()] for _ in range(4)]
    async with jammed(postgres_url, world) as jam:
        calls = await jam.submit(*batches)
        calls[2].cancel()
        await asyncio.wait([calls[2]])
        await world.store.sessions()

    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert isinstance(answers.pop(2), asyncio.CancelledError)
    assert [made.id for [made] in answers] == [new.job.id for [new] in (batches[0], batches[1], batches[3])]  # type: ignore[misc]
    assert await world.store.get([batches[2][0].job.id]) == [None]


async def test_the_first_that_is_cancelled_lets_the_others_in(postgres_url: str, world: World) -> None:
    async with jammed(postgres_url, world) as jam:
        calls = await jam.submit(*([world.new()] for _ in range(3)))
        calls[0].cancel()
        await asyncio.wait([calls[0]])

    await asyncio.gather(*calls[1:])

    assert sum(commits(postgres_url)) in (2, 3), "what was under way may have been written"


async def test_one_of_a_shared_statement_that_is_cancelled_leaves_the_others_to_it(
    postgres_url: str, world: World
) -> None:
    async with jammed(postgres_url, world) as jam:
        calls = await jam.submit(*([world.new()] for _ in range(4)))
        calls[0].cancel()  # so the other three are at the server
        await asyncio.wait([calls[0]])
        await world.store.sessions()
        calls[1].cancel()
        await asyncio.wait([calls[1]])

    assert [[made.created for made in answer] for answer in await asyncio.gather(*calls[2:])] == [[True], [True]]


async def test_a_shared_statement_whose_callers_are_all_gone_is_ended(postgres_url: str, world: World) -> None:
    async with jammed(postgres_url, world) as jam:
        calls = await jam.submit(*([world.new()] for _ in range(3)))
        for call in calls:
            call.cancel()
            await asyncio.wait([call])
        await world.store.sessions()

    await world.submit()
    assert all(call.cancelled() for call in calls)


async def test_keyed_jobs_do_not_wait_for_others(postgres_url: str, world: World) -> None:
    keyed = [
        msgspec.structs.replace(
            world.new(), key=Key(scope="s", name=str(n), content=b"x", until_ms=world.clock.now_ms() + 60_000)
        )
        for n in range(2)
    ]
    async with jammed(postgres_url, world) as jam:
        calls = await jam.submit([world.new()], *([new] for new in keyed), [world.new()], [world.new()])

    await asyncio.gather(*calls)

    assert commits(postgres_url) == [2, 1, 1, 1]


async def test_no_statement_grows_beyond_bounds(postgres_url: str, world: World) -> None:
    big = bytes(400_000)
    async with jammed(postgres_url, world) as jam:
        calls = await jam.submit(*([world.new(payload=big)] for _ in range(6)))

    await asyncio.gather(*calls)

    assert commits(postgres_url) == [2, 2, 1, 1]


async def test_trouble_of_the_server_is_everybodys(postgres_url: str, stores: Stores) -> None:
    world = await stores.open(f"{postgres_url}&lock_timeout=200ms")
    async with jammed(postgres_url, world) as jam:
        calls = await jam.submit(*([world.new()] for _ in range(20)))
        answers = await asyncio.gather(*calls, return_exceptions=True)

    assert {type(answer) for answer in answers} == {StoreLocked}
    assert len(set(map(id, answers))) == 20, "each has one of its own"


async def test_a_lost_connection_costs_nobody_of_a_shared_statement_its_job(
    postgres_url: str, proxy: Proxy, stores: Stores
) -> None:
    world = await stores.open(proxy.url)
    batches = [[world.new()] for _ in range(10)]
    async with jammed(postgres_url, world) as jam:
        calls = await jam.submit(*batches)
        proxy.cut()

    answers = await asyncio.gather(*calls)

    assert answers == [[InsertResult(new.job.id, True)] for [new] in batches]


async def test_a_server_that_stays_away_is_told_to_all_at_once(postgres_url: str, proxy: Proxy, stores: Stores) -> None:
    world = await stores.open(f"{proxy.url}&retries=1")
    async with jammed(postgres_url, world) as jam:
        calls = await jam.submit(*([world.new()] for _ in range(10)))
        proxy.refuse()
        proxy.cut()
        with pytest.raises(StoreUnavailable):
            await calls[-1]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        proxy.accept()

    assert {type(answer) for answer in answers} == {StoreUnavailable}

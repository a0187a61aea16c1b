"""Claims begin where the dead entries end, and overlook nothing for it: whatever is ready, the lowest rank is first."""

from __future__ import annotations

import random

import psycopg
import pytest

from mainstay.model import Job
from servers import Postgres
from tests.conformance.world import World

from .stands import Stores, ask

LOWEST = -(2**63)


@pytest.fixture
def postgres_url(own_server: Postgres, request: pytest.FixtureRequest) -> str:
    return f"{own_server.url()}?schema=t{abs(hash(request.node.name)):x}&auto_migrate=on"


def schema(url: str) -> str:
    return url.partition("schema=")[2].partition("&")[0]


def head(url: str) -> int:
    [(rank,)] = ask(url, f"SELECT {schema(url)}.head_of('default')")
    return int(str(rank))


async def go_on(url: str, world: World, steps: int = 1) -> None:
    """Have heads take their next steps, which need claims that take something and some time in between."""
    for _ in range(steps):
        await world.submit(queue="default", rank=10**15)
        ask(url, f"UPDATE {schema(url)}.heads SET moved_ms = 0")
        [last] = await world.claim("s1", 1)
        await world.move(last, "succeeded", holder="s1")


async def passed(url: str, world: World, *ranks: int) -> None:
    """Jobs that went through, and the head behind them."""
    await world.open("s1", lease_s=600)
    await world.store.insert([world.new(rank=rank) for rank in ranks])
    for job in await world.claim("s1", len(ranks)):
        await world.move(job, "succeeded", holder="s1")
    ask(url, f"UPDATE {schema(url)}.heads SET moved_ms = 0, next_rank = {max(ranks)}, next_xid = NULL")
    await go_on(url, world, 2)
    assert head(url) == max(ranks)


async def test_the_head_follows_the_claims_in_three_steps(postgres_url: str, world: World) -> None:
    await world.open("s1", lease_s=600)
    await world.store.insert([world.new(rank=rank) for rank in range(1000, 1100)])
    seen = []
    for _ in range(9):
        await world.claim("s1", 10)
        seen.append(head(postgres_url))
        ask(postgres_url, f"UPDATE {schema(postgres_url)}.heads SET moved_ms = 0")

    assert seen[:2] == [LOWEST, LOWEST]
    assert seen[2] == 1009, "what the first has proposed"
    assert seen[4] == 1030, "the lowest that was ready then"
    assert seen == sorted(seen)


async def test_heads_take_their_time(postgres_url: str, world: World) -> None:
    await world.open("s1", lease_s=600)
    await world.store.insert([world.new() for _ in range(3)])
    for _ in range(2):
        await world.claim("s1", 1)
        ask(postgres_url, f"UPDATE {schema(postgres_url)}.heads SET moved_ms = moved_ms + 100000")

    assert ask(postgres_url, f"SELECT next_xid IS NULL FROM {schema(postgres_url)}.heads") == [(False,)]


async def test_what_comes_with_a_lower_rank_is_first(postgres_url: str, world: World) -> None:
    await passed(postgres_url, world, 100, 200)
    await world.store.insert([world.new(rank=rank) for rank in (300, 150, 250)])

    assert [job.rank for job in await world.claim("s1", 3)] == [150, 250, 300]


async def test_a_job_that_is_given_back_is_first_again(postgres_url: str, world: World) -> None:
    await world.open("s1", lease_s=600)
    early = await world.submit(rank=10)
    [held] = await world.claim("s1", 1)
    await passed(postgres_url, world, 100, 200)
    await world.submit(rank=300)
    await world.move(held, "pending", holder="s1")

    [first] = await world.claim("s1", 1)
    assert first.id == early.id


async def test_a_job_whose_time_has_come_is_first(postgres_url: str, world: World) -> None:
    await world.open("s1", lease_s=600)
    later = world.new(delay_s=3600, rank=10)
    await world.store.insert([later])
    await passed(postgres_url, world, 100, 200)
    await world.submit(rank=300)
    ask(postgres_url, f"UPDATE {schema(postgres_url)}.jobs SET due_ms = 1 WHERE id = '{later.job.id}'")

    [first] = await world.claim("s1", 1)
    assert first.id == later.job.id


async def test_a_job_that_got_a_slot_is_first(postgres_url: str, world: World) -> None:
    await world.open("s1", lease_s=600)
    await world.store.set_limit("key", 1)
    await world.store.insert([world.new(rank=rank, concurrency_key="key") for rank in (10, 11)])
    [held] = await world.claim("s1", 2)
    await passed(postgres_url, world, 100, 200)
    await world.submit(rank=300)
    await world.move(held, "succeeded", holder="s1")

    assert [job.rank for job in await world.claim("s1", 2)] == [11, 300]


async def test_a_unit_whose_time_has_come_is_first(postgres_url: str, world: World) -> None:
    await world.open("s1", lease_s=600)
    parent = await world.running()
    unit = world.new(parent=parent.id, unit="u", delay_s=3600, rank=10)
    await world.store.insert([unit])
    await passed(postgres_url, world, 100, 200)
    await world.submit(rank=300)
    ask(postgres_url, f"UPDATE {schema(postgres_url)}.jobs SET due_ms = 1 WHERE id = '{unit.job.id}'")

    [first] = await world.claim("s1", 1)
    assert first.id == unit.job.id
    # as the trail says: a check would find the change
    ask(postgres_url, f"UPDATE {schema(postgres_url)}.jobs SET due_ms = {unit.job.due_ms} WHERE id = '{unit.job.id}'")


async def test_a_job_submitted_in_sql_is_first(postgres_url: str, world: World) -> None:
    await passed(postgres_url, world, 10**14)
    await world.submit(rank=2 * 10**14)
    [(made,)] = ask(postgres_url, f"SELECT {schema(postgres_url)}.submit('demo.task')")

    [first] = await world.claim("s1", 1)
    assert first.id == str(made)


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
async def test_what_an_older_transaction_commits_late_is_not_overlooked(
    postgres_url: str, world: World, isolation: str
) -> None:
    await world.open("s1", lease_s=600)
    with psycopg.connect(postgres_url.partition("?")[0]) as other:
        other.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        other.execute(f"SELECT count(*) FROM {schema(postgres_url)}.jobs")  # so it has its snapshot
        if isolation == "READ COMMITTED":
            other.execute(f"SELECT {schema(postgres_url)}.submit('demo.task')")
            await world.store.insert([world.new(rank=rank) for rank in (10**14, 10**14 + 1)])
            await world.claim("s1", 2)
            await go_on(postgres_url, world, 5)
            assert head(postgres_url) == LOWEST, "it waits for those who have not heard of it"
        else:
            await passed(postgres_url, world, 10**14)
            other.execute(f"SELECT {schema(postgres_url)}.submit('demo.task')")
        other.commit()
    await world.submit(rank=2 * 10**14)

    [first] = await world.claim("s1", 1)
    assert first.rank < 10**14


async def test_a_reader_with_an_old_snapshot_holds_no_head_back(postgres_url: str, world: World) -> None:
    await world.open("s1", lease_s=600)
    with psycopg.connect(postgres_url.partition("?")[0]) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute(f"SELECT count(*) FROM {schema(postgres_url)}.jobs")
        await passed(postgres_url, world, 100, 200)


@pytest.mark.parametrize("others", [0, 1])
async def test_what_was_made_ready_by_hand_is_found_within_a_minute(
    postgres_url: str, world: World, others: int
) -> None:
    await passed(postgres_url, world, 100, 200)
    by_hand = await world.submit(rank=300)
    await world.store.insert([world.new(rank=400) for _ in range(others)])
    ask(postgres_url, f"UPDATE {schema(postgres_url)}.jobs SET rank = 50 WHERE id = '{by_hand.id}'")
    assert by_hand.id not in [job.id for job in await world.claim("s1", 1)]

    ask(postgres_url, f"UPDATE {schema(postgres_url)}.heads SET looked_ms = looked_ms - 60001")
    await world.claim("s1", 1)

    [first] = await world.claim("s1", 1)
    assert first.id == by_hand.id


async def test_the_head_stays_below_what_is_ready(postgres_url: str, world: World) -> None:
    await world.open("s1", lease_s=600)
    await world.store.insert([world.new(rank=rank) for rank in (100, 101, 102)])
    low = (await world.claim("s1", 3))[0]  # so 102 is proposed
    await world.move(low, "pending", holder="s1")
    row = f"{schema(postgres_url)}.jobs SET expires_ms = %s WHERE id = %s"
    ask(postgres_url, f"UPDATE {row}", 1, low.id)  # so claims pass it over
    await go_on(postgres_url, world, 4)
    ask(postgres_url, f"UPDATE {row}", None, low.id)

    assert ask(postgres_url, f"SELECT rank FROM {schema(postgres_url)}.heads") == [(100,)]
    assert [job.id for job in await world.claim("s1", 1)] == [low.id]


@pytest.mark.parametrize(
    "hold",
    [
        "SELECT id FROM {schema}.jobs WHERE id = '{id}' FOR UPDATE",
        "UPDATE {schema}.jobs SET lane = 0 WHERE id = '{id}'",
    ],
    ids=["its row is locked", "its claim is under way"],
)
async def test_what_a_claim_passes_over_because_somebody_holds_it_is_first_once_it_is_free(
    postgres_url: str, world: World, hold: str
) -> None:
    await world.open("s1", lease_s=600)
    low = await world.submit(rank=100)
    with psycopg.connect(postgres_url.partition("?")[0]) as other:
        other.execute(hold.format(schema=schema(postgres_url), id=low.id))
        await go_on(postgres_url, world, 5)  # nobody waits for it
        assert head(postgres_url) <= 100
        other.rollback()

    [first] = await world.claim("s1", 1)
    assert first.id == low.id


async def test_a_mark_of_another_server_is_not_believed(postgres_url: str, world: World) -> None:
    await passed(postgres_url, world, 100, 200)
    ask(postgres_url, f"UPDATE {schema(postgres_url)}.heads SET next_xid = {2**60}")
    await go_on(postgres_url, world)

    [(known,)] = ask(postgres_url, f"SELECT next_xid < {2**60} FROM {schema(postgres_url)}.heads")
    assert known


@pytest.mark.parametrize("seed", range(4))
async def test_in_any_order_of_events_the_lowest_rank_is_claimed_first(
    postgres_url: str, stores: Stores, seed: int
) -> None:
    rng = random.Random(seed)
    one, two = await stores.open(postgres_url), await stores.open(postgres_url)
    await one.open("s1", lease_s=600)
    ready: dict[str, int] = {}
    held: list[Job] = []
    for _ in range(150):
        world = rng.choice([one, two])
        what = rng.choice(["insert", "insert", "claim", "claim", "give back", "time"])
        if what == "insert":
            batch = [world.new(queue=rng.choice("ab"), rank=rng.randrange(1000)) for _ in range(rng.randrange(1, 5))]
            await world.store.insert(batch)
            ready |= {new.job.id: new.job.rank for new in batch}
        elif what == "claim":
            found = await world.claim("s1", rng.randrange(1, 5), queues=["a", "b"])
            assert [job.rank for job in found] == sorted(ready.values())[: len(found)]
            assert found or not ready
            for job in found:
                del ready[job.id]
            held += found
        elif what == "give back" and held:
            job = held.pop(rng.randrange(len(held)))
            await world.move(job, "pending", holder="s1")
            ready[job.id] = job.rank
        else:
            ask(postgres_url, f"UPDATE {schema(postgres_url)}.heads SET moved_ms = 0")

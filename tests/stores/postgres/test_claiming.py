"""Claims in trouble: an answer that is lost, a claim that the server forgot, rows that cannot be read, statistics
of another time, and keys that somebody else counts."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from mainstay.errors import StoreLocked
from mainstay.lifecycle import JOB, UNIT
from mainstay.model import Job, Progress
from mainstay.stores import ClaimReport
from mainstay.stores.open_claim import CLAIMED_FROM
from mainstay.stores.postgres.write import selection
from mainstay.stores.routes import Offers
from servers import Proxy
from tests.conformance.world import World

from .overheard import Overheard
from .stands import Stores, ask, postgres, until


def schema(url: str) -> str:
    return url.partition("schema=")[2].partition("&")[0]


def forget_claim(url: str, job_id: str) -> None:
    """As a crash does it: a claim need not have reached the disk."""
    ask(
        url,
        f"UPDATE {schema(url)}.jobs SET status = 'pending', version = version - 1, token = token - 1, session = NULL, "
        f"claimed_ms = NULL, open = false, lane = 1 WHERE id = '{job_id}'",
    )
    ask(
        url,
        f"INSERT INTO {schema(url)}.tallies (queue, status, shard, n) VALUES "
        "('own', 'pending', 99, 1), ('own', 'running', 99, -1)",
    )


def test_pending_is_the_only_state_that_claims_are_made_from_and_running_what_they_make() -> None:
    for table in (JOB, UNIT):
        assert list(table.named("claimable")) == [CLAIMED_FROM] == ["pending"]
        assert "running" in table.states


# -- who holds it ----------------------------------------------------------------------------------


async def test_a_claim_that_the_server_forgot_cannot_be_ended_by_who_made_it(postgres_url: str, world: World) -> None:
    await world.open("s1", "s2", lease_s=600)
    ghost = await world.running("s1", queue="own")
    forget_claim(postgres_url, ghost.id)
    [holder] = await world.claim("s2", 1, queues=["own"])
    assert (holder.version, holder.token) == (ghost.version, ghost.token)

    assert (await world.move(ghost, "succeeded", holder="s1")).outcome == "stale"
    assert (await world.move(ghost, "pending", actor="sweeper")).outcome == "conflict"
    assert (await world.move(holder, "succeeded", holder="s2")).outcome == "applied"
    assert [event.actor for event in await world.store.events(ghost.id)] == ["test", "s2", "s2"]


async def test_nor_if_the_same_session_has_it_again(postgres_url: str, world: World) -> None:
    await world.open("s1", lease_s=600)
    ghost = await world.running("s1", queue="own")
    forget_claim(postgres_url, ghost.id)
    while world.clock.now_ms() <= (ghost.claimed_ms or 0) + 5:
        await world.store.sessions()
    [holder] = await world.claim("s1", 1, queues=["own"])

    others = [await world.running("s1", queue=f"q{n}") for n in range(3)]
    answers = await world.store.apply([world.change(job, "succeeded", holder="s1") for job in (*others, ghost)])

    assert [answer.outcome for answer in answers] == ["applied", "applied", "applied", "stale"]
    assert (await world.move(holder, "succeeded", holder="s1")).outcome == "applied"


async def test_a_change_made_from_another_past_of_the_row_is_refused(postgres_url: str, world: World) -> None:
    job = await world.submit()
    ask(postgres_url, f"UPDATE {schema(postgres_url)}.jobs SET head = '\\x01' WHERE id = '{job.id}'")

    assert (await world.move(job, "cancelled")).outcome == "conflict"
    ask(postgres_url, f"UPDATE {schema(postgres_url)}.jobs SET head = '\\x{job.head.hex()}' WHERE id = '{job.id}'")


# -- the nonce -------------------------------------------------------------------------------------


async def test_a_claim_that_is_sent_again_gets_the_same_rows_and_no_others(world: World) -> None:
    await world.open("s1", lease_s=600)
    await world.store.insert([world.new() for _ in range(6)])
    engine, chain = postgres(world)._engine, world.store.chain

    async def sent(nonce: str) -> list[str]:
        call = selection.ClaimCall(nonce)
        jobs, _ = await selection.claim_jobs(engine, ["default"], "s1", 2, call, chain, Offers(), observed=False)
        return [job.id for job in jobs]

    first = await postgres(world)._home.run(lambda: sent("a"))
    again = await postgres(world)._home.run(lambda: sent("a"))
    other = await postgres(world)._home.run(lambda: sent("b"))

    assert first == again
    assert set(first).isdisjoint(other)
    assert len(other) == 2


async def test_of_rows_that_were_ended_or_given_away_since_a_claim_sent_again_hears_nothing(world: World) -> None:
    await world.open("s1", lease_s=600)
    await world.store.insert([world.new() for _ in range(3)])
    engine, chain = postgres(world)._engine, world.store.chain

    async def sent() -> list[Job]:
        call = selection.ClaimCall("a")
        jobs, _ = await selection.claim_jobs(engine, ["default"], "s1", 3, call, chain, Offers(), observed=False)
        return jobs

    first = await postgres(world)._home.run(sent)
    await world.move(first[0], "succeeded", holder="s1")
    await world.move(first[1], "pending", holder="s1")
    again = await postgres(world)._home.run(sent)

    assert [job.id for job in again] == [first[2].id]


async def test_a_claim_sent_again_while_its_first_try_still_runs_waits_for_it(
    postgres_url: str, proxy: Proxy, stores: Stores
) -> None:
    world = await stores.open(proxy.url)
    await world.open("s1", lease_s=600)
    await world.store.set_limit("k", 2)
    await world.store.insert([world.new(concurrency_key="k") for _ in range(2)])
    place = schema(postgres_url)
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"

    with psycopg.connect(postgres_url.partition("?")[0]) as other:
        other.execute(f"SELECT {place}.lock_keys(ARRAY['k'])")
        call = asyncio.create_task(world.claim("s1", 1))

        async def waits(n: int) -> bool:
            return ask(postgres_url, waiting) == [(n,)]

        await until(lambda: waits(1))
        proxy.cut()  # the server does not notice, and goes on
        await until(lambda: waits(2))
    claimed = await call

    held = ask(postgres_url, f"SELECT id::text FROM {place}.jobs WHERE session = 's1'")
    assert held == [(job.id,) for job in claimed]


# -- what is in the way ----------------------------------------------------------------------------


async def test_a_row_that_cannot_be_read_gives_its_slot_to_the_next(postgres_url: str, world: World) -> None:
    await world.open("s1", lease_s=600)
    await world.store.set_limit("key", 1)
    jobs = [world.new(concurrency_key="key", rank=rank) for rank in range(3)]
    await world.store.insert(jobs)
    place, broken = schema(postgres_url), jobs[0].job.id
    ask(postgres_url, f"UPDATE {place}.jobs SET options = 'damaged' WHERE id = '{broken}'")

    assert await world.claim("s1", 3) == []
    assert [job.id for job in await world.claim("s1", 3)] == [jobs[1].job.id]
    ask(postgres_url, f"UPDATE {place}.jobs SET options = '[[3]]', lane = 1 WHERE id = '{broken}'")


async def test_a_row_whose_options_cannot_be_read_keeps_no_other_report_from_being_heard(
    postgres_url: str, world: World
) -> None:
    await world.open("s1", lease_s=600)
    broken, sound = [await world.running("s1", queue=f"q{n}") for n in range(2)]
    place = schema(postgres_url)
    [(options,)] = ask(postgres_url, f"SELECT options FROM {place}.jobs WHERE id = '{broken.id}'")
    ask(postgres_url, f"UPDATE {place}.jobs SET options = 'damaged' WHERE id = '{broken.id}'")

    said = [
        ClaimReport(job_id=job.id, session="s1", token=job.token, started_ms=1, progress=Progress(done=1))
        for job in (broken, sound)
    ]
    assert await world.store.report(said) == [True, True]
    [pulse] = await world.store.beat(["s1"], said)

    assert pulse.known
    assert (await world.row(sound)).progress == Progress(done=1)
    ask(postgres_url, f"UPDATE {place}.jobs SET options = '{options}' WHERE id = '{broken.id}'")


async def test_a_claim_waits_for_no_key_of_a_later_page_while_it_has_others(postgres_url: str, world: World) -> None:
    await world.open("s1", lease_s=600)
    for key in ("a", "b"):
        await world.store.set_limit(key, 1)
    await world.running("s1", concurrency_key="b", queue="own")
    await world.store.insert([world.new(concurrency_key="b", rank=1), world.new(concurrency_key="a", rank=2)])

    with psycopg.connect(postgres_url.partition("?")[0]) as other:
        other.execute(f"SELECT {schema(postgres_url)}.lock_keys(ARRAY['a'])")
        async with asyncio.timeout(60):
            assert await world.claim("s1", 1) == []

    assert [job.concurrency_key for job in await world.claim("s1", 1)] == ["a"]


async def test_a_row_that_somebody_keeps_locked_holds_no_other_result_back(postgres_url: str, stores: Stores) -> None:
    world = await stores.open(f"{postgres_url}&lock_timeout=200ms")
    await world.open("s1", lease_s=600)
    jobs = [await world.running("s1", queue=f"q{n}") for n in range(4)]
    changes = [world.change(job, "succeeded", holder="s1") for job in jobs]

    with psycopg.connect(postgres_url.partition("?")[0]) as other:
        other.execute(f"SELECT FROM {schema(postgres_url)}.jobs WHERE id = '{jobs[1].id}' FOR SHARE")
        with pytest.raises(StoreLocked):
            await world.store.apply(changes)
        assert [(await world.row(job)).status for job in jobs] == ["succeeded", "running", "succeeded", "succeeded"]

    answers = await world.store.apply(changes)
    assert [answer.outcome for answer in answers] == [
        "already_applied",
        "applied",
        "already_applied",
        "already_applied",
    ]


# -- plans -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("queues", [["default"], ["default", "other"]])
async def test_a_burst_after_statistics_of_an_empty_queue_is_not_read_through(
    postgres_url: str, stores: Stores, monkeypatch: pytest.MonkeyPatch, queues: list[str]
) -> None:
    heard = Overheard(monkeypatch)
    world = await stores.open(postgres_url)
    await world.open("s1", lease_s=600)
    place = schema(postgres_url)
    ask(postgres_url, f"ALTER TABLE {place}.jobs SET (autovacuum_enabled = off)")
    await world.store.insert([world.new() for _ in range(2000)])
    jobs = await world.claim("s1", 2000)
    await world.store.apply([world.change(job, "succeeded", holder="s1") for job in jobs])
    ask(postgres_url, f"VACUUM ANALYZE {place}.jobs")
    await world.store.insert([world.new() for _ in range(5000)])

    ran = await heard.during(lambda: world.claim("s1", 10, queues=queues))
    ask(postgres_url, f"ALTER TABLE {place}.jobs RESET (autovacuum_enabled)")

    assert max(each.rows["jobs"] for each in ran) <= 20


async def test_a_limit_that_is_lifted_lets_all_through_however_many(
    postgres_url: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "_MOST_FREED", 3)
    await world.open("s1", lease_s=600)
    await world.store.set_limit("key", 1)
    await world.store.insert([world.new(concurrency_key="key") for _ in range(11)])
    await world.claim("s1", 11)
    await world.store.set_limit("key", None)

    assert ask(postgres_url, f"SELECT count(*) FROM {schema(postgres_url)}.jobs WHERE lane = 3") == [(0,)]
    assert len(await world.claim("s1", 11)) == 10

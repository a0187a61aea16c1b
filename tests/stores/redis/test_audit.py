"""Damage done with plain commands: each is found, named, repaired, and gone when looked at again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mainstay.control.check import check
from mainstay.model import Options, Session
from tests.conformance.world import World
from tests.stores.redis.conftest import Plain

Damage = Callable[[Plain, str], object]

#: what it damages -> how, and what is said of it
INDEXES: dict[str, tuple[Damage, str]] = {
    "a ready row that no queue lists": (lambda p, j: p("ZREM", "ready:default", j), "the index ready:default does not"),
    "a row with another rank": (lambda p, j: p("ZADD", "ready:default", 5, j), "the index ready:default does not list"),
    "a job that no status lists": (lambda p, j: p("ZREM", "status:pending", j), "the index status:pending does not"),
    "a job in two statuses": (lambda p, j: p("ZADD", "status:failed", 0, j), "status:failed lists it, and it does not"),
    "a job in another queue's line": (lambda p, j: p("ZADD", "ready:b", 1, j), "ready:b lists it, and it does not"),
    "a waiting time for a ready row": (
        lambda p, j: p("ZADD", "due:default", 1, j),
        "due:default lists it, and it does",
    ),
    "a holder it never had": (lambda p, j: p("SADD", "held:ghost", j), "held:ghost lists it, and it does not belong"),
    "a deadline it never had": (lambda p, j: p("ZADD", "expires", 1, j), "expires lists it, and it does not belong"),
    "a tag that was lost": (lambda p, j: p("ZREM", "tag:red", j), "the index tag:red does not list it"),
    "a tag it never had": (lambda p, j: p("ZADD", "tag:blue", 0, j), "tag:blue lists it, and it does not belong there"),
    "its place in the list of all": (lambda p, j: p("ZREM", "all", j), "the index all does not list it"),
    "its unique key": (lambda p, j: p("HDEL", "unique", "u1"), "the index unique does not list it"),
    "a unique key it never had": (lambda p, j: p("HSET", "unique", "u2", j), "unique lists it, and it does not belong"),
    "a slot it never took": (lambda p, j: p("SADD", "slots:k", j), "slots:k lists it, and it does not belong there"),
}


async def submitted(world: World) -> str:
    job = await world.submit(unique_key="u1", options=Options(tags=("red",)))
    return job.id


@pytest.mark.parametrize("what", INDEXES)
async def test_an_index_that_does_not_fit_its_row_is_found_and_set_right(world: World, plain: Plain, what: str) -> None:
    damage, told = INDEXES[what]
    job_id = await submitted(world)
    assert await world.store.check() == []
    damage(plain, job_id)

    [found] = await world.store.check()
    assert (found.code, found.job_id, found.repaired) == ("index_damaged", job_id, None)
    assert told in found.message
    [repaired] = await world.store.check(repair=True)
    assert (repaired.code, repaired.job_id) == ("index_damaged", job_id)
    assert repaired.repaired is not None
    await world.assert_sound()
    await world.open("s1")
    assert [job.id for job in await world.claim()] == [job_id]


async def test_units_that_are_listed_in_the_wrong_status_are_counted_right_again(world: World, plain: Plain) -> None:
    parent = await world.submit(queue="parents")
    lost, twice = [(await world.submit(parent=parent.id, unit=name)).id for name in ("a", "b")]
    plain("ZREM", f"units:{parent.id}:pending", lost)
    plain("ZADD", f"units:{parent.id}:failed", 0, twice)
    assert await world.store.unit_counts(parent.id) == {"pending": 1, "failed": 1}

    assert {(found.code, found.job_id) for found in await world.store.check(repair=True)} == {
        ("index_damaged", lost),
        ("index_damaged", twice),
    }
    assert await world.store.unit_counts(parent.id) == {"pending": 2}
    await world.assert_sound()


async def test_a_row_that_no_index_lists_is_found_by_its_key(world: World, plain: Plain) -> None:
    job_id = await submitted(world)
    for key in ("all", "status:pending", "ready:default", "tag:red"):
        plain("ZREM", key, job_id)
    await world.store.check(repair=True)
    await world.assert_sound()
    assert [found.job.id for found in await world.store.audit()] == [job_id]
    await world.open("s1")
    assert [job.id for job in await world.claim()] == [job_id]


async def test_a_held_row_keeps_its_holder_when_the_lists_are_lost(world: World, plain: Plain) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 1)
    job = await world.running(concurrency_key="k")
    plain("DEL", "held:s1")
    plain("DEL", "holders")
    plain("DEL", "slots:k")
    assert {found.code for found in await world.store.check()} == {"index_damaged"}
    await world.store.check(repair=True)
    await world.assert_sound()
    world.clock.advance(60)
    assert [late.job.id for late in await world.store.overdue()] == [job.id]


async def test_entries_of_a_job_whose_row_is_gone_are_removed_and_its_events_kept(world: World, plain: Plain) -> None:
    job_id = await submitted(world)
    plain("DEL", f"r:{job_id}")
    codes = {found.code for found in await world.store.check()}
    assert codes == {"stray_events", "index_damaged", "tally_wrong"}
    assert all(found.repaired for found in await world.store.check(repair=True))
    assert await world.store.check() == []
    [submit, stone] = await world.store.events(job_id)
    assert (submit.to, stone.flag, stone.actor) == ("pending", "tombstone", "check")
    assert await world.store.get([job_id]) == [None]
    await world.open("s1")
    assert await world.claim() == []


async def test_events_without_anything_else_are_closed_with_a_tombstone(world: World, plain: Plain) -> None:
    job_id = await submitted(world)
    await world.store.delete([job_id], actor="ann", reason="tidy")
    plain("ZREM", "gone", job_id)
    plain("RPOP", f"e:{job_id}")
    other = await world.submit()
    [raw] = plain("LRANGE", f"e:{other.id}", 0, 0)  # type: ignore[misc]
    plain("RPUSH", f"e:{job_id}", raw)
    [found] = await world.store.check(repair=True)
    assert (found.code, found.job_id) == ("stray_events", job_id)
    assert await world.store.check() == []


async def test_what_is_left_of_a_job_without_row_and_events_is_removed(world: World, plain: Plain) -> None:
    job_id = await submitted(world)
    plain("DEL", f"r:{job_id}")
    plain("DEL", f"e:{job_id}")
    before = await world.store.check(repair=True)
    assert any(found.code == "index_damaged" and "neither a row nor an event" in found.message for found in before)
    assert await world.store.check() == []
    assert not [key for key in plain.names() if job_id in key]


@pytest.mark.parametrize(("field", "n"), [("default\0pending", 5), ("default\0failed", 1), ("default\0pending", -1)])
async def test_counts_that_disagree_with_the_rows_are_counted_anew(
    world: World, plain: Plain, field: str, n: int
) -> None:
    await submitted(world)
    plain("HINCRBY", "tallies", field, n)
    [found] = await world.store.check(repair=True)
    assert (found.code, found.repaired) == ("tally_wrong", "recounted")
    await world.assert_sound()
    assert (await world.store.stats()).queues["default"].counts == {"pending": 1}


async def test_a_stranded_concurrency_key_is_let_through(world: World, plain: Plain) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 1)
    await world.running(concurrency_key="k")
    waiting = await world.submit(concurrency_key="k")
    assert await world.claim() == []
    plain("HSET", "limits", "k", 2)

    [found] = await world.store.check(repair=True)

    assert found.code == "key_stranded"
    assert [job.id for job in await world.claim()] == [waiting.id]


async def test_an_idempotency_key_that_would_stay_for_ever_is_found(world: World, plain: Plain) -> None:
    await world.submit(key="once")
    plain("ZREM", "keysuntil", "demo.task\0once")
    plain("ZADD", "keysuntil", 5, "demo.task\0nobody")
    plain("HSET", "keys", "demo.task\0odd", "nonsense")
    found = await world.store.check(repair=True)
    assert [each.code for each in found] == ["stray_key"] * 3
    assert await world.store.check() == []
    again = world.new(key="once")
    [made] = await world.store.insert([again])
    assert not made.created


async def test_two_holders_of_one_unique_key_are_named_and_left_to_a_person(world: World, plain: Plain) -> None:
    first = await submitted(world)
    plain("HDEL", "unique", "u1")
    second = await submitted(world)
    [found] = await world.store.check(repair=True)
    assert (found.code, found.job_id, found.repaired) == ("duplicate_unique", first, None)
    assert second in found.message


@pytest.mark.parametrize("part", ["r", "f"])
@pytest.mark.parametrize("junk", [b"", b"\xff\xff", b"\x92\x90\x90"])
async def test_a_row_that_cannot_be_read_is_set_aside_and_mended(
    world: World, plain: Plain, part: str, junk: bytes
) -> None:
    await world.open("s1")
    bad = await submitted(world)
    good = await world.submit()
    plain("SET", f"{part}:{bad}", junk)

    assert [job.id for job in await world.claim(n=2)] == [good.id]
    report = await check(world.store)
    assert bad in {found.job_id for found in report.violations}
    mended = await check(world.store, repair=True)

    assert mended.clean
    assert (await check(world.store)).clean
    assert (await world.row(bad)).status == "quarantined"


async def test_a_damaged_event_is_found_and_the_history_anchored_anew(world: World, plain: Plain) -> None:
    job_id = await submitted(world)
    await world.move(await world.row(job_id), "cancelled")
    plain("LSET", f"e:{job_id}", 0, b"\xc1")
    assert {found.code for found in (await check(world.store)).violations} >= {"broken_chain"}
    assert (await check(world.store, repair=True)).clean
    assert (await check(world.store)).clean


async def test_an_open_claim_is_part_of_the_trail_though_it_is_not_written(world: World, plain: Plain) -> None:
    await world.store.open_session(Session(id="s1", lease_s=1e6))
    job = await world.running()
    assert plain("LLEN", f"e:{job.id}") == 1
    assert await world.story(job) == ["pending", "running"]
    [audited] = await world.store.audit()
    assert world.store.chain.first_break(audited.job, audited.events) is None
    await world.move(job, "succeeded", holder="s1")
    assert plain("LLEN", f"e:{job.id}") == 3


async def test_beside_workers_that_write_the_check_finds_nothing(world: World) -> None:
    await world.open("s1")

    async def work() -> None:
        for _ in range(60):
            await world.store.insert([world.new() for _ in range(5)])
            jobs = await world.claim(n=5)
            await world.store.apply([world.change(job, "succeeded", holder="s1") for job in jobs])

    working = asyncio.create_task(work())
    found = []
    while not working.done():
        found += await world.store.check()
    await working
    assert found == []


async def test_a_check_does_not_ask_once_for_each_job(world: World, plain: Plain) -> None:
    await world.store.insert([world.new(key=f"k{n}", unique_key=f"u{n}") for n in range(300)])
    asked = "cmdstat_evalsha", "cmdstat_zscan", "cmdstat_sscan"

    def calls() -> int:
        told = plain.client.info("commandstats")
        return sum(told.get(name, {}).get("calls", 0) for name in asked)

    before = calls()
    assert await world.store.check() == []

    assert calls() - before < 100


async def test_an_entry_too_many_is_found_in_small_and_in_big_lists(world: World, plain: Plain) -> None:
    [made] = await world.store.insert([world.new()])
    plain("ZADD", "key:nothing", 0, made.id)
    plain("ZADD", "tag:big", *[word for n in range(300) for word in (0, f"{made.id[:-4]}{n:04}")])

    found = await world.store.check()

    assert len([each for each in found if each.code == "index_damaged"]) == 301
    await world.store.check(repair=True)
    assert await world.store.check() == []


async def test_a_refusal_of_a_job_that_does_not_exist_is_found_and_removed(world: World, plain: Plain) -> None:
    plain("HSET", "refusals:018bcfe5-6800-7000-8000-ffffffffffff", "1", "x")

    [found] = await world.store.check()
    assert (found.code, found.job_id) == ("stray_refusal", "018bcfe5-6800-7000-8000-ffffffffffff")
    await world.store.check(repair=True)
    assert await world.store.check() == []

"""Placed work when the server crashes, and when sessions end in the middle of an assignment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg
import pytest

from mainstay.errors import StoreUnavailable
from mainstay.lifecycle import Move
from mainstay.model import PLACE_QUEUE, Offer, Session
from servers import Postgres, folder
from tests.conformance.test_placed_work import assignment, outcomes, placed
from tests.conformance.world import World
from tests.stores.postgres.stands import Stores, ask, until

_WAITS = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"


# -- the server crashes ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """One that may be killed. It syncs every commit that asks for it; the others reach the disk much later."""
    with folder("mainstay-placement-") as place:
        server = Postgres(place, wal_writer_delay="10s", autovacuum="off")
        yield server
        server.stop()


@pytest.fixture
def url(server: Postgres, request: pytest.FixtureRequest) -> str:
    return f"{server.url()}?schema=r{abs(hash(request.node.name)):x}&auto_migrate=on&retries=0"


def restart(server: Postgres) -> None:
    server.kill()
    server.start()


async def reconnected(world: World) -> None:
    """Wait until the store has noticed that the server is back."""

    async def answers() -> bool:
        try:
            await world.store.sessions()
        except StoreUnavailable:
            return False
        return True

    await until(answers)


async def stored(world: World) -> dict[str, Any]:
    """All that the store holds, except its time."""
    found = await world.dump()
    return {**found, "stats": msgspec.structs.replace(found["stats"], at_ms=0)}


@pytest.mark.slow
async def test_a_server_killed_between_the_changes_and_their_new_jobs_has_written_none_of_them(
    server: Postgres, url: str, stores: Stores
) -> None:
    world = await stores.open(url)
    await world.open("n0", lease_s=3600)
    units = await placed(world, 3)
    before = await stored(world)
    new = world.new(unique_key="u", kind="node", queue=PLACE_QUEUE)
    changes = [
        *(assignment(world, unit, "n0") for unit in units[:2]),
        world.change(units[2], "cancelled", spawn=(new,)),
    ]
    schema = url.partition("schema=")[2].partition("&")[0]
    blocking = psycopg.connect(server.url())
    # the key of the new job, not committed yet: its insert waits, after the changes were written
    blocking.execute(f"SELECT {schema}.submit('other', unique_key => 'u')")
    blocking.execute(f"UPDATE {schema}.jobs SET unique_key = 'u' WHERE name = 'other'")
    writing = asyncio.create_task(world.store.apply(changes, together=True))

    async def waits() -> bool:
        return bool(ask(url, _WAITS, "%insert_jobs%"))

    await until(waits)
    restart(server)
    blocking.close()
    with pytest.raises(StoreUnavailable):
        await writing

    await reconnected(world)
    assert await stored(world) == before
    assert outcomes(await world.store.apply(changes, together=True)) == ["applied"] * 3


@pytest.mark.slow
async def test_an_assignment_that_was_answered_outlives_a_crash(server: Postgres, url: str, stores: Stores) -> None:
    world = await stores.open(url)
    await world.open("n0", lease_s=3600)
    lead = await world.store.lead("placement", "n0", 3600)
    units = await placed(world, 2)
    changes = [assignment(world, unit, "n0") for unit in units]
    results = await world.store.apply(changes, lead=lead, together=True)
    restart(server)
    await reconnected(world)

    assert [await world.row(unit) for unit in units] == [result.job for result in results]
    assert (await world.store.beat(["n0"]))[0].assigned == tuple(sorted(unit.id for unit in units))
    # the epoch in which it was written is on the disk, too
    assert (await world.store.lead("placement", "n0", 3600)).epoch == lead.epoch
    assert outcomes(await world.store.apply(changes, lead=lead, together=True)) == ["already_applied"] * 2


@pytest.mark.slow
async def test_a_crash_forgets_a_marked_claim_with_its_mark(server: Postgres, url: str, stores: Stores) -> None:
    world = await stores.open(url)
    await world.open("s1", lease_s=3600)
    for _ in range(3):
        await world.submit()
    first = await world.store.claim(["default"], "s1", 2, mark="a")
    restart(server)
    await reconnected(world)
    assert [(await world.row(job)).status for job in first] == ["pending"] * 2, "the server lost it"

    again = await world.store.claim(["default"], "s1", 2, mark="a")

    assert [(job.id, job.token) for job in again] == [(job.id, 1) for job in first]
    assert await world.store.claim(["default"], "s1", 2, mark="a") == again
    # the work of the claim that was lost does not count, and that of the other does
    assert [(await world.store.apply([world.completion(job)]))[0].outcome for job in first] == ["stale"] * 2
    assert outcomes(await world.store.apply([world.completion(job) for job in again])) == ["applied"] * 2
    await world.assert_sound()


@pytest.mark.slow
async def test_a_marked_claim_on_the_disk_has_its_mark_there(server: Postgres, url: str, stores: Stores) -> None:
    world = await stores.open(url)
    await world.open("s1", lease_s=3600)
    for _ in range(3):
        await world.submit()
    first = await world.store.claim(["default"], "s1", 2, mark="a")
    await world.submit()  # a commit that is forced to the disk takes the claim along
    restart(server)
    await reconnected(world)

    assert await world.store.claim(["default"], "s1", 2, mark="a") == first


# -- sessions end --------------------------------------------------------------------------------------


@pytest.fixture
def schema(postgres_url: str) -> str:
    return postgres_url.partition("schema=")[2].partition("&")[0]


async def test_an_assignment_waits_for_an_end_of_its_session_that_is_on_its_way(
    world: World, postgres_url: str, schema: str
) -> None:
    await world.open("n0", lease_s=3600)
    [unit] = await placed(world)
    with psycopg.connect(postgres_url.partition("?")[0]) as closing:
        closing.execute(f"SELECT {schema}.close_session('n0')")
        writing = asyncio.create_task(world.store.apply([assignment(world, unit, "n0")]))

        async def waits() -> bool:
            return bool(ask(postgres_url, _WAITS, f'%"{schema}".apply_plain%'))

        await until(waits)
        closing.commit()

    assert outcomes(await writing) == ["no_session"]
    assert await world.row(unit) == unit


async def test_a_session_does_not_end_while_it_is_given_a_row_and_its_beats_do_not_wait(
    world: World, postgres_url: str, schema: str
) -> None:
    await world.open("n0", lease_s=1)
    silent = f"UPDATE {schema}.sessions SET beat_ms = beat_ms - 3600000"
    older = f"UPDATE {schema}.incarnations SET since_ms = since_ms - 3600000"
    with psycopg.connect(postgres_url.partition("?")[0]) as assigning:
        # as `apply` begins; it may wait for a standby
        assert assigning.execute(f"SELECT {schema}.not_open('{{n0,n1}}')").fetchone() == (["n1"],)
        ask(postgres_url, silent)
        ask(postgres_url, older)
        await world.store.overdue()
        assert [session.dead for session in await world.store.sessions()] == [False]
        assert (await world.store.beat(["n0"]))[0].known
        closing = asyncio.create_task(world.store.close_session("n0"))

        async def waits() -> bool:
            return bool(ask(postgres_url, _WAITS, f'%"{schema}".close_session%'))

        await until(waits)
    await closing
    assert await world.store.sessions() == []


async def test_a_silent_session_ends_once_it_is_not_given_a_row(world: World, postgres_url: str, schema: str) -> None:
    await world.open("n0", lease_s=1)
    held = await world.running("n0")
    ask(postgres_url, f"UPDATE {schema}.sessions SET beat_ms = beat_ms - 3600000")
    ask(postgres_url, f"UPDATE {schema}.incarnations SET since_ms = since_ms - 3600000")
    with psycopg.connect(postgres_url.partition("?")[0]) as assigning:
        assigning.execute(f"SELECT {schema}.not_open('{{n0}}')")
        assert await world.store.overdue() == []

    assert [(each.job.id, each.cause) for each in await world.store.overdue()] == [(held.id, "session")]


async def test_a_standing_session_can_be_opened_again_before_its_rows_are_taken_back(world: World) -> None:
    standing = Session(id="east", standing=True, node="east")
    await world.store.open_session(standing)
    [unit] = await placed(world)
    await world.store.apply([assignment(world, unit, "east")])
    await world.store.close_session("east")

    await world.store.open_session(standing)

    assert [(pulse.known, pulse.assigned) for pulse in await world.store.beat(["east"])] == [(True, (unit.id,))]
    assert await world.store.overdue() == []


# -- marks and inserts ---------------------------------------------------------------------------------


async def test_a_claim_without_a_mark_stores_none_and_marks_go_with_their_session(
    world: World, postgres_url: str, schema: str
) -> None:
    marks = f"SELECT session, mark FROM {schema}.marks ORDER BY n"
    await world.open("s1", "s2")
    for _ in range(6):
        await world.submit()
    await world.claim("s1")
    assert ask(postgres_url, marks) == []
    for at in range(5):
        await world.store.claim(["default"], "s1", 1, mark=f"m{at}")
    await world.store.claim(["default"], "s2", 1, mark="m")
    assert ask(postgres_url, marks) == [*(("s1", f"m{at}") for at in range(1, 5)), ("s2", "m")]

    await world.store.close_session("s2")

    assert ask(postgres_url, marks) == [("s1", f"m{at}") for at in range(1, 5)]


async def test_a_marked_claim_goes_on_past_rows_whose_task_its_session_does_not_have(
    world: World, postgres_url: str
) -> None:
    offer = Offer(queues=("default",), tasks={"known": {}})
    await world.store.open_session(Session(id="s1", lease_s=3600, offer=offer))
    await world.submit(name="unknown")
    known = await world.submit(name="known")

    claimed = await world.store.claim(["default"], "s1", 1, mark="a")

    assert [job.id for job in claimed] == [known.id]
    assert await world.store.claim(["default"], "s1", 1, mark="a") == claimed


async def test_a_job_sent_again_is_known_though_another_has_its_keys_by_now(world: World) -> None:
    await world.open("s1", lease_s=3600)
    first = world.new(name="t", unique_key="u")
    await world.store.insert([first])
    [claimed] = await world.claim()
    await world.store.apply([world.completion(claimed)])
    second = world.new(name="t", unique_key="u")
    await world.store.insert([second])
    fresh = world.new()

    results = await world.store.insert([first, fresh])

    assert [(result.id, result.created) for result in results] == [(first.job.id, True), (fresh.job.id, True)]
    assert await world.story(fresh.job.id) == ["pending"]


@pytest.mark.parametrize("move", [Move(to="cancelled"), Move(to="pending", flag="note", reason="seen")])
async def test_a_job_gets_its_unique_key_back_only_if_no_other_has_it_whatever_is_written_with_it(
    world: World, move: Move
) -> None:
    failed = await world.submit(unique_key="u")
    await world.move(failed, "failed")
    holder = await world.submit(unique_key="u")
    changes = [world.change(holder, move), world.change(await world.row(failed), "pending")]

    assert outcomes(await world.store.apply(changes, together=True)) == ["withheld", "conflict"]
    assert outcomes(await world.store.apply(changes[::-1], together=True)) == ["conflict", "withheld"]
    assert await world.row(holder) == holder

    await world.move(holder, "cancelled")
    assert outcomes(await world.store.apply(changes[1:], together=True)) == ["applied"]


async def test_a_change_may_insert_a_job_that_was_inserted_before(world: World) -> None:
    job, new = await world.submit(), world.new()
    await world.store.insert([new])

    answer = await world.move(job, Move(to="cancelled"), spawn=(new,))

    assert answer.outcome == "applied"
    assert await world.story(new.job.id) == ["pending"]


async def test_a_change_that_inserts_a_job_with_the_id_of_another_is_refused_and_counts_nothing(world: World) -> None:
    job, other = await world.submit(), await world.submit()
    before = (await world.store.stats()).queues

    answer = await world.move(job, Move(to="cancelled"), spawn=(world.new(), world.new(id=other.id, name="another")))

    assert answer.outcome == "conflict"
    assert (await world.store.stats()).queues == before
    assert await world.row(job) == job

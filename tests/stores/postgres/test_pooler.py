"""Poll-only mode, behind a PgBouncer that gives every transaction another connection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from mainstay.errors import StoreError
from mainstay.model import Session
from mainstay.stores.postgres.schema.migration import status
from servers import PgBouncer, Postgres, ServerMissing, folder
from tests.stores.postgres.stands import Stores, ask

SESSIONS = 5


@pytest.fixture(scope="module")
def pooler() -> Iterator[tuple[Postgres, PgBouncer]]:
    with folder("mainstay-pooler-") as place:
        server = Postgres(place, fsync="off")
        try:
            bouncer = PgBouncer(place, server, pool_size=2)
        except ServerMissing as error:
            server.stop()
            pytest.skip(str(error))
        yield server, bouncer
        bouncer.stop()
        server.stop()


@pytest.fixture
def url(pooler: tuple[Postgres, PgBouncer], request: pytest.FixtureRequest) -> str:
    return f"{pooler[1].url()}?schema=p{abs(hash(request.node.name)):x}&auto_migrate=on&listen=off"


async def test_jobs_are_submitted_claimed_and_settled_by_many_at_once(url: str, stores: Stores) -> None:
    worlds = [await stores.open(url) for _ in range(3)]
    new = [worlds[0].new() for _ in range(60)]
    await worlds[0].store.insert(new)
    left = len(new)

    async def work(n: int) -> None:
        nonlocal left
        world, session = worlds[n % 3], f"s{n}"
        await world.store.open_session(Session(id=session, pid=os.getpid()))
        while left:
            claimed = await world.store.claim(["default"], session, 4)
            answers = await world.store.apply([world.change(job, "succeeded", holder=session) for job in claimed])
            assert {answer.outcome for answer in answers} <= {"applied"}
            left -= len(answers)
            assert (await world.store.beat([session]))[0].known

    async with asyncio.TaskGroup() as everybody:
        for n in range(SESSIONS):
            everybody.create_task(work(n))

    stories = [await worlds[1].story(each.job.id) for each in new]
    assert stories == [["pending", "running", "succeeded"]] * len(new)
    await worlds[2].assert_sound()


async def test_nothing_is_left_on_the_poolers_connections(
    url: str, stores: Stores, pooler: tuple[Postgres, PgBouncer]
) -> None:
    world = await stores.open(url)
    await world.store.open_session(Session(id="s1", pid=os.getpid()))
    await world.running()

    locks = ask(pooler[0].url(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
    [(statements,)] = ask(pooler[1].url(), "SELECT count(*) FROM pg_prepared_statements")
    [(isolation, jit)] = ask(
        pooler[1].url(), "SELECT current_setting('lock_timeout'), current_setting('synchronous_commit')"
    )

    assert locks == [(0,)]
    assert statements == 0
    assert (isolation, jit) == ("0", "on")


async def test_those_who_wait_elsewhere_find_out_by_looking_and_those_here_are_told(url: str, stores: Stores) -> None:
    world, other = await stores.open(url), await stores.open(url)
    async with world.store.wake(["queue:default"]) as here, other.store.wake(["queue:default"]) as there:
        waiting = asyncio.create_task(here.wait(10))
        elsewhere = asyncio.create_task(there.wait(0.3))
        await asyncio.sleep(0)

        await world.submit()

        assert await waiting is True
        assert await elsewhere is False


async def test_a_session_behind_a_pooler_is_judged_by_its_lease(url: str, stores: Stores) -> None:
    world, other = await stores.open(url), await stores.open(url)
    await world.store.open_session(Session(id="s1", pid=os.getpid(), lease_s=3600))
    job = await world.running()
    await world.store.close()
    end = asyncio.get_running_loop().time() + 2.5
    while asyncio.get_running_loop().time() < end:
        assert await other.store.overdue() == []

    await other.store.close_session("s1")

    assert [late.job.id for late in await other.store.overdue()] == [job.id]


async def test_whoever_listens_through_a_pooler_is_warned(
    url: str, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    refused = ""
    try:
        world = await stores.open(url.replace("&listen=off", ""))
        async with world.store.wake(["queue:default"]):
            await world.submit()
    except StoreError as error:  # what was prepared on another connection is missed at once, or later
        refused = str(error)

    assert "a pooler" in (caplog.text + refused).lower()
    assert "listen=off" in caplog.text + refused


async def test_its_status_can_be_read_through_the_pooler(url: str, stores: Stores) -> None:
    world = await stores.open(url)
    await world.submit()

    found = await status(url)

    assert (found.version, found.current, found.jobs) == (found.known, True, 1)
    assert urlsplit(url).netloc in found.url

"""The server goes down and comes back: calls that wait are answered then, and nobody is declared dead for it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from mainstay.errors import StoreUnavailable
from mainstay.model import Session
from servers import Postgres, folder
from tests.stores.postgres.stands import Stores, ask

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """One that may be stopped and killed; every commit is synced."""
    with folder("mainstay-restart-") as place:
        server = Postgres(place)
        yield server
        server.stop()


@pytest.fixture
def url(server: Postgres, request: pytest.FixtureRequest) -> str:
    return f"{server.url()}?schema=r{abs(hash(request.node.name)):x}&auto_migrate=on&retries=100"


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_calls_that_wait_are_answered_once_the_server_is_back(
    server: Postgres, url: str, stores: Stores, how: str
) -> None:
    world = await stores.open(url)
    await world.store.open_session(Session(id="s1", pid=os.getpid(), lease_s=8))
    held = await world.running()
    await world.submit(queue="other")  # a commit that is forced to the disk takes the claim along
    async with world.store.wake(["queue:default"]) as wake:
        waiting = asyncio.create_task(wake.wait(30))
        getattr(server, how)()
        new = world.new()
        calls: list[asyncio.Task[Any]] = [
            asyncio.create_task(world.store.insert([new])),
            asyncio.create_task(world.store.get([held.id])),
            asyncio.create_task(world.move(held, "succeeded", holder="s1")),
        ]
        done, _ = await asyncio.wait(calls, timeout=1.5)
        assert not done

        server.start()
        # silence is counted from when somebody listens again, and its lease was over long before
        schema = url.partition("schema=")[2].partition("&")[0]
        ask(url, f"UPDATE {schema}.sessions SET beat_ms = beat_ms - 60000")
        assert await world.store.overdue() == []

        [inserted], [found], answer = await asyncio.gather(*calls)
        assert inserted.created
        assert found is not None
        assert answer.outcome in ("applied", "already_applied")
        assert await waiting is True
    assert (await world.store.beat(["s1"]))[0].known
    assert [job.id for job in await world.claim()] == [new.job.id]
    assert await world.story(held) == ["pending", "running", "succeeded"]
    await world.assert_sound()


def stop(server: Postgres) -> None:
    server.stop()
    server.start()


def kill(server: Postgres) -> None:
    server.kill()
    server.start()


def crash(server: Postgres) -> None:
    """One of its processes is killed: it ends all others and starts them anew, and itself goes on."""
    connection, witness = psycopg.connect(server.url()), psycopg.connect(server.url())
    os.kill(connection.info.backend_pid, signal.SIGKILL)
    with pytest.raises(psycopg.OperationalError):
        witness.execute("SELECT pg_sleep(30)")
    connection.close()
    witness.close()
    while not server.answers():
        time.sleep(0.01)


@pytest.mark.parametrize("how", [stop, kill, crash])
async def test_a_lock_lost_with_the_server_is_no_proof_of_death(
    server: Postgres, url: str, stores: Stores, how: Callable[[Postgres], None]
) -> None:
    world, other = await stores.open(url), await stores.open(url)
    await world.store.open_session(Session(id="s1", pid=os.getpid(), lease_s=3600))
    job = await world.running()
    await world.submit()  # a commit that is forced to the disk takes the claim along
    # as if its process could not come back: nobody takes the lock again
    line = world.store._line  # type: ignore[attr-defined]
    await world.store._home.run(line.close)  # type: ignore[attr-defined]
    how(server)

    end = asyncio.get_running_loop().time() + 3
    while asyncio.get_running_loop().time() < end:
        assert await other.store.overdue() == []

    assert (await world.move(job, "succeeded", holder="s1")).outcome == "applied"


async def test_a_server_that_stays_away_is_named_with_what_to_do(server: Postgres, url: str, stores: Stores) -> None:
    world = await stores.open(url.replace("retries=100", "retries=2").replace("//owner@", "//owner:secret@"))
    server.stop()
    try:
        with pytest.raises(StoreUnavailable) as refused:
            await world.submit()
        with pytest.raises(StoreUnavailable):
            await stores.open(url.replace("retries=100", "retries=1"))
    finally:
        server.start()

    said = str(refused.value)
    assert "does not answer after 3 tries" in said
    assert "Check that the server runs" in said
    assert "secret" not in said
    await world.submit()

"""A killed process is known to be dead at once; one that only lost its connection is not."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from mainstay.errors import Conflict
from mainstay.model import Session
from mainstay.stores.postgres.connection import liveness, permanent
from servers import Proxy
from tests.conformance.world import World
from tests.stores.postgres.stands import Stores, ask, postgres, until
from tests.stores.sqlite.process import Child

PROGRAM = Path(__file__).with_name("program.py")
HOUR_S = 3600

Start = Callable[..., Child]


@pytest.fixture
def start() -> Iterator[Start]:
    children: list[Child] = []

    def start(*arguments: object) -> Child:
        children.append(Child(PROGRAM, *arguments))
        return children[-1]

    yield start
    for child in children:
        child.end()


async def test_a_killed_process_is_declared_dead_within_seconds_though_its_lease_is_an_hour(
    world: World, postgres_url: str, start: Start
) -> None:
    job = await world.submit()
    child = start("hold", postgres_url, "s1")
    assert child.line() == "ready"
    assert await world.store.overdue() == []
    child.kill()

    async def is_overdue() -> bool:
        return [late.job.id for late in await world.store.overdue()] == [job.id]

    took_s = await until(is_overdue)

    assert 1 <= took_s < 60
    assert (await world.store.beat(["s1"]))[0].known is False
    await world.reap()


async def test_the_lead_of_a_killed_process_passes_on_within_seconds(
    world: World, postgres_url: str, start: Start
) -> None:
    child = start("hold", postgres_url, "s1")
    assert child.line() == "ready"
    assert (await world.store.lead("leader", "s2", HOUR_S)).holder == "s1"
    child.kill()

    async def is_ours() -> bool:
        return (await world.store.lead("leader", "s2", HOUR_S)).holder == "s2"

    assert 1 <= await until(is_ours) < 60


async def test_a_process_whose_connections_were_cut_comes_back_and_is_not_declared_dead(
    world: World, proxy: Proxy, start: Start
) -> None:
    await world.submit()
    child = start("hold", proxy.url, "s1")
    assert child.line() == "ready"

    for _ in range(3):
        proxy.cut()
        assert await world.store.overdue() == []  # the first look notes that the lock is free, if it is
        await until(lambda: has_lock(world, "s1"))
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        assert await world.store.overdue() == []

    assert child.ask("alive?") == "alive? True"


async def test_a_process_that_beats_is_not_dead_though_its_lock_is_gone(
    world: World, proxy: Proxy, postgres_url: str, start: Start
) -> None:
    await world.submit()
    child = start("hold", postgres_url, "s1")
    assert child.line() == "ready"
    schema = postgres(world)._address.schema
    ask(postgres_url, f"UPDATE {schema}.sessions SET lost_ms = beat_ms")

    assert child.ask("alive?") == "alive? True"

    assert ask(postgres_url, f"SELECT lost_ms, locked FROM {schema}.sessions") == [(None, False)]


async def test_a_session_whose_supervisor_is_there_is_not_dead_though_its_own_lock_is_gone(
    world: World, postgres_url: str, stores: Stores, start: Start
) -> None:
    """Its supervisor would see at once that it is dead; so its connection was cut."""
    job = await world.submit()
    supervisor = await stores.open(postgres_url)
    child = start("hold", postgres_url, "s1")
    assert child.line() == "ready"
    assert (await supervisor.store.beat(["s1"]))[0].known
    await until(lambda: has_witness(world, "s1"))
    child.kill()
    await until(lambda: is_free(world, "s1"))
    schema = postgres(world)._address.schema

    for _ in range(3):
        assert await world.store.overdue() == []
        assert ask(postgres_url, f"SELECT lost_ms, dead FROM {schema}.sessions") == [(None, False)]

    await supervisor.store.close()
    await until(lambda: is_overdue(world, job.id))
    await world.reap()


async def test_a_witness_is_there_for_the_sessions_that_are_beaten_for_and_again_after_a_cut(
    world: World, proxy: Proxy, stores: Stores
) -> None:
    supervisor = await stores.open(proxy.url)
    await world.open("s1", "s2")
    await supervisor.store.beat(["s1", "s2"])
    await until(lambda: has_witness(world, "s1"))
    await until(lambda: has_witness(world, "s2"))

    await supervisor.store.beat(["s2"])
    await until(lambda: has_no_witness(world, "s1"))
    proxy.cut()
    await until(lambda: has_witness(world, "s2"))
    # a sweeper's beat has no sessions, and releases no witness. The one that was seen may be that of the cut connection
    await supervisor.store.beat([])
    await until(lambda: has_witness(world, "s2"))


@pytest.mark.parametrize(("alike", "dead"), [(True, True), (False, False)])
async def test_sessions_of_several_workers_that_lose_their_locks_at_once_get_more_time(
    world: World, postgres_url: str, alike: bool, dead: bool
) -> None:
    """It may be what is between them and the server. A worker loses those of all its engines, too."""
    schema = postgres(world)._address.schema
    for n in (1, 2):
        worker = "a" if alike else f"w{n}"
        await world.store.open_session(Session(id=f"s{n}", worker=worker, host="h", pid=os.getpid(), lease_s=HOUR_S))
    for n in (1, 2):
        await postgres(world)._home.run(lambda n=n: postgres(world)._locks.release(f"s{n}"))  # type: ignore[misc]
    await world.store.overdue()
    assert world.store.look_again_s == 0.2  # type: ignore[attr-defined]
    ask(postgres_url, f"UPDATE {schema}.sessions SET lost_ms = lost_ms - 1000")

    await world.store.overdue()

    assert await known(world) == ([] if dead else ["s1", "s2"])
    ask(postgres_url, f"UPDATE {schema}.sessions SET lost_ms = lost_ms - 1000")
    await world.store.overdue()
    assert await known(world) == []
    assert world.store.look_again_s is None  # type: ignore[attr-defined]


async def test_a_look_that_waited_for_a_server_that_stood_still_judges_nobody(world: World, postgres_url: str) -> None:
    await world.open("s1", lease_s=HOUR_S)
    schema = postgres(world)._address.schema
    ask(postgres_url, f"UPDATE {schema}.sessions SET lease_s = 0, beat_ms = beat_ms - 1000")

    late = f"SELECT {schema}.bury(NULL, {schema}.clock(NULL) - 2000)"
    assert ask(postgres_url, late) == [([],)]
    assert await known(world) == ["s1"]

    await world.store.overdue()
    assert await known(world) == []


async def known(world: World) -> list[str]:
    return sorted(session.id for session in await world.store.sessions() if not session.dead)


async def is_overdue(world: World, job_id: str) -> bool:
    return [late.job.id for late in await world.store.overdue()] == [job_id]


async def is_free(world: World, session: str) -> bool:
    return not await has_lock(world, session)


async def has_witness(world: World, session: str) -> bool:
    schema = postgres(world)._address.schema
    [(free,)] = ask(world.store.url, f"SELECT pg_try_advisory_xact_lock_shared({schema}.witness_of(%s))", session)
    return not free


async def has_no_witness(world: World, session: str) -> bool:
    return not await has_witness(world, session)


async def test_a_lock_of_another_run_of_the_server_proves_nothing(
    world: World, postgres_url: str, start: Start
) -> None:
    """The mark of a run is gone after a crash; here it is taken away by hand."""
    await world.submit()
    child = start("hold", postgres_url, "s1")
    assert child.line() == "ready"
    schema = postgres(world)._address.schema
    child.kill()
    ask(postgres_url, f"TRUNCATE {schema}.incarnations")

    end = time.monotonic() + 3
    while time.monotonic() < end:
        assert await world.store.overdue() == []

    ask(postgres_url, f"UPDATE {schema}.sessions SET lease_s = 0")
    assert len(await world.store.overdue()) == 1, "the lease still decides"
    await world.reap()


async def test_a_session_that_is_open_elsewhere_cannot_be_opened_here(
    world: World, postgres_url: str, stores: Stores
) -> None:
    other = await stores.open(postgres_url)
    await world.store.open_session(Session(id="s1", pid=os.getpid()))

    with pytest.raises(Conflict, match="session s1 is open in another process, which is alive"):
        await other.store.open_session(Session(id="s1", pid=os.getpid()))

    await world.store.close_session("s1")
    await other.store.open_session(Session(id="s1", pid=os.getpid()))


async def test_a_session_opened_for_another_process_is_judged_by_its_lease(world: World) -> None:
    await world.store.open_session(Session(id="s1", pid=os.getpid() + 1, lease_s=HOUR_S))
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        await world.store.overdue()

    assert [session.dead for session in await world.store.sessions()] == [False]


async def has_lock(world: World, session: str) -> bool:
    schema = postgres(world)._address.schema
    [(free,)] = ask(world.store.url, f"SELECT pg_try_advisory_xact_lock_shared({schema}.lock_of(%s))", session)
    return not free


async def test_a_lock_that_cannot_be_had_back_leaves_the_judgement_to_the_lease(
    world: World, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else has it for a while, as what is left of a connection that was cut off may."""
    monkeypatch.setattr(liveness, "_TRIES", 2)
    monkeypatch.setattr(permanent, "_CHECK_S", 0.2)
    await world.store.open_session(Session(id="s1", pid=os.getpid(), lease_s=HOUR_S))
    schema = postgres(world)._address.schema
    lock = f"SELECT pg_advisory_lock({schema}.lock_of('s1'))"
    locked = f"SELECT locked FROM {schema}.sessions WHERE id = 's1'"
    with psycopg.connect(postgres_url.partition("?")[0], autocommit=True) as other:
        taking = asyncio.create_task(asyncio.to_thread(other.execute, lock))

        async def waits_for_it() -> bool:
            return ask(postgres_url, f"SELECT 1 FROM pg_locks WHERE {of('s1', schema)} AND NOT granted") != []

        await until(waits_for_it)
        ask(postgres_url, f"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE {of('s1', schema)} AND granted")
        await taking

        async def is_unlocked() -> bool:
            return ask(postgres_url, locked) == [(False,)]

        await until(is_unlocked)
        assert await world.store.overdue() == []

    async def is_locked() -> bool:
        return ask(postgres_url, locked) == [(True,)]

    await until(is_locked)


def of(session: str, schema: str) -> str:
    """A condition on `pg_locks`."""
    key = f"{schema}.lock_of('{session}')"
    halves = f"classid::bigint = ({key} >> 32) & 4294967295 AND objid::bigint = {key} & 4294967295"
    return f"locktype = 'advisory' AND objsubid = 1 AND {halves}"

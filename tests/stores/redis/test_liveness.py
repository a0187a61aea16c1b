"""A killed process is known to be dead at once; one that only lost its connection is not."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from mainstay.model import Session
from mainstay.stores import JobStore, open_store
from mainstay.stores.redis.store import RedisStore
from servers import Proxy
from tests.conformance.world import World
from tests.stores.postgres.stands import until
from tests.stores.redis.conftest import Plain
from tests.stores.sqlite.process import Child

PROGRAM = Path(__file__).parents[1] / "postgres" / "program.py"
HOUR_S = 3600

Start = Callable[..., Child]
Open = Callable[[str], Awaitable[JobStore]]


@pytest.fixture
def start() -> Iterator[Start]:
    children: list[Child] = []

    def start(*arguments: object) -> Child:
        children.append(Child(PROGRAM, *arguments))
        return children[-1]

    yield start
    for child in children:
        child.end()


@pytest.fixture
async def judge(redis_url: str) -> AsyncIterator[World]:
    """One that looks for the dead, by the server's own clock."""
    store = await open_store(redis_url)
    yield World(store, store.clock)  # type: ignore[arg-type]  # it is only read here
    await store.close()


@pytest.fixture
async def opener() -> AsyncIterator[Open]:
    stores: list[JobStore] = []

    async def one_more(url: str) -> JobStore:
        stores.append(await open_store(url))
        return stores[-1]

    yield one_more
    for store in stores:
        await store.close()


def subscribers(plain: Plain, session: str) -> int:
    [(_, n)] = plain.client.pubsub_numsub(f"{plain.prefix}alive:{session}")
    return int(n)


async def is_linked(plain: Plain, session: str, n: int = 1) -> bool:
    linked = plain("HGET", f"s:{session}", "linked") is not None
    return linked and subscribers(plain, session) == n


async def is_overdue(world: World, job_id: str) -> bool:
    return [late.job.id for late in await world.store.overdue()] == [job_id]


async def known(world: World) -> list[str]:
    return sorted(session.id for session in await world.store.sessions() if not session.dead)


async def linked_session(store: JobStore, plain: Plain, name: str, worker: str = "w") -> None:
    await store.open_session(Session(id=name, worker=worker, host="h", pid=os.getpid(), lease_s=HOUR_S))
    await until(lambda: is_linked(plain, name))


async def test_a_killed_process_is_declared_dead_within_seconds_though_its_lease_is_an_hour(
    judge: World, redis_url: str, plain: Plain, start: Start
) -> None:
    job = await judge.submit()
    child = start("hold", redis_url, "s1")
    assert child.line() == "ready"
    await until(lambda: is_linked(plain, "s1"))
    assert await judge.store.overdue() == []
    child.kill()

    took_s = await until(lambda: is_overdue(judge, job.id))

    assert 1 <= took_s < 60
    assert (await judge.store.beat(["s1"]))[0].known is False
    assert (await judge.store.lead("leader", "s2", HOUR_S)).holder == "s2", "what it led passes on"
    await judge.reap()


async def test_a_process_whose_connections_were_cut_comes_back_and_is_not_declared_dead(
    judge: World, redis_url: str, plain: Plain, start: Start
) -> None:
    await judge.submit()
    with Proxy.before(redis_url) as proxy:
        child = start("hold", proxy.url, "s1")
        assert child.line() == "ready"
        await until(lambda: is_linked(plain, "s1"))
        for _ in range(3):
            proxy.cut()
            assert await judge.store.overdue() == []  # the first look notes that nobody subscribes, if it is so
            await until(lambda: is_linked(plain, "s1"))
            assert await judge.store.overdue() == []
            assert plain("HGET", "s:s1", "lost_ms") is None

        assert child.ask("alive?") == "alive? True"


async def test_a_session_whose_supervisor_is_there_is_not_dead_though_its_own_connection_is_gone(
    judge: World, redis_url: str, plain: Plain, opener: Open, start: Start
) -> None:
    """Its supervisor would see at once that it is dead; so its connection was cut."""
    job = await judge.submit()
    supervisor = await opener(redis_url)
    child = start("hold", redis_url, "s1")
    assert child.line() == "ready"
    await until(lambda: is_linked(plain, "s1"))
    assert (await supervisor.beat(["s1"]))[0].known
    await until(lambda: is_linked(plain, "s1", 2))
    child.kill()
    await until(lambda: is_linked(plain, "s1", 1))

    for _ in range(3):
        assert await judge.store.overdue() == []
        assert plain("HGET", "s:s1", "lost_ms") is None

    await supervisor.close()
    await until(lambda: is_overdue(judge, job.id))
    await judge.reap()


async def test_who_beats_no_more_for_a_session_unsubscribes(judge: World, redis_url: str, plain: Plain) -> None:
    await judge.open("s1", "s2")
    await judge.store.beat(["s1", "s2"])

    async def is_so(first: int, second: int) -> bool:
        return (subscribers(plain, "s1"), subscribers(plain, "s2")) == (first, second)

    await until(lambda: is_so(1, 1))
    await judge.store.beat(["s2"])
    await until(lambda: is_so(0, 1))
    await judge.store.beat([])
    assert await is_so(0, 1), "a beat of a sweeper is for no session"


@pytest.mark.parametrize(("alike", "dead"), [(True, True), (False, False)])
async def test_sessions_of_several_workers_that_lose_their_connections_at_once_get_more_time(
    judge: World, redis_url: str, plain: Plain, opener: Open, alike: bool, dead: bool
) -> None:
    """It may be what is between them and the server. A worker loses those of all its engines, too."""
    other = await opener(redis_url)
    for n in (1, 2):
        await linked_session(other, plain, f"s{n}", "w" if alike else f"w{n}")
    await other.close()
    await until(lambda: is_linked(plain, "s1", 0))
    await until(lambda: is_linked(plain, "s2", 0))
    assert await judge.store.overdue() == []
    assert judge.store.look_again_s == 0.2  # type: ignore[attr-defined]
    for n in (1, 2):
        plain("HINCRBY", f"s:s{n}", "lost_ms", -1000)

    await judge.store.overdue()

    assert await known(judge) == ([] if dead else ["s1", "s2"])
    if not dead:
        for n in (1, 2):
            plain("HINCRBY", f"s:s{n}", "lost_ms", -1000)
        await judge.store.overdue()
    assert await known(judge) == []
    assert judge.store.look_again_s is None  # type: ignore[attr-defined]


async def test_a_session_that_beats_is_not_dead_though_nobody_subscribes_for_it(
    judge: World, redis_url: str, plain: Plain, opener: Open
) -> None:
    other = await opener(redis_url)
    await linked_session(other, plain, "s1")
    await other.close()
    await until(lambda: is_linked(plain, "s1", 0))
    await judge.store.overdue()
    assert plain("HGET", "s:s1", "lost_ms") is not None
    plain("HINCRBY", "s:s1", "lost_ms", -10_000)
    third = await opener(redis_url)

    assert (await third.beat(["s1"]))[0].known

    assert plain("HGET", "s:s1", "lost_ms") is None
    assert plain("HGET", "s:s1", "linked") is None
    await judge.store.overdue()
    assert await known(judge) == ["s1"], "its lease decides now"


async def test_a_subscription_on_another_run_of_the_server_proves_nothing(
    judge: World, redis_url: str, plain: Plain, opener: Open
) -> None:
    other = await opener(redis_url)
    await linked_session(other, plain, "s1")
    await other.close()
    await until(lambda: is_linked(plain, "s1", 0))
    plain("HSET", "s:s1", "linked", "another", "lost_ms", 1)

    await judge.store.overdue()

    assert await known(judge) == ["s1"]
    assert plain("HGET", "s:s1", "lost_ms") is None
    assert judge.store.look_again_s is None  # type: ignore[attr-defined]


async def test_a_look_that_waited_for_a_server_that_stood_still_judges_nobody(judge: World, plain: Plain) -> None:
    await judge.open("s1", lease_s=HOUR_S)
    plain("HSET", "s:s1", "lease_s", 0, "beat_ms", 1)
    store = judge.store
    assert isinstance(store, RedisStore)
    sent_ms = store.clock.now_ms() - 2500

    await store._home.run(lambda: store._base.scripts.run("directory", ["overdue", 100, sent_ms]))
    assert await known(judge) == ["s1"]

    await store.overdue()
    assert await known(judge) == []


async def test_a_session_opened_for_another_process_is_judged_by_its_lease(judge: World, plain: Plain) -> None:
    await judge.store.open_session(Session(id="s1", pid=os.getpid() + 1, lease_s=HOUR_S))
    await judge.store.open_session(Session(id="s2", pid=os.getpid(), lease_s=HOUR_S))
    await until(lambda: is_linked(plain, "s2"))

    assert plain("HGET", "s:s1", "linked") is None
    assert subscribers(plain, "s1") == 0
    await judge.store.overdue()
    assert judge.store.look_again_s is None  # type: ignore[attr-defined]


async def test_who_may_not_subscribe_is_judged_by_the_lease_and_says_so(
    judge: World, redis_url: str, plain: Plain, opener: Open, caplog: pytest.LogCaptureFixture
) -> None:
    parts = urlsplit(redis_url)
    name = plain.prefix.strip("{}:")
    plain.client.acl_setuser(
        name, enabled=True, passwords=["+secret"], categories=["+@all"], keys=["*"], reset=True, channels=[]
    )
    try:
        denied = parts._replace(netloc=f"{name}:secret@{parts.hostname}:{parts.port}").geturl()
        with caplog.at_level(logging.WARNING, logger="mainstay.stores.redis"):
            other = await opener(denied)
            await other.open_session(Session(id="s1", pid=os.getpid(), lease_s=HOUR_S))

            async def is_said() -> bool:
                return "detected when its lease expires" in caplog.text

            await until(is_said)
        assert plain("HGET", "s:s1", "linked") is None
        await other.close()
    finally:
        redis.Redis.acl_deluser(plain.client, name)
    await judge.store.overdue()
    assert await known(judge) == ["s1"]

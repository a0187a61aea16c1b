"""Opening twice, closing twice, and using one store from several event loops."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

from mainstay.errors import InvalidInput, StoreClosed, StoreError
from mainstay.model import Leadership, QueueSettings, Schedule, Session
from mainstay.stores import Query, TrimPolicy, open_store
from mainstay.stores.sqlite import SqliteStore
from tests.conformance.world import World
from tests.stores.sqlite.conftest import Spawn

LEAD = Leadership(name="l", holder="s", epoch=1, until_ms=0)

CALLS: dict[str, Callable[[SqliteStore, World], Coroutine[Any, Any, Any]]] = {
    "insert": lambda store, world: store.insert([world.new()]),
    "get": lambda store, _: store.get(["x"]),
    "find": lambda store, _: store.find(Query()),
    "claim": lambda store, _: store.claim(["default"], "s", 1),
    "apply": lambda store, _: store.apply([]),
    "due": lambda store, _: store.due(["default"]),
    "overdue": lambda store, _: store.overdue(),
    "events": lambda store, _: store.events("x"),
    "refusals": lambda store, _: store.refusals("x"),
    "unit_counts": lambda store, _: store.unit_counts("x"),
    "stats": lambda store, _: store.stats(),
    "trim": lambda store, _: store.trim(TrimPolicy()),
    "delete": lambda store, _: store.delete(["x"], actor="a", reason="r"),
    "open_session": lambda store, _: store.open_session(Session(id="late", pid=os.getpid())),
    "beat": lambda store, _: store.beat(["s"]),
    "close_session": lambda store, _: store.close_session("s"),
    "sessions": lambda store, _: store.sessions(),
    "lead": lambda store, _: store.lead("l", "s", 1.0),
    "resign": lambda store, _: store.resign(LEAD),
    "set_queue": lambda store, _: store.set_queue(QueueSettings(name="q")),
    "queues": lambda store, _: store.queues(),
    "set_limit": lambda store, _: store.set_limit("k", 1),
    "limits": lambda store, _: store.limits(),
    "put_schedule": lambda store, _: store.put_schedule(Schedule(name="s", spec=b"")),
    "pause_schedule": lambda store, _: store.pause_schedule("s", paused=True),
    "schedules": lambda store, _: store.schedules(),
    "drop_schedule": lambda store, _: store.drop_schedule("s"),
    "tick": lambda store, _: store.tick("s", 0, []),
    "audit": lambda store, _: store.audit(),
    "check": lambda store, _: store.check(),
}


def _world(store: SqliteStore) -> World:
    return World(store, store.clock)  # type: ignore[arg-type]


async def test_two_stores_in_one_process_see_the_same_jobs(path: Path) -> None:
    first, second = SqliteStore(path), SqliteStore(path)
    mine, theirs = _world(first), _world(second)
    job = await mine.submit()
    assert await theirs.row(job) == job
    await theirs.open("s1")
    [held] = await theirs.claim()
    assert held.id == job.id
    assert await mine.claim() == []
    await first.close()
    assert (await theirs.move(held, "succeeded", holder="s1")).outcome == "applied"
    await theirs.assert_sound()
    await second.close()


async def test_closing_twice_is_fine(path: Path) -> None:
    store = SqliteStore(path)
    await store.close()
    await store.close()


async def test_closing_twice_at_once_is_fine_and_both_wait_for_the_end(path: Path) -> None:
    store = SqliteStore(path)
    world = _world(store)
    accepted = asyncio.ensure_future(store.insert([world.new()]))
    await asyncio.sleep(0)

    async def close() -> list[str]:
        await store.close()
        return os.listdir("/proc/self/fd")

    first, second = await asyncio.gather(close(), close())
    assert first == second
    assert (await accepted)[0].created


def test_closing_from_two_loops_at_once_is_fine(path: Path) -> None:
    store = SqliteStore(path)
    ready = threading.Barrier(2)
    errors: list[BaseException] = []

    def close() -> None:
        ready.wait()
        try:
            asyncio.run(store.close())
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            errors.append(error)

    threads = [threading.Thread(target=close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


async def test_a_close_whose_caller_is_cancelled_is_finished_all_the_same(path: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    store = SqliteStore(path)
    for caller in [asyncio.create_task(store.close()) for _ in range(2)]:
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
    await store.close()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("in_the_way", ["turn", "sessions", "topics", "sockets"])
def test_a_store_that_cannot_be_opened_leaves_nothing_open(path: Path, in_the_way: str) -> None:
    side = path.with_name("jobs.db-mainstay")
    side.mkdir()
    if in_the_way == "turn":
        (side / in_the_way).mkdir()
    else:
        (side / in_the_way).touch()
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with pytest.raises(StoreError, match=in_the_way):
            SqliteStore(path)
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("fails", [0, 1])
def test_a_store_whose_database_cannot_be_opened_leaves_nothing_open(
    path: Path, fails: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = SqliteStore._connect
    made: list[None] = []

    def unsteady(store: SqliteStore) -> apsw.Connection:
        made.append(None)
        if len(made) > fails:
            raise apsw.CantOpenError("no more files")
        return connect(store)

    monkeypatch.setattr(SqliteStore, "_connect", unsteady)
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(StoreError, match="cannot be opened"):
        SqliteStore(path)
    assert len(made) == fails + 1
    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_a_file_with_a_hash_in_its_name_is_not_taken_for_another(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="write %23"):
        await open_store(f"sqlite:///{tmp_path}/a#b.db")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["a#b.db", "a?b.db", "a%23b.db", "a b.db"])
async def test_a_store_tells_the_url_that_opens_it(tmp_path: Path, name: str) -> None:
    store = SqliteStore(tmp_path / name)
    job = await _world(store).submit()
    await store.close()
    again = await open_store(store.url)
    assert await again.get([job.id]) == [job]
    await again.close()


async def test_closing_finishes_what_was_accepted(path: Path) -> None:
    store = SqliteStore(path)
    world = _world(store)
    accepted = [asyncio.ensure_future(store.insert([world.new()])) for _ in range(50)]
    await asyncio.sleep(0)
    await store.close()
    ids = [made.id for [made] in await asyncio.gather(*accepted)]
    again = SqliteStore(path)
    assert None not in await again.get(ids)
    await again.close()


@pytest.mark.parametrize("name", CALLS)
async def test_a_closed_store_says_so(path: Path, name: str) -> None:
    store = SqliteStore(path)
    await store.close()
    with pytest.raises(StoreClosed, match=f"the store on {path} was closed; open it again"):
        await CALLS[name](store, _world(store))


async def test_a_closed_store_takes_no_subscriptions(path: Path) -> None:
    store = SqliteStore(path)
    await store.close()
    with pytest.raises(StoreClosed):
        store.wake(["queue:default"])
    assert os.listdir(path.with_name("jobs.db-mainstay") / "topics") == []


async def test_a_closed_store_lets_go_of_everything(path: Path) -> None:
    before, threads = sorted(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(3):
        store = SqliteStore(path)
        await store.open_session(Session(id="s1", pid=os.getpid()))
        await store.stats()
        async with store.wake(["queue:default"]):
            await store.insert([_world(store).new()])
        store.wake(["queue:forgotten"])
        await store.close()
        with pytest.raises(StoreClosed):
            await store.open_session(Session(id="s2", pid=os.getpid()))
    # the loop keeps a thread pool of its own, which is not the store's
    await asyncio.get_running_loop().shutdown_default_executor()
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert threading.active_count() <= threads
    side = path.with_name("jobs.db-mainstay")
    assert os.listdir(side / "sockets") == []


def test_one_store_serves_several_event_loops_at_once(path: Path) -> None:
    store = SqliteStore(path)
    made: list[str] = []

    async def use(n: int) -> None:
        world = _world(store)
        world.ids._rng.seed(n)
        for _ in range(20):
            answers = await asyncio.gather(*(store.insert([world.new()]) for _ in range(5)))
            made.extend(answer[0].id for answer in answers)
            assert None not in await store.get(made[-5:])

    threads = [threading.Thread(target=lambda n=n: asyncio.run(use(n))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def look() -> None:
        assert len(set(made)) == 400
        assert (await store.stats()).queues["default"].counts == {"pending": 400}
        await store.close()

    asyncio.run(look())


def test_a_store_outlives_the_loop_it_was_first_used_in(path: Path) -> None:
    store = SqliteStore(path)
    world = _world(store)
    for n in range(1, 4):
        asyncio.run(store.insert([world.new()]))
        stats = asyncio.run(store.stats())
        assert stats.queues["default"].counts == {"pending": n}
    asyncio.run(store.close())


async def test_a_process_that_closes_leaves_the_others_at_work(path: Path, spawn: Spawn) -> None:
    store = SqliteStore(path)
    child = spawn("open_it", path)
    assert child.line() == "open"
    assert child.ask("insert") == "inserted"
    assert child.ask("close") == "closed"
    world = _world(store)
    await world.submit()
    await world.assert_sound()
    assert (await store.stats()).queues["default"].counts == {"pending": 2}
    await store.close()

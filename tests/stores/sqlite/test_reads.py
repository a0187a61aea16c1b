"""Reads: several statements, one moment."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import apsw
import pytest

from mainstay.errors import InvalidInput
from mainstay.stores import Query
from mainstay.stores.sqlite import SqliteStore, audit, queries
from tests.conformance.world import World


def _sqlite(world: World) -> SqliteStore:
    assert isinstance(world.store, SqliteStore)
    return world.store


async def test_a_read_sees_nothing_that_is_committed_while_it_goes_on(world: World, path: Path) -> None:
    store = _sqlite(world)
    other = apsw.Connection(str(path))

    def count_twice(db: apsw.Connection) -> list[int]:
        counts = []
        for key in ("a", "b"):
            counts += [n for (n,) in db.execute("SELECT count(*) FROM limits")]
            other.execute("INSERT INTO limits VALUES (?, 1)", (key,))
        return counts

    assert await store._engine.read(count_twice) == [0, 0]
    assert await store.limits() == {"a": 1, "b": 1}
    other.close()


async def test_a_list_shows_a_job_once_that_moves_while_it_is_made(world: World, path: Path) -> None:
    """The statuses are read one after the other; this one moves between any two statements."""
    store = _sqlite(world)
    await world.open("s1")
    job = await world.submit()
    other = SqliteStore(path, clock=world.clock)
    theirs = World(other, world.clock)
    turns: list[str] = []

    def move(*_: object) -> bool:
        turns.append("moved")
        asyncio.run(_take_or_give_back(theirs))
        return True

    both = threading.Barrier(2)
    await asyncio.gather(*(store._engine.read(lambda _: both.wait(10)) for _ in range(2)))
    for db in store._engine._reader_connections:
        db.set_exec_trace(move)
    for _ in range(6):
        assert [found.id for found in (await store.find(Query())).jobs] == [job.id]
    assert len(turns) > 6
    for db in store._engine._reader_connections:
        db.set_exec_trace(None)
    await other.close()


async def _take_or_give_back(world: World) -> None:
    if not (taken := await world.claim()):
        [held] = (await world.store.find(Query(status=("running",)))).jobs
        await world.move(held, "pending", holder="s1")
    assert len(taken) <= 1


async def test_a_read_that_fails_leaves_its_moment(world: World) -> None:
    store = _sqlite(world)
    for _ in range(4):
        with pytest.raises(InvalidInput):
            await store.find(Query(), limit=0)
    await store.set_limit("k", 1)
    for _ in range(4):
        assert await store.limits() == {"k": 1}


async def test_the_long_check_keeps_no_moment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold the log open, and the log would grow for as long as it takes."""
    store = _sqlite(world)
    held: list[bool] = []
    look = audit.check_file

    def watched(db: apsw.Connection, path: Path, *, quick: bool) -> list[str]:
        held.append(db.in_transaction)
        return look(db, path, quick=quick)

    monkeypatch.setattr(audit, "check_file", watched)
    assert await store.check() == []
    assert held == [False]


@pytest.mark.parametrize("oldest_first", [False, True])
async def test_what_is_spread_over_too_many_stretches_is_looked_for_row_by_row(
    world: World, monkeypatch: pytest.MonkeyPatch, oldest_first: bool
) -> None:
    await world.open("s1")
    for n in range(40):
        await world.submit(queue="mail", name=f"name-{n % 20}")
        await world.submit(queue="other")
    await world.claim(n=5, queues=["mail"])
    query = Query(queue="mail", oldest_first=oldest_first)
    whole = await world.store.find(query, limit=10)
    monkeypatch.setattr(queries, "MOST_STRETCHES", 13)
    assert await world.store.find(query, limit=10) == whole
    rest = await world.store.find(query, cursor=whole.cursor, limit=100)
    assert (len(whole.jobs), len(rest.jobs), rest.cursor) == (10, 30, None)

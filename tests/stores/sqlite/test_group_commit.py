"""Group commit: many callers, one commit, and none of them pays for another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from mainstay.errors import Conflict, StoreError, StoreFull
from mainstay.model import QueueSettings
from mainstay.stores.sqlite import SqliteStore
from mainstay.stores.sqlite.engine import SqliteTx
from tests.conformance.world import World

Write = Callable[[SqliteTx], Any]

#: never waited for: a test that has to is failing
LONG_S = 60.0


def _sqlite(world: World) -> SqliteStore:
    assert isinstance(world.store, SqliteStore)
    return world.store


@asynccontextmanager
async def busy_writer(store: SqliteStore) -> AsyncIterator[None]:
    """Keep the writer in a commit of its own, so that everything sent meanwhile shares the next one."""
    inside, leave = threading.Event(), threading.Event()

    def wait(tx: SqliteTx) -> None:
        inside.set()
        leave.wait()

    first = asyncio.create_task(store._engine.write(wait))
    await asyncio.to_thread(inside.wait)
    try:
        yield
    finally:
        leave.set()
        await first


async def all_at_once(store: SqliteStore, *calls: Awaitable[Any]) -> list[Any]:
    """The answers of calls that were in one batch; errors are answers here."""
    async with busy_writer(store):
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
    return await asyncio.gather(*tasks, return_exceptions=True)


def count_commits(store: SqliteStore) -> list[None]:
    commits: list[None] = []
    store._engine._db.set_commit_hook(lambda: bool(commits.append(None)))  # type: ignore[func-returns-value]
    return commits


async def test_callers_who_wait_at_the_same_time_share_a_commit(world: World) -> None:
    store = _sqlite(world)
    commits = count_commits(store)
    answers = await all_at_once(store, *(store.insert([world.new()]) for _ in range(20)))
    assert [made.created for [made] in answers] == [True] * 20
    assert len(commits) == 2, "one for the writer that was busy, one for all the others"


async def test_a_caller_that_fails_hurts_nobody_else(world: World) -> None:
    store = _sqlite(world)
    taken = await world.submit()
    world.clock.advance(1)
    clash = world.new(id=taken.id)
    good = [world.new() for _ in range(6)]

    answers = await all_at_once(
        store,
        *(store.insert([new]) for new in good[:3]),
        store.insert([world.new(queue="never"), clash]),
        *(store.insert([new]) for new in good[3:]),
    )

    assert isinstance(answers[3], Conflict)
    assert [made.id for [made] in answers[:3] + answers[4:]] == [new.job.id for new in good]
    assert (await store.stats()).queues.keys() == {"default"}, "the whole batch of the failed call is undone"


async def test_what_a_failed_caller_had_written_is_undone(world: World) -> None:
    store = _sqlite(world)

    def write_then_fail(tx: SqliteTx) -> None:
        tx.db.execute("INSERT INTO limits VALUES ('half', 1)")
        tx.wake("queue:default")
        raise ValueError("on second thoughts")

    alone = await asyncio.gather(store._engine.write(write_then_fail), return_exceptions=True)
    among = await all_at_once(store, store.set_limit("whole", 2), store._engine.write(write_then_fail))

    assert [str(error) for error in (*alone, among[1])] == ["on second thoughts"] * 2
    assert await store.limits() == {"whole": 2}


async def test_a_broken_transaction_gives_every_caller_its_own_answer(world: World) -> None:
    store = _sqlite(world)
    await store.set_queue(QueueSettings(name="a"))
    runs: list[str] = []

    def small(tx: SqliteTx) -> str:
        runs.append("small")
        tx.db.execute("UPDATE queues SET reason = coalesce(reason, '') || 'x'")
        return "fits"

    def huge(tx: SqliteTx) -> None:
        runs.append("huge")
        tx.db.execute("INSERT INTO queues (name, paused, reason) VALUES ('b', 0, ?)", ("x" * 100_000,))

    await store._engine.write(lambda tx: tx.db.pragma("max_page_count", tx.db.pragma("page_count") + 3))
    first, broken, last = await all_at_once(store, *(store._engine.write(run) for run in (small, huge, small)))

    assert (first, last) == ("fits", "fits")
    assert isinstance(broken, StoreFull)
    assert runs.count("huge") == 2
    assert "small" in runs[runs.index("huge") + 1 :], "it was run again, after the transaction broke"
    [queue] = await store.queues()
    assert queue.reason == "xx", "run again, but written once"


async def test_an_answer_comes_only_after_the_commit(world: World, path: Path) -> None:
    store = _sqlite(world)
    for _ in range(20):
        [made] = await store.insert([world.new()])
        other = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            assert list(other.execute("SELECT count(*) FROM jobs WHERE id = ?", (made.id,))) == [(1,)]
        finally:
            other.close()


async def test_nothing_is_visible_before_the_commit(world: World, path: Path) -> None:
    store = _sqlite(world)
    other = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    seen: list[int] = []

    def insert_and_look(tx: SqliteTx) -> None:
        tx.db.execute("INSERT INTO limits VALUES ('k', 1)")
        seen.append(other.execute("SELECT count(*) FROM limits").fetchone()[0])

    await store._engine.write(insert_and_look)
    assert seen == [0]
    assert other.execute("SELECT count(*) FROM limits").fetchone() == (1,)
    other.close()


async def test_a_caller_who_gave_up_waiting_stops_nobody(world: World) -> None:
    store = _sqlite(world)
    new = world.new()
    async with busy_writer(store):
        gone = asyncio.ensure_future(store.insert([new]))
        await asyncio.sleep(0)
        gone.cancel()
        stays = asyncio.ensure_future(store.insert([world.new()]))
        await asyncio.sleep(0)
    assert (await stays)[0].created
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert await store.get([new.job.id]) == [None], "nobody waited for it when its turn came"


@asynccontextmanager
async def committing(store: SqliteStore) -> AsyncIterator[None]:
    """Hold the next commit back until the block is left: what it writes is decided, and nobody has an answer."""
    inside, leave = threading.Event(), threading.Event()
    db = store._engine._db

    def hold() -> bool:
        db.set_commit_hook(None)
        inside.set()
        leave.wait()
        return False

    db.set_commit_hook(hold)
    await asyncio.to_thread(inside.wait)
    try:
        yield
    finally:
        leave.set()


@pytest.mark.parametrize("unit", [False, True])
async def test_what_was_claimed_for_a_caller_that_was_cancelled_meanwhile_is_given_back(
    world: World, unit: bool
) -> None:
    store = _sqlite(world)
    await world.open("s1")
    parent = await world.submit(queue="parents")
    job = await world.submit(**({"parent": parent.id, "unit": "u"} if unit else {}))
    async with store.wake(["queue:default"]) as wake:
        claim = asyncio.create_task(world.claim())
        async with committing(store):
            claim.cancel()
            await asyncio.gather(claim, return_exceptions=True)
        assert claim.cancelled()
        assert await wake.wait(LONG_S)
    row = await world.row(job)
    assert (row.status, row.session, row.releases, row.reason) == ("pending", None, 1, "its claimer was cancelled")
    assert await world.story(job) == ["pending", "running", "pending"]
    assert [again.id for again in await world.claim()] == [job.id]


async def test_what_was_claimed_for_a_caller_cancelled_before_it_heard_the_answer_is_given_back(world: World) -> None:
    store = _sqlite(world)
    await world.open("s1")
    job = await world.submit()
    delivered = threading.Event()
    async with store.wake(["queue:default"]) as wake:
        claim = asyncio.create_task(world.claim())
        async with committing(store):
            later = asyncio.create_task(store._engine.write(lambda tx: delivered.set()))
            await asyncio.sleep(0)
        # the loop stands still until the answer of the claim lies before it; the cancel comes right behind that
        delivered.wait()
        asyncio.get_running_loop().call_soon(claim.cancel)
        await asyncio.gather(claim, later, return_exceptions=True)
        assert claim.cancelled()
        assert await wake.wait(LONG_S)
    assert (await world.row(job)).releases == 1


async def test_an_error_reads_the_same_alone_and_in_a_group(world: World) -> None:
    store = _sqlite(world)

    def stumble(tx: SqliteTx) -> None:
        tx.db.execute("SELECT CAST(x'ff' AS TEXT)").fetchall()

    def clash(tx: SqliteTx) -> None:
        tx.db.execute("INSERT INTO limits VALUES ('k', 1), ('k', 1)")

    for run in (stumble, clash):
        alone = await asyncio.gather(store._engine.write(run), return_exceptions=True)
        group = await all_at_once(store, store._engine.write(run), store._engine.write(run))
        assert [type(error) for error in group] == [type(alone[0])] * 2
        assert isinstance(alone[0], StoreError)
        assert [str(error) for error in group] == [str(alone[0])] * 2


async def test_a_wake_that_cannot_be_sent_does_not_undo_or_repeat_the_write(world: World) -> None:
    store = _sqlite(world)
    # where the registrations of this queue would be stands something that is no folder
    store._board.folder_of("queue:default").write_bytes(b"")
    store.wake(["queue:other"])
    [alone] = await store.insert([world.new()])
    answers = await all_at_once(store, *(store.insert([world.new()]) for _ in range(3)))
    assert [made.created for [made] in answers] == [True] * 3
    assert (await store.stats()).queues["default"].counts == {"pending": 4}
    assert alone.created

"""Sessions of other processes: dead at once when the process is, and not before its lease when it merely hangs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from mainstay.clock import SystemClock
from mainstay.errors import Conflict, InvalidInput, NotLeader
from mainstay.model import Session
from mainstay.stores.sqlite import SqliteStore
from tests.conformance.world import World
from tests.stores.sqlite.conftest import Spawn

LONG_S = 3600.0


class ShiftedClock(SystemClock):
    """The machine's clocks, which all processes share, and a shift of our own to look into the future."""

    lease_shift_ms = 0
    wall_shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.wall_shift_ms

    def lease_ms(self) -> int:
        return super().lease_ms() + self.lease_shift_ms


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
async def shared(path: Path, clock: ShiftedClock) -> AsyncIterator[World]:
    """A store in real time, as the other processes live in it."""
    store = SqliteStore(path, clock=clock)
    yield World(store, clock)  # type: ignore[arg-type]
    assert await store.check() == []
    await store.close()


async def test_a_killed_process_is_found_dead_at_once_however_long_its_lease(
    shared: World, path: Path, spawn: Spawn
) -> None:
    job = await shared.submit()
    child = spawn("hold", path, "s1", LONG_S)
    assert child.line() == job.id
    assert await shared.store.overdue() == []

    child.kill()

    [late] = await shared.store.overdue()
    assert (late.job.id, late.cause) == (job.id, "session")
    [reaped] = await shared.reap()
    assert reaped.status == "pending"
    assert await shared.store.overdue() == []
    assert await shared.store.sessions() == []


async def test_a_live_process_is_left_alone(shared: World, path: Path, spawn: Spawn) -> None:
    await shared.submit()
    living, dying = spawn("hold", path, "living", LONG_S), None
    living.line()
    other = await shared.submit()
    dying = spawn("hold", path, "dying", LONG_S)
    assert dying.line() == other.id
    dying.kill()
    assert [late.job.session for late in await shared.store.overdue()] == ["dying"]
    assert living.ask() == "closed"


async def test_a_stopped_process_is_dead_only_after_its_lease(
    shared: World, clock: ShiftedClock, path: Path, spawn: Spawn
) -> None:
    job = await shared.submit()
    child = spawn("hold", path, "s1", 60)
    child.line()
    child.stop()
    assert await shared.store.overdue() == []
    clock.lease_shift_ms = 59_000 - 30_000
    assert await shared.store.overdue() == []

    clock.lease_shift_ms = 120_000

    assert [late.job.id for late in await shared.store.overdue()] == [job.id]
    child.resume()
    clock.lease_shift_ms = 0
    [pulse] = await shared.store.beat(["s1"])
    assert not pulse.known, "what was declared dead stays dead"


async def test_silence_is_judged_as_of_when_it_was_asked_about(path: Path, shared: World, clock: ShiftedClock) -> None:
    """While the sweep waits for a locked database, nobody else's beat gets through either."""
    await shared.store.open_session(Session(id="s1", lease_s=60))
    await shared.running("s1")
    browser = apsw.Connection(str(path))
    browser.execute("BEGIN IMMEDIATE")
    sweeping = asyncio.create_task(shared.store.overdue())
    await asyncio.sleep(0)  # it has asked

    clock.lease_shift_ms = 61_000
    browser.execute("ROLLBACK")
    browser.close()

    assert await sweeping == []


async def test_a_session_of_another_boot_is_dead(shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await shared.store.open_session(Session(id="s1", lease_s=LONG_S))
    job = await shared.running("s1")
    assert await shared.store.overdue() == []

    def another() -> str:
        return "another"

    monkeypatch.setattr("mainstay.stores.sqlite.directory.boot_id", another)

    assert [late.job.id for late in await shared.store.overdue()] == [job.id]


async def test_leadership_of_another_boot_is_over(shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    held = await shared.store.lead("leader", "s1", LONG_S)
    assert (await shared.store.lead("leader", "s2", LONG_S)).holder == "s1"
    monkeypatch.setattr("mainstay.stores.sqlite.directory.boot_id", lambda: "another")
    taken = await shared.store.lead("leader", "s2", LONG_S)
    assert (taken.holder, taken.epoch) == ("s2", held.epoch + 1)


@pytest.mark.parametrize("days", [-400, 400])
async def test_setting_the_wall_clock_kills_no_session(
    shared: World, clock: ShiftedClock, path: Path, spawn: Spawn, days: int
) -> None:
    await shared.submit()
    child = spawn("hold", path, "s1", LONG_S)
    child.line()
    clock.wall_shift_ms = days * 86_400_000
    assert [late for late in await shared.store.overdue() if late.cause == "session"] == []
    [session] = await shared.store.sessions()
    assert not session.dead
    assert child.ask() == "closed"
    clock.wall_shift_ms = 0


async def test_a_session_opened_for_another_process_lives_by_its_lease(shared: World, clock: ShiftedClock) -> None:
    """Nobody can hold a lock for somebody else; that there is none must not be taken for a dead process."""
    await shared.store.open_session(Session(id="s1", pid=1, lease_s=60))
    await shared.running("s1")
    assert await shared.store.overdue() == []
    clock.lease_shift_ms = 61_000
    assert len(await shared.store.overdue()) == 1


async def test_a_session_may_be_opened_twice(shared: World) -> None:
    for _ in range(2):
        await shared.store.open_session(Session(id="s1", pid=os.getpid(), lease_s=60))
    await shared.running("s1")
    assert await shared.store.overdue() == []


async def test_closing_the_store_frees_its_sessions(path: Path) -> None:
    first, second = SqliteStore(path), SqliteStore(path)
    await first.open_session(Session(id="s1", pid=os.getpid(), lease_s=LONG_S))
    job = await World(first, first.clock).running("s1")  # type: ignore[arg-type]
    assert await second.overdue() == []
    await first.close()
    assert [late.job.id for late in await second.overdue()] == [job.id]
    await second.close()


async def test_locks_of_sessions_that_are_gone_are_cleared_away(shared: World, path: Path, spawn: Spawn) -> None:
    for name in ("closed", "killed"):
        child = spawn("hold", path, name, LONG_S)
        assert child.line() == ""
        if name == "closed":
            assert child.ask() == "closed"
        else:
            child.kill()
    await shared.store.overdue()
    assert os.listdir(path.with_name("jobs.db-mainstay") / "sessions") == []


async def test_a_sweep_that_is_undone_leaves_the_dead_to_the_next_one(shared: World, path: Path, spawn: Spawn) -> None:
    job = await shared.submit()
    child = spawn("hold", path, "s1", LONG_S)
    child.line()
    child.kill()
    store = shared.store
    assert isinstance(store, SqliteStore)
    db: apsw.Connection = store._engine._db
    db.set_commit_hook(lambda: True)  # the commit is turned into a rollback
    with pytest.raises(Exception, match="constraint"):
        await store.overdue()
    db.set_commit_hook(None)
    assert [late.job.id for late in await store.overdue()] == [job.id]


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "../jobs.db", "a/b", "/nowhere/x", "a\0b", "a b", "é", "x" * 129]
)
async def test_an_id_that_is_no_name_for_a_file_of_its_own_is_refused(shared: World, path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="session: .* is not a session id"):
        await shared.store.open_session(Session(id=name, pid=os.getpid()))
    with pytest.raises(InvalidInput):
        await shared.store.open_session(Session(id=name, pid=1))
    assert await shared.store.sessions() == []
    assert os.listdir(path.with_name("jobs.db-mainstay") / "sessions") == []


@pytest.mark.parametrize("name", ["s", "host-1.2_3", "x" * 128])
async def test_an_id_that_is_a_name_is_taken(shared: World, name: str) -> None:
    await shared.store.open_session(Session(id=name, pid=os.getpid()))
    assert [session.id for session in await shared.store.sessions()] == [name]


async def test_a_stored_id_that_is_no_name_leads_to_no_file(shared: World, clock: ShiftedClock, path: Path) -> None:
    victim = path.with_name("jobs.db-mainstay") / "victim"
    victim.touch()
    await shared.store.open_session(Session(id="s1", pid=os.getpid(), lease_s=LONG_S))
    db = apsw.Connection(str(path))
    db.execute("UPDATE sessions SET id = '../victim'")
    db.close()
    await shared.store.overdue()
    assert [session.dead for session in await shared.store.sessions()] == [False], "a free lock is not its lock"
    clock.lease_shift_ms = round(LONG_S * 2000)
    await shared.store.overdue()
    assert victim.exists()


async def test_a_session_that_is_open_elsewhere_is_not_opened_again(shared: World, path: Path) -> None:
    other = SqliteStore(path)
    await other.open_session(Session(id="s1", pid=os.getpid()))
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(Conflict, match="session s1 is open in another process, which is alive; use a fresh id"):
        await shared.store.open_session(Session(id="s1", pid=os.getpid()))
    assert sorted(os.listdir("/proc/self/fd")) == before
    await other.close()


async def test_a_sweep_that_had_to_wait_for_a_locked_database_takes_its_own_wait_for_nobodys_silence(
    shared: World, clock: ShiftedClock, path: Path
) -> None:
    await shared.store.open_session(Session(id="s1", lease_s=8.0))
    browser = apsw.Connection(str(path))
    browser.execute("BEGIN IMMEDIATE")
    sweep = asyncio.ensure_future(shared.store.overdue())
    await asyncio.sleep(0)

    clock.lease_shift_ms = 9_000
    browser.execute("ROLLBACK")
    browser.close()

    assert await sweep == []
    assert [(found.id, found.dead) for found in await shared.store.sessions()] == [("s1", False)]


async def test_a_session_that_is_closed_for_a_dead_process_leaves_no_lock_file(
    shared: World, path: Path, spawn: Spawn
) -> None:
    await shared.submit()
    child = spawn("hold", path, "s1", LONG_S)
    child.line()
    locks = path.with_name(path.name + "-mainstay") / "sessions"
    assert [lock.name for lock in locks.iterdir()] == ["s1"]

    child.kill()
    await shared.store.close_session("s1")

    assert list(locks.iterdir()) == []
    await shared.reap()


@pytest.mark.parametrize("swept", [False, True])
async def test_a_killed_leader_is_followed_at_once_and_its_epoch_is_over(
    shared: World, path: Path, spawn: Spawn, swept: bool
) -> None:
    """Whether or not a sweep has buried it by then: its row and its lock are gone in that case."""
    child = spawn("lead", path, "s1", LONG_S)
    assert child.line() == "s1 1"
    old = await shared.store.lead("main", "s2", LONG_S)
    assert (old.holder, old.epoch) == ("s1", 1), "a live leader keeps it"

    child.kill()
    if swept:
        await shared.store.overdue()
        assert await shared.store.sessions() == []

    taken = await shared.store.lead("main", "s2", LONG_S)
    assert (taken.holder, taken.epoch) == ("s2", 2)
    with pytest.raises(NotLeader):
        await shared.store.apply([], lead=old)
    await shared.store.apply([], lead=taken)


async def test_a_leader_that_hangs_keeps_the_lead_for_its_time(
    shared: World, path: Path, spawn: Spawn, clock: ShiftedClock
) -> None:
    child = spawn("lead", path, "s1", 60)
    assert child.line() == "s1 1"
    child.stop()
    assert (await shared.store.lead("main", "s2", 60)).holder == "s1"
    clock.lease_shift_ms = 61_000
    assert (await shared.store.lead("main", "s2", 60)).holder == "s2"
    child.kill()

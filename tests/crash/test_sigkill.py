"""Processes killed with SIGKILL in the middle of their work, hundreds of times: what was acknowledged stays, once.

Each process tells what was acknowledged, and is killed after a drawn number of such lines: somewhere between the
answer to one call and the answer to a later one, mostly inside a transaction of its own or another's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import select
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mainstay.control.check import check
from mainstay.model import PLACE_QUEUE
from mainstay.stores import Query, open_store
from mainstay.stores.sqlite import SqliteStore
from tests.conformance.adapters import ADAPTERS, Adapter
from tests.conformance.world import World
from tests.crash import worker
from tests.stores.sqlite.process import PROGRAM, Child

#: how many are killed in all, and how many in a round. More where the one that dies writes the file itself: a server
#: outlives its clients. Where a death takes seconds to be known, fewer rounds of more processes
KILLS = {"sqlite": 144, "postgres": 60, "redis": 80}
CREWS = {"sqlite": 8, "postgres": 12, "redis": 8}
#: every which statement of a gang's transaction a process dies before
STRIDE = 3
#: where inside a call one dies is drawn apart from how many it has made
MOST_LINES = 16
OPTIONS = {"sqlite": "?busy_timeout=30s"}
PERSISTENT = [adapter for adapter in ADAPTERS if adapter.name in KILLS]


class Told(msgspec.Struct):
    """All that was ever acknowledged."""

    made: set[str] = msgspec.field(default_factory=set)
    claimed: dict[tuple[str, int], str] = msgspec.field(default_factory=dict)
    """(job, token) -> who"""
    done: dict[str, int] = msgspec.field(default_factory=dict)
    """job -> token"""
    wrong: list[str] = msgspec.field(default_factory=list)
    kills: int = 0
    cut: int = 0
    """jobs whose holder was killed"""

    def hear(self, who: str, line: str) -> None:
        assert line.endswith("\n"), "a line was told in part; lines are written whole"
        what, *values = line.split()
        if what == "made":
            self.made.add(values[0])
        elif what == "claimed":
            claim = (values[0], int(values[1]))
            if claim in self.claimed:
                self.wrong.append(f"{claim} was given to {self.claimed[claim]} and to {who}")
            self.claimed[claim] = who
        elif what == "done":
            if values[0] in self.done:
                self.wrong.append(f"{values[0]} was completed twice")
            self.done[values[0]] = int(values[1])
        elif what == "refused":
            # every process holds its lock while it lives, so nobody may take its jobs away
            self.wrong.append(f"{who} lived, and was refused: {line}")


class Victim:
    """One process that will be killed. Whoever makes one sees to it that `end` is called, however the test ends."""

    def __init__(self, nursery: Child, folder: Path, name: str, seed: str) -> None:
        self.name = name
        pipe = folder / name
        os.mkfifo(pipe)
        self._pid = int(nursery.ask(f"{name} {seed} {pipe}"))
        self._handle = os.pidfd_open(self._pid)
        self._told = pipe.open()
        pipe.unlink()

    def line(self) -> str:
        return self._told.readline()

    def kill(self, rng: random.Random, told: Told) -> None:
        """Hear some lines, then let it go on for a part of the time a line takes, so that it dies anywhere."""
        lines, began = rng.randint(1, MOST_LINES), time.monotonic()
        for _ in range(lines):
            told.hear(self.name, self.line())
        time.sleep(rng.uniform(0, 3) * (time.monotonic() - began) / lines)
        for line in self.killed():
            told.hear(self.name, line)
        told.kills += 1

    def killed(self) -> list[str]:
        """SIGKILL; what it told before it died and was not heard yet: acknowledged, too."""
        self._kill()
        lines = self._told.readlines()
        self._told.close()
        return lines

    def end(self) -> None:
        """Whatever state it is in, it is gone afterwards, and so is the pipe from it."""
        self._kill()
        self._told.close()

    def _kill(self) -> None:
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself, and told why
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            select.select([self._handle], [], [])
            os.close(self._handle)
            self._handle = -1


@contextlib.contextmanager
def crew_of(size: int, nursery: Child, folder: Path, name: str) -> Iterator[list[Victim]]:
    """So many, and none of them is left afterwards: what one left open would fail a test that comes later."""
    crew: list[Victim] = []
    try:
        for n in range(size):
            crew.append(Victim(nursery, folder, f"{name}-{n}", f"{name}.{n}"))  # noqa: PERF401  # the made ones are kept
        yield crew
    finally:
        for victim in crew:
            victim.end()


@pytest.fixture(params=PERSISTENT, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    found: Adapter = request.param
    return found


@pytest.fixture
def url(adapter: Adapter, tmp_path: Path) -> str:
    return adapter.at(tmp_path) + OPTIONS.get(adapter.name, "")


@pytest.fixture
def nursery(url: str) -> Iterator[Child]:
    child = Child(Path(worker.__file__), url)
    yield child
    child.end()


async def assert_kept(world: World, told: Told) -> None:
    """Everything acknowledged is in the store, and nothing twice."""
    assert told.wrong == []
    rows = {}
    after = ""
    while page := await world.store.audit(after=after, limit=1000):
        rows.update({found.job.id: found for found in page})
        after = page[-1].job.id
    assert told.made <= rows.keys(), "an acknowledged job is gone"
    for job_id, token in told.done.items():
        row = rows[job_id].job
        assert (row.status, row.token) == ("succeeded", token), "an acknowledged completion is gone or changed"
    for job_id, token in told.claimed:
        assert rows[job_id].job.token >= token, "an acknowledged claim is gone"
    for found in rows.values():
        assert world.store.chain.first_break(found.job, found.events) is None
        counts = Counter(event.to for event in found.events)
        assert counts["succeeded"] == (found.job.status == "succeeded"), "a completion was doubled or lost"
        assert counts["running"] == found.job.token, "a claim was doubled or lost"
    assert await world.store.check() == []


@pytest.mark.slow
@pytest.mark.timeout(900)  # a quarter of a minute on an idle machine; a busy one must not fail it
async def test_hundreds_of_kills_lose_nothing_and_double_nothing(
    adapter: Adapter, url: str, tmp_path: Path, nursery: Child
) -> None:
    rng = random.Random(2)
    told = Told()
    kills, size = KILLS[adapter.name], CREWS[adapter.name]
    rounds = kills // size
    for number in range(rounds):
        with crew_of(size, nursery, tmp_path, f"round{number}") as crew:
            assert [victim.line() for victim in crew] == ["ready\n"] * size
            for victim in rng.sample(crew, size):
                victim.kill(rng, told)
        store = await open_store(url)
        world = World(store, store.clock)  # type: ignore[arg-type]
        told.cut += await _reap(adapter, world, {victim.name for victim in crew})
        if number == rounds // 2:
            await assert_kept(world, told)
        await store.close()

    assert told.kills == rounds * size == kills
    store = await open_store(url)
    stats = await store.stats()
    # the kills did hurt: some fell between a commit and its answer, and many took jobs with them
    assert sum(stats.queues["default"].counts.values()) > len(told.made)
    assert told.cut > kills // 2
    assert stats.findings == ()
    assert (await check(store)).violations == ()
    await _finish(World(store, store.clock), told)  # type: ignore[arg-type]
    await store.close()


async def _reap(adapter: Adapter, world: World, crew: set[str]) -> int:
    """The leases are an hour long; that the processes are dead shows in their locks: at once in those of files, when
    they have not come back for a moment in those of connections. Redis has none: there, a supervisor says it."""
    if adapter.name == "redis":
        for name in crew:
            await world.store.close_session(name)
    held = (await world.store.find(Query(status=("running",)), limit=10_000)).jobs
    reaped: set[str] = set()
    while reaped != {job.id for job in held}:
        found = {job.id for job in await world.reap()}
        assert found or adapter.name == "postgres", "a free lock means dead now"
        reaped |= found
        await asyncio.sleep(0 if found else 0.05)
    while adapter.name == "postgres" and await world.store.sessions():
        assert await world.store.overdue() == []
        await asyncio.sleep(0.05)
    assert await world.store.overdue() == []
    assert await world.store.sessions() == []
    assert {job.session for job in held} <= crew
    return len(held)


async def _finish(world: World, told: Told) -> None:
    """What the dead left behind can still be done, each job once."""
    await world.open("last")
    while claimed := await world.claim("last", n=500):
        answers = await world.store.apply([world.change(job, "succeeded", holder="last") for job in claimed])
        assert {answer.outcome for answer in answers} == {"applied"}
        told.done.update({job.id: job.token for job in claimed})
    await assert_kept(world, told)
    stats = await world.store.stats()
    assert stats.queues["default"].counts.keys() == {"succeeded"}


async def test_a_process_killed_inside_its_transaction_is_undone_and_stops_nobody(tmp_path: Path) -> None:
    """It dies holding the turn of the turnstile and SQLite's write lock, with rows written and not committed."""
    path = tmp_path / "jobs.db"
    store = SqliteStore(path, busy_timeout_s=60)
    world = World(store, store.clock)  # type: ignore[arg-type]
    for _ in range(5):
        child = Child(PROGRAM, "write_and_hang", path)
        assert child.line() == "inside"
        waiting = asyncio.ensure_future(store.insert([world.new()]))
        await asyncio.sleep(0)
        child.kill()
        assert (await waiting)[0].created
        child.end()
    assert (await store.stats()).queues["default"].counts == {"pending": 5}
    await world.assert_sound()
    await store.close()


@pytest.mark.parametrize("how", ["plain", "spawn"])
async def test_a_process_killed_inside_an_apply_together_leaves_all_or_none(tmp_path: Path, how: str) -> None:
    """It dies before one statement of the transaction after the other, until there are no more."""
    path = tmp_path / "jobs.db"
    store = SqliteStore(path, busy_timeout_s=60)
    world = World(store, store.clock, seed=3)  # type: ignore[arg-type]
    parent = await world.submit(kind="node", queue=PLACE_QUEUE)
    units = [world.new(kind="node", queue=PLACE_QUEUE, parent=parent.id, unit=f"node/{n}") for n in range(3)]
    await store.insert(units)
    before = await world.dump()
    kills, line = 0, "inside"
    while line == "inside":
        child = Child(PROGRAM, "assign_and_hang", path, how, kills * STRIDE + 1)
        line = child.line()
        child.kill()
        child.end()
        assert await store.overdue() == [] or line != "inside", "nothing of the gang may be held"
        if line == "inside":
            kills += 1
            after = await world.dump()
            assert (after["rows"], after["events"]) == (before["rows"], before["events"])

    assert line == "applied"
    assert kills > 3
    rows = [await world.row(unit.job) for unit in units]
    assert [(row.status, row.session, row.token) for row in rows] == [("dispatched", "n0", 1)] * 3
    assert len(await store.audit(limit=100)) == 4 + 3 * (how == "spawn")
    await world.assert_sound()
    await store.close()

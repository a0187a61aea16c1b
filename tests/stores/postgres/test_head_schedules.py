"""The head of a queue beside transactions that commit in any order: no ready row lies below it at any moment.

Each step is one statement on one of several connections; a transaction stays open between its steps for as long as the
schedule says. So every order of begins, checks and commits is the same in each run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from mainstay.stores import open_store
from servers import Postgres
from tests.conformance.world import World

from .stands import ask

QUEUE = "default"


class Stage:
    """A schema, and connections to it whose transactions a test begins and ends."""

    def __init__(self, url: str, connections: ExitStack) -> None:
        self.url = url
        self.schema = url.partition("schema=")[2].partition("&")[0]
        self._connections = connections
        self._shards: set[int] = set()
        self.watcher = self.connect(autocommit=True)

    def connect(self, *, autocommit: bool = False) -> psycopg.Connection:
        """One that counts in a shard of its own, so that no two wait for each other."""
        while True:
            made = self._connections.enter_context(
                psycopg.connect(
                    self.url.partition("?")[0],
                    autocommit=autocommit,
                    options="-c lock_timeout=5s",
                )
            )
            shard = made.info.backend_pid % 64
            if shard not in self._shards:
                self._shards.add(shard)
                return made

    def hurry(self) -> None:
        """Have heads take their next step with every claim, instead of every 200 ms."""
        [(text,)] = ask(self.url, f"SELECT pg_get_functiondef('{self.schema}.raise_heads'::regproc)")
        assert str(text).count("BETWEEN 0 AND 199") == 1
        ask(self.url, str(text).replace("BETWEEN 0 AND 199", "BETWEEN 1 AND 0").replace("%", "%%"))

    def open_session(self, name: str) -> None:
        ask(
            self.url,
            f"INSERT INTO {self.schema}.sessions (id, worker, host, pid, started_ms, beat_ms, lease_s) "
            "VALUES (%s, '', '', 1, 0, 0, 600)",
            name,
        )

    def claim(self, connection: psycopg.Connection, session: str, n: int) -> list[tuple[str, int]]:
        """Ids and ranks of what it took."""
        nonce = str(random.random())
        found = connection.execute(
            f"SELECT id, rank FROM {self.schema}.claim(%s, %s, %s, %s, false, NULL) WHERE state = ''",
            [[QUEUE], session, n, nonce],
        ).fetchall()
        return [(str(job), int(rank)) for job, rank in found]

    def make_ready(self, connection: psycopg.Connection, job_id: str, rank: int) -> None:
        """What every statement of the store does that makes a row ready: the row, then a look at the head."""
        connection.execute(
            f"UPDATE {self.schema}.jobs SET lane = 1, status = 'pending', session = NULL, rank = %s WHERE id = %s",
            [rank, job_id],
        )
        connection.execute(f"SELECT {self.schema}.lower_heads(%s, %s)", [[QUEUE], [rank]])

    def reset(self, late: str, early: list[str]) -> None:
        """One row waits, the others are ready, and the head is about to be raised."""
        self.watcher.execute(f"DELETE FROM {self.schema}.lowered")
        self.watcher.execute(
            f"UPDATE {self.schema}.jobs SET lane = CASE WHEN id = %s THEN 2 ELSE 1 END, session = NULL, "
            "status = 'pending', rank = 1000 + array_position(%s::uuid[], id) WHERE id = ANY (%s::uuid[])",
            [late, [late, *early], [late, *early]],
        )
        self.watcher.execute(f"DELETE FROM {self.schema}.heads")
        self.watcher.execute(
            f"INSERT INTO {self.schema}.heads (queue, rank, next_rank, next_xid, moved_ms, looked_ms) "
            f"VALUES (%s, -1, 0, 3, 0, {self.schema}.clock(NULL))",
            [QUEUE],
        )

    def hidden(self) -> list[tuple[object, ...]]:
        """Ready rows that a claim would not look at."""
        return self.watcher.execute(
            f"SELECT id, rank, {self.schema}.head_of(%s) FROM {self.schema}.jobs "
            f"WHERE queue = %s AND lane = 1 AND rank < {self.schema}.head_of(%s)",
            [QUEUE, QUEUE, QUEUE],
        ).fetchall()


@pytest.fixture
def postgres_url(own_server: Postgres, request: pytest.FixtureRequest) -> str:
    return f"{own_server.url()}?schema=t{abs(hash(request.node.name)):x}&auto_migrate=on"


@pytest.fixture
async def jobs(postgres_url: str) -> list[str]:
    """Ids of jobs that wait for a time far away."""
    store = await open_store(postgres_url)
    world = World(store, store.clock)  # type: ignore[arg-type]  # it is only read here
    try:
        new = [world.new(delay_s=10**6) for _ in range(40)]
        await store.insert(new)
    finally:
        await store.close()
    return [each.job.id for each in new]


@pytest.fixture
def stage(postgres_url: str, jobs: list[str]) -> Iterator[Stage]:
    assert jobs
    with ExitStack() as connections:
        stage = Stage(postgres_url, connections)
        stage.hurry()
        yield stage


def test_a_row_of_the_youngest_transaction_that_runs_is_not_overlooked(stage: Stage, jobs: list[str]) -> None:
    first, late, then = stage.connect(), stage.connect(), stage.connect(autocommit=True)
    for name in ("s1", "s2"):
        stage.open_session(name)
    for job, rank in zip(jobs, range(1000, 1010), strict=False):
        stage.make_ready(stage.watcher, job, rank)

    stage.claim(first, "s1", 2)  # proposes a head of 1001 ...
    stage.make_ready(late, jobs[-1], 5)  # ... of which this transaction, the youngest, cannot know
    first.commit()
    stage.claim(then, "s2", 1)  # no younger one has ended: the last that ended is older than the one that runs
    stage.claim(then, "s2", 1)
    stage.claim(then, "s2", 1)
    late.commit()

    assert stage.hidden() == []
    assert stage.claim(then, "s2", 1) == [(jobs[-1], 5)]


def schedules(claims: int) -> Iterator[list[str]]:
    """All orders of the steps of one transaction that makes a row ready ("T", then "t" for its end) and of claims ("A",
    then "a" for its end, and so on). Claims are alike, so they begin in the order of their letters."""
    letters = "ABC"[:claims]

    def further(done: list[str]) -> Iterator[list[str]]:
        if len(done) == 2 * (claims + 1):
            yield done
            return
        for letter in ("T", *letters):
            begun = letter in done
            if begun and letter.lower() not in done:
                yield from further([*done, letter.lower()])
            elif not begun and (letter in "TA" or letters[letters.index(letter) - 1] in done):
                yield from further([*done, letter])

    return further([])


def test_in_no_order_of_one_late_transaction_and_three_claims_its_row_is_overlooked(
    stage: Stage, jobs: list[str]
) -> None:
    actors = {letter: stage.connect() for letter in "TABC"}
    for letter in "ABC":
        stage.open_session(letter)
    late, *early = jobs[:10]
    overlooked: list[str] = []
    tried = 0
    for order in schedules(3):
        stage.reset(late, early)
        for step in order:
            connection = actors[step.upper()]
            if step.islower():
                connection.commit()
            elif step == "T":
                stage.make_ready(connection, late, 5)
            else:
                stage.claim(connection, step, 1)
            if stage.hidden():
                overlooked.append("".join(order))
        tried += 1
    assert tried == 420
    assert overlooked == []


@pytest.mark.parametrize("seed", range(4))
def test_in_no_schedule_a_ready_row_lies_below_the_head(stage: Stage, jobs: list[str], seed: int) -> None:
    rng = random.Random(seed)
    workers = [stage.connect() for _ in range(3)]
    others = [stage.connect() for _ in range(4)]
    for n in range(len(workers)):
        stage.open_session(f"s{n}")
    stage.make_ready(stage.watcher, jobs[0], 500)
    stage.claim(stage.watcher, "s0", 1)  # makes the head: the first two that claim would wait for each other
    idle = list(jobs)
    under_way: dict[psycopg.Connection, list[str]] = {}
    taken: dict[psycopg.Connection, list[str]] = {}
    for _ in range(250):
        connection = rng.choice([*workers, *others])
        if (connection in under_way or connection in taken) and rng.random() < 0.5:
            made, got = under_way.pop(connection, []), taken.pop(connection, [])
            if rng.random() < 0.8:
                connection.commit()
                idle += got
            else:
                connection.rollback()
                idle += made
        elif connection in workers:
            found = stage.claim(connection, f"s{workers.index(connection)}", rng.randrange(1, 4))
            taken.setdefault(connection, []).extend(job for job, _ in found)
        elif idle:
            job = idle.pop(rng.randrange(len(idle)))
            under_way.setdefault(connection, []).append(job)
            stage.make_ready(connection, job, rng.randrange(1000))
        assert stage.hidden() == []
    for connection in (*workers, *others):
        connection.commit()
    assert stage.hidden() == []

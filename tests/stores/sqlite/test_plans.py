"""The statements that run all day go through the index made for them, without a sort.

The statements are not written down here a second time: they are overheard from the store at work.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from mainstay.model import Options
from mainstay.stores import Query, TrimPolicy
from mainstay.stores.sqlite import SqliteStore
from mainstay.testing import VirtualClock
from tests.conformance.world import World

Heard = list[tuple[str, Any]]


class Overheard:
    """A store whose statements are written down while it works, and their plans explained."""

    def __init__(self, path: Path, heard: Heard, world: World) -> None:
        self.world = world
        self._path = path
        self._heard = heard

    @property
    def statements(self) -> list[str]:
        """What the last call ran, one entry per run."""
        return [sql for sql, _ in self._heard]

    async def plans(self, call: Callable[[], Awaitable[Any]]) -> dict[str, list[str]]:
        """Statement -> plan, for every statement on the big tables that a call runs."""
        self._heard.clear()
        await call()
        db = apsw.Connection(str(self._path))
        plans = {}
        for sql, values in list(self._heard):
            if re.search(r"\b(jobs|events|keys|waits)\b", sql) and re.match(r"\s*(SELECT|UPDATE|DELETE)", sql):
                rows = db.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
                plans[sql] = [str(row[3]) for row in rows]
        db.close()
        assert plans, "nothing was overheard"
        return plans


@pytest.fixture
async def overheard(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Overheard]:
    heard: Heard = []
    connect = SqliteStore._connect

    def connect_and_listen(self: SqliteStore) -> apsw.Connection:
        db = connect(self)

        def note(cursor: apsw.Cursor, sql: str, values: Any) -> bool:
            heard.append((sql, values))
            return True

        db.exec_trace = note
        return db

    monkeypatch.setattr(SqliteStore, "_connect", connect_and_listen)
    clock = VirtualClock()
    world = World(SqliteStore(path, clock=clock), clock)
    await world.open("s1")
    await world.store.set_limit("k", 1)
    await world.store.insert([world.new(queue=queue) for queue in ("a", "b") for _ in range(20)])
    await world.store.insert([world.new(queue="a", delay_s=5), world.new(queue="a", key="once", key_ttl_s=1)])
    await world.store.insert([world.new(queue="a", concurrency_key="k") for _ in range(3)])
    await world.store.insert([world.new(queue="a", options=Options(keep_s=1)) for _ in range(2)])
    yield Overheard(path, heard, world)
    await world.store.close()


def indexes(plans: dict[str, list[str]]) -> set[str]:
    return {name for plan in plans.values() for step in plan for name in re.findall(r"INDEX ([a-z]\w+)", step)}


def assert_cheap(plans: dict[str, list[str]]) -> None:
    for sql, plan in plans.items():
        for step in plan:
            assert "TEMP B-TREE" not in step, f"sorts: {sql}\n{plan}"
            assert not re.fullmatch(r"SCAN (jobs|events|keys|waits|u|h|r|b)", step), f"reads every row: {sql}\n{plan}"


async def test_a_claim_reads_the_ready_index_in_its_order(overheard: Overheard) -> None:
    world = overheard.world
    world.clock.advance(10)
    plans = await overheard.plans(lambda: world.claim(n=60, queues=["a", "b"]))
    assert_cheap(plans)
    assert {"jobs_ready", "jobs_due", "jobs_key_held"} <= indexes(plans)
    heads = [plan for sql, plan in plans.items() if "lane = 1" in sql and "ORDER BY rank" in sql]
    assert heads
    for plan in heads:
        assert plan[0].startswith("SEARCH jobs USING INDEX jobs_ready (queue=?"), plan


async def test_which_of_many_queues_have_rows_is_asked_at_once_and_told_by_the_indexes(overheard: Overheard) -> None:
    world = overheard.world
    plans = await overheard.plans(lambda: world.claim(queues=["a", "b", *(f"empty{n}" for n in range(50))]))
    asked = {sql: plan for sql, plan in plans.items() if "json_each" in sql}
    assert len(asked) == 2
    assert {"jobs_oldest", "jobs_due"} <= indexes(asked)
    assert all("COVERING INDEX" in plan[1] for plan in asked.values())
    assert len([sql for sql in overheard.statements if "ORDER BY rank" in sql]) == 2, "only those that have some"


async def test_a_row_that_waits_for_a_time_is_compared_with_the_next_one_by_the_index(overheard: Overheard) -> None:
    world = overheard.world
    plans = await overheard.plans(lambda: world.store.insert([world.new(queue="a", delay_s=9) for _ in range(5)]))
    assert_cheap(plans)
    assert "jobs_due" in indexes(plans)
    assert len([sql for sql in overheard.statements if "due_ms < ?" in sql]) == 1


async def test_completing_goes_by_the_id(overheard: Overheard) -> None:
    world = overheard.world
    held = await world.claim(n=60, queues=["a", "b"])
    changes = [world.change(job, "succeeded", holder="s1") for job in held]
    plans = await overheard.plans(lambda: world.store.apply(changes))
    assert_cheap(plans)
    assert indexes(plans) <= {"jobs_id", "jobs_blocked", "jobs_key_held", "waits_on", "waits_open"}
    assert "jobs_id" in indexes(plans)


async def test_where_nobody_waits_for_others_completing_looks_once_whether_anybody_does(overheard: Overheard) -> None:
    world = overheard.world
    held = await world.claim(n=20, queues=["b"])
    changes = [world.change(job, "succeeded", holder="s1") for job in held]
    plans = await overheard.plans(lambda: world.store.apply(changes))
    assert [sql for sql in overheard.statements if "waits" in sql] == ["SELECT 1 FROM waits WHERE done = 0 LIMIT 1"]
    assert len(plans["SELECT 1 FROM waits WHERE done = 0 LIMIT 1"]) == 1


async def test_ending_what_others_wait_for_reads_only_those(overheard: Overheard) -> None:
    world = overheard.world
    held = await world.claim(n=20, queues=["b"])
    await world.store.insert([world.new(after=held), *(world.new(after=[job]) for job in held)])
    changes = [world.change(job, "succeeded", holder="s1") for job in held]
    plans = await overheard.plans(lambda: world.store.apply(changes))
    assert_cheap(plans)
    assert {"waits_on", "waits_open"} <= indexes(plans)


async def test_the_next_due_time_is_the_head_of_the_index(overheard: Overheard) -> None:
    plans = await overheard.plans(lambda: overheard.world.store.due(["a"]))
    assert_cheap(plans)
    assert indexes(plans) == {"jobs_due"}


@pytest.mark.parametrize("oldest_first", [True, False])
async def test_a_page_of_one_status_comes_from_the_status_index(overheard: Overheard, oldest_first: bool) -> None:
    query = Query(status=("pending", "failed"), oldest_first=oldest_first)
    first = await overheard.world.store.find(query, limit=5)
    plans = await overheard.plans(lambda: overheard.world.store.find(query, cursor=first.cursor, limit=5))
    assert_cheap(plans)
    assert indexes(plans) == {"jobs_status", "jobs_held"}


@pytest.mark.parametrize("oldest_first", [True, False])
@pytest.mark.parametrize("status", [None, ("pending",), ("failed", "pending")])
@pytest.mark.parametrize("more", [{"queue": "b"}, {"name": "demo.task"}, {"queue": "b", "name": "demo.task"}], ids=str)
async def test_a_page_of_a_queue_or_a_name_comes_from_the_index_of_lists(
    overheard: Overheard, more: dict[str, str], status: tuple[str, ...] | None, oldest_first: bool
) -> None:
    query = Query(**more, status=status, oldest_first=oldest_first)  # type: ignore[arg-type]
    first = await overheard.world.store.find(query, limit=5)
    assert len(first.jobs) == 5
    plans = await overheard.plans(lambda: overheard.world.store.find(query, cursor=first.cursor, limit=5))
    assert_cheap(plans)
    assert indexes(plans) == {"jobs_listed", "jobs_held"}
    heads = [plan for sql, plan in plans.items() if "name = CAST" in sql]
    assert heads
    side = ">" if oldest_first else "<"
    for plan in heads:
        assert plan == [f"SEARCH jobs USING INDEX jobs_listed (queue=? AND status=? AND name=? AND id{side}?)"]


async def test_a_search_within_a_queue_walks_that_queue_alone(overheard: Overheard) -> None:
    plans = await overheard.plans(lambda: overheard.world.store.find(Query(queue="b", text="nothing"), limit=5))
    assert_cheap(plans)
    assert indexes(plans) == {"jobs_listed", "jobs_held"}


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (Query(), "jobs_status"),
        (Query(key="once"), "jobs_key"),
        (Query(kind="batch"), "jobs_kind"),
        (Query(kind="load", name="checkout"), "jobs_kind"),
        (Query(group="018bcfe5-6800-7000-8000-000000000001"), "jobs_group"),
        (Query(parent="018bcfe5-6800-7000-8000-000000000001"), "jobs_units"),
        (Query(parent="018bcfe5-6800-7000-8000-000000000001", status=("failed", "running")), "jobs_unit_status"),
    ],
)
async def test_other_lists_have_an_index_of_their_own(overheard: Overheard, query: Query, index: str) -> None:
    plans = await overheard.plans(lambda: overheard.world.store.find(query, limit=5))
    assert index in indexes(plans)
    assert not [step for plan in plans.values() for step in plan if step == "SCAN jobs"]


async def test_units_are_counted_from_an_index_alone(overheard: Overheard) -> None:
    parent = await overheard.world.submit()
    plans = await overheard.plans(lambda: overheard.world.store.unit_counts(parent.id))
    token, counted = plans.values()
    assert token == ["SEARCH jobs USING INDEX jobs_id (id=?)"]
    assert counted == ["SEARCH jobs USING COVERING INDEX jobs_unit_status (parent=?)"]


async def test_the_sweep_reads_only_what_is_held_or_late(overheard: Overheard) -> None:
    world = overheard.world
    await world.claim(n=5, queues=["a"])
    plans = await overheard.plans(world.store.overdue)
    assert_cheap(plans)
    assert {"jobs_held", "jobs_expires"} <= indexes(plans)


async def test_trimming_reads_only_what_may_go(overheard: Overheard) -> None:
    world = overheard.world
    for job in await world.claim(n=60, queues=["a", "b"]):
        await world.move(job, "succeeded", holder="s1")
    world.clock.advance(100)
    now_ms = world.clock.now_ms()
    policy = TrimPolicy(
        settled_before_ms={"succeeded": now_ms, "failed": now_ms}, keep_count={"succeeded": 1}, batch=10
    )
    plans = await overheard.plans(lambda: world.store.trim(policy))
    assert_cheap(plans)
    assert {"jobs_status", "jobs_keep", "keys_until", "jobs_id"} <= indexes(plans)


async def test_trimming_long_histories_finds_them_by_index(overheard: Overheard) -> None:
    plans = await overheard.plans(lambda: overheard.world.store.trim(TrimPolicy(keep_events=10)))
    assert_cheap(plans)
    assert "jobs_long" in indexes(plans)


async def test_a_beat_reads_only_what_the_session_holds(overheard: Overheard) -> None:
    plans = await overheard.plans(lambda: overheard.world.store.beat(["s1"]))
    assert_cheap(plans)
    assert indexes(plans) == {"jobs_held"}


async def test_freeing_a_slot_reads_only_the_rows_that_wait_for_it(overheard: Overheard) -> None:
    world = overheard.world
    await world.claim(n=60, queues=["a"])
    plans = await overheard.plans(lambda: world.store.set_limit("k", 2))
    assert_cheap(plans)
    assert "jobs_blocked" in indexes(plans)


async def test_statistics_read_no_rows_but_the_oldest(overheard: Overheard) -> None:
    plans = await overheard.plans(overheard.world.store.stats)
    assert_cheap(plans)
    # the first entry by id says since when there are jobs
    assert indexes(plans) == {"jobs_oldest", "jobs_aside", "jobs_id"}

"""Damage planted with plain SQL in a real schema is found, told, mended, and then gone: in rows and events, in what the
server counts, and in the schema itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mainstay.control import Completion, Control
from mainstay.control.check import check
from mainstay.errors import StoreDamaged
from mainstay.lifecycle import Event, Move
from mainstay.stores import JobStore, TrimPolicy, Violation, open_store
from mainstay.stores.postgres.check.schema_objects import declared
from mainstay.testing import VirtualClock
from tests.conformance.world import World
from tests.control.check.test_corruption import DAMAGES, Damage
from tests.places import server_url

from .planted import Planted, Template

#: the claim of a running job has no event yet
NO_EVENT_YET = ("an edited actor",)
#: what a claim without an event cannot prove of itself, other columns tell
OTHER_CODES = {"a token set back": "counters"}
PLANTABLE = [damage for damage in DAMAGES if damage.what not in NO_EVENT_YET]


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    made = Template(server_url("postgresql"), "damage")
    yield made
    made.drop()
    made.db.close()


@pytest.fixture
def planted(template: Template) -> Planted:
    return Planted(template)


async def test_the_undamaged_schema_is_clean_with_its_open_claims(planted: Planted) -> None:
    assert planted.sql("SELECT count(*) FROM jobs WHERE open")[0][0] >= 3
    report = await planted.check()
    assert (report.violations, report.notices) == ((), ())
    assert report.checked == len(planted.ids)


@pytest.mark.parametrize("damage", PLANTABLE, ids=[damage.what for damage in PLANTABLE])
async def test_damage_is_found_and_mended_and_told(planted: Planted, damage: Damage) -> None:
    code = OTHER_CODES.get(damage.what, damage.code)
    async with planted.store() as store:
        [stood] = await store.get([planted.ids[damage.name]])
        assert stood is not None
        damage.plant(planted)  # type: ignore[arg-type]
        before = _everything(planted)

        found = await check(store)
        assert code in planted.codes(found, damage.name)
        assert {each.job_id for each in found.violations} <= {planted.ids[damage.name], None}
        assert _everything(planted) == before, "a check without repair changes nothing"

        mended = await check(store, repair=True)
        assert mended.clean, mended.remaining
        assert all(each.repaired for each in mended.violations)

        assert (await check(store)).violations == ()
        [row] = await store.get([planted.ids[damage.name]])
        assert row is not None
        assert row.status == (damage.status or stood.status)
        assert code in _told(await store.events(row.id))


def _everything(planted: Planted) -> list[Any]:
    return [
        planted.sql(f"SELECT * FROM {table} ORDER BY {key}")
        for table, key in (("jobs", "id"), ("events", "job_id, seq"), ("tallies", "queue, status, shard"))
    ]


def _told(events: list[Event]) -> set[str]:
    """The codes that repair events speak of."""
    return {code for event in events if event.flag == "repair" for code in event.data.get("found", ())}


async def test_everything_at_once_is_mended_in_one_repair(planted: Planted) -> None:
    for damage in PLANTABLE:
        if damage.code not in ("after_final", "illegal_move", "token"):  # forged events need an intact trail
            damage.plant(planted)  # type: ignore[arg-type]

    assert len((await planted.check()).violations) > 20
    assert (await planted.check(repair=True)).clean
    assert (await planted.check()).violations == ()


# -- open claims ----------------------------------------------------------------------------------


async def test_mending_an_open_claim_writes_its_event_before_the_repairs(planted: Planted) -> None:
    planted.set("running", priority=500)
    [claim] = [event for event in await planted.events("running") if event.to == "running"]
    assert planted.sql("SELECT max(seq) FROM events WHERE job_id = ?", planted.ids["running"]) == [(1,)]

    assert (await planted.check(repair=True)).clean

    stored = await planted.events("running")
    assert [(event.seq, event.flag) for event in stored] == [(1, ""), (2, ""), (3, "repair")]
    assert stored[1] == claim
    assert planted.sql("SELECT open, version FROM jobs WHERE id = ?", planted.ids["running"]) == [(False, 3)]


@pytest.mark.parametrize("damage", [{"session": None}, {"claimed_ms": None}, {"session": None, "claimed_ms": None}])
async def test_a_claim_that_lost_its_holder_or_time_is_read_swept_and_mended(
    planted: Planted, damage: dict[str, Any]
) -> None:
    planted.set("running", **damage)
    async with planted.store() as store:
        row, events = (await store.get([planted.ids["running"]]))[0], await store.events(planted.ids["running"])
        assert row is not None
        assert store.chain.first_break(row, events) is None
        world = World(store, planted.clock)
        assert (await world.move(row, Move(to="timed_out"), Move(to="pending"), actor="sweeper")).outcome == "applied"
        assert (await check(store, repair=True)).clean
        assert (await check(store)).violations == ()


async def test_a_row_marked_open_that_is_sealed_already_breaks_its_chain_and_is_mended(planted: Planted) -> None:
    planted.set("succeeded", open=True)
    assert "broken_chain" in planted.codes(await planted.check(), "succeeded")
    assert (await planted.check(repair=True)).clean
    assert (await planted.check()).violations == ()
    assert (await planted.row("succeeded")).status == "succeeded"


async def test_a_claim_that_is_not_marked_open_goes_back_to_where_its_trail_ends(planted: Planted) -> None:
    planted.set("first", open=False)
    assert "status_mismatch" in planted.codes(await planted.check(), "first")
    assert (await planted.check(repair=True)).clean
    assert (await planted.check()).violations == ()


# -- what only the engine can see -------------------------------------------------------------------


async def test_counts_strays_and_stranded_keys_are_found_and_mended(planted: Planted) -> None:
    planted.sql("UPDATE tallies SET n = n + 5 WHERE queue = 'pending' AND status = 'pending'")
    planted.sql("INSERT INTO tallies (queue, status, shard, n) VALUES ('ghost', 'running', 3, 2)")
    planted.sql("DELETE FROM jobs WHERE id = ?", planted.ids["other_unit"])
    planted.sql("UPDATE jobs SET session = NULL, status = 'pending', lane = 2 WHERE id = ?", planted.ids["first"])

    found = {(each.code, each.message) for each in (await planted.check()).violations}
    assert ("tally_wrong", "queue 'pending' counts 6 pending jobs but has 1") in found
    assert ("tally_wrong", "queue 'ghost' counts 2 running jobs but has 0") in found
    assert {"stray_events", "key_stranded"} <= {code for code, _ in found}

    assert (await planted.check(repair=True)).clean
    assert (await planted.check()).violations == ()
    [stone] = planted.sql("SELECT flag FROM events WHERE job_id = ? AND seq = 2", planted.ids["other_unit"])
    assert stone == ("tombstone",)


async def test_a_job_that_waits_for_nothing_any_more_is_found_and_moves_on(planted: Planted) -> None:
    async with planted.store() as store:
        world = World(store, planted.clock)
        [first, second] = [await world.submit(queue="awaited") for _ in range(2)]
        waits = [await world.submit(after=[first]), await world.submit(after=[second])]
        planted.sql("UPDATE waits SET done = true WHERE job_id = ?", waits[0].id)
        planted.sql("DELETE FROM jobs WHERE id = ?", second.id)
        planted.sql("DELETE FROM events WHERE job_id = ?", second.id)

        codes = {(each.code, each.job_id) for each in await store.check()}
        assert {("wait_stranded", waits[0].id), ("wait_missed", second.id)} <= codes
        await check(store, repair=True)
        assert [(await world.row(job)).status for job in waits] == ["pending", "skipped"]
        assert (await check(store)).violations == ()


async def test_a_key_held_by_two_waiting_jobs_lets_one_of_them_go(planted: Planted) -> None:
    """Restoring a job whose unique key was taken meanwhile would break the other's: it is held back instead."""
    async with planted.store() as store:
        control = Control(store)
        planted.ids["scheduled"] = (await control.jobs.submit("work.do", {}, unique="only", delay="1h")).id
        planted.set("scheduled", status="failed", settled_ms=1)
        planted.ids["pending"] = (await control.jobs.submit("work.do", {}, unique="only")).id

    assert (await planted.check(repair=True)).clean

    assert (await planted.check()).violations == ()
    assert (await planted.row("scheduled")).status == "quarantined"
    assert (await planted.row("pending")).status == "pending"


# -- the schema itself ------------------------------------------------------------------------------


class Place:
    """A schema of the test's own, with a store on it."""

    def __init__(self, url: str, world: World) -> None:
        server, _, options = url.partition("?")
        self.schema = options.split("&")[0].removeprefix("schema=")
        self.db = psycopg.connect(server, autocommit=True, options=f"-c search_path={self.schema}")
        self.world = world

    @property
    def store(self) -> JobStore:
        return self.world.store

    def sql(self, statement: str, *values: Any) -> list[Any]:
        cursor = self.db.execute(statement, values)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []

    def indexes(self) -> dict[str, str]:
        return dict(self.sql("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = %s", self.schema))


@pytest.fixture
async def place(postgres_url: str) -> Any:
    clock = VirtualClock()
    store = await open_store(postgres_url, clock=clock)
    made = Place(postgres_url, World(store, clock))
    yield made
    made.db.close()
    await store.close()


async def test_what_is_declared_is_what_a_new_schema_has(place: Place) -> None:
    ours = declared()
    assert set(place.indexes()) == set(ours.indexes)
    columns: dict[str, set[str]] = {}
    for table, column in place.sql(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s", place.schema
    ):
        columns.setdefault(table, set()).add(column)
    assert columns == {table: set(names) for table, names in ours.columns.items()}
    functions = place.sql("SELECT proname FROM pg_proc WHERE pronamespace = %s::regnamespace", place.schema)
    assert {name for (name,) in functions} == ours.functions


async def repaired(place: Place) -> list[Violation]:
    """Repair the schema. An index is built beside running work, so it waits for the transactions of other tests in the
    same database; if they take long it is not built, and the next repair builds it."""
    async with asyncio.timeout(60):
        while True:
            found = await place.store.check(repair=True)
            if all(each.repaired for each in found):
                return found


async def test_an_index_that_was_dropped_is_told_and_made_again(place: Place) -> None:
    before = place.indexes()
    for index in declared().indexes.values():
        how = f"ALTER TABLE {index.table} DROP CONSTRAINT {index.name}" if index.primary else f"DROP INDEX {index.name}"
        place.sql(how)
        [told] = await place.store.check()
        assert (told.code, told.message) == (
            "schema_incomplete",
            f"the index {index.name} of {index.table} is missing",
        )
        assert [each.repaired for each in await repaired(place)] == ["it was made again"]
        assert await place.store.check() == []
    assert place.indexes() == before
    keys = place.sql(
        "SELECT conname FROM pg_constraint WHERE contype = 'p' AND connamespace = %s::regnamespace", place.schema
    )
    assert {name for (name,) in keys} == {index.name for index in declared().indexes.values() if index.primary}


async def test_an_index_that_is_invalid_is_built_anew(place: Place) -> None:
    """As one is left whose concurrent building failed."""
    place.sql("UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass", f"{place.schema}.jobs_ready")
    [told] = await place.store.check()
    assert told.message == "the index jobs_ready of jobs cannot be relied on: it is invalid, or not unique"
    assert [each.repaired for each in await repaired(place)] == ["it was made again"]
    assert await place.store.check() == []


async def test_an_index_that_forbids_nothing_any_more_is_told_and_built_anew(place: Place) -> None:
    place.sql("DROP INDEX jobs_unique")
    place.sql("CREATE INDEX jobs_unique ON jobs (unique_key) WHERE unique_key IS NOT NULL AND settled_ms IS NULL")
    assert [each.code for each in await place.store.check()] == ["schema_incomplete"]
    await repaired(place)
    assert "UNIQUE" in place.indexes()["jobs_unique"]


async def test_a_function_that_was_dropped_is_told_and_made_again(place: Place) -> None:
    place.sql("DROP FUNCTION count_up")
    [told] = await place.store.check()
    assert told.message == "the function count_up is missing"
    await place.store.check(repair=True)
    assert await place.store.check() == []
    await place.world.submit()


@pytest.mark.parametrize("damage", ["ALTER TABLE jobs DROP COLUMN rank", "DROP TABLE tags"])
async def test_a_table_that_is_not_as_declared_is_damage_that_nobody_can_mend(place: Place, damage: str) -> None:
    place.sql(damage)
    for repair in (False, True):
        with pytest.raises(StoreDamaged, match="restore a backup"):
            await place.store.check(repair=repair)


async def test_duplicates_are_told_apart_and_mended_before_the_index_is_made_again(place: Place) -> None:
    world = place.world
    [twice, other] = [await world.submit() for _ in range(2)]
    place.sql("ALTER TABLE jobs DROP CONSTRAINT jobs_id; ALTER TABLE keys DROP CONSTRAINT keys_name")
    place.sql("INSERT INTO jobs SELECT * FROM jobs WHERE id = %s", twice.id)
    place.sql("UPDATE tallies SET n = n + 1")
    for job in (twice, other):
        place.sql("INSERT INTO keys VALUES (%s, 9999999999999, 'work.do', 'k', '\\x00')", job.id)

    codes = {found.code for found in (await check(place.store)).violations}
    assert {"duplicate_id", "duplicate_key", "schema_incomplete"} <= codes

    assert (await check(place.store, repair=True)).clean
    assert (await check(place.store)).violations == ()
    rows = place.sql("SELECT id::text, status FROM jobs ORDER BY id")
    assert {twice.id: "pending", other.id: "pending"}.items() <= dict(rows).items()
    assert sorted(status for _, status in rows) == ["pending", "pending", "quarantined"]
    assert place.sql("SELECT job_id::text FROM keys") == [(twice.id,)]


async def test_two_holders_of_a_unique_key_are_told_apart_and_one_is_held_back(place: Place) -> None:
    world = place.world
    await world.open("s1")
    place.sql("DROP INDEX jobs_unique")
    jobs = [await world.submit(queue=f"q{n}") for n in range(3)]
    place.sql("UPDATE jobs SET unique_key = 'only'")
    await world.claim(queues=["q1"])

    assert [each.code for each in await place.store.check()].count("duplicate_unique") == 2

    assert (await check(place.store, repair=True)).clean
    assert (await check(place.store)).violations == ()
    assert [(await world.row(job)).status for job in jobs] == ["quarantined", "running", "quarantined"]
    assert "UNIQUE" in place.indexes()["jobs_unique"]


async def test_an_index_that_cannot_be_made_again_stays_told(place: Place) -> None:
    """Two running jobs hold the same unique key: neither is taken from its worker."""
    world = place.world
    await world.open("s1")
    place.sql("DROP INDEX jobs_unique")
    for queue in ("a", "b"):
        await world.submit(queue=queue)
        await world.claim(queues=[queue])
    place.sql("UPDATE jobs SET unique_key = 'only'")

    found = await place.store.check(repair=True)

    assert [(each.code, each.repaired) for each in found] == [("duplicate_unique", None), ("schema_incomplete", None)]
    assert "jobs_unique" not in place.indexes(), "no invalid one is left behind"


# -- beside others ----------------------------------------------------------------------------------


@pytest.mark.parametrize("repair", [False, True])
async def test_a_check_waits_for_no_lock_and_takes_none(place: Place, repair: bool) -> None:
    world = place.world
    jobs = [await world.submit() for _ in range(3)]
    with place.db.transaction():
        place.sql("UPDATE jobs SET priority = priority")
        place.sql("SELECT FROM tallies, sessions, events FOR UPDATE")
        async with asyncio.timeout(60):
            assert await place.store.check(repair=repair) == []
            assert len(await place.store.audit()) == len(jobs)


@pytest.mark.parametrize("repair", [False, True])
async def test_a_check_beside_those_who_write_finds_nothing_wrong(place: Place, tmp_path: Path, repair: bool) -> None:
    """One works off jobs with keys, waits and claims; what is half done in one transaction is not seen by another."""
    store = place.store
    control = Control(store)
    await store.set_limit("k", 2)
    session = (await control.claims.open_session()).id

    async def work() -> None:
        for _ in range(30):
            first = await control.jobs.submit("first", concurrency_key="k", queue="limited")
            await control.jobs.submit("second", after=[first.id])
            jobs = await control.claims.claim(["limited", "default"], session, 5)
            await control.attempts.complete([Completion(job) for job in jobs])
        await store.trim(TrimPolicy(settled_before_ms={"succeeded": store.clock.now_ms() + 1}, batch=20))

    working = asyncio.create_task(work())
    checks = 0
    while not working.done():
        assert (await check(store, repair=repair)).violations == ()
        checks += 1
    await working
    assert checks > 1

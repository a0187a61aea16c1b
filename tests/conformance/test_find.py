"""Finding: every filter, and pages that neither skip nor repeat."""

from __future__ import annotations

import itertools
import random
from typing import Any

import msgspec
import pytest

from mainstay.errors import InvalidInput
from mainstay.lifecycle import Move
from mainstay.model import ErrorInfo, Options
from mainstay.stores import ClaimReport, Query
from mainstay.stores.omitted_values import size_left_out
from mainstay.stores.query_filter import query_matches
from tests.conformance.world import World


async def found(world: World, **query: object) -> list[str]:
    page = await world.store.find(Query(**query))  # type: ignore[arg-type]
    assert page.cursor is None
    return [job.id for job in page.jobs]


async def test_jobs_come_newest_first_or_oldest_first_when_asked(world: World) -> None:
    jobs = [(await world.submit()).id for _ in range(3)]
    assert await found(world) == jobs[::-1]
    assert await found(world, oldest_first=True) == jobs


async def test_each_filter_finds_what_it_names(world: World) -> None:
    await world.open("s1")
    mail = await world.submit(name="mail.send", queue="mail", options=Options(tags=("urgent", "eu")))
    keyed = await world.submit(key="order-7", queue="mail")
    held = await world.running(name="held")
    failed = await world.running(name="broken")
    error = ErrorInfo(type="ValueError", message="the disk is on fire")
    await world.move(failed, Move(to="failed", reason="gave up early", fields={"error": error}), holder="s1")

    assert await found(world, queue="mail") == [keyed.id, mail.id]
    assert await found(world, name="mail.send") == [mail.id]
    assert await found(world, status=("running", "failed")) == [failed.id, held.id]
    assert await found(world, status=()) == []
    assert await found(world, session="s1") == [held.id]
    assert await found(world, tag="eu") == [mail.id]
    assert await found(world, tag="e") == []
    assert await found(world, key="order-7") == [keyed.id]
    assert await found(world, text="disk is on") == [failed.id]
    assert await found(world, text="up early") == [failed.id]
    assert await found(world, text="ail.sen") == [mail.id]
    assert await found(world, text=held.id[20:]) == [held.id]
    assert await found(world, text="100%_no") == []
    assert await found(world, queue="mail", name="demo.task") == [keyed.id]


@pytest.mark.parametrize("cursor", ["", "nonsense", "018bcfe5", 5])
async def test_a_cursor_that_is_none_is_refused(world: World, cursor: Any) -> None:
    with pytest.raises(InvalidInput, match="^cursor: .* is not a job id"):
        await world.store.find(Query(), cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_page_without_rows_is_refused(world: World, limit: int) -> None:
    with pytest.raises(InvalidInput, match="^limit: a page has at least one row"):
        await world.store.find(Query(), limit=limit)


async def test_a_search_text_is_taken_literally(world: World) -> None:
    await world.submit(name="plain")
    odd = await world.submit(name="50%_off")
    assert await found(world, text="%_") == [odd.id]
    assert await found(world, text="'; DROP TABLE jobs; --") == []


async def test_a_period_includes_its_begin_and_not_its_end(world: World) -> None:
    jobs = []
    for _ in range(4):
        jobs.append(await world.submit())
        world.clock.advance(10)
    between = {"created_from_ms": jobs[1].created_ms, "created_before_ms": jobs[3].created_ms}
    assert await found(world, **between) == [jobs[2].id, jobs[1].id]


async def test_what_a_session_holds_is_found_with_its_units(world: World) -> None:
    await world.open("s1", "s2")
    parent = await world.running()
    unit = await world.running(parent=parent.id, unit="a")
    await world.running(session="s2", parent=parent.id, unit="b")

    assert await found(world, session="s1") == [unit.id, parent.id]
    assert await found(world, session="s1", name="demo.task", oldest_first=True) == [parent.id, unit.id]
    assert await found(world, session="s1", parent=parent.id) == [unit.id]
    assert await found(world, session="s1", status=("pending",)) == []


async def test_units_that_nobody_holds_are_found_only_through_their_parent(world: World) -> None:
    parent = await world.submit()
    units = [await world.submit(parent=parent.id, unit=name) for name in ("a", "b")]
    assert await found(world) == [parent.id]
    assert await found(world, parent=parent.id, oldest_first=True) == [unit.id for unit in units]
    assert await found(world, parent="nobody") == []


async def test_units_are_found_by_status(world: World) -> None:
    await world.open("s1")
    parent, other = await world.submit(), await world.submit()
    units = [await world.running(parent=parent.id, unit=str(n)) for n in range(4)]
    await world.running(parent=other.id, unit="0")
    for unit in units[1:3]:
        await world.move(unit, "failed", holder="s1")

    assert await found(world, parent=parent.id, status=("failed",)) == [units[2].id, units[1].id]
    assert await found(world, parent=parent.id, status=("failed",), name="another") == []
    both = await found(world, parent=parent.id, status=("running", "failed", "running"), oldest_first=True)
    assert both == [unit.id for unit in units]
    assert await found(world, parent=parent.id, status=()) == []
    assert await found(world, parent="nobody", status=("failed",)) == []
    first = await world.store.find(Query(parent=parent.id, status=("running", "failed")), limit=3)
    rest = await world.store.find(Query(parent=parent.id, status=("running", "failed")), cursor=first.cursor)
    assert [job.id for job in (*first.jobs, *rest.jobs)] == [unit.id for unit in units[::-1]]


async def test_pages_neither_skip_nor_repeat_while_jobs_arrive(world: World) -> None:
    jobs = [(await world.submit()).id for _ in range(7)]
    seen: list[str] = []
    cursor = None
    while True:
        page = await world.store.find(Query(), cursor=cursor, limit=3)
        seen += [job.id for job in page.jobs]
        await world.submit()
        if page.cursor is None:
            break
        cursor = page.cursor
    assert seen == jobs[::-1]


async def test_pages_oldest_first_reach_what_arrives_meanwhile(world: World) -> None:
    jobs = [(await world.submit()).id for _ in range(3)]
    page = await world.store.find(Query(oldest_first=True), limit=2)
    assert ([job.id for job in page.jobs], page.cursor is None) == (jobs[:2], False)
    late = await world.submit()
    rest = await world.store.find(Query(oldest_first=True), cursor=page.cursor, limit=2)
    assert [job.id for job in rest.jobs] == [jobs[2], late.id]


async def test_a_page_that_is_exactly_full_is_followed_by_nothing_more(world: World) -> None:
    for n in range(4):
        await world.submit(queue="odd" if n % 2 else "even")
    page = await world.store.find(Query(queue="odd"), limit=2)
    assert len(page.jobs) == 2
    if page.cursor is not None:
        assert (await world.store.find(Query(queue="odd"), cursor=page.cursor, limit=2)).jobs == []


async def test_jobs_of_one_kind_are_found_among_the_others_page_by_page(world: World) -> None:
    batches = []
    for n in range(5):
        batches.append((await world.submit(kind="batch", name=f"b{n % 2}")).id)
        await world.submit(kind="load")
        await world.submit()
    await world.submit(kind="batch", parent=batches[0], unit="a")

    assert await found(world, kind="batch") == batches[::-1]
    assert await found(world, kind="batch", oldest_first=True) == batches
    assert await found(world, kind="batch", name="b1") == [batches[3], batches[1]]
    assert await found(world, kind="batch", status=("pending",)) == batches[::-1]
    assert await found(world, kind="batch", status=("running",)) == []
    assert len(await found(world, kind="task")) == 5
    assert await found(world, kind="node") == []
    first = await world.store.find(Query(kind="batch"), limit=2)
    assert ([job.id for job in first.jobs], first.cursor) == ([batches[4], batches[3]], batches[3])
    rest = await world.store.find(Query(kind="batch"), cursor=first.cursor, limit=3)
    assert ([job.id for job in rest.jobs], rest.cursor) == ([batches[2], batches[1], batches[0]], None)


async def test_what_a_session_holds_and_the_units_of_a_job_can_be_found_by_kind_as_well(world: World) -> None:
    await world.open("s1")
    task = await world.running()
    batch = await world.running(kind="batch")
    unit = await world.submit(kind="batch", parent=batch.id, unit="a")

    assert await found(world, kind="task", session="s1") == [task.id]
    assert await found(world, kind="batch", session="s1") == [batch.id]
    assert await found(world, kind="batch", parent=batch.id) == [unit.id]
    assert await found(world, kind="load", parent=batch.id) == []


async def test_a_job_of_a_kind_that_was_deleted_is_not_found(world: World) -> None:
    batch = await world.submit(kind="batch")
    await world.store.delete([batch.id], actor="me", reason="why not")
    assert await found(world, kind="batch") == []


async def test_pages_of_a_kind_with_any_other_filter_are_together_exactly_what_matches(world: World) -> None:
    rng = random.Random(7)
    jobs = []
    for n in range(40):
        world.clock.advance(0.01)
        job = await world.submit(
            kind=rng.choice(["task", "task", "batch", "load"]),
            name=rng.choice(["a", "b"]),
            queue=rng.choice(["x", "y"]),
            options=Options(tags=("t",) if rng.random() < 0.5 else ()),
            group="g" if rng.random() < 0.5 else None,
        )
        if n % 3 == 0:
            await world.move(job, "cancelled")
        jobs.append(await world.row(job.id))
    filters: list[dict[str, Any]] = [
        {},
        {"name": "a"},
        {"queue": "x"},
        {"tag": "t"},
        {"group": "g"},
        {"status": ("pending",)},
        {"status": ("pending", "cancelled"), "queue": "y", "name": "b"},
        {"text": "a"},
        {"created_from_ms": jobs[10].created_ms, "created_before_ms": jobs[30].created_ms},
    ]

    for kind, more, oldest_first in itertools.product(["task", "batch", "load"], filters, [False, True]):
        query = Query(kind=kind, oldest_first=oldest_first, **more)
        expected = sorted((job.id for job in jobs if query_matches(job, query)), reverse=not oldest_first)
        assert await _paged(world, query, limit=rng.choice([2, 7])) == expected, query


async def test_pages_by_queue_status_and_name_are_together_exactly_what_matches(world: World) -> None:
    await world.open("s1")
    rng = random.Random(11)
    parents = []
    for n in range(60):
        world.clock.advance(0.01)
        # few and old in one queue, many and new in another; names that are in both, in one, and in many
        queue = "mail" if n < 8 else rng.choice(["mail", "other", "other", "other", "other"])
        name = rng.choice(["send", "send", f"{queue}.own", f"one-{n % 5}"])
        job = await world.submit(queue=queue, name=name, delay_s=900 if n % 11 == 0 else 0)
        if n % 4 == 1 and job.status == "pending":
            await world.move(job, "cancelled")
        parents.append(job)
    await world.submit(parent=parents[0].id, unit="a", queue="mail", name="send")
    held = await world.claim(n=9, queues=["mail", "other"])
    for job in held[:3]:
        await world.move(job, rng.choice(["succeeded", "failed"]), holder="s1")
    jobs = [await world.row(job.id) for job in parents]
    statuses = [None, ("pending",), ("running",), ("failed", "succeeded", "cancelled"), ("scheduled", "running"), ()]

    for queue, name, status, oldest_first in itertools.product(
        [None, "mail", "other", "none"], [None, "send", "mail.own", "one-3", "none"], statuses, [False, True]
    ):
        bounds = rng.choice([{}, {"created_from_ms": jobs[10].created_ms, "created_before_ms": jobs[50].created_ms}])
        query = Query(queue=queue, name=name, status=status, oldest_first=oldest_first, **bounds)
        expected = sorted((job.id for job in jobs if query_matches(job, query)), reverse=not oldest_first)
        assert await _paged(world, query, limit=rng.choice([1, 4, 100])) == expected, query


async def test_a_page_by_queue_status_or_name_is_full_while_there_is_more(world: World) -> None:
    for n in range(6):
        await world.submit(queue="mail", name=f"name-{n % 2}")
        await world.submit(queue="other", name=f"name-{n % 3}")

    for query in (Query(queue="mail"), Query(status=("pending",)), Query(name="name-1", queue="mail")):
        page = await world.store.find(query, limit=2)
        assert len(page.jobs) == 2
        assert page.cursor == page.jobs[-1].id


async def _paged(world: World, query: Query, *, limit: int) -> list[str]:
    """Ids of all pages."""
    seen: list[str] = []
    cursor = None
    while True:
        page = await world.store.find(query, cursor=cursor, limit=limit)
        seen += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            return seen


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"status": ("running", "succeeded", "pending")},
        {"queue": "long"},
        {"name": "long.one"},
        {"tag": "long"},
        {"text": "long.one"},
        {"session": "s1"},
        {"key": "k"},
    ],
    ids=str,
)
async def test_a_list_leaves_out_values_that_are_longer_than_it_asks_for(world: World, query: dict[str, Any]) -> None:
    await world.open("s1")
    options = Options(tags=("long",))
    job = await world.submit(
        payload=b"p" * 1000, queue="long", name="long.one", options=options, key="k", result=b"r" * 11
    )
    if "session" in query:
        [job] = await world.claim(queues=["long"])
        assert await world.store.report(
            [ClaimReport(job_id=job.id, session="s1", token=job.token, checkpoint=b"c" * 10)]
        )

    [row] = (await world.store.find(Query(**query, value_bytes=10))).jobs
    assert size_left_out(row.payload) == 1000
    assert size_left_out(row.result) == 11
    assert row.checkpoint == (b"c" * 10 if "session" in query else None)
    assert msgspec.structs.replace(row, payload=job.payload, result=job.result) == await world.row(job)

    [whole] = (await world.store.find(Query(**query))).jobs
    [also] = (await world.store.find(Query(**query, value_bytes=1000))).jobs
    assert whole == also == await world.row(job)

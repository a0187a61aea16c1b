"""Waits in their table: what damage to it looks like, and what a damaged row that waits comes to."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from mainstay.control.check import check
from mainstay.model import Options
from tests.conformance.world import World

SETTLED = Options(after_when="settled")


def raw(path: Path, sql: str) -> None:
    db = apsw.Connection(str(path))
    db.set_busy_timeout(5000)
    db.execute(sql)
    db.close()


async def found(world: World) -> list[tuple[str, str | None]]:
    """What the check finds; a repair must leave a clean store behind."""
    told = [(each.code, each.job_id) for each in await world.store.check()]
    assert all(each.repaired for each in await world.store.check(repair=True))
    assert await world.store.check() == []
    return told


@pytest.mark.parametrize(("status", "becomes"), [("succeeded", "pending"), ("cancelled", "skipped")])
async def test_an_end_that_was_missed_is_found_and_told(world: World, path: Path, status: str, becomes: str) -> None:
    await world.open("s1")
    first = await world.running()
    job = await world.submit(after=[first])
    # as if whoever settled it had not looked
    raw(path, "UPDATE waits SET done = 1")
    await world.move(first, status, holder="s1")
    raw(path, "UPDATE waits SET done = 0")

    assert await found(world) == [("wait_missed", first.id)]

    assert (await world.row(job)).status == becomes


async def test_an_edge_to_a_job_that_vanished_is_found_and_closed(world: World, path: Path) -> None:
    first = await world.submit(queue="a")
    job = await world.submit(after=[first], options=SETTLED)
    raw(path, f"DELETE FROM jobs WHERE id = '{first.id}'")
    raw(path, f"DELETE FROM events WHERE job_id = '{first.id}'")
    raw(path, "DELETE FROM tallies WHERE queue = 'a'")
    assert await found(world) == [("wait_missed", first.id)]
    assert (await world.row(job)).status == "pending"


@pytest.mark.parametrize(("status", "becomes"), [("failed", "skipped"), ("succeeded", "pending")])
async def test_a_stranded_row_is_released_as_its_dependencies_stand(
    world: World, path: Path, status: str, becomes: str
) -> None:
    await world.open("s1")
    first, open_still = await world.running(), await world.submit()
    job = await world.submit(after=[first, open_still])
    behind = await world.submit(after=[job])
    raw(path, f"UPDATE waits SET done = 1 WHERE job_id = '{job.id}'")
    await world.move(first, status, holder="s1")
    assert (await world.row(job)).awaits
    assert await found(world) == [("wait_stranded", job.id)]
    assert (await world.row(job)).status == becomes
    assert (await world.row(behind)).status == ("scheduled" if becomes == "pending" else "skipped")


async def test_edges_of_a_job_that_is_not_there_are_removed(world: World, path: Path) -> None:
    first = await world.submit()
    raw(path, f"INSERT INTO waits VALUES ('nobody', 0, '{first.id}', 0)")
    assert await found(world) == [("stray_wait", "nobody")]


async def test_a_waiting_row_whose_options_are_lost_is_not_run_but_held(world: World, path: Path) -> None:
    """Nobody knows any more what it was to wait for, success or any end."""
    await world.open("s1")
    first = await world.running()
    job = await world.submit(after=[first])
    raw(path, f"UPDATE jobs SET options = x'c1' WHERE id = '{job.id}'")
    answer = await world.move(first, "succeeded", holder="s1")
    assert answer.outcome == "applied"
    assert (await world.row(job)).status == "scheduled"
    report = await check(world.store, repair=True)
    assert report.clean
    assert (await world.row(job)).status == "quarantined"


async def test_a_dependency_whose_status_is_no_text_counts_as_ended_otherwise(world: World, path: Path) -> None:
    await world.open("s1")
    first = await world.running()
    await world.move(first, "succeeded", holder="s1")
    raw(path, f"UPDATE jobs SET status = CAST(x'ff' AS TEXT) WHERE id = '{first.id}'")
    job = await world.submit(after=[first])
    assert job.status == "skipped"
    assert (await check(world.store, repair=True)).clean

"""Standing sessions on SQLite: no lock, no lease, and no end but `close_session`."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from mainstay.model import Session
from tests.conformance.world import World

STANDING = Session(id="dc.east", pid=os.getpid(), standing=True, node="east", lease_s=8)


def run(path: Path, sql: str) -> int:
    """Run a statement as another program would; how many rows it changed."""
    db = apsw.Connection(str(path))
    db.set_busy_timeout(5000)
    db.execute(sql)
    changed = db.changes()
    db.close()
    return changed


def locks(path: Path) -> list[str]:
    return os.listdir(path.with_name(path.name + "-mainstay") / "sessions")


async def test_a_standing_session_has_no_lock_file(world: World, path: Path) -> None:
    await world.store.open_session(STANDING)
    await world.store.open_session(Session(id="direct", pid=os.getpid()))
    assert locks(path) == ["direct"]


async def test_a_standing_session_survives_a_restart_of_the_machine(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.store.open_session(STANDING)
    held = await world.running("dc.east")
    await world.store.lead("placement", "dc.east", 10)
    for module in ("directory", "changes", "queries"):
        monkeypatch.setattr(f"mainstay.stores.sqlite.{module}.boot_id", lambda: "another")
    world.clock.advance(3600)

    assert await world.store.overdue() == []
    [session] = await world.store.sessions()
    assert (session.dead, (await world.store.stats()).sessions) == (False, 1)
    assert (await world.move(held, "succeeded", holder="dc.east")).outcome == "applied"


async def test_the_sweep_of_a_program_of_the_version_before_cannot_declare_a_standing_session_dead(
    world: World, path: Path
) -> None:
    await world.store.open_session(STANDING)
    await world.open("direct")
    held = await world.running("dc.east")

    # the statement of version 8, for every session that it takes for dead
    assert run(path, "UPDATE sessions SET dead = 1 WHERE id = 'dc.east'") == 0
    assert run(path, "UPDATE sessions SET dead = 1 WHERE id = 'direct'") == 1

    assert {session.id: session.dead for session in await world.store.sessions()} == {"dc.east": False, "direct": True}
    assert await world.store.overdue() == []
    await world.store.close_session("dc.east")
    assert [late.job.id for late in await world.store.overdue()] == [held.id]


async def test_a_standing_session_that_was_closed_can_be_opened_again(world: World) -> None:
    await world.store.open_session(STANDING)
    held = await world.running("dc.east")
    await world.store.close_session("dc.east")
    assert not (await world.store.beat(["dc.east"]))[0].known

    await world.store.open_session(STANDING)

    assert (await world.store.beat(["dc.east"]))[0].known
    assert await world.store.overdue() == []
    assert (await world.move(held, "succeeded", holder="dc.east")).outcome == "applied"


async def test_marks_end_with_their_session(world: World, path: Path) -> None:
    await world.open("s1", "s2")
    await world.submit()
    for session in ("s1", "s2"):
        await world.store.claim(["default"], session, 1, mark="a")
    assert run(path, "UPDATE claim_marks SET claims = claims") == 2

    await world.store.close_session("s1")
    assert run(path, "UPDATE claim_marks SET claims = claims") == 1
    world.clock.advance(9)
    await world.store.overdue()
    assert run(path, "UPDATE claim_marks SET claims = claims") == 0
    await world.reap()


async def test_a_claim_without_a_mark_stores_none(world: World, path: Path) -> None:
    await world.open("s1")
    await world.submit()
    await world.claim("s1")
    assert run(path, "UPDATE claim_marks SET claims = claims") == 0

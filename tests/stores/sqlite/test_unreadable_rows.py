"""One row with text that is not text stops nobody else: not a claim, a sweep, a beat, a completion or a list."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from mainstay.control import Completion, Control
from mainstay.control.check import check
from mainstay.model import Job
from mainstay.stores import JobStore, Query, open_store
from mainstay.testing import VirtualClock


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[JobStore]:
    opened = await open_store(f"sqlite:///{tmp_path / 'jobs.db'}", clock=VirtualClock())
    yield opened
    await opened.close()


def garble(store: JobStore, job_id: str, column: str = "group") -> None:
    db = apsw.Connection(str(store.path))  # type: ignore[attr-defined]
    db.execute(f"UPDATE jobs SET \"{column}\" = CAST(x'fffe41' AS TEXT) WHERE id = ?", (job_id,))
    db.close()


async def claimed(control: Control, n: int, session: str = "") -> tuple[str, list[Job]]:
    session = session or (await control.claims.open_session()).id
    return session, await control.claims.claim(["default"], session, n)


async def test_a_claim_goes_on_past_it_and_sets_it_aside(store: JobStore) -> None:
    control = Control(store)
    ids = [(await control.jobs.submit("mail.send")).id for _ in range(3)]
    garble(store, ids[1], "name")

    _, jobs = await claimed(control, 10)

    assert [job.id for job in jobs] == [ids[0], ids[2]]
    assert (await store.stats()).aside == 1


async def test_a_due_one_is_set_aside_and_counted_once(store: JobStore) -> None:
    control = Control(store)
    ids = [(await control.jobs.submit("mail.send", delay="1s")).id for _ in range(2)]
    garble(store, ids[0], "name")
    store.clock.advance(2)  # type: ignore[attr-defined]

    _, jobs = await claimed(control, 10)

    assert [job.id for job in jobs] == [ids[1]]
    assert (await store.stats()).queues["default"].counts == {"running": 1, "scheduled": 1}


async def test_a_sweep_reaps_it_with_the_others(store: JobStore) -> None:
    control = Control(store)
    ids = [(await control.jobs.submit("mail.send")).id for _ in range(2)]
    await claimed(control, 2)
    garble(store, ids[0])
    store.clock.advance(60)  # type: ignore[attr-defined]

    swept = await Control(store).sweeper.sweep()

    assert swept.moved == {"pending": 2}


async def test_beats_completions_and_lists_go_on(store: JobStore) -> None:
    control = Control(store)
    ids = [(await control.jobs.submit("mail.send")).id for _ in range(3)]
    session, jobs = await claimed(control, 3)
    garble(store, ids[0])

    [pulse] = await control.claims.beat([session], [control.claims.progress(job, 1) for job in jobs])
    assert pulse.known
    await control.operations.cancel(ids[1], actor="ann", reason="not needed")
    outcomes = await control.attempts.complete([Completion(job) for job in jobs])
    assert [outcome.outcome for outcome in outcomes] == ["applied"] * 3
    assert {job.id for job in (await store.find(Query())).jobs} == set(ids)
    assert [job is not None for job in await store.get(ids)] == [True] * 3
    assert {found.code for found in (await check(store)).violations} == {"unreadable"}

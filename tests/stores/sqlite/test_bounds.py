"""Writes stay short however much waits, and what is let go frees what hung on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from mainstay.control import Control, JobRequest
from mainstay.model import Lane, Schedule
from mainstay.stores import JobStore, TrimPolicy, open_store
from mainstay.stores.sqlite import selection
from mainstay.testing import VirtualClock


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[JobStore]:
    opened = await open_store(f"sqlite:///{tmp_path / 'jobs.db'}", clock=VirtualClock())
    yield opened
    await opened.close()


async def test_a_claim_moves_only_so_many_rows_of_a_full_key_and_has_itself_woken_again(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "_MOST_BLOCKED", 5)
    control = Control(store)
    await control.operations.set_limit("k", 1)
    await control.jobs.submit_many([JobRequest("t", i, {"concurrency_key": "k"}) for i in range(12)])
    free = (await control.jobs.submit("t", "free")).id
    session = (await control.claims.open_session()).id
    claimed = [job.id for job in await control.claims.claim(["default"], session, 1)]

    async with store.wake(["queue:default"]) as wake:
        assert await control.claims.claim(["default"], session, 5) == []
        assert await wake.wait(60)
    rounds = [await control.claims.claim(["default"], session, 5) for _ in range(2)]

    assert [job.id for jobs in rounds for job in jobs] == [free]
    assert free not in claimed


async def test_blocked_rows_of_every_queue_come_back_when_the_limit_is_lifted(store: JobStore) -> None:
    control = Control(store)
    await control.operations.set_limit("k", 1)
    for queue in ("a", "b", "c"):
        await control.jobs.submit_many([JobRequest("t", i, {"concurrency_key": "k", "queue": queue}) for i in range(3)])
    session = (await control.claims.open_session()).id
    assert len(await control.claims.claim(["a", "b", "c"], session, 20)) == 1

    await control.operations.set_limit("k", None)

    assert len(await control.claims.claim(["a", "b", "c"], session, 20)) == 8


async def test_a_tick_that_was_trimmed_does_not_happen_again(store: JobStore) -> None:
    day = 86_400_000
    await store.put_schedule(Schedule(name="nightly", spec=b""))
    for at_ms in (day, 2 * day, 4 * day):
        assert await store.tick("nightly", at_ms, []) == []
    await store.trim(TrimPolicy())

    assert [await store.tick("nightly", at_ms, []) for at_ms in (day, 2 * day, 4 * day)] == [None] * 3


async def test_trimming_goes_past_a_job_whose_history_is_broken(store: JobStore) -> None:
    control = Control(store)
    ids = [(await control.jobs.submit("t")).id for _ in range(2)]
    for _ in range(12):
        for job_id in ids:
            await control.operations.set_priority(job_id, 1, actor="ann")
            await control.operations.set_priority(job_id, 2, actor="ann")
    db = apsw.Connection(str(store.path))  # type: ignore[attr-defined]
    db.execute("DELETE FROM events WHERE job_id = ? AND seq > 5", (ids[0],))
    db.close()

    trimmed = await store.trim(TrimPolicy(keep_events=5, batch=1))
    assert trimmed.events > 0
    assert await store.trim(TrimPolicy(keep_events=5, batch=1)) == type(trimmed)(0, 0, 0, False)


async def test_a_session_of_another_boot_is_dead_whoever_has_noticed(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(store)
    await control.claims.open_session()
    db = apsw.Connection(str(store.path))  # type: ignore[attr-defined]
    db.execute("UPDATE sessions SET boot = 'another', beat_ms = beat_ms + 1000000000")
    db.close()

    assert [session.dead for session in await store.sessions()] == [True]
    assert (await store.stats()).sessions == 0


async def test_a_job_of_a_newer_version_is_left_alone_by_a_claim(store: JobStore) -> None:
    control = Control(store)
    newer = (await control.jobs.submit("t")).id
    plain = (await control.jobs.submit("t")).id
    db = apsw.Connection(str(store.path))  # type: ignore[attr-defined]
    db.execute("UPDATE jobs SET status = 'teleporting' WHERE id = ?", (newer,))
    db.close()
    session = (await control.claims.open_session()).id

    assert [job.id for job in await control.claims.claim(["default"], session, 5)] == [plain]
    [left] = await store.get([newer])
    assert left is not None
    assert (left.status, left.lane) == ("teleporting", Lane.READY)

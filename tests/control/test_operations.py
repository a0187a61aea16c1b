"""What people do: cancel, retry, force, priority, delete, pause, limits, waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from mainstay.control import Completion, Control, Failure
from mainstay.errors import (
    Conflict,
    InvalidInput,
    InvalidTransition,
    JobNotFound,
    StoreLocked,
    UniqueClash,
    WaitTimeout,
)
from mainstay.model import ErrorInfo, Job, Settings
from mainstay.stores import Wake

from .conftest import Bench

BOOM = ErrorInfo(type="ValueError", message="boom")
NOBODY = "018bcfe5-6800-7000-8000-0123456789ab"


@pytest.mark.parametrize("options", [{}, {"delay": "1h"}])
async def test_a_waiting_job_is_cancelled_at_once(bench: Bench, options: dict[str, str]) -> None:
    submitted = await bench.control.jobs.submit("t", **options)

    job = await bench.control.operations.cancel(submitted.id, actor="ann", reason="not needed")

    assert (job.status, job.reason) == ("cancelled", "not needed")


async def test_a_running_job_is_asked_to_stop_and_confirms(bench: Bench) -> None:
    job = await bench.running(grace="5s")
    asked = await bench.control.operations.cancel(job.id, actor="ann")

    assert (asked.status, asked.expires_ms) == ("cancelling", bench.clock.now_ms() + 5000)
    [pulse] = await bench.worker.claims.beat([str(job.session)])
    assert pulse.cancelling == (job.id,)
    [outcome] = await bench.worker.attempts.confirm_cancelled([job])
    assert outcome.outcome == "applied"
    assert (await bench.control.jobs.get(job.id)).status == "cancelled"


async def test_cancelling_twice_is_once(bench: Bench) -> None:
    job = await bench.running()
    first = await bench.control.operations.cancel(job.id, actor="ann")

    assert (await bench.control.operations.cancel(job.id, actor="bob")).version == first.version


async def test_a_success_wins_the_race_against_a_cancel(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.control.operations.cancel(job.id, actor="ann")

    [outcome] = await bench.worker.attempts.complete([Completion(job, 1)])

    assert outcome.outcome == "applied"
    assert (await bench.control.jobs.get(job.id)).status == "succeeded"


async def test_a_late_error_is_a_detail_of_the_cancel(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.control.operations.cancel(job.id, actor="ann")

    await bench.worker.attempts.fail([Failure(job, BOOM)])

    last = (await bench.control.jobs.events(job.id))[-1]
    assert last.to == "cancelled"
    assert last.data["error"]["message"] == "boom"
    assert (await bench.control.jobs.get(job.id)).failures == 0


async def test_a_drain_ends_what_was_being_cancelled(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.control.operations.cancel(job.id, actor="ann")

    await bench.worker.attempts.release([job], reason="draining")

    assert (await bench.control.jobs.get(job.id)).status == "cancelled"


async def test_cancelling_a_finished_job_is_refused_with_its_story(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.worker.attempts.complete([Completion(job)])

    with pytest.raises(InvalidTransition) as refusal:
        await bench.control.operations.cancel(job.id, actor="ann")

    assert job.id in str(refusal.value)
    assert any("running -> succeeded" in line for line in refusal.value.story)


async def test_a_refusal_tells_the_last_five_lines_of_the_story(bench: Bench) -> None:
    job = await bench.control.jobs.submit("t")
    for priority in range(1, 8):
        await bench.control.operations.set_priority(job.id, priority, actor="ann")
    await bench.control.operations.cancel(job.id, actor="bob", reason="enough")

    with pytest.raises(InvalidTransition) as refusal:
        await bench.control.operations.retry(job.id, actor="ann")

    assert [line.split(".")[0] for line in refusal.value.story] == ["5", "6", "7", "8", "9"]
    assert "9. 2023-11-14 22:13:20.000Z pending -> cancelled by bob: enough" in str(refusal.value)


async def test_a_bulk_cancel_answers_for_each(bench: Bench) -> None:
    done, open_ = await bench.claimed(), await bench.control.jobs.submit("t")
    await bench.worker.attempts.complete([Completion(done)])

    outcomes = await bench.control.operations.cancel_many([done.id, NOBODY, open_.id], actor="ann")

    assert [one.outcome for one in outcomes] == ["invalid", "missing", "applied"]
    assert isinstance(outcomes[0].error, InvalidTransition)
    assert outcomes[0].error.story


async def test_a_person_sends_a_quarantined_job_back_for_one_more_attempt(bench: Bench) -> None:
    job = await bench.claimed(retries=0)
    await bench.worker.attempts.fail([Failure(job, BOOM)])

    again = await bench.control.operations.retry(job.id, actor="ann", reason="fixed the template")

    assert (again.status, again.failures, again.reason) == ("pending", 1, "fixed the template")


async def test_a_running_job_cannot_be_retried(bench: Bench) -> None:
    job = await bench.running()

    with pytest.raises(InvalidTransition, match="a worker runs it"):
        await bench.control.operations.retry(job.id, actor="ann")
    assert (await bench.control.jobs.get(job.id)).session == job.session


async def test_a_retry_does_not_break_uniqueness(bench: Bench) -> None:
    job = await bench.claimed(retries=0, unique="u")
    await bench.worker.attempts.fail([Failure(job, BOOM)])
    await bench.control.jobs.submit("demo.task", 2, unique="u")

    with pytest.raises(UniqueClash):
        await bench.control.operations.retry(job.id, actor="ann")
    assert (await bench.control.jobs.get(job.id)).status == "quarantined"


async def test_a_forced_move_is_audited_and_fences_the_holder(bench: Bench) -> None:
    job = await bench.running()

    await bench.control.operations.force(job.id, "quarantined", actor="ann", reason="it eats the disk")

    event = (await bench.control.jobs.events(job.id))[-1]
    assert (event.flag, event.actor, event.reason) == ("forced", "ann", "it eats the disk")
    [outcome] = await bench.worker.attempts.complete([Completion(job)])
    assert outcome.outcome == "stale"


async def test_force_needs_a_reason_and_never_leaves_a_final_state(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.worker.attempts.complete([Completion(job)])

    with pytest.raises(InvalidInput, match="reason"):
        await bench.control.operations.force(job.id, "pending", actor="ann", reason=" ")
    with pytest.raises(InvalidTransition, match="final"):
        await bench.control.operations.force(job.id, "pending", actor="ann", reason="again")


async def test_a_raised_priority_goes_first_and_is_noted(bench: Bench) -> None:
    await bench.control.jobs.submit("first")
    second = await bench.control.jobs.submit("second")

    await bench.control.operations.set_priority(second.id, 10, actor="ann")

    session = await bench.session()
    assert [job.id for job in await bench.worker.claims.claim(["default"], session.id, 1)] == [second.id]
    notes = [event for event in await bench.control.jobs.events(second.id) if event.flag == "note"]
    assert [note.reason for note in notes] == ["priority changed from 0 to 10"]


async def test_priority_is_checked(bench: Bench) -> None:
    submitted = await bench.control.jobs.submit("t")

    with pytest.raises(InvalidInput, match="^priority: 500"):
        await bench.control.operations.set_priority(submitted.id, 500, actor="ann")


async def test_deleting_leaves_a_tombstone_and_refuses_what_is_held(bench: Bench) -> None:
    held, idle = await bench.running(), await bench.control.jobs.submit("t")

    await bench.control.operations.delete(idle.id, actor="ann", reason="privacy")
    with pytest.raises(Conflict, match="cancel it first"):
        await bench.control.operations.delete(held.id, actor="ann", reason="privacy")

    assert [event.flag for event in await bench.control.jobs.events(idle.id)] == ["tombstone"]
    with pytest.raises(JobNotFound):
        await bench.control.jobs.get(idle.id)


async def test_an_unknown_id_is_told_from_a_malformed_one(bench: Bench) -> None:
    with pytest.raises(JobNotFound, match=NOBODY):
        await bench.control.jobs.get(NOBODY)
    with pytest.raises(JobNotFound):
        await bench.control.operations.cancel(NOBODY, actor="ann")
    with pytest.raises(JobNotFound):
        await bench.control.jobs.events(NOBODY)
    with pytest.raises(InvalidInput, match="not a job id"):
        await bench.control.jobs.get("42")


async def test_a_paused_queue_hands_out_nothing_until_resumed(bench: Bench) -> None:
    await bench.control.jobs.submit("t")
    session = await bench.session()

    await bench.control.operations.pause("default", reason="maintenance")
    assert await bench.worker.claims.claim(["default"], session.id, 1) == []
    await bench.control.operations.resume("default")
    assert len(await bench.worker.claims.claim(["default"], session.id, 1)) == 1


async def test_a_limit_holds_per_key_and_moves_on_when_a_slot_is_freed(bench: Bench) -> None:
    await bench.control.operations.set_limit("api", 1)
    for _ in range(2):
        await bench.control.jobs.submit("t", concurrency_key="api")
    session = await bench.session()

    [first] = await bench.worker.claims.claim(["default"], session.id, 5)
    assert await bench.worker.claims.claim(["default"], session.id, 5) == []
    await bench.worker.attempts.complete([Completion(first)])
    assert len(await bench.worker.claims.claim(["default"], session.id, 5)) == 1


@pytest.mark.parametrize("most", [0, -1, True, 1.5])
async def test_a_senseless_limit_is_refused(bench: Bench, most: object) -> None:
    with pytest.raises(InvalidInput, match="^limit: "):
        await bench.control.operations.set_limit("api", most)  # type: ignore[arg-type]


async def test_waiting_ends_when_the_job_settles(bench: Bench) -> None:
    job = await bench.claimed()
    waiting = asyncio.create_task(bench.control.jobs.wait(job.id, "30s"))
    await asyncio.sleep(0)

    await bench.worker.attempts.complete([Completion(job, 1)])

    assert (await waiting).status == "succeeded"


async def test_waiting_for_a_settled_job_ends_at_once_and_for_too_long_says_so(bench: Bench) -> None:
    job = await bench.claimed()
    with pytest.raises(WaitTimeout, match="still running"):
        await bench.control.jobs.wait(job.id, "1ms")
    await bench.worker.attempts.complete([Completion(job)])

    assert (await bench.control.jobs.wait(job.id, "1ms")).status == "succeeded"


class Deaf:
    """A store whose wakes never come, and that counts the looks at it; everything else is the real one."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.looks: list[int] = []
        self.trouble: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def wake(self, topics: Sequence[str]) -> Wake:
        found: Wake = self._store.wake(["job:nobody"] * len(topics))
        return found

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        self.looks.append(len(ids))
        if self.trouble is not None:
            raise self.trouble
        found: list[Job | None] = await self._store.get(ids)
        return found


async def test_an_end_that_wakes_nobody_is_seen_by_one_look_for_all(bench: Bench) -> None:
    store = Deaf(bench.store)
    control = Control(store, settings=Settings(poll_s=0.01))
    jobs = [await bench.claimed() for _ in range(20)]
    waiting = [asyncio.create_task(control.jobs.wait(job.id, "30s")) for job in (*jobs, jobs[0])]
    while 20 not in store.looks:  # the first looks are each one's own, and may be answered one by one
        await asyncio.sleep(0)

    await bench.worker.attempts.complete([Completion(job) for job in jobs])

    assert [job.status for job in await asyncio.gather(*waiting)] == ["succeeded"] * 21
    assert store.looks[:21] == [1] * 21
    assert set(store.looks[store.looks.index(20) :]) == {20}


async def test_who_waits_for_a_job_that_is_deleted_hears_so(bench: Bench) -> None:
    control = Control(bench.store, settings=Settings(poll_s=0.01))
    job = await bench.control.jobs.submit("t")
    waiting = asyncio.create_task(control.jobs.wait(job.id, "30s"))
    await asyncio.sleep(0)

    await bench.control.operations.delete(job.id, actor="ann", reason="a mistake")

    with pytest.raises(JobNotFound):
        await waiting


async def test_who_waits_hears_of_trouble_with_the_store_and_nothing_is_left_behind(bench: Bench) -> None:
    store = Deaf(bench.store)
    control = Control(store, settings=Settings(poll_s=0.01))
    job = await bench.claimed()
    before = asyncio.all_tasks()
    waiting = [asyncio.create_task(control.jobs.wait(job.id)) for _ in range(2)]
    while len(store.looks) < 3:
        await asyncio.sleep(0)

    store.trouble = StoreLocked("the database is locked")

    assert [type(error) for error in await asyncio.gather(*waiting, return_exceptions=True)] == [StoreLocked] * 2
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_one_who_gives_up_waiting_leaves_the_others_waiting(bench: Bench) -> None:
    job = await bench.claimed()
    gone, stays = [asyncio.create_task(bench.control.jobs.wait(job.id, "30s")) for _ in range(2)]
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    assert gone.cancelled()

    await bench.worker.attempts.complete([Completion(job)])

    assert (await stays).status == "succeeded"


async def test_a_very_long_story_ends_with_what_happened_last(bench: Bench) -> None:
    job = await bench.control.jobs.submit("t")
    for turn in range(1005):
        await bench.control.operations.set_priority(job.id, turn % 2 + 1, actor="ann")

    lines = await bench.control.jobs.story(job.id)

    assert lines[0] == "... 6 earlier events"
    assert lines[-1].startswith("1006. ")
    assert len(lines) == 1001


@pytest.mark.parametrize("most", [2**70, 1.5, "3", True, 0])
async def test_a_limit_that_is_no_number_of_jobs_is_refused(bench: Bench, most: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        await bench.control.operations.set_limit("k", most)
    assert refused.value.field == "limit"

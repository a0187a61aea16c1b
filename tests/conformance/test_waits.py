"""Jobs that wait for others: each moves on exactly once, in the same step as the last it waited for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainstay.errors import AlreadySubmitted, InvalidInput
from mainstay.lifecycle import JOB, Move
from mainstay.model import AWAITS_MS, Job, Lane, Options
from mainstay.stores import Query, TrimPolicy
from tests.conformance.world import World

SETTLED = Options(after_when="settled")
FAIL = Options(after_when="succeeded", after_failed="fail")


@pytest.fixture(autouse=True)
async def _session(world: World) -> None:
    await world.open("s1", lease_s=600)


async def waiting(world: World, *after: Job | str, **fields: Any) -> Job:
    return await world.submit(after=after, queue="waiters", reason="waits", **fields)


async def finish(world: World, job: Job, *moves: str | Move) -> None:
    """Claim a job if need be, and end it."""
    row = await world.row(job)
    if row.status == "pending":
        [row] = await world.claim(queues=[row.queue])
        assert row.id == job.id, "queues of tests hold one ready job at a time"
    answer = await world.move(row, *(moves or ("succeeded",)), holder=row.session)
    assert answer.outcome == "applied"


async def ended(world: World, status: str) -> Job:
    """A job that has settled in this status."""
    job = await world.running(queue=f"for-{status}")
    moves = ("failed", status) if status == "quarantined" else (status,)
    if status == "partial":
        moves = ("validating", "partial")
    await finish(world, job, *moves)
    return await world.row(job)


async def test_a_waiting_job_is_scheduled_for_no_time_and_nobody_can_claim_it(world: World) -> None:
    first = await world.submit()
    job = await waiting(world, first)

    assert (job.status, job.due_ms, job.lane, job.awaits) == ("scheduled", AWAITS_MS, Lane.DUE, True)
    assert await world.store.due(["waiters"]) is None
    world.clock.advance(50 * 365 * 86_400)
    assert await world.claim(queues=["waiters"]) == []
    stats = (await world.store.stats()).queues["waiters"]
    assert (stats.counts, stats.oldest_ready_ms) == ({"scheduled": 1}, None)


async def test_the_next_due_time_is_told_beside_one_that_waits(world: World) -> None:
    await waiting(world, await world.submit())
    later = await world.submit(queue="waiters", delay_s=30)
    assert await world.store.due(["waiters"]) == later.due_ms


async def test_it_gets_ready_in_the_same_step_as_the_last_it_waits_for(world: World) -> None:
    first, second = await world.submit(queue="a"), await world.submit(queue="b")
    job = await waiting(world, second, first)
    await finish(world, first)
    assert await world.row(job) == job, "the row is not touched before the last"
    world.clock.advance(5)

    await finish(world, second)

    row = await world.row(job)
    assert (row.status, row.lane, row.due_ms, row.awaits) == ("pending", Lane.READY, world.clock.now_ms(), False)
    assert row.reason == "the jobs it waited for succeeded"
    assert await world.story(job) == ["scheduled", "pending"]
    assert [event.actor for event in await world.store.events(job.id)] == ["test", "store"]
    assert [found.id for found in await world.claim(queues=["waiters"])] == [job.id]


async def test_it_takes_its_place_in_the_queue_when_it_gets_ready(world: World) -> None:
    first = await world.submit()
    job = await waiting(world, first)
    world.clock.advance(5)
    before = await world.submit(queue="waiters")
    world.clock.advance(5)
    await finish(world, first)
    world.clock.advance(5)
    behind = await world.submit(queue="waiters")
    assert [row.id for row in await world.claim(queues=["waiters"], n=5)] == [before.id, job.id, behind.id]


async def test_a_priority_given_while_it_waits_counts_when_it_is_ready(world: World) -> None:
    first = await world.submit()
    job = await waiting(world, first)
    note = Move(to="scheduled", reason="first", fields={"priority": 5, "rank": job.rank - 5 * 60_000}, flag="note")
    await world.move(job, note)
    await finish(world, first)
    row = await world.row(job)
    assert row.rank == row.due_ms - 5 * 60_000


async def test_what_it_waits_for_is_told_in_the_order_given(world: World) -> None:
    jobs = [await world.submit() for _ in range(3)]
    wanted = [jobs[2].id, jobs[0].id, jobs[1].id]
    job = await waiting(world, *wanted, jobs[0])
    assert await world.store.awaited(job.id) == wanted
    assert await world.store.awaited(jobs[0].id) == []
    await world.move(jobs[0], "cancelled")
    assert await world.store.awaited(job.id) == wanted


async def test_all_dependencies_in_one_batch_release_it_once(world: World) -> None:
    await world.store.insert([world.new() for _ in range(5)])
    held = await world.claim(n=5)
    job = await waiting(world, *held)
    await world.store.apply([world.change(row, "succeeded", holder="s1") for row in held])
    assert await world.story(job) == ["scheduled", "pending"]


async def test_one_job_releases_all_who_wait_for_it(world: World) -> None:
    first = await world.submit()
    jobs = [await waiting(world, first) for _ in range(4)]
    await finish(world, first)
    assert {(await world.row(job)).status for job in jobs} == {"pending"}


async def test_a_retry_is_no_end(world: World) -> None:
    first = await world.running()
    job = await waiting(world, first)
    await finish(world, first, "failed", Move(to="scheduled", fields={"due_ms": world.clock.now_ms() + 1000}))
    assert await world.row(job) == job
    world.clock.advance(2)
    [again] = await world.claim(queues=["own"])
    await finish(world, again, "timed_out", "pending")
    assert await world.row(job) == job
    [again] = await world.claim(queues=["own"])
    await finish(world, again)
    assert await world.story(job) == ["scheduled", "pending"]


async def test_a_time_that_was_asked_for_besides_is_kept(world: World) -> None:
    first = await world.submit()
    at_ms = world.clock.now_ms() + 60_000
    job = await waiting(world, first, options=Options(after_when="succeeded", not_before_ms=at_ms))
    await finish(world, first)

    row = await world.row(job)
    assert (row.status, row.due_ms, row.lane, row.awaits) == ("scheduled", at_ms, Lane.DUE, False)
    assert row.reason is not None
    assert row.reason.startswith("waits until ")
    [_, note] = await world.store.events(job.id)
    assert (note.flag, note.reason) == ("note", f"the jobs it waited for succeeded; {row.reason}")
    assert await world.store.due(["waiters"]) == at_ms
    world.clock.advance(60)
    assert [found.id for found in await world.claim(queues=["waiters"])] == [job.id]


async def test_a_time_that_has_passed_by_then_does_not_hold_it_up(world: World) -> None:
    first = await world.submit()
    job = await waiting(
        world, first, options=Options(after_when="succeeded", not_before_ms=world.clock.now_ms() + 1000)
    )
    world.clock.advance(2)
    await finish(world, first)
    assert (await world.row(job)).status == "pending"


OTHER_ENDS = sorted(set(JOB.named("settled")) - {"succeeded"})


@pytest.mark.parametrize("status", OTHER_ENDS)
async def test_any_other_end_skips_it_and_says_why(world: World, status: str) -> None:
    first = await world.running(queue="for-" + status)
    job = await waiting(world, first)
    moves = {"quarantined": ("failed", "quarantined"), "partial": ("validating", "partial")}.get(status, (status,))
    await finish(world, first, *moves)

    row = await world.row(job)
    assert (row.status, row.error) == ("skipped", None)
    assert row.reason == f"waited for job {first.id} to succeed, and it is {status}"
    said = (await world.store.events(job.id))[-1].data
    assert (said["dependency"], said["dependency_status"]) == (first.id, status)


async def test_it_fails_instead_if_it_was_told_to(world: World) -> None:
    first = await world.running()
    job = await waiting(world, first, await world.submit(), options=FAIL)
    await finish(world, first, "failed")

    row = await world.row(job)
    assert (row.status, row.failures, row.starts) == ("failed", 0, 0)
    assert row.error is not None
    assert (row.error.code, row.error.message) == ("dependency_failed", row.reason)
    assert (await world.store.events(job.id))[-1].data["error"]["code"] == "dependency_failed"


async def test_one_that_failed_so_runs_when_it_is_sent_back(world: World) -> None:
    first, second = await world.running(), await world.submit()
    job = await waiting(world, first, second, options=FAIL)
    await finish(world, first, "failed")
    now_ms = world.clock.now_ms()
    await world.move(await world.row(job), Move(to="pending", fields={"due_ms": now_ms}))
    await finish(world, second)
    assert await world.story(job) == ["scheduled", "failed", "pending"], "what else it waited for is no matter now"
    assert [found.id for found in await world.claim(queues=["waiters"])] == [job.id]


@pytest.mark.parametrize("status", sorted(JOB.named("settled")))
async def test_any_end_will_do_for_one_that_waits_for_the_end(world: World, status: str) -> None:
    first = await world.running(queue="for-" + status)
    job = await waiting(world, first, options=SETTLED)
    moves = {"quarantined": ("failed", "quarantined"), "partial": ("validating", "partial")}.get(status, (status,))
    await finish(world, first, *moves)
    row = await world.row(job)
    assert (row.status, row.reason) == ("pending", "the jobs it waited for are settled")


async def test_the_end_of_one_ends_the_others_in_a_long_row(world: World) -> None:
    """Each waits for the one before it, far deeper than any stack; all of it is one step."""
    first = await world.running()
    batch = [world.new(queue="waiters", after=[first])]
    for _ in range(1199):
        batch.append(world.new(queue="waiters", after=[batch[-1].job]))
    await world.store.insert(batch)
    last = batch[-1].job
    await finish(world, first, "failed")
    row = await world.row(last)
    assert (row.status, row.reason) == (
        "skipped",
        f"waited for job {batch[-2].job.id} to succeed, and it is skipped",
    )
    assert (await world.store.stats()).queues["waiters"].counts == {"skipped": 1200}


async def test_the_end_of_one_reaches_those_who_wait_for_both_sides_of_a_fork_once(world: World) -> None:
    first = await world.running()
    left, right = await waiting(world, first), await waiting(world, first, options=FAIL)
    job = await waiting(world, left, right)
    await finish(world, first, "failed")
    assert await world.story(job) == ["scheduled", "skipped"]


async def test_those_who_wait_for_it_are_woken(world: World) -> None:
    first = await world.running()
    ready, skipped = await waiting(world, first, options=SETTLED), await waiting(world, first)
    async with world.store.wake(["queue:waiters"]) as queue, world.store.wake([f"job:{skipped.id}"]) as job:
        await finish(world, first, "failed")
        assert await queue.wait(60)
        assert await job.wait(60)
    assert (await world.row(ready)).status == "pending"


async def test_the_sweep_ends_waits_too(world: World) -> None:
    await world.open("s2", lease_s=1)
    first = await world.running(session="s2")
    job = await waiting(world, first, options=SETTLED)
    world.clock.advance(2)
    await world.reap(to=("timed_out",))
    assert (await world.row(job)).status == "pending"


async def test_force_ends_waits_too(world: World) -> None:
    first = await world.submit()
    job = await waiting(world, first)
    await world.move(first, Move(to="quarantined", reason="by hand", flag="forced"))
    assert (await world.row(job)).status == "skipped"


async def test_a_parent_moved_by_its_last_unit_ends_waits_too(world: World) -> None:
    parent = await world.running(queue="parents")
    await world.submit(queue="units", parent=parent.id, unit="1")
    [unit] = await world.claim(queues=["units"])
    job = await waiting(world, parent, unit)
    await world.move(unit, "succeeded", holder="s1", on_last=Move(to="succeeded"))
    assert (await world.row(parent)).status == "succeeded"
    assert (await world.row(job)).status == "pending"


async def test_a_repair_ends_waits_too(world: World) -> None:
    first = await world.running()
    job = await waiting(world, first)
    [found] = [row for row in await world.store.audit() if row.job.id == first.id]
    change = world.sealed(world.change(first, Move(to="quarantined", reason="repair", flag="repair"), actor="check"))
    assert await world.store.mend(found, change.after, change.events)
    assert (await world.row(job)).status == "skipped"


async def test_deleting_what_it_waits_for_is_an_end(world: World) -> None:
    first = await world.submit()
    job, any_end = await waiting(world, first), await waiting(world, first, options=SETTLED)
    assert await world.store.delete([first.id], actor="ann", reason="a mistake") == ["deleted"]
    row = await world.row(job)
    assert (row.status, row.reason) == ("skipped", f"waited for job {first.id} to succeed, and it was deleted")
    assert (await world.row(any_end)).status == "pending"
    assert await world.store.awaited(job.id) == [first.id]


async def test_deleting_a_job_is_an_end_for_those_who_wait_for_its_units(world: World) -> None:
    parent = await world.submit(queue="parents")
    unit = await world.submit(queue="units", parent=parent.id, unit="1")
    job = await waiting(world, unit)
    await world.store.delete([parent.id], actor="ann", reason="a mistake")
    assert (await world.row(job)).status == "skipped"


async def test_a_cancelled_one_is_left_alone_and_nobody_stumbles_over_it(world: World) -> None:
    first = await world.submit()
    job = await waiting(world, first)
    behind = await waiting(world, job)
    await world.move(job, "cancelled")
    assert (await world.row(behind)).status == "skipped"
    await finish(world, first)
    assert await world.story(job) == ["scheduled", "cancelled"]


async def test_a_deleted_one_is_forgotten(world: World) -> None:
    first = await world.submit()
    job = await waiting(world, first)
    await world.store.delete([job.id], actor="ann", reason="a mistake")
    assert await world.store.awaited(job.id) == []
    await finish(world, first)
    assert await world.story(job) == ["scheduled"], "the tombstone"


async def test_a_trimmed_one_takes_its_edges_along_and_its_dependencies_may_go_first(world: World) -> None:
    first = await world.submit()
    job = await waiting(world, first)
    await finish(world, first)
    policy = TrimPolicy(settled_before_ms={"succeeded": world.clock.now_ms() + 1})
    assert (await world.store.trim(policy)).jobs == 1
    assert (await world.row(job)).status == "pending"
    assert await world.store.awaited(job.id) == [first.id]
    assert await world.store.check() == []
    await finish(world, job)
    assert (await world.store.trim(policy)).jobs == 1
    assert await world.store.awaited(job.id) == []


async def test_one_sent_on_its_way_by_force_is_not_moved_again(world: World) -> None:
    first = await world.submit()
    job = await waiting(world, first)
    now_ms = world.clock.now_ms()
    await world.move(job, Move(to="pending", reason="now", fields={"due_ms": now_ms}, flag="forced"))
    [held] = await world.claim(queues=["waiters"])
    await finish(world, held, "failed", Move(to="scheduled", fields={"due_ms": now_ms + 1000}))
    await finish(world, first, "failed")
    assert await world.story(job) == ["scheduled", "pending", "running", "failed", "scheduled"]


async def test_a_completion_sent_twice_releases_once(world: World) -> None:
    first = await world.running()
    job = await waiting(world, first)
    change = world.change(first, "succeeded", holder="s1")
    await world.store.apply([change])
    before = await world.dump()
    [again] = await world.store.apply([change])
    assert again.outcome == "already_applied"
    assert await world.dump() == before
    assert (await world.row(job)).status == "pending"


async def test_a_refused_completion_releases_nobody(world: World) -> None:
    first = await world.running()
    job = await waiting(world, first)
    await world.move(first, "pending")
    answer = await world.move(first, "succeeded", holder="s1")
    assert answer.outcome == "stale"
    assert await world.row(job) == job


# at insert -----------------------------------------------------------------------------------------


async def test_one_whose_dependencies_have_all_succeeded_is_ready_at_once(world: World) -> None:
    done = [await ended(world, "succeeded") for _ in range(2)]
    async with world.store.wake(["queue:waiters"]) as wake:
        job = await waiting(world, *done)
        assert await wake.wait(60)
    assert (job.status, job.lane) == ("pending", Lane.READY)
    assert await world.story(job) == ["scheduled", "pending"]


@pytest.mark.parametrize("status", OTHER_ENDS)
async def test_one_whose_dependency_has_ended_otherwise_is_stored_and_settled_at_once(
    world: World, status: str
) -> None:
    over = await ended(world, status)
    job = await waiting(world, await world.submit(), over)
    assert (job.status, job.reason) == ("skipped", f"waited for job {over.id} to succeed, and it is {status}")
    assert (await waiting(world, over, options=FAIL)).status == "failed"
    assert (await waiting(world, over, options=SETTLED)).status == "pending"


async def test_a_batch_settles_through_in_one_step(world: World) -> None:
    over = await ended(world, "cancelled")
    one = world.new(after=[over])
    two = world.new(after=[one.job], options=SETTLED)
    three = world.new(after=[one.job, two.job])
    await world.store.insert([one, two, three])
    assert [(await world.row(new.job)).status for new in (one, two, three)] == ["skipped", "pending", "skipped"]


@pytest.mark.parametrize("place", [0, 1])
async def test_waiting_for_a_job_that_is_not_there_is_refused_with_its_place(world: World, place: int) -> None:
    there, never = await world.submit(), world.new().job.id
    after = [never, there.id] if place == 0 else [there.id, never]
    before = await world.dump()
    with pytest.raises(InvalidInput, match=f"there is no job {never} to wait for") as caught:
        await world.store.insert([world.new(), world.new(after=after)])
    assert caught.value.field == f"jobs[1].after[{place}]"
    assert await world.dump() == before


async def test_waiting_for_a_later_one_of_the_batch_or_for_itself_is_refused(world: World) -> None:
    later = world.new()
    with pytest.raises(InvalidInput, match=r"jobs\[0\].after\[0\]"):
        await world.store.insert([world.new(after=[later.job]), later])
    own = world.new(after=["x"])
    with pytest.raises(InvalidInput, match=r"jobs\[0\].after\[0\]"):
        await world.store.insert([msgspec.structs.replace(own, after=(own.job.id,))])


async def test_waiting_for_a_deleted_job_is_refused(world: World) -> None:
    gone = await world.submit()
    await world.store.delete([gone.id], actor="ann", reason="a mistake")
    with pytest.raises(InvalidInput, match="deleted or trimmed"):
        await waiting(world, gone)


async def test_a_job_of_the_batch_that_was_there_before_is_waited_for_in_its_place(world: World) -> None:
    by_key = await world.submit(queue="a", key="once")
    by_unique = await world.submit(queue="b", unique_key="u")
    batch = [world.new(key="once"), world.new(unique_key="u"), world.new(unique_key="u")]
    then = world.new(queue="waiters", after=[new.job for new in batch])
    made = await world.store.insert([*batch, then])
    assert [each.created for each in made] == [False, False, False, True]
    assert await world.store.awaited(then.job.id) == [by_key.id, by_unique.id]
    await finish(world, by_key)
    await finish(world, by_unique)
    assert (await world.row(then.job)).status == "pending"


async def test_a_job_of_the_batch_whose_key_outlived_it_is_gone(world: World) -> None:
    old = await world.submit(key="once")
    await world.store.delete([old.id], actor="ann", reason="a mistake")
    known = world.new(key="once")
    then, any_end = world.new(after=[known.job]), world.new(after=[known.job], options=SETTLED)
    await world.store.insert([known, then, any_end])
    assert (await world.row(then.job)).status == "skipped"
    assert (await world.row(any_end.job)).status == "pending"


async def test_a_follow_up_may_wait_for_the_job_that_submits_it_and_for_others(world: World) -> None:
    first, other = await world.running(), await world.submit(queue="b")
    own, both = world.new(queue="waiters", after=[first]), world.new(queue="waiters", after=[first, other])
    answer = await world.move(first, "succeeded", holder="s1", spawn=(own, both))
    assert answer.outcome == "applied"
    assert (await world.row(own.job)).status == "pending"
    assert (await world.row(both.job)).status == "scheduled"
    await finish(world, other)
    assert (await world.row(both.job)).status == "pending"


async def test_a_follow_up_is_released_by_a_completion_later_in_the_same_batch(world: World) -> None:
    before, submitter, awaited = [await world.running(queue=queue) for queue in ("a", "b", "c")]
    follow = world.new(queue="waiters", after=[awaited])
    await world.store.apply(
        [
            world.change(before, "succeeded", holder="s1"),
            world.change(submitter, "succeeded", holder="s1", spawn=(follow,)),
            world.change(awaited, "succeeded", holder="s1"),
        ]
    )
    assert await world.story(follow.job) == ["scheduled", "pending"]


async def test_a_follow_up_that_waits_for_nobody_there_keeps_the_completion_from_being_written(world: World) -> None:
    first = await world.running()
    lost = world.new(after=[world.new().job.id])
    answer = await world.move(first, "succeeded", holder="s1", spawn=(lost,))
    assert answer.outcome == "conflict"
    assert await world.row(first) == first


async def test_the_tick_of_a_schedule_may_bring_jobs_that_wait(world: World) -> None:
    one = world.new()
    two = world.new(after=[one.job])
    await world.store.tick("nightly", 1, [one, two])
    assert (await world.row(two.job)).awaits


# groups and the check ------------------------------------------------------------------------------


async def test_members_of_a_group_are_listed(world: World) -> None:
    then = world.new(queue="other")
    members = [world.new(group=then.job.id) for _ in range(5)]
    await world.store.insert([*members, then])
    ids = [new.job.id for new in members]
    page = await world.store.find(Query(group=then.job.id, oldest_first=True), limit=3)
    assert [job.id for job in page.jobs] == ids[:3]
    page = await world.store.find(Query(group=then.job.id, oldest_first=True), cursor=page.cursor, limit=3)
    assert [job.id for job in page.jobs] == ids[3:]
    [claimed] = await world.claim()
    assert [job.id for job in (await world.store.find(Query(group=then.job.id, session="s1"))).jobs] == [claimed.id]
    assert (await world.store.find(Query(group="other"))).jobs == []


async def test_a_row_that_waits_for_nothing_is_found_and_released(world: World) -> None:
    first = await world.submit()
    lost = [world.new(after=[first]), world.new(after=[first], options=SETTLED)]
    await world.store.insert([msgspec.structs.replace(new, after=()) for new in lost])
    found = await world.store.check()
    assert [(each.code, each.job_id, each.repaired) for each in found] == [
        ("wait_stranded", new.job.id, None) for new in lost
    ]
    assert (await world.row(lost[0].job)).awaits, "looking changes nothing"

    repaired = await world.store.check(repair=True)

    assert {each.repaired for each in repaired} == {"it is pending now"}
    for new in lost:
        assert (await world.row(new.job)).status == "pending"
        assert (await world.store.events(new.job.id))[-1].actor == "check"
    assert await world.store.check() == []


@pytest.mark.parametrize("by", [{"key": "once"}, {"unique_key": "u"}])
async def test_a_job_that_must_be_new_and_is_not_keeps_its_batch_out(world: World, by: dict[str, str]) -> None:
    known = await world.submit(**by)
    before = await world.dump()
    again = msgspec.structs.replace(world.new(**by), must_be_new=True)
    with pytest.raises(AlreadySubmitted, match=r"jobs\[1\] must be new") as caught:
        await world.store.insert([world.new(), again])
    assert caught.value.job_id == known.id
    assert await world.dump() == before

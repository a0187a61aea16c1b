"""Applying changes: one compare-and-swap each, fenced by the token."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from mainstay.lifecycle import Move
from mainstay.lifecycle.seals import digest_text
from mainstay.model import ErrorInfo, Progress
from mainstay.stores import ClaimReport, SealedChange
from tests.conformance.world import World


async def test_an_applied_change_writes_the_row_and_its_events_together(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    done = Move(to="succeeded", reason="fine", fields={"result": b"\x01"}, details={"took_s": 2})

    answer = await world.move(job, done, holder="s1")

    assert answer.outcome == "applied"
    row = await world.row(job)
    assert row == answer.job
    assert (row.status, row.reason, row.result, row.session, row.token) == ("succeeded", "fine", b"\x01", None, 1)
    assert row.settled_ms == world.clock.now_ms()
    last = (await world.store.events(job.id))[-1]
    assert (last.source, last.to, last.actor, last.token) == ("running", "succeeded", "s1", 1)
    assert last.data == {"took_s": 2, "result_sha256": digest_text(b"\x01")}


async def test_a_retry_is_one_change_with_two_events(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    error = ErrorInfo(type="ValueError", message="no", traceback="...", retryable=True)
    failed = Move(to="failed", fields={"failures": 1, "error": error})

    answer = await world.move(job, failed, Move(to="scheduled"), holder="s1")

    assert answer.outcome == "applied"
    assert await world.story(job) == ["pending", "running", "failed", "scheduled"]
    assert (await world.row(job)).error == error


async def test_a_lost_acknowledgement_is_answered_as_already_applied(world: World) -> None:
    await world.open("s1")
    change = world.change(await world.running(), "succeeded", holder="s1")
    [first] = await world.store.apply([change])
    before = await world.dump()

    [again] = await world.store.apply([change])

    assert (again.outcome, again.job) == ("already_applied", first.job)
    assert await world.dump() == before


async def test_a_lost_acknowledgement_is_recognised_after_the_job_was_claimed_again(world: World) -> None:
    await world.open("s1", "s2")
    change = world.change(await world.running(), "failed", "pending", holder="s1")
    await world.store.apply([change])
    [taken] = await world.claim("s2", queues=["own"])
    before = await world.dump()

    [again] = await world.store.apply([change])

    assert (again.outcome, again.job) == ("already_applied", taken)
    assert await world.dump() == before


async def test_a_change_sent_again_and_decided_anew_is_recognised_by_its_first_event(world: World) -> None:
    await world.open("s1", "s2")
    job = await world.running()
    await world.move(job, "failed", "pending", holder="s1")
    [taken] = await world.claim("s2", queues=["own"])
    world.clock.advance(1)
    before = await world.dump()

    again = await world.move(job, "failed", "quarantined", holder="s1")

    assert (again.outcome, again.job) == ("already_applied", taken)
    assert await world.dump() == before


async def test_the_same_outcome_by_somebody_else_is_stale_for_the_holder_and_recorded(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    await world.move(job, Move(to="succeeded", reason="by hand", flag="forced"), actor="ann")

    assert (await world.move(job, "succeeded", holder="s1")).outcome == "stale"
    assert [line.wanted for line in await world.store.refusals(job.id)] == ["succeeded"]


async def test_the_same_outcome_under_the_same_token_is_already_applied(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    await world.move(job, "succeeded", holder="s1")
    world.clock.advance(1)
    before = await world.dump()

    assert (await world.move(job, "succeeded", holder="s1")).outcome == "already_applied"

    assert await world.dump() == before


async def test_completion_under_an_old_token_is_refused_and_recorded_once(world: World) -> None:
    await world.open("s1", "s2")
    ghost = await world.running("s1")
    await world.store.close_session("s1")
    await world.reap()
    [taken] = await world.claim("s2", queues=["own"])
    at_ms = world.clock.now_ms()

    for _ in range(3):
        answer = await world.move(ghost, "succeeded", holder="s1")
        assert (answer.outcome, answer.job) == ("stale", taken)
        world.clock.advance(1)

    assert await world.row(ghost) == taken
    [line] = await world.store.refusals(ghost.id)
    assert (line.job_id, line.token, line.session, line.wanted, line.at_ms) == (ghost.id, 1, "s1", "succeeded", at_ms)
    assert await world.story(ghost) == ["pending", "running", "timed_out", "pending", "running"]


async def test_each_lost_token_has_its_own_refusal(world: World) -> None:
    await world.open("s1")
    ghosts = [await world.running()]
    for _ in range(2):
        await world.move(ghosts[-1], "failed", "pending")
        ghosts += await world.claim(queues=["own"])

    for ghost in ghosts[:2]:
        # the session is the same: only the token tells the ghost from the holder
        assert (await world.move(ghost, "succeeded", holder="s1")).outcome == "stale"

    assert [line.token for line in await world.store.refusals(ghosts[0].id)] == [1, 2]
    assert (await world.move(ghosts[2], "succeeded", holder="s1")).outcome == "applied"


async def test_a_ghost_cannot_complete_a_job_that_waits_for_its_retry(world: World) -> None:
    await world.open("s1")
    ghost = await world.running()
    await world.move(ghost, "timed_out", "scheduled", actor="sweeper")
    assert (await world.move(ghost, "succeeded", holder="s1")).outcome == "stale"
    assert (await world.row(ghost)).status == "scheduled"


async def test_a_change_of_a_row_that_moved_is_a_conflict_and_shows_the_row(world: World) -> None:
    seen = await world.submit()
    await world.open("s1")
    [claimed] = await world.claim()
    before = await world.dump()

    answer = await world.move(seen, "cancelled")

    assert (answer.outcome, answer.job) == ("conflict", claimed)
    assert await world.dump() == before


async def test_a_holder_whose_row_was_asked_to_stop_hears_conflict_not_stale(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    await world.move(job, "cancelling")

    answer = await world.move(job, "succeeded", holder="s1")

    assert answer.outcome == "conflict"
    asked = await world.row(job)
    assert asked.status == "cancelling"
    assert answer.job == asked
    assert (await world.move(asked, "succeeded", holder="s1")).outcome == "applied", "it won the race"


async def test_a_change_of_a_missing_row_says_so(world: World) -> None:
    never = world.new().job
    answer = await world.move(never, "cancelled")
    assert (answer.outcome, answer.job) == ("missing", None)
    assert await world.store.events(never.id) == []


async def test_each_change_of_a_batch_stands_on_its_own(world: World) -> None:
    await world.open("s1")
    good, moved, ghost, done = [await world.running() for _ in range(4)]
    await world.move(moved, "cancelling")
    await world.move(ghost, "failed", "pending")
    done_change = world.change(done, "succeeded", holder="s1")
    await world.store.apply([done_change])
    never = world.new().job
    other = await world.submit()

    answers = await world.store.apply(
        [
            world.change(good, "succeeded", holder="s1"),
            world.change(moved, "succeeded", holder="s1"),
            world.change(ghost, "succeeded", holder="s1"),
            done_change,
            world.change(never, "cancelled"),
            world.change(other, "cancelled"),
        ]
    )

    expected = ["applied", "conflict", "stale", "already_applied", "missing", "applied"]
    assert [answer.outcome for answer in answers] == expected
    rows = [(await world.row(job)).status for job in (good, moved, ghost, done, other)]
    assert rows == ["succeeded", "cancelling", "pending", "succeeded", "cancelled"]


async def test_two_changes_of_one_row_in_one_batch_write_once(world: World) -> None:
    job = await world.submit()
    answers = await world.store.apply([world.change(job, "cancelled"), world.change(job, "skipped")])
    assert [answer.outcome for answer in answers] == ["applied", "conflict"]
    assert await world.story(job) == ["pending", "cancelled"]


async def test_changes_that_build_on_each_other_can_share_a_batch(world: World) -> None:
    job = await world.submit()
    first = world.sealed(world.change(job, "failed"))
    second = world.change(first.after, "quarantined")
    answers = await world.store.apply([first, second])
    assert [answer.outcome for answer in answers] == ["applied", "applied"]
    assert await world.story(job) == ["pending", "failed", "quarantined"]


async def test_of_three_racing_moves_exactly_one_writes_an_event(world: World) -> None:
    job = await world.submit()
    changes = [world.change(job, to, actor=to) for to in ("cancelled", "skipped", "failed")]

    answers = await asyncio.gather(*(world.store.apply([change]) for change in changes))

    assert sorted(answer.outcome for [answer] in answers) == ["applied", "conflict", "conflict"]
    assert len(await world.store.events(job.id)) == 2


@pytest.mark.parametrize("counter", ["token", "starts", "failures", "crashes", "releases", "losses"])
async def test_no_change_makes_a_counter_smaller(world: World, counter: str) -> None:
    await world.open("s1")
    job = await world.running()
    grown = {"failures": 2, "crashes": 2, "releases": 2, "losses": 2}
    await world.move(job, Move(to="running", reason="so far", flag="note", fields=grown))
    await world.store.report([ClaimReport(job_id=job.id, session="s1", token=1, started_ms=1)])
    row = await world.row(job)
    good = world.sealed(world.change(row, "succeeded"))
    before = await world.dump()

    smaller: Any = {counter: getattr(row, counter) - 1}
    [answer] = await world.store.apply(
        [msgspec.structs.replace(good, after=msgspec.structs.replace(good.after, **smaller))]
    )

    assert answer.outcome == "conflict"
    assert await world.dump() == before


async def test_a_change_from_before_the_start_was_reported_is_a_conflict(world: World) -> None:
    await world.open("s1")
    seen = await world.running()
    await world.store.report([ClaimReport(job_id=seen.id, session="s1", token=1, started_ms=world.clock.now_ms())])
    assert (await world.move(seen, "succeeded", holder="s1")).outcome == "conflict"
    assert (await world.move(await world.row(seen), "succeeded", holder="s1")).outcome == "applied"


async def test_a_change_leaves_what_the_holder_reported_alone(world: World) -> None:
    await world.open("s1")
    seen = await world.running()
    progress = Progress(done=3, total=4, message="nearly")
    await world.store.report(
        [ClaimReport(job_id=seen.id, session="s1", token=1, progress=progress, checkpoint=b"here")]
    )

    answer = await world.move(seen, "failed", "pending", holder="s1")

    assert answer.outcome == "applied"
    row = await world.row(seen)
    assert (row.progress, row.checkpoint) == (progress, b"here")


async def test_nothing_leaves_a_final_state(world: World) -> None:
    await world.open("s1", "s2")
    seen = await world.running()
    await world.move(seen, "succeeded", holder="s1")
    before = await world.dump()

    refused = [
        world.change(seen, "timed_out", "pending", actor="sweeper"),
        world.change(seen, "cancelling"),
        world.change(seen, Move(to="quarantined", reason="by hand", flag="forced")),
    ]

    assert [answer.outcome for answer in await world.store.apply(refused)] == ["conflict"] * 3
    assert await world.claim("s2", n=9, queues=["own"]) == []
    assert await world.store.overdue() == []
    assert await world.dump() == before


async def test_a_change_without_events_writes_nothing(world: World) -> None:
    job = await world.submit()
    before = await world.dump()
    unsealed = SealedChange(before=job, after=msgspec.structs.replace(job, status="cancelled"), events=())
    [answer] = await world.store.apply([unsealed])
    assert answer.outcome == "conflict"
    assert await world.dump() == before


async def test_spawned_jobs_come_with_an_applied_change(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    children = (world.new(name="child"), world.new(name="child", delay_s=5))

    answer = await world.move(job, "succeeded", holder="s1", spawn=children)

    assert answer.outcome == "applied"
    assert await world.store.get([child.job.id for child in children]) == [child.job for child in children]


async def test_spawned_jobs_do_not_come_with_a_refused_change(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    change = world.change(job, "succeeded", holder="s1", spawn=(world.new(),))
    await world.store.apply([change])
    late = world.change(job, "cancelled", spawn=(world.new(),))
    before = await world.dump()

    answers = await world.store.apply([change, late])

    assert [answer.outcome for answer in answers] == ["already_applied", "conflict"]
    assert await world.dump() == before


async def test_a_change_whose_spawned_job_clashes_is_a_conflict_and_others_go_on(world: World) -> None:
    await world.open("s1")
    job, other = await world.running(), await world.running()
    await world.submit(name="child", key="k")
    clash = world.change(job, "succeeded", holder="s1", spawn=(world.new(name="child", key="k", content=b"other"),))

    answers = await world.store.apply([clash, world.change(other, "succeeded", holder="s1")])

    assert [answer.outcome for answer in answers] == ["conflict", "applied"]
    assert await world.row(job) == job


async def test_a_spawned_job_with_a_known_key_is_not_made_twice(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    await world.submit(name="child", key="k")
    answer = await world.move(job, "succeeded", holder="s1", spawn=(world.new(name="child", key="k"),))
    assert answer.outcome == "applied"
    assert len((await world.dump())["rows"]) == 2


async def test_events_can_be_read_in_pages(world: World) -> None:
    job = await world.submit()
    for n in range(4):
        job = (await world.move(job, Move(to="pending", reason=f"remark {n}", flag="note"))).job or job
    assert [event.seq for event in await world.store.events(job.id)] == [1, 2, 3, 4, 5]
    assert [event.seq for event in await world.store.events(job.id, after=2, limit=2)] == [3, 4]
    assert await world.store.events(job.id, after=5) == []


async def test_of_two_notes_from_the_same_row_the_second_is_a_conflict(world: World) -> None:
    seen = await world.submit()
    assert (await world.move(seen, Move(to="pending", reason="one", flag="note"))).outcome == "applied"
    assert (await world.move(seen, Move(to="pending", reason="two", flag="note"))).outcome == "conflict"
    assert [event.reason for event in await world.store.events(seen.id)][1:] == ["one"]


async def test_a_recorded_refusal_survives_the_completion_by_the_new_holder(world: World) -> None:
    await world.open("s1", "s2")
    ghost = await world.running("s1")
    await world.move(ghost, "failed", "pending")
    [taken] = await world.claim("s2", queues=["own"])
    await world.move(ghost, "succeeded", holder="s1")
    await world.move(taken, "succeeded", holder="s2")
    assert (await world.move(ghost, "succeeded", holder="s1")).outcome == "stale", "the token decides, not the status"
    assert [line.token for line in await world.store.refusals(ghost.id)] == [1]


async def test_a_spawned_job_may_take_the_unique_key_that_the_change_sets_free(world: World) -> None:
    holder = await world.submit(unique_key="nightly")
    successor = world.new(unique_key="nightly", on_clash="refuse")

    answer = await world.move(holder, "cancelled", spawn=(successor,))

    assert answer.outcome == "applied"
    assert (await world.row(successor.job)).status == "pending"
    assert (await world.row(holder)).status == "cancelled"


async def test_changes_of_every_kind_go_together_each_on_its_own_merits(world: World) -> None:
    await world.open("s1")
    plain, spawns, clashes, stale, awaited = [await world.running(queue=f"q{at}") for at in range(5)]
    then = await world.submit(queue="then", after=[awaited])
    await world.submit(key="used")
    await world.move(stale, "pending", actor="sweeper")

    answers = await world.store.apply(
        [
            world.change(plain, "succeeded", holder="s1"),
            world.change(spawns, "succeeded", holder="s1", spawn=(world.new(queue="more"),)),
            world.change(clashes, "succeeded", holder="s1", spawn=(world.new(key="used", content=b"other"),)),
            world.change(stale, "succeeded", holder="s1"),
            world.change(awaited, "succeeded", holder="s1"),
        ]
    )

    assert [answer.outcome for answer in answers] == ["applied", "applied", "conflict", "stale", "applied"]
    assert await world.row(clashes) == clashes
    assert await world.story(then) == ["scheduled", "pending"]
    assert len(await world.claim(n=5, queues=["more"])) == 1


async def test_a_batch_of_completions_is_written_as_it_was_decided(world: World) -> None:
    """Whatever an adapter makes of `kind`: rows with a past, a note, a report, a parent, a key and new jobs."""
    await world.open("s1")
    plain = await world.running()
    failed = Move(to="failed", fields={"failures": 1, "error": ErrorInfo(type="ValueError", message="no")})
    await world.move(await world.running(queue="again"), failed, Move(to="pending"), holder="s1")
    [again] = await world.claim("s1", queues=["again"])
    noted = await world.running()
    await world.move(noted, Move(to="running", flag="note", reason="seen"), holder="s1")
    reported = await world.running()
    await world.store.report(
        [ClaimReport(job_id=reported.id, session="s1", token=1, started_ms=5, progress=Progress(done=1, total=2))]
    )
    parent = await world.running(kind="batch")
    unit = await world.running(parent=parent.id)
    keyed = await world.running(concurrency_key="k")
    brings = await world.running()
    child = world.new(name="child")
    rows = [plain, again, await world.row(noted), await world.row(reported), unit, keyed]
    named = [world.completion(job, result=bytes([at])) for at, job in enumerate(rows)]
    named.append(world.completion(brings, spawn=(child,)))
    changes = [world.sealed(change) for change in named]
    assert {change.kind for change in changes} == {"complete"}

    answers = await world.store.apply(named)

    assert [(answer.outcome, answer.job) for answer in answers] == [("applied", change.after) for change in changes]
    for change in changes:
        assert await world.row(change.after) == change.after
        assert (await world.store.events(change.after.id))[-1] == change.events[0]
    assert await world.row(child.job) == child.job
    assert [answer.outcome for answer in await world.store.apply(changes)] == ["already_applied"] * len(changes)


async def test_a_completion_and_a_move_that_say_the_same_come_to_the_same_row(world: World) -> None:
    await world.open("s1")
    first, second = await world.running(), await world.running()
    completion = world.sealed(world.completion(first, result=b"\x01"))
    move = msgspec.structs.replace(world.sealed(world.completion(second, result=b"\x01")), kind="move")

    await world.store.apply([completion])
    await world.store.apply([move])

    assert await world.row(first) == completion.after
    assert await world.row(second) == move.after


async def test_a_note_on_a_row_that_was_reported_on_keeps_the_time_it_gained(world: World) -> None:
    await world.open("s1")
    seen = await world.running()
    await world.store.report([ClaimReport(job_id=seen.id, session="s1", token=1, progress=Progress(done=1, total=2))])
    note = world.change(seen, Move(to="running", flag="note", reason="seen"), holder="s1")
    assert world.sealed(note).kind == "note"

    [answer] = await world.store.apply([note])

    row = await world.row(seen)
    assert (answer.outcome, answer.job) == ("applied", row)
    assert (row.progress, row.version) == (Progress(done=1, total=2), seen.version + 1)

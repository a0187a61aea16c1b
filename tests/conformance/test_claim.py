"""Claiming: order, due times, pause, and never twice."""

from __future__ import annotations

import asyncio

import pytest

from mainstay.errors import SessionLost
from mainstay.lifecycle import Move
from mainstay.model import Lane, Options, QueueSettings
from tests.conformance.world import World


async def test_a_claim_gives_the_row_to_the_session_under_the_next_token(world: World) -> None:
    await world.open("s1")
    job = await world.submit()

    [claimed] = await world.claim("s1")

    assert (claimed.id, claimed.status, claimed.session, claimed.token) == (job.id, "running", "s1", 1)
    assert claimed.claimed_ms == world.clock.now_ms()
    assert claimed.starts == 0, "a claim is not a start"
    assert await world.row(job) == claimed
    assert await world.story(job) == ["pending", "running"]


async def test_a_claimed_job_is_not_given_out_again(world: World) -> None:
    await world.open("s1", "s2")
    await world.submit()
    assert len(await world.claim("s1", n=10)) == 1
    assert await world.claim("s2", n=10) == []


async def test_a_claim_takes_no_more_than_asked_and_answers_in_order(world: World) -> None:
    await world.open("s1")
    jobs = [await world.submit() for _ in range(5)]
    assert [job.id for job in await world.claim(n=3)] == [job.id for job in jobs[:3]]
    assert [job.id for job in await world.claim(n=3)] == [job.id for job in jobs[3:]]


async def test_higher_priority_goes_first_and_equals_keep_their_order(world: World) -> None:
    await world.open("s1")
    low, first, second, high = [await world.submit(priority=p) for p in (-1, 0, 0, 5)]
    assert [job.id for job in await world.claim(n=4)] == [high.id, first.id, second.id, low.id]


async def test_waiting_makes_up_for_priority(world: World) -> None:
    await world.open("s1")
    old = await world.submit(priority=0)
    world.clock.advance(3 * 60 + 1)
    urgent = await world.submit(priority=4)
    outwaited = await world.submit(priority=3)
    assert [job.id for job in await world.claim(n=3)] == [urgent.id, old.id, outwaited.id]


async def test_several_queues_are_served_as_one_line(world: World) -> None:
    await world.open("s1")
    jobs = []
    for queue, priority in (("a", 0), ("b", 2), ("a", 3), ("c", 1), ("b", -1), ("other", 99)):
        jobs.append(await world.submit(queue=queue, priority=priority))

    claimed = await world.claim(n=10, queues=["a", "b", "c"])

    assert [job.priority for job in claimed] == [3, 2, 1, 0, -1]
    assert (await world.row(jobs[-1])).status == "pending", "a queue that was not asked for is left alone"


async def test_a_queue_named_twice_counts_once(world: World) -> None:
    await world.open("s1")
    await world.submit()
    assert len(await world.claim(n=5, queues=["default", "default"])) == 1


async def test_a_session_that_was_given_up_or_never_opened_is_told_so(world: World) -> None:
    job = await world.submit()
    await world.open("closed", "dead")
    await world.store.close_session("closed")
    world.clock.advance(9)
    await world.store.overdue()

    for session in ("never-opened", "closed", "dead"):
        with pytest.raises(SessionLost, match=f"^session {session} was declared dead, or never opened; open a new one"):
            await world.claim(session)
    assert await world.row(job) == job


async def test_a_lost_session_is_told_so_also_when_there_is_nothing_to_claim(world: World) -> None:
    with pytest.raises(SessionLost):
        await world.claim("nope")


async def test_a_lost_session_does_not_take_the_claims_of_others_with_it(world: World) -> None:
    await world.open("s1")
    job = await world.submit()

    lost, taken, also_lost = await asyncio.gather(
        world.claim("nope"), world.claim("s1"), world.claim("nope"), return_exceptions=True
    )

    assert isinstance(lost, SessionLost)
    assert isinstance(also_lost, SessionLost)
    assert isinstance(taken, list)
    assert [found.id for found in taken] == [job.id]


async def test_a_delayed_job_waits_for_its_time_and_is_promoted_with_an_event(world: World) -> None:
    await world.open("s1")
    job = await world.submit(delay_s=30)
    world.clock.advance(29.999)
    assert await world.claim() == []
    world.clock.advance(0.001)

    [claimed] = await world.claim()

    assert claimed.id == job.id
    assert await world.story(job) == ["scheduled", "pending", "running"]


async def test_a_promoted_job_that_was_not_taken_stays_ready(world: World) -> None:
    await world.open("s1")
    jobs = [await world.submit(delay_s=30) for _ in range(2)]
    world.clock.advance(30)
    await world.claim(n=1)
    waiting = await world.row(jobs[1])
    assert (waiting.status, waiting.lane) == ("pending", Lane.READY)
    assert await world.story(waiting) == ["scheduled", "pending"]


async def test_a_retry_needs_no_leader_to_come_back(world: World) -> None:
    await world.open("s1")
    job = await world.running(queue="default")
    wait = Move(to="scheduled", fields={"due_ms": world.clock.now_ms() + 5_000})
    await world.move(job, Move(to="failed", fields={"failures": 1}), wait, holder="s1")
    assert await world.claim() == []
    world.clock.advance(5)

    [again] = await world.claim()

    assert (again.id, again.token, again.failures) == (job.id, 2, 1)


async def test_due_says_when_the_next_row_gets_ready(world: World) -> None:
    now = world.clock.now_ms()
    assert await world.store.due(["default"]) is None
    await world.submit()
    assert await world.store.due(["default"]) is None, "a ready row waits for nothing"
    await world.submit(delay_s=60)
    await world.submit(delay_s=20, queue="b")
    await world.submit(delay_s=10, queue="other")
    assert await world.store.due(["default", "b"]) == now + 20_000
    assert await world.store.due(["default"]) == now + 60_000


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(world: World) -> None:
    await world.open("s1")
    held, free = await world.submit(), await world.submit(queue="b")
    paused = QueueSettings(name="default", paused=True, reason="maintenance", set_by="ann", set_ms=world.clock.now_ms())
    await world.store.set_queue(paused)

    assert [job.id for job in await world.claim(n=5, queues=["default", "b"])] == [free.id]
    assert await world.store.queues() == [paused]

    await world.store.set_queue(QueueSettings(name="default"))
    assert [job.id for job in await world.claim(n=5)] == [held.id]


async def test_a_job_that_falls_due_in_a_paused_queue_is_there_after_the_pause(world: World) -> None:
    await world.open("s1")
    job = await world.submit(delay_s=10)
    await world.store.set_queue(QueueSettings(name="default", paused=True))
    world.clock.advance(10)
    assert await world.claim() == []
    await world.store.set_queue(QueueSettings(name="default"))
    assert [found.id for found in await world.claim()] == [job.id]


async def test_concurrent_claims_never_share_a_job_and_lose_none(world: World) -> None:
    sessions = [f"s{n}" for n in range(8)]
    await world.open(*sessions)
    jobs = [world.new() for _ in range(60)]
    await world.store.insert(jobs)

    batches = await asyncio.gather(*(world.claim(session, n=4) for session in sessions * 3))

    claimed = [job.id for batch in batches for job in batch]
    assert len(claimed) == len(set(claimed)) == 60
    assert all(job.token == 1 for batch in batches for job in batch)


async def test_changing_the_priority_of_a_waiting_job_changes_its_place(world: World) -> None:
    await world.open("s1")
    first, second = await world.submit(), await world.submit()
    raised = {"priority": 10, "rank": second.rank - 10 * 60_000}
    remark = Move(to="pending", reason="urgent", flag="note", fields=raised)
    assert (await world.move(second, remark)).outcome == "applied"
    assert [job.id for job in await world.claim(n=2)] == [second.id, first.id]


async def test_a_paused_queue_does_not_make_workers_wait_for_a_time_in_the_past(world: World) -> None:
    await world.open("s1")
    await world.submit(delay_s=10)
    await world.store.set_queue(QueueSettings(name="default", paused=True))
    world.clock.advance(20)
    assert await world.claim() == []
    assert await world.store.due(["default"]) is None


async def test_a_row_past_its_deadline_is_passed_over_and_left_to_the_sweeper(world: World) -> None:
    await world.open("s1")
    deadline = Options(start_by_ms=world.clock.now_ms() + 1000)
    late = [await world.submit(options=deadline, priority=9) for _ in range(30)]
    good = [await world.submit() for _ in range(2)]
    other = await world.submit(queue="other", options=deadline)
    world.clock.advance(1)

    claimed = await world.claim(n=10, queues=["default", "other"])

    assert [job.id for job in claimed] == [job.id for job in good]
    assert {found.job.id for found in await world.store.overdue()} == {job.id for job in (*late, other)}


async def test_a_row_is_handed_out_up_to_its_deadline_and_later_if_it_had_begun(world: World) -> None:
    await world.open("s1")
    deadline = Options(start_by_ms=world.clock.now_ms() + 1000)
    in_time = await world.submit(options=deadline)
    world.clock.advance(0.999)
    [first] = await world.claim()
    assert first.id == in_time.id
    await world.move(first, Move(to="failed", fields={"failures": 1, "starts": 1}), "pending", holder="s1")
    world.clock.advance(60)

    [again] = await world.claim()

    assert again.id == in_time.id


async def test_the_few_that_are_ready_are_found_among_many_queues(world: World) -> None:
    await world.open("s1")
    queues = [f"q{n}" for n in range(300)] + ['a "quoted" one', "ein größerer"]
    ready = [await world.submit(queue=queue) for queue in ("q7", queues[-1], queues[-2])]
    due = await world.submit(queue="q299", delay_s=1)
    await world.submit(queue="q8", delay_s=60)
    await world.submit(queue="not asked for")
    await world.store.set_queue(QueueSettings(name="q9", paused=True))
    await world.submit(queue="q9")
    world.clock.advance(2)

    claimed = await world.claim(n=10, queues=queues)

    assert [job.id for job in claimed] == [job.id for job in (*ready, due)]
    assert await world.claim(n=10, queues=queues) == []


async def test_more_due_rows_than_are_promoted_at_once_keep_none_from_being_taken(world: World) -> None:
    await world.open("s1")
    await world.store.insert([world.new(delay_s=5) for _ in range(600)])
    world.clock.advance(6)
    taken = [await world.claim(n=10) for _ in range(3)]
    assert [len(jobs) for jobs in taken] == [10, 10, 10]
    assert len({job.id for jobs in taken for job in jobs}) == 30


async def test_a_row_past_its_deadline_that_gets_a_new_one_can_be_taken_again(world: World) -> None:
    await world.open("s1")
    late = await world.submit(options=Options(start_by_ms=world.clock.now_ms() + 1000))
    world.clock.advance(2)
    assert await world.claim() == []
    more = Move(to=late.status, flag="note", reason="later", fields={"expires_ms": world.clock.now_ms() + 1000})
    assert (await world.move(await world.row(late), more)).outcome == "applied"
    assert [job.id for job in await world.claim()] == [late.id]

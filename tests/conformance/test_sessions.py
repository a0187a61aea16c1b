"""Sessions: dead when silent for longer than the lease, and then for good."""

from __future__ import annotations

import msgspec
import pytest

from mainstay.errors import SessionLost
from mainstay.model import Offer, Options, Session
from tests.conformance.world import World


async def test_an_open_session_is_listed(world: World) -> None:
    await world.store.open_session(Session(id="s1", worker="w", host="h", pid=7, started_ms=3, lease_s=20))
    [found] = await world.store.sessions()
    assert (found.id, found.worker, found.host, found.pid, found.lease_s) == ("s1", "w", "h", 7, 20)
    assert (found.beat_ms, found.dead) == (world.clock.lease_ms(), False)


async def test_rows_of_a_silent_session_are_overdue_after_its_lease(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    world.clock.advance(8)
    assert await world.store.overdue() == []
    world.clock.advance(0.001)
    [late] = await world.store.overdue()
    assert (late.job, late.cause) == (job, "session")


async def test_each_session_has_its_own_lease(world: World) -> None:
    await world.open("short", lease_s=2)
    await world.open("long", lease_s=60)
    mine = await world.running("short")
    await world.running("long")
    world.clock.advance(10)
    assert [late.job.id for late in await world.store.overdue()] == [mine.id]


async def test_a_dead_session_stays_dead(world: World) -> None:
    await world.open("s1")
    await world.running()
    world.clock.advance(9)
    await world.store.overdue()

    [pulse] = await world.store.beat(["s1"])

    assert not pulse.known
    await world.submit()
    with pytest.raises(SessionLost):
        await world.claim("s1")
    assert len(await world.store.overdue()) == 1, "a refused beat must not bring the rows back"


async def test_a_session_that_was_silent_but_not_yet_declared_dead_may_go_on(world: World) -> None:
    await world.open("s1")
    await world.running()
    world.clock.advance(20)
    [pulse] = await world.store.beat(["s1"])
    assert pulse.known
    assert await world.store.overdue() == []


async def test_a_long_job_is_never_taken_from_a_live_session(world: World) -> None:
    await world.open("s1")
    await world.running(options=Options(run_timeout_s=None))
    for _ in range(100):
        world.clock.advance(7)
        await world.store.beat(["s1"])
        assert await world.store.overdue() == []


async def test_leases_do_not_notice_when_somebody_sets_the_wall_clock(world: World) -> None:
    await world.open("s1")
    await world.running(options=Options(run_timeout_s=None))
    world.clock.set_wall(world.clock.now_ms() + 86_400_000)
    assert await world.store.overdue() == []
    world.clock.set_wall(world.clock.now_ms() - 2 * 86_400_000)
    world.clock.advance(9)
    assert len(await world.store.overdue()) == 1


async def test_rows_of_a_closed_session_are_overdue_at_once(world: World) -> None:
    await world.open("s1", "s2")
    mine = [await world.running("s1") for _ in range(2)]
    await world.running("s2")
    await world.store.close_session("s1")
    assert sorted(late.job.id for late in await world.store.overdue()) == [job.id for job in mine]
    assert not (await world.store.beat(["s1"]))[0].known
    assert [session.id for session in await world.store.sessions() if not session.dead] == ["s2"]


async def test_closing_an_unknown_session_is_fine(world: World) -> None:
    await world.store.close_session("nobody")
    assert await world.store.sessions() == []


async def test_a_reaped_job_can_be_claimed_by_another_session(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    world.clock.advance(9)
    await world.open("s2")

    [reaped] = await world.reap()
    [taken] = await world.claim("s2", queues=["own"])

    assert (reaped.id, reaped.session) == (job.id, None)
    assert (taken.id, taken.token) == (job.id, 2)
    assert await world.store.overdue() == []


async def test_of_two_sweepers_one_reaps(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    await world.store.close_session("s1")
    first, second = await world.store.overdue(), await world.store.overdue()

    one = await world.move(first[0].job, "timed_out", "pending", actor="sweeper 1")
    two = await world.move(second[0].job, "timed_out", "pending", actor="sweeper 2")

    assert one.outcome == "applied"
    assert two.outcome == "already_applied", "its wish was fulfilled by the other"
    assert await world.story(job) == ["pending", "running", "timed_out", "pending"]


async def test_overdue_answers_no_more_than_asked(world: World) -> None:
    await world.open("s1")
    jobs = [await world.running() for _ in range(5)]
    await world.store.close_session("s1")
    assert len(await world.store.overdue(limit=2)) == 2
    assert len(await world.store.overdue(limit=100)) == len(jobs)


async def test_a_queue_deadline_makes_a_waiting_job_overdue(world: World) -> None:
    job = await world.submit(options=Options(start_by_ms=world.clock.now_ms() + 60_000))
    world.clock.advance(59)
    assert await world.store.overdue() == []
    world.clock.advance(2)
    [late] = await world.store.overdue()
    assert (late.job.id, late.cause) == (job.id, "time")


async def test_a_row_that_is_late_and_whose_session_is_dead_is_listed_once(world: World) -> None:
    await world.open("s1")
    job = await world.running(options=Options(start_by_ms=world.clock.now_ms() + 1))
    world.clock.advance(3600 * 3)
    assert [late.job.id for late in await world.store.overdue()] == [job.id]


async def test_a_settled_job_is_never_overdue(world: World) -> None:
    await world.open("s1")
    job = await world.running(options=Options(keep_s=5))
    await world.move(job, "succeeded", holder="s1")
    world.clock.advance(60)
    assert await world.store.overdue() == []


async def test_a_session_tells_which_worker_it_is_an_engine_of(world: World) -> None:
    await world.store.open_session(Session(id="s1", worker="w", pid=8, supervisor=7))
    await world.open("s2")
    assert {found.id: found.supervisor for found in await world.store.sessions()} == {"s1": 7, "s2": 0}


async def test_a_session_that_is_asked_to_drain_hears_it_with_its_next_beat_and_every_one_after(world: World) -> None:
    await world.open("s1", "s2")
    assert [pulse.draining_by for pulse in await world.store.beat(["s1", "s2"])] == [None, None]

    assert await world.store.drain(["s2"], by="ann ☂") == [True]

    for _ in range(2):
        world.clock.advance(2)
        assert [pulse.draining_by for pulse in await world.store.beat(["s1", "s2"])] == [None, "ann ☂"]
    assert all(pulse.known for pulse in await world.store.beat(["s1", "s2"]))


async def test_since_when_and_at_whose_wish_a_session_drains_is_listed(world: World) -> None:
    await world.open("s1", "s2")
    world.clock.advance(1)
    asked_ms = world.clock.now_ms()

    await world.store.drain(["s1"], by="ann")

    found = {each.id: (each.draining_ms, each.draining_by) for each in await world.store.sessions()}
    assert found == {"s1": (asked_ms, "ann"), "s2": (None, "")}


async def test_the_first_who_asked_a_session_to_drain_stays_on_record(world: World) -> None:
    await world.open("s1")
    asked_ms = world.clock.now_ms()
    await world.store.drain(["s1"], by="ann")
    world.clock.advance(1)

    assert await world.store.drain(["s1"], by="bob") == [True]

    [found] = await world.store.sessions()
    assert (found.draining_ms, found.draining_by) == (asked_ms, "ann")


async def test_sessions_that_are_dead_or_not_known_cannot_be_asked_to_drain(world: World) -> None:
    await world.open("dead")
    await world.running("dead")
    world.clock.advance(9)
    await world.store.overdue()
    await world.open("s1")

    assert await world.store.drain(["dead", "s1", "nobody"], by="ann") == [False, True, False]
    assert await world.store.drain([], by="ann") == []


async def test_a_session_that_makes_another_offer_is_still_asked_to_drain(world: World) -> None:
    """Its process may not have heard of it yet."""
    session = Session(id="s1", offer=Offer(queues=("default",), tasks={"one": {}}))
    await world.store.open_session(session)
    await world.store.drain(["s1"], by="ann")

    more = Offer(queues=("default",), tasks={"one": {}, "two": {}})
    await world.store.open_session(msgspec.structs.replace(session, offer=more))

    [found] = await world.store.sessions()
    assert (found.offer, found.draining_by) == (more, "ann")
    assert (await world.store.beat(["s1"]))[0].draining_by == "ann"


async def test_a_draining_session_keeps_what_it_holds_and_can_end_it(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    await world.store.drain(["s1"], by="ann")
    assert await world.store.overdue() == []
    assert (await world.move(job, "succeeded", holder="s1")).outcome == "applied"
    await world.store.close_session("s1")
    assert await world.store.sessions() == []

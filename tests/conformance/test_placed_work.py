"""What the placement of work needs from a store: writes that go together, assignments, fences, calls sent again."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from mainstay.errors import Conflict, InvalidInput, InvalidTransition, NotLeader, SessionLost
from mainstay.lifecycle import Move
from mainstay.model import LEAD_QUEUE, PLACE_MS, PLACE_QUEUE, Job, Session
from mainstay.stores import PLACEMENT_TOPIC, Change
from tests.conformance.world import World

#: never waited for: a test that has to is failing
LONG_S = 60.0
WINDOW_MS = 20_000


async def placed(world: World, n: int = 1) -> list[Job]:
    """Units that wait in the reserved queue, below one job."""
    parent = await world.submit(kind="node", queue=PLACE_QUEUE)
    news = [world.new(kind="node", queue=PLACE_QUEUE, parent=parent.id, unit=f"node/n{at}") for at in range(n)]
    await world.store.insert(news)
    return [await world.row(new.job) for new in news]


def assignment(world: World, unit: Job, session: str) -> Change:
    """The change by which a leader gives a unit to a session."""
    now_ms = world.clock.now_ms()
    fields: dict[str, Any] = {
        "token": unit.token + 1,
        "session": session,
        "claimed_ms": now_ms,
        "expires_ms": now_ms + WINDOW_MS,
    }
    return world.change(unit, Move(to="dispatched", reason="assigned", fields=fields), actor="leader")


async def fail(world: World, job: Job) -> None:
    """Settle a job in a state from which it can be opened again; that frees its unique key."""
    assert (await world.move(job, Move(to="failed", reason="a test", flag="forced"))).outcome == "applied"


def outcomes(results: list[Any]) -> list[str]:
    return [result.outcome for result in results]


# together -------------------------------------------------------------------------------------------


async def test_changes_that_fit_are_written_together(world: World) -> None:
    await world.open("n0", "n1")
    units = await placed(world, 2)

    changes = [assignment(world, unit, f"n{at}") for at, unit in enumerate(units)]
    results = await world.store.apply(changes, together=True)

    assert outcomes(results) == ["applied", "applied"]
    rows = [await world.row(unit) for unit in units]
    assert [(row.status, row.session, row.token) for row in rows] == [("dispatched", "n0", 1), ("dispatched", "n1", 1)]
    assert [result.job for result in results] == rows


async def test_one_change_that_does_not_fit_withholds_all(world: World) -> None:
    await world.open("n0", "n1", "n2")
    first, moved, last = await placed(world, 3)
    changes = [assignment(world, unit, f"n{at}") for at, unit in enumerate((first, moved, last))]
    await world.move(moved, "cancelled")
    before = await world.dump()

    results = await world.store.apply(changes, together=True)

    assert outcomes(results) == ["withheld", "conflict", "withheld"]
    assert results[0].job == first
    assert await world.dump() == before


async def test_a_move_that_the_table_refuses_withholds_all(world: World) -> None:
    await world.open("n0")
    first, second = await placed(world, 2)
    before = await world.dump()

    results = await world.store.apply(
        [assignment(world, first, "n0"), world.change(second, "succeeded")], together=True
    )

    assert outcomes(results) == ["withheld", "invalid"]
    assert isinstance(results[1].error, InvalidTransition)
    assert await world.dump() == before


async def test_a_missing_row_withholds_all(world: World) -> None:
    await world.open("n0", "n1")
    first, second = await placed(world, 2)
    gone = msgspec.structs.replace(second, id=world.new().job.id)

    results = await world.store.apply([assignment(world, first, "n0"), assignment(world, gone, "n1")], together=True)

    assert outcomes(results) == ["withheld", "missing"]
    assert await world.row(first) == first


async def test_a_spawn_that_clashes_withholds_all_with_every_spawn(world: World) -> None:
    first, second = await placed(world, 2)
    taken = await world.submit(unique_key="u")
    fine, clash = world.new(name="fine"), world.new(name="clash", unique_key="u", on_clash="refuse")

    results = await world.store.apply(
        [world.change(first, "cancelled", spawn=(fine,)), world.change(second, "cancelled", spawn=(clash,))],
        together=True,
    )

    assert outcomes(results) == ["withheld", "conflict"]
    assert await world.store.get([fine.job.id, clash.job.id]) == [None, None]
    assert await world.row(taken) == taken
    assert await world.row(first) == first


async def test_a_stale_change_withholds_all_and_is_recorded(world: World) -> None:
    await world.open("s1", "s2")
    lost, kept = await world.running("s1"), await world.running("s2", queue="other")
    await world.move(lost, Move(to="pending", reason="taken back"))

    results = await world.store.apply(
        [world.change(lost, "succeeded", holder="s1"), world.change(kept, "succeeded", holder="s2")], together=True
    )

    assert outcomes(results) == ["stale", "withheld"]
    assert [refused.wanted for refused in await world.store.refusals(lost.id)] == ["succeeded"]
    assert (await world.row(kept)).status == "running"


async def test_changes_written_together_can_be_sent_again(world: World) -> None:
    await world.open("n0", "n1")
    changes = [assignment(world, unit, f"n{at}") for at, unit in enumerate(await placed(world, 2))]
    await world.store.apply(changes, together=True)
    before = await world.dump()

    assert outcomes(await world.store.apply(changes, together=True)) == ["already_applied"] * 2
    assert await world.dump() == before


async def test_a_row_may_be_in_it_once(world: World) -> None:
    await world.open("n0")
    [unit] = await placed(world)
    with pytest.raises(InvalidInput, match="changes"):
        await world.store.apply([assignment(world, unit, "n0"), world.change(unit, "cancelled")], together=True)
    assert await world.row(unit) == unit


async def test_units_that_settle_together_move_their_parent_once(world: World) -> None:
    units = await placed(world, 3)
    parent = await world.row(units[0].parent or "")
    moved = await world.move(parent, Move(to="running", fields={"started_ms": world.clock.now_ms()}))
    assert moved.outcome == "applied"

    results = await world.store.apply(
        [world.change(unit, "cancelled", on_last=Move(to="failed", reason="all gone")) for unit in units],
        together=True,
    )

    assert outcomes(results) == ["applied"] * 3
    assert any(result.last for result in results)
    assert await world.story(parent) == ["pending", "running", "failed"]


async def test_two_changes_together_do_not_open_two_jobs_with_one_unique_key(world: World) -> None:
    jobs = [await world.submit(unique_key=key) for key in ("u", "v")]
    for job in jobs:
        await fail(world, job)
    second = await world.submit(unique_key="u")
    await fail(world, second)
    ended = [await world.row(job) for job in (jobs[0], second, jobs[1])]
    before = await world.dump()

    results = await world.store.apply([world.change(job, "pending") for job in ended], together=True)

    assert outcomes(results) == ["withheld", "conflict", "withheld"]
    assert await world.dump() == before


async def test_a_key_that_one_change_frees_is_not_taken_by_another_of_the_same_write(world: World) -> None:
    """Whether it could would depend on their order."""
    ended = await world.submit(unique_key="u")
    await fail(world, ended)
    ended, holder = await world.row(ended), await world.submit(unique_key="u")
    before = await world.dump()
    frees, takes = world.change(holder, "cancelled"), world.change(ended, "pending")

    assert outcomes(await world.store.apply([frees, takes], together=True)) == ["withheld", "conflict"]
    assert outcomes(await world.store.apply([takes, frees], together=True)) == ["conflict", "withheld"]
    assert await world.dump() == before


@pytest.mark.parametrize("together", [True, False])
async def test_a_spawned_job_does_not_share_the_unique_key_of_the_job_that_is_opened_again(
    world: World, together: bool
) -> None:
    ended = await world.submit(unique_key="u")
    await fail(world, ended)
    ended = await world.row(ended)
    spawned = world.new(unique_key="u", on_clash="refuse")

    results = await world.store.apply([world.change(ended, "pending", spawn=(spawned,))], together=together)

    assert outcomes(results) == ["conflict"]
    assert await world.store.get([spawned.job.id]) == [None]
    assert await world.row(ended) == ended


async def test_one_of_the_units_that_settle_together_is_the_last(world: World) -> None:
    units = await placed(world, 3)
    parent = await world.row(units[0].parent or "")
    await world.move(parent, Move(to="running", fields={"started_ms": world.clock.now_ms()}))

    results = await world.store.apply(
        [world.change(unit, "cancelled", on_last=Move(to="failed", reason=unit.unit)) for unit in units],
        together=True,
    )

    assert [result.last for result in results] == [False, False, True]
    assert (await world.row(parent)).reason == "node/n2"


# moves that a store seals ----------------------------------------------------------------------------


async def test_a_change_that_the_table_refuses_is_invalid_and_the_others_are_written(world: World) -> None:
    first, second = await world.submit(), await world.submit()

    results = await world.store.apply([world.change(first, "succeeded"), world.change(second, "cancelled")])

    assert outcomes(results) == ["invalid", "applied"]
    assert isinstance(results[0].error, InvalidTransition)
    assert await world.row(first) == first
    assert (await world.row(second)).status == "cancelled"


async def test_a_change_that_changes_nothing_is_already_applied(world: World) -> None:
    job = await world.submit()
    [result] = await world.store.apply([world.change(job, "pending")])
    assert (result.outcome, result.job) == ("already_applied", job)


async def test_the_events_of_a_change_are_those_of_the_machine(world: World) -> None:
    job = await world.submit()
    change = world.change(job, Move(to="failed", reason="why", details={"a": 1}), Move(to="quarantined"))
    sealed = world.sealed(change)

    await world.store.apply([change])

    assert (await world.store.events(job.id))[1:] == list(sealed.events)
    assert await world.row(job) == sealed.after


# sessions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["unknown", "closed", "dead"])
async def test_a_row_is_not_given_to_a_session_that_is_not_open(world: World, how: str) -> None:
    await world.open("other", lease_s=600)
    [unit] = await placed(world)
    if how != "unknown":
        await world.open("n0", lease_s=8)
    if how == "closed":
        await world.store.close_session("n0")
    if how == "dead":
        await world.open("n0", lease_s=8)
        world.clock.advance(9)
        await world.store.overdue()

    [result] = await world.store.apply([assignment(world, unit, "n0")])

    assert (result.outcome, result.job) == ("no_session", unit)
    assert await world.row(unit) == unit


async def test_a_closed_session_withholds_the_assignments_of_the_others(world: World) -> None:
    await world.open("n0")
    units = await placed(world, 2)
    changes = [assignment(world, unit, f"n{at}") for at, unit in enumerate(units)]
    assert outcomes(await world.store.apply(changes, together=True)) == ["withheld", "no_session"]
    assert [await world.row(unit) for unit in units] == units


async def test_a_beat_lists_what_was_assigned_until_it_is_confirmed(world: World) -> None:
    await world.open("n0", "n1")
    mine, other = await placed(world, 2)
    await world.store.apply([assignment(world, mine, "n0"), assignment(world, other, "n1")], together=True)

    [pulse] = await world.store.beat(["n0"])
    assert pulse.assigned == (mine.id,)
    assert pulse.cancelling == ()

    confirmed = await world.move(await world.row(mine), "running", holder="n0")
    assert confirmed.outcome == "applied"
    [pulse] = await world.store.beat(["n0"])
    assert pulse.assigned == ()


async def test_a_standing_session_outlives_its_silence(world: World) -> None:
    await world.store.open_session(Session(id="dc.east", standing=True, lease_s=8, node="east", labels={"zone": "a"}))
    await world.open("direct", lease_s=8)
    [unit] = await placed(world)
    await world.store.apply([assignment(world, unit, "dc.east")])
    world.clock.advance(3600)

    late = {item.job.id: item.cause for item in await world.store.overdue()}

    assert late == {unit.id: "time"}  # its window is over, but its session lives
    [session] = [each for each in await world.store.sessions() if each.id == "dc.east"]
    assert (session.dead, session.standing, session.node, dict(session.labels)) == (False, True, "east", {"zone": "a"})
    assert (await world.store.beat(["dc.east"]))[0].known
    await world.store.close_session("dc.east")
    assert [item.cause for item in await world.store.overdue() if item.job.id == unit.id] == ["session"]


async def test_a_session_keeps_its_node_and_labels(world: World) -> None:
    await world.store.open_session(Session(id="w.1", node="alpha", labels={"zone": "a", "disk": "ssd"}))
    [session] = await world.store.sessions()
    assert (session.node, dict(session.labels), session.standing) == ("alpha", {"zone": "a", "disk": "ssd"}, False)


# wakes -----------------------------------------------------------------------------------------------


async def test_an_assignment_wakes_its_session(world: World) -> None:
    await world.open("n0", "n1")
    [unit] = await placed(world)
    async with world.store.wake(["session:n0"]) as mine, world.store.wake(["session:n1"]) as other:
        await world.store.apply([assignment(world, unit, "n0")])
        assert await mine.wait(LONG_S)
        assert not await other.wait(0.05)


async def test_a_note_on_an_assignment_wakes_its_session_again(world: World) -> None:
    await world.open("n0")
    [unit] = await placed(world)
    [given] = await world.store.apply([assignment(world, unit, "n0")])
    assert given.job is not None
    async with world.store.wake(["session:n0"]) as wake:
        await world.move(given.job, Move(to="dispatched", flag="note", reason="asked again"))
        assert await wake.wait(LONG_S)


async def test_a_cancelled_unit_wakes_the_session_that_had_it(world: World) -> None:
    await world.open("n0")
    [unit] = await placed(world)
    await world.store.apply([assignment(world, unit, "n0")])
    await world.move(await world.row(unit), "running", holder="n0")
    async with world.store.wake(["session:n0"]) as wake:
        await world.move(await world.row(unit), Move(to="cancelled", reason="on request"))
        assert await wake.wait(LONG_S)


@pytest.mark.parametrize("to", ["pending", "timed_out"])
async def test_a_placed_unit_that_is_taken_back_wakes_the_session_that_had_it(world: World, to: str) -> None:
    await world.open("n0")
    [unit] = await placed(world)
    given = (await world.store.apply([assignment(world, unit, "n0")]))[0].job
    assert given is not None
    held = (await world.move(given, Move(to="running", fields={"expires_ms": None}), holder="n0")).job
    assert held is not None

    async with world.store.wake(["session:n0"]) as wake:
        await wake.wait(0)
        await world.move(held, to)
        assert await wake.wait(LONG_S)


async def test_each_change_of_status_in_the_place_queue_wakes_its_subscriber(world: World) -> None:
    await world.open("n0")
    async with world.store.wake([f"queue:{PLACE_QUEUE}"]) as wake:
        waiting = asyncio.create_task(wake.wait(LONG_S))
        await asyncio.sleep(0)
        [unit] = await placed(world)
        assert await waiting
    await world.store.apply([assignment(world, unit, "n0")])
    await world.move(await world.row(unit), "running", holder="n0")
    async with world.store.wake([f"queue:{PLACE_QUEUE}"]) as wake:
        await world.store.apply([world.completion(await world.row(unit))])
        assert await wake.wait(LONG_S)


async def test_a_change_of_status_of_a_placed_or_a_led_row_wakes_all_who_place_work(world: World) -> None:
    leaders = [world.store.wake([PLACEMENT_TOPIC]) for _ in range(2)]
    await world.open("n0")

    async def woken() -> list[bool]:
        return await asyncio.gather(*(wake.wait(LONG_S) for wake in leaders))

    [unit] = await placed(world)
    assert await woken() == [True, True]
    await world.store.apply([assignment(world, unit, "n0")])
    assert await woken() == [True, True]
    led = await world.submit(queue=LEAD_QUEUE)
    assert await woken() == [True, True]
    await world.move(led, Move(to="pending", fields={"due_ms": PLACE_MS}, flag="note"))
    assert await world.store.due([LEAD_QUEUE]) is None, "what waits for cores has no due time"
    await world.move(await world.row(led), "cancelled")
    assert await woken() == [True, True]
    for wake in leaders:
        await wake.close()


# claims ----------------------------------------------------------------------------------------------


async def test_a_claim_from_a_reserved_queue_is_refused(world: World) -> None:
    await world.open("s1")
    await placed(world)
    with pytest.raises(InvalidInput, match=PLACE_QUEUE):
        await world.claim("s1", 1, queues=("default", PLACE_QUEUE))


async def test_jobs_that_managers_lead_are_claimed_from_their_reserved_queue(world: World) -> None:
    await world.open("m1")
    led = await world.submit(kind="load", queue=LEAD_QUEUE)

    [claimed] = await world.claim("m1", 1, queues=(LEAD_QUEUE,))

    assert (claimed.id, claimed.status, claimed.session) == (led.id, "running", "m1")


async def test_a_claim_sent_again_under_its_mark_gets_the_same_rows(world: World) -> None:
    await world.open("s1", "s2")
    for _ in range(4):
        await world.submit()
    first = await world.store.claim(["default"], "s1", 2, mark="a")
    assert len(first) == 2

    assert await world.store.claim(["default"], "s1", 2, mark="a") == first
    second = await world.store.claim(["default"], "s1", 1, mark="b")
    other = await world.store.claim(["default"], "s2", 1, mark="a")
    assert len({job.id for job in (*first, *second, *other)}) == 4
    assert await world.store.claim(["default"], "s1", 2, mark="a") == first
    assert await world.store.claim(["default"], "s1", 1, mark="b") == second


async def test_a_claim_of_no_rows_takes_none(world: World) -> None:
    await world.open("s1")
    job = await world.submit()
    assert await world.claim("s1", 0) == []
    assert await world.store.claim(["default"], "s1", 0, mark="a") == []
    assert await world.row(job) == job


async def test_a_claim_that_found_nothing_finds_nothing_again_under_its_mark(world: World) -> None:
    await world.open("s1")
    assert await world.store.claim(["default"], "s1", 2, mark="a") == []
    await world.submit()
    assert await world.store.claim(["default"], "s1", 2, mark="a") == []
    assert len(await world.store.claim(["default"], "s1", 2, mark="b")) == 1


async def test_a_mark_no_longer_brings_rows_that_were_given_back_or_ended(world: World) -> None:
    await world.open("s1")
    for _ in range(3):
        await world.submit()
    done, back, kept = await world.store.claim(["default"], "s1", 3, mark="a")
    await world.store.apply([world.completion(done)])
    await world.move(back, Move(to="pending", reason="given back"), holder="s1")
    [again] = await world.claim("s1", 1)
    assert (again.id, again.token) == (back.id, 2)

    assert await world.store.claim(["default"], "s1", 3, mark="a") == [kept]


async def test_the_last_marks_of_a_session_are_known(world: World) -> None:
    await world.open("s1")
    for _ in range(6):
        await world.submit()
    claims = [await world.store.claim(["default"], "s1", 1, mark=f"m{at}") for at in range(5)]
    for at in range(1, 5):
        assert await world.store.claim(["default"], "s1", 1, mark=f"m{at}") == claims[at]


async def test_a_mark_of_a_lost_session_raises(world: World) -> None:
    await world.open("s1")
    await world.submit()
    await world.store.claim(["default"], "s1", 1, mark="a")
    await world.store.close_session("s1")
    with pytest.raises(SessionLost):
        await world.store.claim(["default"], "s1", 1, mark="a")


async def test_a_session_that_was_asked_to_drain_claims_nothing(world: World) -> None:
    await world.open("s1", "s2")
    await world.submit()
    await world.submit(due_ms=world.clock.now_ms() + 1000, delay_s=1)
    world.clock.advance(2)
    await world.store.drain(["s1"], by="ann")

    assert await world.claim("s1", 2) == []
    assert await world.store.claim(["default"], "s1", 2, mark="a") == []
    assert len(await world.claim("s2", 2)) == 2


async def test_a_claim_that_was_made_before_the_drain_is_repeated_under_its_mark(world: World) -> None:
    await world.open("s1")
    await world.submit()
    claimed = await world.store.claim(["default"], "s1", 1, mark="a")
    await world.store.drain(["s1"], by="ann")
    assert await world.store.claim(["default"], "s1", 1, mark="a") == claimed


async def test_a_claim_under_a_mark_is_not_given_back_when_its_caller_is_cancelled(world: World) -> None:
    """The caller sends it again; a row that was given back would run twice."""
    await world.open("s1")
    jobs = [await world.submit() for _ in range(20)]
    for at in range(20):
        claim = asyncio.create_task(world.store.claim(["default"], "s1", 1, mark=f"m{at}"))
        for _ in range(at):
            await asyncio.sleep(0)
        claim.cancel()
        await asyncio.gather(claim, return_exceptions=True)
        assert len(await world.store.claim(["default"], "s1", 1, mark=f"m{at}")) == 1

    assert {(await world.row(job)).releases for job in jobs} == {0}
    assert {(await world.row(job)).status for job in jobs} == {"running"}


# inserts ---------------------------------------------------------------------------------------------


async def test_an_insert_sent_again_gets_the_same_answer(world: World) -> None:
    parent = world.new(name="t", key="k", unique_key="u")
    unit = world.new(parent=parent.job.id, unit="one")
    waiting = world.new(after=[parent.job])
    first = await world.store.insert([parent, unit, waiting])
    before = await world.dump()

    assert await world.store.insert([parent, unit, waiting]) == first
    assert [result.created for result in first] == [True] * 3
    assert await world.dump() == before


async def test_an_insert_sent_again_after_its_job_moved_gets_the_same_answer(world: World) -> None:
    await world.open("s1")
    new = world.new()
    await world.store.insert([new])
    [claimed] = await world.claim("s1")
    await world.store.apply([world.completion(claimed)])

    [again] = await world.store.insert([new])

    assert (again.id, again.created) == (new.job.id, True)
    assert (await world.row(new.job)).status == "succeeded"


async def test_another_job_with_a_stored_id_is_refused(world: World) -> None:
    job = await world.submit()
    world.clock.advance(1)
    with pytest.raises(Conflict, match=job.id):
        await world.store.insert([world.new(id=job.id)])


async def test_a_job_that_is_twice_in_one_insert_is_refused(world: World) -> None:
    new = world.new()
    with pytest.raises(Conflict, match=new.job.id):
        await world.store.insert([new, new])
    assert await world.store.get([new.job.id]) == [None]


# fences ----------------------------------------------------------------------------------------------


async def test_an_insert_of_a_leader_whose_epoch_is_over_writes_nothing(world: World) -> None:
    await world.open("s1", "s2", lease_s=600)
    old = await world.store.lead("placement", "s1", 10)
    assert [result.created for result in await world.store.insert([world.new()], lead=old)] == [True]
    world.clock.advance(11)
    new = await world.store.lead("placement", "s2", 10)
    job = world.new()

    with pytest.raises(NotLeader) as refused:
        await world.store.insert([job], lead=old)

    assert await world.store.get([job.job.id]) == [None]
    assert (refused.value.holder, refused.value.epoch) == ("s2", new.epoch)
    assert (await world.store.insert([job], lead=new))[0].created


async def test_only_the_current_leader_closes_a_session_with_its_lead(world: World) -> None:
    await world.open("s1", "s2", lease_s=600)
    await world.store.open_session(Session(id="node", standing=True, node="n"))
    old = await world.store.lead("placement", "s1", 10)
    world.clock.advance(11)
    new = await world.store.lead("placement", "s2", 10)

    with pytest.raises(NotLeader):
        await world.store.close_session("node", lead=old)
    assert (await world.store.beat(["node"]))[0].known

    await world.store.close_session("node", lead=new)
    assert not (await world.store.beat(["node"]))[0].known


async def test_an_assignment_of_a_leader_whose_epoch_is_over_writes_nothing(world: World) -> None:
    await world.open("s1", "s2", "n0", lease_s=600)
    [unit] = await placed(world)
    old = await world.store.lead("placement", "s1", 10)
    world.clock.advance(11)
    await world.store.lead("placement", "s2", 10)
    with pytest.raises(NotLeader) as refused:
        await world.store.apply([assignment(world, unit, "n0")], lead=old, together=True)
    assert refused.value.holder == "s2"
    assert await world.row(unit) == unit


async def test_a_leader_whose_time_is_over_writes_nothing_even_if_no_other_leads(world: World) -> None:
    await world.open("s1", "n0", lease_s=600)
    [unit] = await placed(world)
    lead = await world.store.lead("placement", "s1", 10)
    world.clock.advance(11)
    job = world.new()

    for write in (
        lambda: world.store.insert([job], lead=lead),
        lambda: world.store.insert([], lead=lead),
        lambda: world.store.apply([], lead=lead),
        lambda: world.store.apply([assignment(world, unit, "n0")], lead=lead),
        lambda: world.store.apply([assignment(world, unit, "n0")], lead=lead, together=True),
        lambda: world.store.close_session("n0", lead=lead),
    ):
        with pytest.raises(NotLeader) as refused:
            await write()
        assert (refused.value.holder, refused.value.epoch) == (None, lead.epoch)

    assert await world.store.get([job.job.id]) == [None]
    assert await world.row(unit) == unit
    again = await world.store.lead("placement", "s1", 10)
    assert again.epoch == lead.epoch
    assert outcomes(await world.store.apply([assignment(world, unit, "n0")], lead=again)) == ["applied"]

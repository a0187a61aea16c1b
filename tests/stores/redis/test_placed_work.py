"""What placed work needs from Redis beside the rules of all stores: lost answers, and programs of other versions."""

from __future__ import annotations

import pytest

from mainstay.errors import NotLeader
from mainstay.lifecycle import Move
from mainstay.model import PLACE_QUEUE, Job, Offer, Session
from mainstay.stores import TrimPolicy
from tests.conformance.test_placed_work import assignment, outcomes, placed
from tests.conformance.world import World
from tests.stores.redis.conftest import Plain
from tests.stores.redis.test_lost_answers import lose_answer


async def assigned(world: World, session: str = "n0") -> Job:
    [unit] = await placed(world)
    [result] = await world.store.apply([assignment(world, unit, session)])
    assert result.job is not None
    assert result.outcome == "applied"
    return result.job


async def test_changes_made_together_are_found_written_if_the_answer_is_lost(world: World) -> None:
    await world.open("n0", "n1", lease_s=600)
    lead = await world.store.lead("placement", "n0", 10)
    changes = [assignment(world, unit, f"n{at}") for at, unit in enumerate(await placed(world, 2))]

    async def depose() -> None:
        world.clock.advance(11)

    lose_answer(world, depose)
    assert outcomes(await world.store.apply(changes, lead=lead, together=True)) == ["applied", "applied"]
    await world.assert_sound()


async def test_an_insert_of_a_leader_is_found_written_if_the_answer_is_lost(world: World) -> None:
    await world.open("s1", lease_s=600)
    lead = await world.store.lead("placement", "s1", 10)
    new, later = world.new(), world.new()

    async def depose() -> None:
        world.clock.advance(11)

    lose_answer(world, depose)
    [result] = await world.store.insert([new], lead=lead)
    assert result.created
    with pytest.raises(NotLeader) as refused:
        await world.store.insert([later], lead=lead)
    assert (refused.value.holder, refused.value.epoch) == (None, 1), "its time is over, and no other session leads"
    assert await world.store.get([later.job.id]) == [None]


async def test_a_session_that_was_closed_is_found_closed_if_the_answer_is_lost(world: World) -> None:
    await world.open("s1", "n0", lease_s=600)
    lead = await world.store.lead("placement", "s1", 10)

    async def depose() -> None:
        world.clock.advance(11)

    lose_answer(world, depose)
    await world.store.close_session("n0", lead=lead)
    assert not (await world.store.beat(["n0"]))[0].known


async def test_a_marked_claim_whose_answer_is_lost_is_made_once(world: World) -> None:
    await world.open("s1")
    jobs = {(await world.submit()).id for _ in range(4)}
    lose_answer(world)
    first = await world.store.claim(["default"], "s1", 2, mark="a")
    assert await world.store.claim(["default"], "s1", 2, mark="a") == first
    rest = await world.store.claim(["default"], "s1", 4, mark="b")
    assert {job.id for job in (*first, *rest)} == jobs
    assert len(first) == len(rest) == 2


async def test_only_claims_with_a_mark_are_kept(world: World, plain: Plain) -> None:
    await world.open("s1")
    await world.submit()
    await world.claim("s1")
    assert plain("HGET", "s:s1", "marks") is None
    await world.store.claim(["default"], "s1", 1, mark="a")
    assert plain("HGET", "s:s1", "marks") is not None


async def test_a_marked_claim_goes_on_after_jobs_of_tasks_that_its_session_does_not_have(world: World) -> None:
    offer = Offer(queues=("default",), tasks={"mine": {}})
    await world.store.open_session(Session(id="s1", lease_s=1e6, offer=offer))
    for _ in range(3):
        await world.submit(name="other")
    mine = await world.submit(name="mine")

    [claimed] = await world.store.claim(["default"], "s1", 1, mark="a")

    assert claimed.id == mine.id
    assert await world.store.claim(["default"], "s1", 1, mark="a") == [claimed]


async def test_a_repeated_claim_is_observed_once(world: World) -> None:
    await world.open("s1")
    await world.submit()
    seen: list[str] = []
    world.store.observer = lambda written: seen.extend(after.status for _, after, _ in written)
    for _ in range(2):
        assert len(await world.store.claim(["default"], "s1", 1, mark="a")) == 1
    assert seen == ["running"]


async def test_an_insert_sent_again_is_observed_once(world: World) -> None:
    seen: list[str] = []
    world.store.observer = lambda written: seen.extend(after.status for _, after, _ in written)
    new = world.new(key="k")
    for _ in range(2):
        assert (await world.store.insert([new]))[0].created
    assert seen == ["pending"]


async def test_an_insert_sent_again_is_known_by_its_trimmed_event(world: World) -> None:
    await world.open("s1")
    new = world.new()
    await world.store.insert([new])
    [job] = await world.claim()
    await world.move(job, Move(to="running", flag="note", reason="a note"), holder="s1")
    await world.store.trim(TrimPolicy(settled_before_ms={}, keep_events=2))
    assert (await world.row(job)).trimmed_seq == 1

    [again] = await world.store.insert([new])

    assert (again.id, again.created) == (new.job.id, True)


async def test_a_beat_leaves_out_what_an_older_program_took_back(world: World, plain: Plain) -> None:
    await world.open("n0")
    job = await assigned(world)
    await world.move(job, Move(to="pending", reason="taken back"))
    plain("SADD", "assigned:n0", job.id)  # an older program does not know this list

    assert (await world.store.beat(["n0"]))[0].assigned == ()

    assert plain("SMEMBERS", "assigned:n0") == set()
    await world.assert_sound()


async def test_the_check_finds_an_assignment_that_is_not_listed(world: World, plain: Plain) -> None:
    await world.open("n0")
    job = await assigned(world)
    plain("SREM", "assigned:n0", job.id)
    found = await world.store.check(repair=True)
    assert [violation.job_id for violation in found] == [job.id]
    assert (await world.store.beat(["n0"]))[0].assigned == (job.id,)


async def test_no_version_finds_a_standing_session_silent(world: World, plain: Plain) -> None:
    await world.store.open_session(Session(id="dc.east", standing=True, lease_s=8))
    [session] = await world.store.sessions()
    assert session.lease_s == 8
    lease_s = plain("HGET", "s:dc.east", "lease_s")
    assert isinstance(lease_s, bytes)
    assert int(lease_s) > 10**9
    assert plain("HGET", "s:dc.east", "linked") is None


async def test_a_session_that_was_closed_with_rows_can_be_opened_again(world: World) -> None:
    east = Session(id="dc.east", standing=True, node="east")
    await world.store.open_session(east)
    await assigned(world, "dc.east")
    await world.store.close_session("dc.east")
    await world.store.open_session(east)
    assert (await world.store.beat(["dc.east"]))[0].known
    await assigned(world, "dc.east")


async def test_a_unit_that_was_inserted_before_counts_once_for_its_parent(world: World) -> None:
    """It is brought again by the change that ends the other unit: after both have ended, the parent moves on."""
    await world.open("s1")
    parent = await world.submit(kind="node", queue=PLACE_QUEUE)
    first, second = (world.new(queue="units", parent=parent.id, unit=str(at)) for at in range(2))
    await world.store.insert([first, second])
    [unit] = await world.claim("s1", queues=["units"])
    ended = await world.move(unit, "succeeded", holder="s1", spawn=(first, second))
    assert (ended.outcome, ended.last) == ("applied", False)
    [unit] = await world.claim("s1", queues=["units"])
    ended = await world.move(unit, "succeeded", holder="s1", spawn=(first, second))
    assert (ended.outcome, ended.last) == ("applied", True)

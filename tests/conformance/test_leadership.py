"""Leadership: one at a time, fenced by an epoch."""

from __future__ import annotations

import pytest

from mainstay.errors import NotLeader
from mainstay.stores import TrimPolicy
from tests.conformance.world import World


async def test_the_first_to_ask_leads_and_others_read_who_does(world: World) -> None:
    lead = await world.store.lead("main", "s1", 10)
    assert (lead.name, lead.holder, lead.epoch) == ("main", "s1", 1)
    assert lead.until_ms == world.clock.lease_ms() + 10_000
    assert await world.store.lead("main", "s2", 10) == lead


async def test_the_leader_keeps_its_epoch_while_it_renews(world: World) -> None:
    first = await world.store.lead("main", "s1", 10)
    world.clock.advance(9)
    second = await world.store.lead("main", "s1", 10)
    assert second.epoch == first.epoch
    assert second.until_ms == world.clock.lease_ms() + 10_000
    world.clock.advance(9)
    assert (await world.store.lead("main", "s2", 10)).holder == "s1"


async def test_an_expired_lead_passes_to_another_with_the_next_epoch(world: World) -> None:
    await world.store.lead("main", "s1", 10)
    world.clock.advance(10.001)
    taken = await world.store.lead("main", "s2", 10)
    assert (taken.holder, taken.epoch) == ("s2", 2)
    assert (await world.store.lead("main", "s1", 10)) == taken


async def test_a_late_leader_whom_nobody_replaced_keeps_its_epoch(world: World) -> None:
    await world.store.lead("main", "s1", 10)
    world.clock.advance(60)
    lead = await world.store.lead("main", "s1", 10)
    assert (lead.holder, lead.epoch) == ("s1", 1)


async def test_leads_of_different_names_are_separate(world: World) -> None:
    await world.store.lead("main", "s1", 10)
    other = await world.store.lead("backup", "s2", 10)
    assert (other.holder, other.epoch) == ("s2", 1)


async def test_a_leader_that_resigns_is_replaced_at_once_and_fenced(world: World) -> None:
    old = await world.store.lead("main", "s1", 10)
    await world.store.resign(old)
    new = await world.store.lead("main", "s2", 10)
    assert (new.holder, new.epoch) == ("s2", 2)
    with pytest.raises(NotLeader):
        await world.store.apply([], lead=old)


async def test_resigning_late_does_not_depose_the_successor(world: World) -> None:
    old = await world.store.lead("main", "s1", 10)
    world.clock.advance(11)
    new = await world.store.lead("main", "s2", 10)
    await world.store.resign(old)
    assert await world.store.lead("main", "s1", 10) == new


async def test_the_current_leader_may_write(world: World) -> None:
    lead = await world.store.lead("main", "s1", 10)
    job = await world.submit()
    [answer] = await world.store.apply([world.change(job, "cancelled")], lead=lead)
    assert answer.outcome == "applied"
    assert await world.store.tick("nightly", 1, [world.new()], lead=lead) is not None
    assert (await world.store.trim(TrimPolicy(), lead=lead)).jobs == 0


async def test_a_deposed_leader_writes_nothing(world: World) -> None:
    old = await world.store.lead("main", "s1", 10)
    job = await world.submit()
    done = await world.submit()
    await world.move(done, "cancelled")
    world.clock.advance(11)
    await world.store.lead("main", "s2", 10)
    before = await world.dump()

    with pytest.raises(NotLeader, match="epoch 1"):
        await world.store.apply([world.change(job, "cancelled")], lead=old)
    with pytest.raises(NotLeader):
        await world.store.tick("nightly", 1, [world.new()], lead=old)
    with pytest.raises(NotLeader):
        await world.store.trim(TrimPolicy(settled_before_ms={"cancelled": world.clock.now_ms() + 1}), lead=old)

    assert await world.dump() == before
    assert await world.store.tick("nightly", 1, [world.new()]) is not None, "the refused tick must not count"


async def test_the_lead_of_a_session_found_dead_passes_on_at_once_and_it_is_fenced(world: World) -> None:
    await world.open("s1", lease_s=5)
    await world.open("s2", lease_s=600)
    old = await world.store.lead("main", "s1", 60)
    world.clock.advance(6)
    assert (await world.store.lead("main", "s2", 60)) == old, "silence alone is the sweep's to judge"
    await world.store.overdue()

    new = await world.store.lead("main", "s2", 60)

    assert (new.holder, new.epoch) == ("s2", 2)
    with pytest.raises(NotLeader):
        await world.store.apply([], lead=old)
    await world.store.apply([], lead=new)
    assert await world.store.lead("main", "s1", 60) == new


async def test_the_lead_of_a_dead_session_that_still_holds_jobs_passes_on_as_well(world: World) -> None:
    await world.open("s1", lease_s=5)
    await world.running(session="s1")
    old = await world.store.lead("main", "s1", 60)
    world.clock.advance(6)
    await world.store.overdue()
    assert [session.dead for session in await world.store.sessions()] == [True]
    with pytest.raises(NotLeader):
        await world.store.apply([], lead=old)
    assert (await world.store.lead("main", "s2", 60)).epoch == 2


async def test_one_declared_dead_that_takes_the_lead_again_can_be_deposed_at_once(world: World) -> None:
    await world.open("s1", lease_s=5)
    await world.running(session="s1")
    world.clock.advance(6)
    await world.store.overdue()
    old = await world.store.lead("main", "s1", 60)
    new = await world.store.lead("main", "s2", 60)
    assert (old.holder, new.holder, new.epoch) == ("s1", "s2", old.epoch + 1)
    with pytest.raises(NotLeader):
        await world.store.apply([], lead=old)


async def test_the_lead_of_a_session_that_was_closed_passes_on_at_once(world: World) -> None:
    await world.open("s1", lease_s=600)
    old = await world.store.lead("main", "s1", 60)
    await world.store.close_session("s1")
    assert (await world.store.lead("main", "s2", 60)).epoch == 2
    with pytest.raises(NotLeader):
        await world.store.apply([], lead=old)


async def test_the_lead_of_a_session_nobody_knows_is_judged_by_time_alone(world: World) -> None:
    old = await world.store.lead("main", "never-opened", 10)
    await world.store.overdue()
    assert await world.store.lead("main", "s2", 10) == old


async def test_a_lead_that_ends_later_than_can_be_asked_for_is_not_waited_for(world: World) -> None:
    old = await world.store.lead("main", "nobody-knows", 1_000_000)

    new = await world.store.lead("main", "s2", 10)

    assert (new.holder, new.epoch) == ("s2", old.epoch + 1)
    assert await world.store.lead("main", "s3", 10) == new
    with pytest.raises(NotLeader):
        await world.store.apply([], lead=old)


async def test_statistics_name_the_session_that_leads(world: World) -> None:
    assert (await world.store.stats()).leader is None
    await world.open("s1", lease_s=600)
    lead = await world.store.lead("leader", "s1", 10)
    await world.store.lead("backup", "s2", 10)
    assert (await world.store.stats()).leader == "s1"

    world.clock.advance(10.001)
    assert (await world.store.stats()).leader is None
    await world.store.lead("leader", "s1", 10)
    await world.store.resign(lead)
    assert (await world.store.stats()).leader is None


async def test_statistics_have_every_lead_that_is_held(world: World) -> None:
    await world.open("s1", lease_s=600)
    lead = await world.store.lead("leader", "s1", 10)
    placement = await world.store.lead("placement", "s2", 20)
    assert (await world.store.stats()).leads == {"leader": lead, "placement": placement}

    world.clock.advance(10.001)
    assert (await world.store.stats()).leads == {"placement": placement}
    await world.store.resign(placement)
    assert (await world.store.stats()).leads == {}


async def test_a_lead_that_ends_too_far_ahead_is_found_and_ended(world: World) -> None:
    await world.store.lead("leader", "nobody-knows", 10 * 86_400)
    assert (await world.store.stats()).leader is None, "it is not believed"

    [found] = await world.store.check()
    assert (found.code, found.repaired) == ("bad_leader", None)
    [mended] = await world.store.check(repair=True)
    assert mended.repaired == "its time was ended"

    assert await world.store.check() == []
    assert (await world.store.lead("leader", "s2", 20 * 86_400)).holder == "s2"
    await world.store.check(repair=True)

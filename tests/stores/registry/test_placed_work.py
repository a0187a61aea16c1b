"""Placed work in a registry: what one process writes, another process and another machine find."""

from __future__ import annotations

import pytest

from mainstay.errors import NotLeader, StoreUnavailable
from mainstay.model import Session
from mainstay.stores.registry import JobRegistry
from mainstay.stores.versioned import VersionedStore
from tests.conformance.test_placed_work import assignment, outcomes, placed
from tests.conformance.world import World
from tests.stores.registry.conftest import Join
from tests.stores.registry.test_commit_queue import losing_answers
from tests.stores.registry.test_documents import snapshot_of
from tests.stores.registry.test_sessions import two


async def test_another_process_finds_the_mark_of_a_claim(join: Join) -> None:
    one, _ = await join()
    other, _ = await join()
    await one.open("s1")
    for _ in range(3):
        await one.submit()
    first = await one.store.claim(["default"], "s1", 2, mark="a")
    assert len(first) == 2
    assert await other.store.claim(["default"], "s1", 2, mark="a") == first
    assert len(await other.store.claim(["default"], "s1", 2, mark="b")) == 1


async def test_marks_are_in_a_snapshot_in_their_order(join: Join, below: VersionedStore) -> None:
    one, _ = await join()
    await one.open("s1")
    jobs = [await one.submit() for _ in range(6)]
    for at in range(5):
        await one.store.claim(["default"], "s1", 1, mark=f"m{at}")
    assert isinstance(one.store, JobRegistry)
    [marks] = [line for line in await snapshot_of(one.store, below) if line["t"] == "marks"]
    claims = [[f"m{at}", [[jobs[at].id, 1]]] for at in range(1, 5)]
    assert marks == {"t": "marks", "id": "s1", "claims": claims}

    later, _ = await join()
    assert [job.id for job in await later.store.claim(["default"], "s1", 1, mark="m1")] == [jobs[1].id]
    await later.store.claim(["default"], "s1", 1, mark="m5")
    assert list(_marks(later)["s1"]) == ["m2", "m3", "m4", "m5"]


async def test_a_claim_without_a_mark_writes_none(join: Join, below: VersionedStore) -> None:
    one, _ = await join()
    await one.open("s1")
    await one.submit()
    await one.claim("s1")
    assert isinstance(one.store, JobRegistry)
    assert not [line for line in await snapshot_of(one.store, below) if line["t"] == "marks"]


async def test_the_marks_of_a_session_end_with_it(join: Join) -> None:
    one, _ = await join()
    other, _ = await join()
    for name in ("closed", "dead", "alive"):
        await one.open(name, lease_s=8 if name == "dead" else 600)
        await one.store.claim(["default"], name, 1, mark="a")
    await other.store.get([])
    assert set(_marks(other)) == {"closed", "dead", "alive"}
    await one.store.close_session("closed")
    await other.store.get([])
    assert set(_marks(other)) == {"dead", "alive"}
    one.clock.advance(9)
    for _ in range(2):
        await one.store.overdue()
    await other.store.get([])
    assert set(_marks(other)) == {"alive"}


async def test_marks_of_a_session_whose_document_is_gone_are_removed(join: Join, below: VersionedStore) -> None:
    one, _ = await join()
    await one.open("s1")
    await one.store.claim(["default"], "s1", 1, mark="a")
    document = await below.get("sessions/s1")
    assert document is not None
    await below.delete("sessions/s1", document.version)
    other, _ = await join()
    await other.store.overdue()
    assert not _marks(other)


async def test_a_sweep_keeps_the_marks_of_a_session_that_it_does_not_know_yet(join: Join) -> None:
    one, _ = await join()
    other, _ = await join()
    await other.store.overdue()
    await one.open("s1")
    await one.store.claim(["default"], "s1", 1, mark="a")
    await other.store.overdue()
    assert set(_marks(other)) == {"s1"}


async def test_a_claim_whose_commit_is_in_doubt_stays_with_its_mark(join: Join, below: VersionedStore) -> None:
    """It is not given back behind the caller, who sends it again."""
    one, way = await join()
    await one.open("s1")
    job = await one.submit()
    way.after = losing_answers(below, can_be_asked=False)  # type: ignore[assignment]  # a hook
    with pytest.raises(StoreUnavailable):
        await one.store.claim(["default"], "s1", 1, mark="a")
    way.after = None
    [again] = await one.store.claim(["default"], "s1", 1, mark="a")
    assert (again.id, again.token) == (job.id, 1)
    assert await one.row(job) == again


async def test_a_row_is_given_to_a_session_of_another_process(join: Join) -> None:
    leader, _ = await join()
    node, _ = await join()
    [unit] = await placed(leader)
    await node.open("n0")
    assert outcomes(await leader.store.apply([assignment(leader, unit, "n0")])) == ["applied"]
    assert (await node.store.beat(["n0"]))[0].assigned == (unit.id,)


async def test_a_row_is_not_given_to_a_session_that_another_process_closed(join: Join) -> None:
    leader, _ = await join()
    node, _ = await join()
    first, second = await placed(leader, 2)
    await node.open("n0")
    await leader.store.sessions()
    await node.store.close_session("n0")
    changes = [assignment(leader, unit, "n0") for unit in (first, second)]
    assert outcomes(await leader.store.apply(changes, together=True)) == ["no_session"] * 2


async def test_a_standing_session_of_another_machine_is_not_judged_by_its_silence(
    join: Join, below: VersionedStore
) -> None:
    hub, sweeper, machines = await two(join)
    await hub.store.open_session(Session(id="dc.east", standing=True, lease_s=8, node="east"))
    [unit] = await placed(hub)
    await hub.store.apply([assignment(hub, unit, "dc.east")])
    for _ in range(5):
        machines.advance(3600)
        assert {late.cause for late in await sweeper.store.overdue()} <= {"time"}
    [session] = await sweeper.store.sessions()
    assert (session.dead, session.standing, session.lease_s) == (False, True, 8)
    document = await below.get("sessions/dc.east")
    assert document is not None
    assert b'"lease_s":10000000000.0' in document.value, "a program of any version finds it alive"


async def test_a_refused_close_leaves_the_document(join: Join, below: VersionedStore) -> None:
    one, _ = await join()
    await one.open("s1", "s2", lease_s=600)
    await one.store.open_session(Session(id="node", standing=True))
    old = await one.store.lead("placement", "s1", 10)
    one.clock.advance(11)
    other, _ = await join()
    await other.store.lead("placement", "s2", 10)
    with pytest.raises(NotLeader) as refused:
        await one.store.close_session("node", lead=old)
    assert refused.value.holder == "s2"
    assert await below.get("sessions/node") is not None


def _marks(world: World) -> dict[str, dict[str, tuple[tuple[str, int], ...]]]:
    assert isinstance(world.store, JobRegistry)
    return world.store._base.follower.replica.tables.marks

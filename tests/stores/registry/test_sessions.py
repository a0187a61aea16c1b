"""Sessions of machines that share no clock."""

from __future__ import annotations

import msgspec
import pytest

from mainstay.errors import SessionLost, StoreUnavailable
from mainstay.model import Session
from mainstay.stores import usual_settings
from mainstay.stores.versioned import VersionedStore
from mainstay.testing import VirtualClock
from tests.conformance.world import World
from tests.stores.registry.conftest import Join

LEASE_S = 120.0


class Machines:
    """Two machines whose steady clocks, and whose wall clocks, have nothing in common."""

    def __init__(self) -> None:
        self.clocks = VirtualClock(), VirtualClock(5_000)

    def advance(self, seconds: float) -> None:
        for clock in self.clocks:
            clock.advance(seconds)


async def two(join: Join) -> tuple[World, World, Machines]:
    """A worker on one machine, a sweeper on the other."""
    machines = Machines()
    worker, _ = await join(clock=machines.clocks[0], machine="a")
    sweeper, _ = await join(clock=machines.clocks[1], machine="b")
    return worker, sweeper, machines


async def test_a_session_of_another_machine_is_watched_for_a_whole_lease_before_it_is_dead(join: Join) -> None:
    worker, sweeper, machines = await two(join)
    await worker.open("s1", lease_s=LEASE_S)
    job = await worker.running("s1")
    machines.advance(10 * LEASE_S)
    assert await sweeper.store.overdue() == [], "whoever has just come knows nothing of its silence"
    machines.advance(LEASE_S)
    assert await sweeper.store.overdue() == []
    machines.advance(0.001)
    [late] = await sweeper.store.overdue()
    assert (late.job.id, late.cause) == (job.id, "session")
    [pulse] = await worker.store.beat(["s1"])
    assert not pulse.known
    with pytest.raises(SessionLost):
        await worker.claim("s1")


async def test_a_session_of_another_machine_lives_while_its_document_changes(join: Join) -> None:
    worker, sweeper, machines = await two(join)
    await worker.open("s1", lease_s=LEASE_S)
    await worker.running("s1")
    for _ in range(20):
        machines.advance(30)
        [pulse] = await worker.store.beat(["s1"])
        assert pulse.known
        assert await sweeper.store.overdue() == []
    machines.advance(LEASE_S)
    await sweeper.store.overdue()
    machines.advance(LEASE_S + 1)
    assert len(await sweeper.store.overdue()) == 1, "two leases after its last beat it is dead for sure"


async def test_a_beat_that_comes_while_it_is_judged_keeps_it_alive(join: Join) -> None:
    machines = Machines()
    worker, _ = await join(clock=machines.clocks[0], machine="a")
    sweeper, way = await join(clock=machines.clocks[1], machine="b")
    await worker.open("s1", lease_s=LEASE_S)
    await worker.running("s1")
    await sweeper.store.overdue()
    machines.advance(LEASE_S + 1)

    async def beat_first(call: str, key: str) -> None:
        if call == "put":
            way.before = None
            await worker.store.beat(["s1"])

    way.before = beat_first
    assert await sweeper.store.overdue() == []
    assert (await worker.store.beat(["s1"]))[0].known


async def test_rows_of_a_session_that_another_process_closed_are_overdue_at_once(join: Join) -> None:
    one, _ = await join()
    other, _ = await join()
    await one.open("s1")
    job = await one.running("s1")
    assert await other.store.overdue() == []
    await one.store.close_session("s1")
    other.clock.advance(61)  # until it looks who is there
    assert [late.job.id for late in await other.store.overdue()] == [job.id]


async def test_a_session_that_never_held_anything_and_died_leaves_nothing(join: Join, below: VersionedStore) -> None:
    one, _ = await join()
    other, _ = await join()
    await one.open("s1")
    other.clock.advance(100)
    await other.store.overdue()
    await other.store.overdue()
    assert await below.list_keys("sessions/") == []
    assert await other.store.sessions() == []


async def test_a_beat_is_one_write_and_no_commit(join: Join) -> None:
    world, way = await join()
    await world.open("s1")
    way.calls.clear()
    await world.store.beat(["s1"])
    assert way.calls == [("put", "sessions/s1"), ("get", "log/000000000001")]


async def test_a_session_whose_document_others_keep_changing_lives_on(join: Join, below: VersionedStore) -> None:
    world, way = await join()
    await world.open("s1")

    async def change_it(call: str, key: str) -> None:
        if call == "put" and key == "sessions/s1":
            found = await below.get(key)
            assert found is not None
            await below.put(key, found.value, found.version)

    way.before = change_it
    [pulse] = await world.store.beat(["s1"])
    assert pulse.known
    assert way.made("put") == 2


async def test_a_beat_to_a_store_that_is_away_says_so_and_the_next_one_counts(join: Join) -> None:
    world, way = await join()
    await world.open("s1")
    way.away = True
    with pytest.raises(StoreUnavailable):
        await world.store.beat(["s1"])
    way.away = False
    assert (await world.store.beat(["s1"]))[0].known


async def test_what_a_newer_program_wrote_into_a_session_survives_its_beats(join: Join, below: VersionedStore) -> None:
    world, _ = await join()
    await world.open("s1")
    found = await below.get("sessions/s1")
    assert found is not None
    await below.put("sessions/s1", msgspec.json.encode({**msgspec.json.decode(found.value), "rack": 7}), found.version)
    await world.store.beat(["s1"])
    after = await below.get("sessions/s1")
    assert after is not None
    raw = msgspec.json.decode(after.value)
    assert (raw["rack"], raw["beats"]) == (7, 1)


async def test_a_lead_on_another_machine_is_over_when_it_was_not_renewed_for_its_time(join: Join) -> None:
    one, other, machines = await two(join)
    first = await one.store.lead("main", "s1", 60)
    assert (await other.store.lead("main", "s2", 60)).holder == "s1"
    machines.advance(59)
    renewed = await one.store.lead("main", "s1", 60)
    assert renewed.epoch == first.epoch
    machines.advance(59)
    assert (await other.store.lead("main", "s2", 60)).holder == "s1"
    machines.advance(61)
    assert (await other.store.lead("main", "s2", 60)).epoch == first.epoch + 1


async def test_a_lead_that_is_good_for_long_is_not_renewed(join: Join) -> None:
    world, way = await join()
    await world.store.lead("main", "s1", 60)
    way.calls.clear()
    world.clock.advance(10)
    await world.store.lead("main", "s1", 60)
    assert way.made("create") == 0
    world.clock.advance(10)
    await world.store.lead("main", "s1", 60)
    assert way.made("create") == 1


async def test_another_machines_session_shows_when_it_beat_by_the_wall_clocks(join: Join) -> None:
    clock, other = VirtualClock(), VirtualClock()
    other.advance(7)
    worker, _ = await join(clock=clock, machine="a")
    reader, _ = await join(clock=other, machine="b")
    await worker.store.open_session(Session(id="s1", lease_s=LEASE_S))
    [found] = await reader.store.sessions()
    assert other.lease_ms() - found.beat_ms == 7_000


def test_workers_on_such_a_store_beat_less_often() -> None:
    for scheme in ("s3", "gs", "az", "dynamodb", "file"):
        assert usual_settings(f"{scheme}://x")["lease"] == "2m"
    assert usual_settings("postgresql://db/x") == {}

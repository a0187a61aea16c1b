"""Calls over a bus that loses messages, with managers that end, bodies in parts, and callers from elsewhere."""

from __future__ import annotations

import asyncio
import random

import pytest

from mainstay.bus import MemoryBusNetwork, MessageClass
from mainstay.errors import Overloaded, RoleRefused, StoreUnavailable, VersionSkew, WrongCluster
from mainstay.model import Session
from mainstay.stores import Change, ClaimReport
from mainstay.stores.remote import RemoteStore, StoreAnswer
from mainstay.stores.remote.store import ManagerClock
from mainstay.testing import MemoryStore, VirtualClock
from tests.conformance.world import World
from tests.stores.remote.managers import VERSION, FirstAnswersLost, service_of


class LosingNetwork(MemoryBusNetwork):
    """Loses the first answer to every request."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0
        self._seen: set[bytes] = set()

    def send(self, sender, message) -> None:
        if message.subject.startswith("_INBOX") and sender.name.startswith("manager."):
            self.lost += 1
            if self.lost % 2:
                return
        super().send(sender, message)


def client(network: MemoryBusNetwork, clock: VirtualClock, **more) -> RemoteStore:
    values = {"role": "operator", "name": "ann", "cluster": "test", "version": VERSION, "clock": clock, **more}
    return RemoteStore(network.client("operator.ann"), rng=random.Random(3), **values)


async def test_a_lost_answer_makes_nothing_happen_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstay.stores.remote.store._TRY_S", 0.05)
    clock, network = VirtualClock(), LosingNetwork()
    store = MemoryStore(clock)
    service = service_of(store, network, "m1")
    await service.start()
    remote = client(network, clock)
    world = World(remote, clock)

    made = [await remote.insert([world.new()]) for _ in range(3)]
    await remote.open_session(Session(id="s1"))
    claimed = [row for _ in range(3) for row in await remote.claim(["default"], "s1", 1)]
    results = [await remote.apply([world.completion(row)]) for row in claimed]

    assert all(each[0].created for each in made)
    assert len({row.id for row in claimed}) == 3
    assert {result.outcome for [result] in results} <= {"applied", "already_applied"}
    rows = [await world.row(each[0].id) for each in made]
    assert [(row.status, row.token, row.version) for row in rows] == [("succeeded", 1, 3)] * 3
    assert network.lost > 12
    await service.stop()
    await store.close()


async def test_a_claim_that_got_no_answer_is_repeated_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstay.stores.remote.store._TRY_S", 0.02)
    clock, network = VirtualClock(), FirstAnswersLost("claim")
    store = MemoryStore(clock)
    service = service_of(store, network, "m1")
    await service.start()
    remote = client(network, clock, answer_s=0.06)
    await remote.open()
    world = World(remote, clock)
    await world.open("s1")
    job = await world.submit()
    network.lost = 1000
    with pytest.raises(StoreUnavailable):
        await remote.claim(["default"], "s1", 1)
    assert (await world.row(job)).session == "s1"
    network.lost = 0

    [row] = await remote.claim(["default"], "s1", 5)

    assert (row.id, row.token) == (job.id, 1)
    await service.stop()
    await store.close()


async def test_a_cancelled_claim_is_given_back() -> None:
    clock, network = VirtualClock(), MemoryBusNetwork()
    store = MemoryStore(clock)
    service = service_of(store, network, "m1")
    await service.start()
    remote = await client(network, clock).open()
    world = World(remote, clock)
    await world.open("s1")
    jobs = [await world.submit() for _ in range(20)]
    for at in range(20):
        claim = asyncio.create_task(remote.claim(["default"], "s1", 1))
        for _ in range(at):
            await asyncio.sleep(0)
        claim.cancel()
        [result] = await asyncio.gather(claim, return_exceptions=True)
        for row in result if isinstance(result, list) else []:
            await world.move(row, "pending", holder="s1")  # it was faster than the cancel
    async with asyncio.timeout(5):
        while remote._releasing:
            await asyncio.wait(list(remote._releasing))

    assert {(await world.row(job)).status for job in jobs} == {"pending"}
    await service.stop()
    await store.close()


async def test_another_manager_answers_when_one_has_gone() -> None:
    clock, network = VirtualClock(), MemoryBusNetwork()
    store = MemoryStore(clock)
    first, second = service_of(store, network, "m1"), service_of(store, network, "m2")
    await first.start()
    await second.start()
    remote = client(network, clock)
    for _ in range(2):
        await remote.open()

    await first.stop()

    for _ in range(4):
        assert (await remote.stats()).sessions == 0
    await second.stop()
    await store.close()


async def test_without_a_manager_the_store_is_unavailable() -> None:
    remote = client(MemoryBusNetwork(), VirtualClock(), answer_s=0.2)
    with pytest.raises(StoreUnavailable, match="no manager is there"):
        await remote.stats()


async def test_a_wake_outlives_its_manager() -> None:
    clock, network = VirtualClock(), MemoryBusNetwork()
    store = MemoryStore(clock)
    services = [service_of(store, network, f"m{number}") for number in (1, 2)]
    for service in services:
        await service.start()
    remote = client(network, clock)
    world = World(remote, clock)
    async with remote.wake(["queue:default"]) as wake:
        assert not await wake.wait(0.01)
        holder = next(each for each in services if each._wakes)
        network.disconnect(f"manager.{holder._manager}")

        assert await wake.wait(5)  # lost with its manager: look, it may have been missed
        assert not await wake.wait(0.01)
        # a process that has ended holds no wake
        await holder.stop()
        waiting = asyncio.create_task(wake.wait(5))
        await asyncio.sleep(0)
        await world.submit()
        assert await waiting
    for service in services:
        await service.stop()
    await store.close()


async def test_large_bodies_go_in_parts_both_ways() -> None:
    clock, network = VirtualClock(), MemoryBusNetwork()
    store = MemoryStore(clock)
    service = service_of(store, network, "m1")
    await service.start()
    remote = client(network, clock)
    world = World(remote, clock)
    payload = random.Random(5).randbytes(2 * 1024 * 1024)

    made = await remote.insert([world.new(payload=payload)])

    assert (await world.row(made[0].id)).payload == payload
    assert not service._incoming.size
    await service.stop()
    await store.close()


async def test_a_missing_part_is_sent_again() -> None:
    clock, network = VirtualClock(), MemoryBusNetwork()
    store = MemoryStore(clock)
    service = service_of(store, network, "m1")
    await service.start()
    remote = client(network, clock)
    world = World(remote, clock)
    put, dropped = service._incoming.put, []

    def forgetful(caller, call, number, data):
        put(caller, call, number, data)
        if not dropped:
            dropped.append(service._incoming.take(caller, call))

    service._incoming.put = forgetful
    [made] = await remote.insert([world.new(payload=b"x" * 600_000)])

    assert dropped
    assert (await world.row(made.id)).payload == b"x" * 600_000
    await service.stop()
    await store.close()


async def test_strangers_are_refused_in_order_and_counted() -> None:
    clock, network = VirtualClock(), MemoryBusNetwork()
    store = MemoryStore(clock)
    service = service_of(store, network, "m1")
    await service.start()

    with pytest.raises(WrongCluster, match="this is the cluster test/default, not other/default"):
        await client(network, clock, cluster="other", version="9.9").stats()
    with pytest.raises(WrongCluster):
        await client(network, clock, environment="staging").stats()
    with pytest.raises(VersionSkew):
        await client(network, clock, version="1.4.0", role="gate").stats()
    with pytest.raises(RoleRefused, match="the roles are"):
        await client(network, clock, role="gate").stats()

    assert service.refused == {"cluster": 2, "version": 1, "role": 1}
    await service.stop()
    await store.close()


async def test_a_flood_of_reads_is_refused_with_a_time_and_heartbeats_go_on() -> None:
    clock, network = VirtualClock(), MemoryBusNetwork()

    class SlowStore(MemoryStore):
        async def stats(self):
            await asyncio.Event().wait()

    store = SlowStore(clock)
    limits = {MessageClass.CONTROL: 5, MessageClass.DISPATCH: 5, MessageClass.DATA: 5}
    service = service_of(store, network, "m1", at_once=limits)
    await service.start()
    remote = client(network, clock, answer_s=0.3)
    await remote.open_session(Session(id="s1"))
    others = [client(network, clock, name=f"bob{number}", answer_s=0.3) for number in range(8)]
    flood = [asyncio.create_task(other.stats()) for other in others for _ in range(3)]
    await asyncio.sleep(0.05)

    with pytest.raises((Overloaded, StoreUnavailable)):
        await remote.get(["018bcfe5-6800-7000-8000-000000000000"])
    pulses = [await remote.beat(["s1"]) for _ in range(50)]

    assert all(pulse.known for [pulse] in pulses)
    assert service.refused["overload"] > 0
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)
    await service.stop()
    await store.close()


async def test_a_store_that_stands_still_does_not_fill_the_memory_of_its_manager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mainstay.stores.remote.service._TASKS", 20)
    clock, network = VirtualClock(), MemoryBusNetwork()
    going = asyncio.Event()

    class SlowStore(MemoryStore):
        async def beat(self, sessions, reports=()):
            await going.wait()
            return await super().beat(sessions, reports)

    store = SlowStore(clock)
    service = service_of(store, network, "m1")
    await service.start()
    remote = client(network, clock)
    flood = [asyncio.create_task(remote.beat([])) for _ in range(200)]
    for _ in range(20):
        await asyncio.sleep(0)

    assert len(service._tasks) <= 21
    going.set()
    assert await asyncio.gather(*flood) == [[]] * 200
    await service.stop()
    await store.close()


async def test_a_replayed_request_changes_nothing() -> None:
    clock, network = VirtualClock(), MemoryBusNetwork()
    store = MemoryStore(clock)
    service = service_of(store, network, "m1")
    await service.start()
    spy = network.client("spy")
    seen = await spy.subscribe("dispatch.store.>")
    control = await spy.subscribe("control.store.>")
    remote = client(network, clock)
    world = World(remote, clock)
    job = await world.submit()
    await remote.open_session(Session(id="s1"))
    [row] = await remote.claim(["default"], "s1", 1)
    await remote.apply([world.completion(row)])
    before = await World(store, clock).dump()

    for recorded in (seen, control):
        for _ in range(recorded.waiting):
            message = await anext(recorded)
            if not message.subject.endswith((".beat", ".open_wake")):
                await spy.request(message.subject, message.body, 1)

    after = await World(store, clock).dump()
    assert after["rows"] == before["rows"]
    assert after["events"] == before["events"]
    assert (await world.row(job)).status == "succeeded"
    await service.stop()
    await store.close()


def test_a_change_on_the_wire_has_no_payload() -> None:
    from mainstay.stores.remote.wire import encode, wire_change

    clock = VirtualClock()
    world = World(MemoryStore(clock), clock)
    new = world.new(payload=b"\xa6secret")
    change = Change(before=new.job, moves=(), actor="s1", at_ms=0)
    assert b"secret" not in encode(wire_change(change))


async def test_a_request_that_its_manager_reads_too_late_is_not_carried_out() -> None:
    clock, network = VirtualClock(), MemoryBusNetwork()
    store = MemoryStore(clock)
    service = service_of(store, network, "m1")
    spy = await network.client("spy").subscribe("dispatch.store.>")
    await service.start()
    remote = client(network, clock)
    await remote.open()
    world = World(remote, clock)
    await world.submit()
    late = await anext(spy)
    await remote.delete(await _ids(store), actor="ann", reason="test")

    clock.advance(60)  # as after a pause of the manager, or of the connection that held the request
    await network.client("operator.old").request(late.subject, late.body, 1)

    assert (await store.audit()) == []
    assert service.refused["late"] == 1
    await service.stop()
    await store.close()


async def test_a_caller_whose_clock_is_behind_is_served() -> None:
    clock, network = VirtualClock(), MemoryBusNetwork()
    store = MemoryStore(clock)
    service = service_of(store, network, "m1")
    await service.start()
    behind = VirtualClock()
    remote = client(network, behind)
    await remote.open()
    clock.advance(600)

    assert await remote.queues() == []

    await service.stop()
    await store.close()


async def _ids(store: MemoryStore) -> list[str]:
    return [found.job.id for found in await store.audit()]


def test_a_wait_at_the_manager_does_not_shift_the_clock() -> None:
    steady = Steady()
    clock = ManagerClock(steady)
    clock.heard(StoreAnswer(m="m1", now=1_000_000, lease=1), sent=0.0)
    steady.ms = 10_020.0  # a request for a wake: 10 s at another manager, and 20 ms on the way
    clock.heard(StoreAnswer(m="m2", now=1_010_010, lease=10_011, took=10_000), sent=0.0)

    assert abs(clock.now_ms() - 1_010_020) <= 10
    assert abs(clock.lease_ms() - 10_021) <= 10


def test_the_best_reading_counts_whichever_manager_it_is_from() -> None:
    steady = Steady()
    clock = ManagerClock(steady)
    clock.heard(StoreAnswer(m="m1", now=1_000_000, lease=1_000_000), sent=0.0)
    steady.ms = 2_000.0
    clock.heard(StoreAnswer(m="m2", now=1_002_000, lease=1_002_000), sent=0.0)  # slow on the way back

    assert clock.now_ms() == 1_002_000


def test_a_manager_with_another_clock_is_followed() -> None:
    steady = Steady()
    clock = ManagerClock(steady)
    clock.heard(StoreAnswer(m="m1", now=1_000_000, lease=1_000_000), sent=0.0)
    clock.heard(StoreAnswer(m="m2", now=1_600_000, lease=1_600_000), sent=0.0)

    assert clock.now_ms() == 1_600_000


class Steady:
    ms = 0.0

    def __call__(self) -> float:
        return self.ms


@pytest.mark.parametrize("together", [True, False])
async def test_a_row_that_another_manager_brought_up_to_date_is_changed(together: bool) -> None:
    """A start mark changes a row without a new version, so this manager cannot know that its own copy is old."""
    clock, network = VirtualClock(), MemoryBusNetwork()
    store = MemoryStore(clock)
    service = service_of(store, network, "m1")
    await service.start()
    remote = client(network, clock)
    world = World(store, clock)
    await world.open("s1")
    job = await world.running(session="s1")
    await remote.get([job.id])

    await store.report([ClaimReport(job_id=job.id, session="s1", token=job.token, started_ms=clock.now_ms())])
    fresh = await world.row(job)
    [result] = await remote.apply([world.change(fresh, "cancelling")], together=together)

    assert fresh.version == job.version
    assert fresh.starts > job.starts
    assert result.outcome == "applied"
    await service.stop()

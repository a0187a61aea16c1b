"""The rows that a manager keeps for changes: what another manager, a report or a direct worker does to them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainstay.bus import MemoryBusNetwork
from mainstay.lifecycle import Move
from mainstay.model import Job, Progress
from mainstay.stores import ClaimReport
from mainstay.stores.remote import RemoteStore, StoreService
from mainstay.testing import MemoryStore, VirtualClock
from tests.conformance.world import World
from tests.stores.remote.managers import remote_of, service_of


class OneManager:
    """A caller behind one manager, and the store, which others change."""

    def __init__(self, clock: VirtualClock, store: MemoryStore, service: StoreService, remote: RemoteStore) -> None:
        self.clock = clock
        self.store = store
        self.service = service
        self.remote = World(remote, clock)
        self.direct = World(store, clock, seed=8)

    async def claimed(self, **fields: object) -> Job:
        await self.direct.submit(**fields)
        [row] = await self.remote.claim()
        return row

    async def report(self, row: Job) -> None:
        """By way of another manager."""
        begun = ClaimReport(
            job_id=row.id,
            session=row.session or "",
            token=row.token,
            started_ms=self.clock.now_ms(),
            progress=Progress(done=1),
            checkpoint=b"half",
        )
        assert await self.store.report([begun]) == [True]


@pytest.fixture
async def world() -> AsyncIterator[OneManager]:
    clock, network = VirtualClock(), MemoryBusNetwork()
    store = MemoryStore(clock)
    service = service_of(store, network, "m1")
    await service.start()
    remote = await remote_of(network, clock).open()
    made = OneManager(clock, store, service, remote)
    await made.remote.open("s1")
    yield made
    await service.stop()
    await store.close()


BOTH = pytest.mark.parametrize("kept", [True, False], ids=["kept", "read"])


@BOTH
async def test_a_job_that_has_reported_progress_is_not_taken_by_one_who_has_not_seen_it(
    world: OneManager, kept: bool
) -> None:
    row = await world.claimed()
    world.clock.advance(5)
    await world.report(row)
    if not kept:
        world.service._rows.clear()

    taken = await world.remote.move(row, "timed_out", actor="sweeper")

    assert taken.outcome == "conflict"
    assert taken.job is not None
    assert taken.job.progress_ms == world.clock.now_ms()
    assert (await world.remote.move(taken.job, "timed_out", actor="sweeper")).outcome == "applied"


@BOTH
async def test_a_job_that_has_begun_is_not_ended_as_one_that_has_not(world: OneManager, kept: bool) -> None:
    row = await world.claimed()
    await world.report(row)
    if not kept:
        world.service._rows.clear()
    back = Move(to="pending", reason="never begun", fields={"releases": row.releases + 1})

    assert (await world.remote.move(row, back, holder="s1")).outcome == "conflict"


@BOTH
async def test_what_was_reported_through_another_manager_is_not_lost(world: OneManager, kept: bool) -> None:
    row = await world.claimed()
    await world.report(row)
    if not kept:
        world.service._rows.clear()

    [result] = await world.remote.store.apply([world.remote.completion(row)])

    assert result.outcome == "applied"
    stored = await world.direct.row(row)
    assert (stored.starts, stored.progress, stored.checkpoint) == (1, Progress(done=1), b"half")


async def test_a_job_that_a_direct_worker_moved_is_not_moved_again(world: OneManager) -> None:
    row = await world.claimed()
    await world.direct.move(row, "pending", actor="sweeper")
    await world.direct.open("s2")
    await world.direct.claim("s2")

    [result] = await world.remote.store.apply([world.remote.completion(row)])

    assert result.outcome == "stale"


async def test_a_job_that_was_deleted_and_inserted_again_is_another_one(world: OneManager) -> None:
    new = world.direct.new()
    await world.store.insert([new])
    [row] = await world.remote.claim()
    await world.direct.move(row, "cancelled", actor="ann")
    await world.store.delete([row.id], actor="ann", reason="test")

    [result] = await world.remote.store.apply([world.remote.completion(row)])

    assert result.outcome == "missing"


async def test_the_kept_rows_are_bounded_by_their_bytes(world: OneManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstay.stores.remote.service._ROWS_BYTES", 10_000)
    for _ in range(30):
        await world.direct.submit(payload=b"x" * 1000)
    rows = await world.remote.claim(n=30)

    assert sum(len(row.payload) for row in world.service._rows.values()) <= 10_000
    results = await world.remote.store.apply([world.remote.completion(row) for row in rows])
    assert {result.outcome for result in results} == {"applied"}

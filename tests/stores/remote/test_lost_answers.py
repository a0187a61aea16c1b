"""Every call of the port behind two managers, once as usual and once with each first answer lost.

A call whose answer is lost is sent again, to the other manager. Both must end in the same state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import ANY

import msgspec
import pytest

from mainstay.bus import MemoryBusNetwork
from mainstay.lifecycle import Move
from mainstay.model import Job, Progress, QueueSettings, Schedule, Session
from mainstay.stores import CALLS, ClaimReport, JobStore, NewJob, Query, TrimPolicy
from mainstay.testing import MemoryStore, VirtualClock
from tests.conformance.world import World
from tests.stores.remote.managers import FirstAnswersLost, remote_of, service_of


class Recorded:
    """A store whose calls are noted with their results."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self.results: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in CALLS:
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = await found(*args, **kwargs)
            self.results.append((name, result))
            return result

        return call


async def every_call(world: World, store: Any, clock: VirtualClock) -> None:  # noqa: PLR0915 - one story
    """Make every call of the port, in a story in which a repeated one would show."""
    await store.open_session(Session(id="s1", worker="w1"))
    await store.open_session(Session(id="s2", worker="w2", lease_s=2.0))
    await store.open_session(Session(id="m1", worker="m1"))
    await store.set_queue(QueueSettings(name="slow", paused=True))
    await store.queues()
    await store.set_limit("db", 1)
    await store.limits()
    # jobs: plain, with a unique key, waiting, limited
    plain = [world.new() for _ in range(6)]
    await store.insert(plain)
    await store.insert([world.new(unique_key="one"), world.new(unique_key="one")])
    blocked = [world.new(concurrency_key="db", queue="db") for _ in range(2)]
    await store.insert(blocked)
    dependant = world.new(after=[plain[0].job.id])
    await store.insert([dependant])
    await store.awaited(dependant.job.id)
    rows = await store.claim(["default"], "s1", 3)
    [limited] = await store.claim(["db"], "s1", 2)
    await store.report([_begun(rows[0], clock), _begun(limited, clock)])
    await store.beat(["s1"], [_begun(rows[1], clock)])
    await store.apply([world.completion(row) for row in rows[:2]])
    await store.apply([world.completion(limited)])
    # a driver with units, whose last unit settles it
    parent = await world.running("s1", kind="batch")
    unit: NewJob = world.new(parent=parent.id, queue="units")
    await store.apply(
        [world.change(parent, Move(to="running", flag="note", reason="one unit"), holder="s1", spawn=(unit,))]
    )
    await store.unit_counts(parent.id)
    [claimed] = await store.claim(["units"], "s1", 1)
    await store.apply([world.completion(claimed)])
    # leads, ticks
    lead = await store.lead("leader", "m1", 10.0)
    await store.put_schedule(Schedule(name="nightly", spec=b"x"))
    await store.pause_schedule("nightly", paused=True)
    await store.schedules()
    await store.tick("nightly", clock.now_ms(), [world.new(queue="ticks")], lead=lead)
    await store.drop_schedule("nightly")
    await store.resign(lead)
    again = await store.lead("leader", "m1", 10.0)
    # a dead session
    await store.claim(["default"], "s2", 1)
    clock.advance(3)
    await store.beat(["s1"])
    late = await store.overdue()
    await store.apply([world.change(each.job, "pending", actor="sweeper") for each in late])
    await store.due(["default"])
    await store.drain(["s1"], by="ann")
    await store.close_session("s1", lead=again)
    await store.sessions()
    # reads
    page = await store.find(Query(), limit=3)
    await store.find(Query(), cursor=page.cursor, limit=3)
    await store.get([row.id for row in rows])
    await store.events(rows[0].id)
    await store.refusals(rows[0].id)
    await store.stats()
    await store.check()
    # what removes
    await store.delete([plain[5].job.id], actor="ann", reason="test")
    clock.advance(100)
    await store.trim(TrimPolicy(settled_before_ms={"succeeded": clock.now_ms()}))
    found = await store.audit()
    damaged = msgspec.structs.replace(found[0].job, reason="mended")
    await store.mend(found[0], damaged, ())


def _begun(row: Job, clock: VirtualClock) -> ClaimReport:
    return ClaimReport(
        job_id=row.id,
        session=row.session or "",
        token=row.token,
        started_ms=clock.now_ms(),
        progress=Progress(done=1),
        checkpoint=b"half",
    )


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[MemoryBusNetwork], Awaitable[Any]]:
    """The story over a network: its results, and the state at the end."""
    monkeypatch.setattr("mainstay.stores.remote.store._TRY_S", 0.03)
    monkeypatch.setattr("mainstay.stores.remote.store._PAUSE_S", 0.001)

    async def tell(network: MemoryBusNetwork) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
        clock = VirtualClock()
        store = MemoryStore(clock)
        services = [service_of(store, network, name) for name in ("m1", "m2")]
        for service in services:
            await service.start()
        remote = await remote_of(network, clock, answer_s=30.0).open()
        recorded = Recorded(remote)
        await every_call(World(recorded, clock), recorded, clock)  # type: ignore[arg-type]
        state = await World(store, clock).dump()
        await World(store, clock).assert_sound()
        for service in services:
            await service.stop()
        await store.close()
        return recorded.results, state

    return tell


async def test_no_call_does_anything_twice_when_its_answer_is_lost(told: Any) -> None:
    usual, state = await told(MemoryBusNetwork())
    network = FirstAnswersLost()
    resent, same_state = await told(network)

    assert {name for name, _ in usual} == set(CALLS) - {"close"}
    assert min(network.tried.values()) > 1
    assert same_state == state
    differing = {
        name: (first, second) for (name, first), (_, second) in zip(usual, resent, strict=True) if first != second
    }
    # the second answer says that it was done before: as its own work, or as nothing that is left to do
    assert differing.pop("tick") == (ANY, None)
    assert differing.pop("drop_schedule") == (True, False)
    assert differing.pop("mend") == (True, False)
    assert differing.pop("trim")[1].jobs == 0
    assert {(before[0].outcome, after[0].outcome, after[0].resent) for before, after in [differing.pop("apply")]} == {
        ("applied", "already_applied", True)
    }
    assert differing == {}

"""What a node may not do through a manager: every other call, and every row, session and queue of others."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from mainstay.bus import MemoryBusNetwork
from mainstay.errors import RoleRefused, SessionLost
from mainstay.lifecycle import Move, completion
from mainstay.model import LEAD_QUEUE, PLACE_QUEUE, IdSource, Job, Leadership, Session
from mainstay.stores import CALLS, Change, ClaimReport, Query
from mainstay.stores.remote import NODE_CALLS, RemoteStore
from mainstay.testing import MemoryStore, VirtualClock, new_job
from tests.conformance.world import World
from tests.stores.remote.managers import VERSION, service_of

LEAD = Leadership(name="placement", holder="n1.a", epoch=1, until_ms=0)


class NodeWorld:
    """A store behind a manager, a node n1 with a session, and a job that another node runs."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.direct = World(self.store, self.clock)
        self.network = MemoryBusNetwork()
        self.service = service_of(self.store, self.network, "m1", allowed_queues=lambda name: ["default", "own"])

    def client(self, name: str, role: str = "node", **more: Any) -> RemoteStore:
        values = {"cluster": "test", "version": VERSION, "clock": self.clock, "answer_s": 0.3, **more}
        return RemoteStore(self.network.client(f"{role}.{name}"), role=role, name=name, **values)


@pytest.fixture
async def world() -> AsyncIterator[NodeWorld]:
    world = NodeWorld()
    await world.service.start()
    yield world
    await world.service.stop()
    await world.store.close()


async def opened(world: NodeWorld, name: str) -> tuple[RemoteStore, str]:
    store = await world.client(name).open()
    session = f"{name}.{'a' * 32}"
    await store.open_session(Session(id=session, worker=name, started_ms=world.clock.now_ms()))
    return store, session


def arguments(method: str, session: str) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of the right types, so that only the role can refuse the call."""
    from mainstay.model import QueueSettings, Schedule
    from mainstay.stores import TrimPolicy

    by_name: dict[str, list[Any]] = {
        "delete": [["x"]],
        "drop_schedule": ["x"],
        "lead": ["placement", session, 10.0],
        "pause_schedule": ["x"],
        "put_schedule": [Schedule(name="x", spec=b"{}")],
        "refusals": ["x"],
        "resign": [LEAD],
        "set_limit": ["key", 3],
        "set_queue": [QueueSettings(name="default", paused=True)],
        "tick": ["x", 0, []],
        "trim": [TrimPolicy()],
    }
    more: dict[str, dict[str, Any]] = {
        "delete": {"actor": "n1", "reason": ""},
        "pause_schedule": {"paused": True},
    }
    return by_name.get(method, []), more.get(method, {})


@pytest.mark.parametrize("method", sorted(set(CALLS) - NODE_CALLS - {"close", "mend"}))
async def test_every_call_that_is_not_a_nodes_is_refused_by_name(world: NodeWorld, method: str) -> None:
    node, session = await opened(world, "n1")
    args, kwargs = arguments(method, session)

    with pytest.raises(RoleRefused, match=f"node n1 may not {method}"):
        await getattr(node, method)(*args, **kwargs)

    assert world.service.refused["role"] == 1


async def test_a_repair_is_refused(world: NodeWorld) -> None:
    node, _ = await opened(world, "n1")
    await world.direct.submit()
    [found] = await world.store.audit()

    with pytest.raises(RoleRefused):
        await node.mend(found, found.job, [])


async def test_its_session_stands_and_only_a_leader_ends_it(world: NodeWorld) -> None:
    await opened(world, "n1")
    [session] = await world.store.sessions()
    assert session.standing


async def test_a_session_under_another_name_is_refused(world: NodeWorld) -> None:
    node, _ = await opened(world, "n1")
    for forged in (Session(id="n2.b", worker="n2"), Session(id="n1.b", worker="n1", node="n2")):
        with pytest.raises(RoleRefused):
            await node.open_session(forged)


async def test_a_closed_session_is_not_opened_again(world: NodeWorld) -> None:
    node, session = await opened(world, "n1")
    [opened_first] = await world.store.sessions()
    await world.store.close_session(session)
    world.clock.advance(60)
    with pytest.raises(SessionLost):
        await node.open_session(opened_first)
    [pulse] = await node.beat([session])
    assert not pulse.known


async def test_the_sessions_of_others_are_out_of_reach(world: NodeWorld) -> None:
    node, _ = await opened(world, "n1")
    _, foreign = await opened(world, "n2")
    report = ClaimReport(job_id="x", session=foreign, token=1)
    for call in (
        node.beat([foreign]),
        node.drain([foreign], by="n1"),
        node.close_session(foreign),
        node.claim(["default"], foreign, 1),
        node.report([report]),
        node.find(Query(session=foreign)),
        node.wake([f"session:{foreign}"]).wait(0.1),
    ):
        with pytest.raises(RoleRefused, match="not its own"):
            await call
    assert [session.worker for session in await node.sessions()] == ["n1"]


async def test_a_worker_whose_name_begins_like_the_nodes_is_another_one(world: NodeWorld) -> None:
    node, _ = await opened(world, "n1")
    with pytest.raises(RoleRefused):
        await node.beat([f"n1.x.{'b' * 32}"])


async def test_queues_that_its_certificate_does_not_name_are_refused(world: NodeWorld) -> None:
    node, session = await opened(world, "n1")
    for call in (node.claim(["secret"], session, 1), node.due(["secret"]), node.wake(["queue:secret"]).wait(0.1)):
        with pytest.raises(RoleRefused, match="names the queues default, own"):
            await call


async def test_it_runs_its_own_jobs(world: NodeWorld) -> None:
    node, session = await opened(world, "n1")
    job = await world.direct.submit(payload=b"\xa5hello")
    [claimed] = await node.claim(["default"], session, 5)
    assert (claimed.id, claimed.payload) == (job.id, b"\xa5hello")

    move = completion(b"\xa4done", starts=1, started_ms=world.clock.now_ms())
    change = Change(before=claimed, moves=(move,), actor=session, at_ms=world.clock.now_ms(), holder=session)
    [result] = await node.apply([change])

    assert result.outcome == "applied"
    row = await world.direct.row(job)
    assert (row.status, row.result, row.payload) == ("succeeded", b"\xa4done", b"\xa5hello")
    await world.direct.assert_sound()


async def test_a_change_of_a_foreign_row_is_refused(world: NodeWorld) -> None:
    node, session = await opened(world, "n1")
    _, other = await opened(world, "n2")
    foreign = await world.direct.running(other)
    now_ms = world.clock.now_ms()
    move = completion(None, starts=1, started_ms=now_ms)

    def change(**more: Any) -> Change:
        return Change(before=foreign, moves=(move,), at_ms=now_ms, **{"actor": session, **more})

    with pytest.raises(RoleRefused):
        await node.apply([change(holder=other, actor=other)])
    with pytest.raises(RoleRefused):
        await node.apply([change(holder=None)])
    # its own session never held it: nothing is recorded, or a node could fill the history of any job
    with pytest.raises(RoleRefused, match="not its own"):
        await node.apply([change(holder=session)])
    assert (await world.direct.row(foreign)).status == "running"
    assert await world.store.refusals(foreign.id) == []


async def test_a_late_write_of_a_session_that_held_the_row_is_refused_and_recorded(world: NodeWorld) -> None:
    node, session = await opened(world, "n1")
    _, other = await opened(world, "n2")
    held = await world.direct.running(session)
    await world.direct.move(held, "pending", holder=session)
    [now] = await world.store.claim([held.queue], other, 1)
    secret = ClaimReport(job_id=now.id, session=other, token=now.token, checkpoint=b"secret")
    await world.store.report([secret])
    move = completion(None, starts=1, started_ms=world.clock.now_ms())
    change = Change(before=held, moves=(move,), actor=session, at_ms=world.clock.now_ms(), holder=session)

    [result] = await node.apply([change])

    assert result.outcome == "stale"
    assert result.job is not None
    assert (result.job.token, result.job.checkpoint, result.job.payload) == (now.token, None, b"")
    assert len(await world.store.refusals(held.id)) == 1


async def test_forged_tokens_are_refused_and_recorded(world: NodeWorld) -> None:
    node, session = await opened(world, "n1")
    job = await world.direct.running(session)
    forged = msgspec.structs.replace(job, token=job.token + 5, version=job.version + 3)
    move = completion(None, starts=1, started_ms=world.clock.now_ms())
    change = Change(before=forged, moves=(move,), actor=session, at_ms=world.clock.now_ms(), holder=session)

    [result] = await node.apply([change])

    assert result.outcome in ("stale", "conflict")
    assert (await world.direct.row(job)).status == "running"


@pytest.mark.parametrize("flag", ["forced", "repair"])
async def test_moves_of_operators_are_refused(world: NodeWorld, flag: Any) -> None:
    node, session = await opened(world, "n1")
    job = await world.direct.running(session)
    move = Move(to="cancelled", flag=flag, reason="because")
    change = Change(before=job, moves=(move,), actor=session, at_ms=world.clock.now_ms(), holder=session)
    with pytest.raises(RoleRefused, match="operator"):
        await node.apply([change])


async def test_a_sealed_change_and_a_lead_are_refused(world: NodeWorld) -> None:
    node, session = await opened(world, "n1")
    job = await world.direct.running(session)
    move = completion(None, starts=1, started_ms=world.clock.now_ms())
    change = Change(before=job, moves=(move,), actor=session, at_ms=world.clock.now_ms(), holder=session)
    with pytest.raises(RoleRefused, match="sealed"):
        await node.apply([world.direct.sealed(change)])
    with pytest.raises(RoleRefused, match="lead"):
        await node.apply([change], lead=LEAD)


async def test_it_reads_what_belongs_to_its_rows_and_nothing_else(world: NodeWorld) -> None:
    node, session = await opened(world, "n1")
    parent = await world.direct.submit(kind="batch")
    own = await world.direct.running(session)
    foreign = await world.direct.submit(payload=b"\xa6secret")

    assert [row is not None for row in await node.get([own.id, foreign.id, parent.id])] == [True, False, False]
    with pytest.raises(RoleRefused):
        await node.events(foreign.id)
    with pytest.raises(RoleRefused):
        await node.find(Query())
    with pytest.raises(RoleRefused):
        await node.find(Query(parent=foreign.id))


async def test_what_it_submits_is_its_own_and_names_it(world: NodeWorld) -> None:
    node, _ = await opened(world, "n1")
    [made] = await node.insert([world.direct.new()])
    [row] = await node.get([made.id])
    assert row is not None
    [event] = await world.store.events(made.id)
    assert event.actor == "node:n1"
    await world.direct.assert_sound()


async def test_units_of_foreign_jobs_are_refused(world: NodeWorld) -> None:
    node, session = await opened(world, "n1")
    foreign = await world.direct.submit(kind="batch")
    unit = world.direct.new(parent=foreign.id, unit="u1")
    own = await world.direct.running(session)
    move = completion(None, starts=1, started_ms=world.clock.now_ms())
    now_ms = world.clock.now_ms()
    change = Change(before=own, moves=(move,), actor=session, at_ms=now_ms, holder=session, spawn=(unit,))

    with pytest.raises(RoleRefused, match="not its own"):
        await node.insert([unit])
    with pytest.raises(RoleRefused, match="not its own"):
        await node.apply([change])


async def test_what_a_node_says_about_a_row_does_not_change_it(world: NodeWorld) -> None:
    node, session = await opened(world, "n1")
    job = await world.direct.running(session)
    await node.get([job.id])  # the manager keeps the row
    report = ClaimReport(job_id=job.id, session=session, token=job.token, started_ms=world.clock.now_ms())
    await world.store.report([report])
    forged = msgspec.structs.replace(job, queue="secret", priority=100, failures=7)
    move = Move(to="failed", reason="as planned", fields={"failures": 1, "starts": 1})
    change = Change(before=forged, moves=(move,), actor=session, at_ms=world.clock.now_ms(), holder=session)

    [result] = await node.apply([change])

    row = await world.direct.row(job)
    assert result.outcome == "applied"
    assert (row.queue, row.priority, row.failures) == ("own", 0, 1)


async def test_a_node_that_is_not_heard_gets_no_jobs() -> None:
    world = NodeWorld()
    silent = {"n1"}
    world.service = service_of(world.store, world.network, "m1", may_claim=lambda node: node not in silent)
    await world.service.start()
    store, session = await opened(world, "n1")
    job = await world.direct.submit()

    assert await store.claim(["default"], session, 1) == []
    silent.clear()
    assert [row.id for row in await store.claim(["default"], session, 1)] == [job.id]
    await world.service.stop()
    await world.store.close()


async def test_the_rows_of_a_large_job_are_read_with_few_calls_of_the_store(world: NodeWorld) -> None:
    """A node repeats a call that takes too long, from its beginning."""
    node, session = await opened(world, "n1")
    parent = await world.direct.submit()
    [job] = await node.claim(["default"], session, 1)
    units = [await world.direct.submit(parent=parent.id, unit=f"u{number}") for number in range(40)]
    calls: list[str] = []
    for name in ("sessions", "find", "events", "awaited"):
        call = getattr(world.store, name)

        async def counted(*args: Any, call: Any = call, name: str = name, **kwargs: Any) -> Any:
            calls.append(name)
            return await call(*args, **kwargs)

        setattr(world.store, name, counted)

    rows = await node.get([unit.id for unit in units])

    assert job.id == parent.id
    assert [row is not None for row in rows] == [True] * 40
    assert len(calls) <= 3, calls


async def test_a_session_that_it_drains_itself_is_no_request_to_drain_the_node(world: NodeWorld) -> None:
    """A supervisor stops when another than the session itself has asked it to drain."""
    store, session = await opened(world, "n1")
    await store.drain([session], by=session)
    assert [pulse.draining_by for pulse in await store.beat([session])] == [session]

    await store.open_session(Session(id="n1.other", worker="n1", started_ms=world.clock.now_ms()))
    await store.drain(["n1.other"], by="operator:ann")
    assert [pulse.draining_by for pulse in await store.beat(["n1.other"])] == ["node:n1"]


# slices of load tests ---------------------------------------------------------------------------------


async def node_slice(world: NodeWorld, session: str) -> Job:
    """A slice that was assigned to a session, and its job, which a manager leads."""
    job = await world.direct.submit(name="shop", kind="load", queue=LEAD_QUEUE)
    unit = await world.direct.submit(name="load/slice", kind="load", queue=PLACE_QUEUE, parent=job.id, unit="slice/1/0")
    fields = {"token": 1, "session": session, "claimed_ms": world.clock.now_ms()}
    move = Move(to="dispatched", reason="assigned", fields=fields)
    [result] = await world.store.apply([Change(before=unit, moves=(move,), actor="x", at_ms=world.clock.now_ms())])
    assert result.job is not None
    return result.job


def held_change(world: NodeWorld, row: Job, session: str, *moves: Move) -> Change:
    return Change(before=row, moves=moves, actor=session, at_ms=world.clock.now_ms(), holder=session)


async def test_a_node_confirms_its_slice_reports_its_start_saves_its_end_and_gives_it_back(world: NodeWorld) -> None:
    node, session = await opened(world, "n1")
    unit = await node_slice(world, session)

    [row] = await node.get([unit.id])
    assert row is not None
    [confirmed] = await node.apply([held_change(world, row, session, Move(to="running", fields={"expires_ms": None}))])
    start = ClaimReport(job_id=unit.id, session=session, token=1, started_ms=world.clock.now_ms())
    assert await node.report([start]) == [True]
    assert await node.report([ClaimReport(job_id=unit.id, session=session, token=1, checkpoint=b"\x01")]) == [True]
    [row] = await node.get([unit.id])
    assert confirmed.outcome == "applied"
    assert row is not None
    [released] = await node.apply([held_change(world, row, session, Move(to="pending", fields={"releases": 1}))])

    assert released.outcome == "applied"
    stored = await world.direct.row(unit)
    assert (stored.status, stored.checkpoint, stored.session) == ("pending", b"\x01", None)


async def test_a_slice_of_another_node_is_out_of_reach(world: NodeWorld) -> None:
    node, session = await opened(world, "n1")
    _, other = await opened(world, "n2")
    unit = await node_slice(world, other)

    assert await node.get([unit.id]) == [None]
    with pytest.raises(RoleRefused, match="not its own"):
        await node.apply([held_change(world, unit, session, Move(to="running"))])
    with pytest.raises(RoleRefused, match="not its own"):
        await node.report([ClaimReport(job_id=unit.id, session=other, token=1, checkpoint=b"\x01")])
    assert await node.report([ClaimReport(job_id=unit.id, session=session, token=1, checkpoint=b"\x01")]) == [False]


async def test_a_node_assigns_no_slice_and_makes_none(world: NodeWorld) -> None:
    node, session = await opened(world, "n1")
    unit = await node_slice(world, session)

    with pytest.raises(RoleRefused, match="only the leader assigns work"):
        await node.apply([held_change(world, unit, session, Move(to="dispatched", fields={"session": session}))])
    more = new_job(
        world.clock, IdSource(random.Random(1)), name="load/slice", kind="load", queue=PLACE_QUEUE, parent=unit.parent
    )
    with pytest.raises(RoleRefused, match="reserved"):
        await node.insert([more])


async def test_a_node_neither_leads_runs_nor_submits_them(world: NodeWorld) -> None:
    node, session = await opened(world, "n1")
    for call in (
        node.claim([LEAD_QUEUE], session, 1),
        node.due([LEAD_QUEUE]),
        node.wake([f"queue:{LEAD_QUEUE}"]).wait(0.1),
    ):
        with pytest.raises(RoleRefused, match="the queue @lead is reserved"):
            await call
    run = new_job(world.clock, IdSource(random.Random(1)), name="shop", kind="load", queue=LEAD_QUEUE)
    with pytest.raises(RoleRefused, match="the queue @lead is reserved"):
        await node.insert([run])

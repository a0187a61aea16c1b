"""A node that attacks: with its own credentials it writes any bytes to the subjects that the bus lets it use."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from mainstay.bus import BusMessage, MemoryBusNetwork, MessageClass
from mainstay.errors import InvalidInput, NoResponders, Overloaded, ReplayRefused, RequestTimeout, RoleRefused
from mainstay.lifecycle import ABANDONED, Move, completion
from mainstay.model import PLACE_QUEUE, Job, Lane, Session, driver_id
from mainstay.stores import Change, Key, NewJob, Query
from mainstay.stores.remote import RemoteStore, StoreAnswer, StoreRequest, error_of
from mainstay.stores.remote.caller_record import CallerRecord, CallerRecords
from mainstay.stores.remote.parts import PartStore
from mainstay.stores.remote.wire import encode
from mainstay.testing import MemoryStore, VirtualClock, run_virtual
from tests.conformance.world import World
from tests.stores.remote.managers import VERSION, service_of


class HostileWorld:
    """A manager, an honest node n2 that runs a job, an operator, and a hostile node n1."""

    def __init__(self, **options: Any) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.direct = World(self.store, self.clock)
        self.network = MemoryBusNetwork()
        self.service = service_of(
            self.store, self.network, "m1", allowed_queues=lambda _: ["default", "own"], **options
        )
        self.bus = self.network.client("node.n1")
        self.ids = itertools.count()

    async def start(self) -> None:
        await self.service.start()
        self.node, self.session = await self.opened("n1")
        self.honest, self.other = await self.opened("n2")

    async def stop(self) -> None:
        await self.service.stop()
        await self.store.close()

    def client(self, name: str, role: str = "node", **more: Any) -> RemoteStore:
        values = {"cluster": "test", "version": VERSION, "clock": self.clock, "answer_s": 0.3, **more}
        return RemoteStore(self.network.client(f"{role}.{name}"), role=role, name=name, **values)

    async def opened(self, name: str) -> tuple[RemoteStore, str]:
        store = await self.client(name).open()
        session = f"{name}.{'a' * 32}"
        await store.open_session(Session(id=session, worker=name, started_ms=self.clock.now_ms()))
        return store, session

    def request(self, arguments: bytes = b"\x80", **more: Any) -> bytes:
        values = {"v": VERSION, "c": "test", "e": "default", "id": f"id{next(self.ids)}", **more}
        return msgspec.msgpack.encode(StoreRequest(a=msgspec.Raw(arguments), **values))

    async def ask(self, subject: str, body: bytes) -> StoreAnswer:
        return msgspec.msgpack.decode(await self.bus.request(subject, body, 2.0), type=StoreAnswer)

    async def refusal(self, subject: str, body: bytes) -> Exception:
        answer = await self.ask(subject, body)
        assert answer.error is not None
        return error_of(answer.error)

    async def secret(self) -> Job:
        """A job that the honest node runs."""
        return await self.direct.running(self.other, payload=b"\xa6secret")

    async def mine(self) -> Job:
        return await self.direct.running(self.session)

    async def driven(self, session: str) -> Job:
        """A job that is left to its units; a session holds its driver."""
        job = await self.direct.running(session)
        left = Move(to="running", fields={"session": None, "claimed_ms": None}, flag="note")
        driver = self.direct.new(id=driver_id(job.id, job.token), parent=job.id, queue="own")
        await self.direct.move(job, left, holder=session, spawn=(driver,))
        [claimed] = await self.direct.claim(session, queues=["own"])
        assert claimed.parent == job.id
        return await self.direct.row(job)

    def change(self, job: Job, *moves: Move, **more: Any) -> Change:
        values = {"actor": self.session, "holder": self.session, "at_ms": self.clock.now_ms(), **more}
        return Change(before=job, moves=moves or (completion(None, starts=1, started_ms=0),), **values)


@pytest.fixture
async def world() -> AsyncIterator[HostileWorld]:
    made = HostileWorld()
    await made.start()
    yield made
    await made.stop()


# who it says it is -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", ["n1.n2.beat", "n1.x.claim", "n1.store.operator.ann.apply", "n1.", "store.node.n1.beat"]
)
async def test_a_name_of_several_words_is_nobody(world: HostileWorld, words: str) -> None:
    subject = f"control.store.node.{words}".rstrip(".")
    with pytest.raises((RequestTimeout, NoResponders)):
        await world.bus.request(subject, world.request(), 0.05)
    assert world.service.refused["input"] == 1
    assert not any(name.startswith("n1.") for name in world.service._nodes)


@pytest.mark.parametrize(
    "reply",
    ["control.node.n2.drain", "control.manager.m1.ask", "control.store.operator.ann.apply", "_INBOX.node.n2.x.1"],
)
async def test_a_manager_answers_to_no_subject_of_another(world: HostileWorld, reply: str) -> None:
    heard = [] if reply.startswith("_INBOX") else [await world.network.client("spy").subscribe(reply)]
    await world.bus.publish("control.store.node.n1.hello", world.request(), reply=reply)
    await world.node.sessions()

    assert [each.waiting for each in heard] == [0] * len(heard)
    assert world.service.refused["reply"] == 1


async def test_cluster_and_version_are_checked_before_the_role(world: HostileWorld) -> None:
    for more, code in (
        ({"c": "x", "v": "9.9.9"}, "wrong_cluster"),
        ({"v": "9.9.9"}, "version_skew"),
        ({}, "role_refused"),
    ):
        answer = await world.ask("data.store.node.n1.trim", world.request(**more))
        assert answer.error is not None
        assert answer.error.code == code
    assert (world.service.refused["cluster"], world.service.refused["version"], world.service.refused["role"]) == (
        1,
        1,
        1,
    )


@pytest.mark.parametrize("role", ["manager", "operator", "boss", "*"])
async def test_a_role_is_that_of_the_subject_which_only_its_holder_can_use(world: HostileWorld, role: str) -> None:
    from mainstay.cluster.permissions import Identity, permissions_of

    allowed = permissions_of(Identity(role="node", name="n1")).publish
    from mainstay.bus import check_pattern, matches

    subject = f"control.store.{role}.n1.apply"
    assert not any(matches(check_pattern(each), subject) for each in allowed if not each.startswith("*"))
    assert not any(each.startswith("*") and matches(each, subject) for each in allowed)


# damaged requests --------------------------------------------------------------------------------------

BOMBS = {
    "nothing": b"",
    "not utf-8": b"\x81\xa1v\xa2\xff\xff",
    "deep": b"\x91" * 500_000,
    "deep maps": b"\x81\xa1a" * 300_000,
    "huge array": b"\xdd\xff\xff\xff\xff",
    "huge map": b"\xdf\xff\xff\xff\xff",
    "huge text": b"\xdb\xff\xff\xff\xff",
    "a number": b"\x01",
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("method", ["insert", "apply", "put_part", "open_wake", "get"])
async def test_a_bomb_is_an_input_error_and_not_logged_as_ours(
    world: HostileWorld, caplog: pytest.LogCaptureFixture, bomb: str, method: str
) -> None:
    subject = f"control.store.node.n1.{method}"
    whole = await world.refusal(subject, BOMBS[bomb])
    envelope = {"v": VERSION, "c": "test", "e": "default", "id": "x"}
    head = msgspec.msgpack.encode(envelope)
    inside = await world.refusal(subject, bytes([head[0] + 1]) + head[1:] + b"\xa1a" + (BOMBS[bomb] or b"\xc1"))

    assert isinstance(whole, InvalidInput)
    assert isinstance(inside, InvalidInput)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert await world.honest.sessions()


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("put_part", {"call": 1, "number": "a", "of": [], "data": {}}),
        ("put_part", {"call": "x", "number": 0, "of": 1 << 40, "data": b""}),
        ("put_part", {"call": "x", "number": -1, "of": 3, "data": b""}),
        ("put_part", {"call": "x" * 500_000, "number": 0, "of": 1, "data": b""}),
        ("get_part", {"call": None, "number": 0}),
        ("get_part", [1, 2]),
        ("open_wake", {"topics": ["job:x"] * 5000}),
        ("open_wake", {"topics": ["job:" + "x" * 5000]}),
        ("open_wake", {"topics": {"a": 1}}),
        ("open_wake", {"topics": ["other:x"]}),
        ("await_wake", {"number": "node:n2/1", "wait_s": 1}),
        ("await_wake", {"number": 5, "wait_s": "x"}),
        ("get", {"ids": ["x"] * 5000}),
        ("beat", {"sessions": [f"n1.{n}" for n in range(5000)]}),
        ("claim", {"queues": ["default"] * 5000, "session": f"n1.{'a' * 32}", "n": 1}),
        ("claim", {"queues": [PLACE_QUEUE], "session": f"n1.{'a' * 32}", "n": 1}),
        ("claim", {"queues": ["default"], "session": f"n1.{'a' * 32}", "n": 1, "mark": "x" * 5000}),
    ],
)
async def test_arguments_of_wrong_types_and_sizes_are_refused(
    world: HostileWorld, caplog: pytest.LogCaptureFixture, method: str, arguments: Any
) -> None:
    error = await world.refusal(f"control.store.node.n1.{method}", world.request(msgspec.msgpack.encode(arguments)))
    assert isinstance(error, InvalidInput | RoleRefused)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("parts", [-1, 1 << 60, 100_000])
async def test_a_call_of_impossibly_many_parts_is_refused_at_once(world: HostileWorld, parts: int) -> None:
    error = await world.refusal("control.store.node.n1.insert", world.request(parts=parts))
    assert isinstance(error, InvalidInput)


# rows of others ----------------------------------------------------------------------------------------


async def test_no_call_returns_the_content_of_a_foreign_row(world: HostileWorld) -> None:
    foreign = await world.secret()
    forged = msgspec.structs.replace(foreign, session=world.session, payload=b"")
    attempts = [
        world.change(foreign),
        world.change(forged),
        world.change(msgspec.structs.replace(forged, version=99)),
        world.change(foreign, Move(to="running")),
        world.change(foreign, Move(to="nonsense")),
    ]
    for change in attempts:
        with pytest.raises(RoleRefused):
            await world.node.apply([change])
    assert await world.node.get([foreign.id]) == [None]
    for call in (
        world.node.events(foreign.id),
        world.node.awaited(foreign.id),
        world.node.unit_counts(foreign.id),
        world.node.find(Query(parent=foreign.id)),
        world.node.find(Query(group=foreign.id)),
        world.node.find(Query(session=world.other)),
    ):
        with pytest.raises(RoleRefused):
            await call
    assert await world.direct.row(foreign) == foreign
    assert await world.store.refusals(foreign.id) == []


async def test_a_row_of_its_own_does_not_hide_a_foreign_one_in_a_batch(world: HostileWorld) -> None:
    own, foreign = await world.mine(), await world.secret()
    with pytest.raises(RoleRefused):
        await world.node.apply([world.change(own), world.change(foreign)])
    assert (await world.direct.row(own)).status == "running"


@pytest.mark.parametrize(
    "fields",
    [
        {"queue": "secret"},
        {"priority": 100},
        {"payload": b"x"},
        {"parent": "x"},
        {"key": "x"},
        {"unique_key": "x"},
        {"options": None},
        {"head": b"x" * 32},
        {"version": 7},
        {"status": "succeeded"},
        {"settled_ms": 1},
        {"checkpoint": b"x"},
        {"kind": "node"},
        {"trimmed_seq": 5},
        {"token": 77},
    ],
)
async def test_a_move_writes_no_field_that_an_attempt_does_not_decide(
    world: HostileWorld, fields: dict[str, Any]
) -> None:
    own = await world.mine()
    with pytest.raises(RoleRefused):
        await world.node.apply([world.change(own, Move(to="pending", reason="x", fields=fields))])
    assert await world.direct.row(own) == own


async def test_counters_do_not_shrink(world: HostileWorld) -> None:
    own = await world.mine()
    failed = Move(to="failed", reason="x", fields={"failures": 1, "starts": 1})
    await world.node.apply([world.change(own, failed, Move(to="scheduled", fields={"due_ms": world.clock.now_ms()}))])
    world.clock.advance(1)
    [again] = await world.node.claim([own.queue], world.session, 1)
    assert again.failures == 1

    [result] = await world.node.apply([world.change(again, Move(to="pending", fields={"failures": 0}))])

    assert result.outcome == "conflict"
    assert (await world.direct.row(own)).failures == 1


async def test_it_assigns_work_to_no_session_and_decides_about_no_parent(world: HostileWorld) -> None:
    own = await world.mine()
    for change in (
        world.change(own, Move(to="dispatched", fields={"session": world.other})),
        world.change(own, Move(to="pending", fields={"session": world.other})),
        world.change(own, on_last=Move(to="succeeded", fields={"result": b"x"})),
        world.change(own, actor="operator:ann"),
    ):
        with pytest.raises(RoleRefused):
            await world.node.apply([change])
    with pytest.raises(InvalidInput):
        await world.node.apply([world.change(own, at_ms=world.clock.now_ms() + 10**9)])


async def test_only_the_holder_of_a_driver_moves_its_job_and_the_units_of_that(world: HostileWorld) -> None:
    job, others = await world.driven(world.session), await world.driven(world.other)
    units = {each.id: await world.direct.running(world.other, parent=each.id) for each in (job, others)}
    begin = Move(to="running", reason="looks again", flag="note")
    for change in (
        world.change(others, begin, holder=None),
        world.change(units[others.id], Move(to="cancelled", reason="x"), holder=None),
        world.change(await world.secret(), Move(to="cancelled", reason="x"), holder=None),
        world.change(job, begin, holder=None, actor=world.other),
        world.change(job, Move(to="running", fields={"token": 9}, flag="note"), holder=None),
        world.change(job, Move(to="succeeded", flag="forced"), holder=None),
        world.change(job, begin, holder=None, spawn=(world.direct.new(parent=job.id),)),
    ):
        with pytest.raises(RoleRefused):
            await world.node.apply([change])

    results = await world.node.apply(
        [
            world.change(units[job.id], Move(to="cancelled", reason="its job has failed"), holder=None),
            world.change(job, Move(to="failed", reason="too many failures"), holder=None),
        ]
    )

    assert [result.outcome for result in results] == ["applied", "applied"]
    assert (await world.direct.row(others)).status == "running"


async def test_the_last_unit_of_a_job_says_only_that_its_driver_is_gone(world: HostileWorld) -> None:
    job = await world.driven(world.session)
    [driver] = await world.store.get([driver_id(job.id, job.token)])
    assert driver is not None

    [result] = await world.node.apply([world.change(driver, on_last=ABANDONED)])

    after = await world.direct.row(job)
    assert (result.outcome, result.last) == ("applied", True)
    assert (after.status, after.reason) == ("failed", ABANDONED.reason)


# new rows ----------------------------------------------------------------------------------------------


def altered(new: NewJob, **fields: Any) -> NewJob:
    return msgspec.structs.replace(new, job=msgspec.structs.replace(new.job, **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "running", "session": f"n2.{'a' * 32}", "token": 1},
        {"status": "succeeded", "result": b"x"},
        {"session": f"n2.{'a' * 32}"},
        {"token": 1 << 40},
        {"version": 12},
        {"failures": -5},
        {"checkpoint": b"x"},
        {"trimmed_seq": 3},
        {"extra_ms": 1 << 40},
        {"lane": Lane.ASIDE},
        {"queue": PLACE_QUEUE},
        {"queue": "@other"},
        {"created_ms": 1 << 50},
        {"unique_key": "another.task/1"},
        {"parent": "018bcfe5-6800-7000-8000-0123456789ab", "unit": "u"},
        {"group": "018bcfe5-6800-7000-8000-0123456789ab"},
    ],
)
async def test_a_new_job_begins_as_submit_makes_it(world: HostileWorld, fields: dict[str, Any]) -> None:
    new = altered(world.direct.new(), **fields)
    own = await world.mine()
    with pytest.raises((RoleRefused, InvalidInput)):
        await world.node.insert([new])
    with pytest.raises((RoleRefused, InvalidInput)):
        await world.node.apply([world.change(own, spawn=(new,))])
    assert await world.store.get([new.job.id]) == [None]


async def test_forged_events_and_keys_are_refused(world: HostileWorld) -> None:
    new = world.direct.new()
    [event] = new.events
    for forged in (
        msgspec.structs.replace(new, events=()),
        msgspec.structs.replace(new, events=(event, event)),
        msgspec.structs.replace(new, events=(msgspec.structs.replace(event, flag="forced"),)),
        msgspec.structs.replace(new, events=(msgspec.structs.replace(event, job_id="other"),)),
        msgspec.structs.replace(new, key=Key(scope="another.task", name="k", content=b"x", until_ms=1 << 50)),
    ):
        with pytest.raises(RoleRefused):
            await world.node.insert([forged])


async def test_a_unit_below_a_foreign_job_is_refused_whatever_the_change_says(world: HostileWorld) -> None:
    foreign = await world.direct.submit(kind="batch")
    own = await world.mine()
    unit = world.direct.new(parent=foreign.id, unit="u1")
    lie = msgspec.structs.replace(own, parent=foreign.id)
    with pytest.raises(RoleRefused):
        await world.node.apply([world.change(lie, spawn=(unit,))])


async def test_a_job_that_waits_for_a_foreign_one_would_read_its_result(world: HostileWorld) -> None:
    foreign = await world.secret()
    with pytest.raises(RoleRefused):
        await world.node.insert([world.direct.new(after=[foreign])])


async def test_a_guessed_unique_key_opens_no_job(world: HostileWorld) -> None:
    foreign = await world.direct.submit(unique_key="demo.task/order-17", payload=b"\xa6secret")
    [result] = await world.node.insert([world.direct.new(unique_key="demo.task/order-17")])
    assert (result.id, result.created) == (foreign.id, False)
    assert await world.node.get([foreign.id]) == [None]


async def test_what_it_spawns_names_its_session_in_the_trail(world: HostileWorld) -> None:
    own = await world.mine()
    new = world.direct.new()
    forged = msgspec.structs.replace(new, events=(msgspec.structs.replace(new.events[0], actor="operator:ann"),))
    [result] = await world.node.apply([world.change(own, spawn=(forged,))])
    assert result.outcome == "applied"
    [event] = await world.store.events(new.job.id)
    assert event.actor == world.session
    await world.direct.assert_sound()


# sessions ----------------------------------------------------------------------------------------------


async def test_the_sessions_of_a_manager_or_a_worker_of_its_name_are_not_its_own(world: HostileWorld) -> None:
    manager = f"n1.{'f' * 32}"
    await world.store.open_session(Session(id=manager, worker="n1"))
    for call in (world.node.close_session(manager), world.node.drain([manager], by="x"), world.node.beat([manager])):
        with pytest.raises(RoleRefused, match="not its own"):
            await call
    assert [each.id for each in await world.node.sessions()] == [world.session]


async def test_a_session_has_its_name_and_a_bounded_size_and_number(world: HostileWorld) -> None:
    now_ms = world.clock.now_ms()
    for session in (
        Session(id=f"n2.{'b' * 32}", worker="n1", started_ms=now_ms),
        Session(id="n1." + "b" * 500, worker="n1", started_ms=now_ms),
        Session(id="n1.b", worker="n1", started_ms=now_ms, labels={str(n): "x" * 100 for n in range(5000)}),
    ):
        with pytest.raises(RoleRefused):
            await world.node.open_session(session)
    for number in range(255):
        await world.store.open_session(Session(id=f"n1.{number}", worker="n1", standing=True))
    error = await world.refusal(
        "control.store.node.n1.open_session",
        world.request(encode({"session": Session(id="n1.last", worker="n1", started_ms=now_ms)})),
    )
    assert isinstance(error, Overloaded)
    assert await world.opened("n3")


async def test_a_drain_is_on_record_under_its_own_name(world: HostileWorld) -> None:
    await world.node.drain([world.session], by="operator:ann")
    [mine] = [each for each in await world.store.sessions() if each.id == world.session]
    assert mine.draining_by == "node:n1"


# replays -----------------------------------------------------------------------------------------------


def test_a_call_that_comes_again_within_seconds_is_a_repeat_and_later_a_replay() -> None:
    async def play() -> None:
        world = HostileWorld()
        await world.start()
        recorded: list[BusMessage] = []
        spies = [
            await world.network.client("spy").subscribe(f"{kind}.store.node.n2.>") for kind in ("control", "dispatch")
        ]
        job = await world.direct.submit()
        [row] = await world.honest.claim(["default"], world.other, 1)
        await world.honest.insert([world.direct.new()])
        await world.honest.apply([world.change(row, actor=world.other, holder=world.other)])
        for spy in spies:
            while spy.waiting:
                recorded.append(await anext(spy))
        before = await world.direct.dump()
        victim = world.network.client("node.n2")
        second = service_of(world.store, world.network, "m2", allowed_queues=lambda _: ["default"])

        async def codes(to: str = "") -> list[str | None]:
            found = []
            for message in recorded:
                _, _, rest = message.subject.partition(".")
                subject = f"control.at.{to}.{rest}" if to else message.subject
                answer = msgspec.msgpack.decode(await victim.request(subject, message.body, 1), type=StoreAnswer)
                found.append(answer.error.code if answer.error else None)
            return found

        assert len(recorded) == 3
        assert await codes() == [None] * 3
        await asyncio.sleep(31)
        assert await codes() == ["replay_refused"] * 3
        assert world.service.refused["replay"] == 3
        await second.start()
        await codes("m2")
        await asyncio.sleep(130)
        await codes()
        after = await world.direct.dump()
        assert (after["rows"], after["events"]) == (before["rows"], before["events"])
        assert (await world.direct.row(job)).status == "succeeded"
        await second.stop()
        await world.stop()

    run_virtual(play())


def test_the_id_of_a_call_serves_one_content_and_is_forgotten_in_time() -> None:
    record = CallerRecord()
    record.check_replay("a", 1, 0)
    record.check_replay("a", 1, 30)
    with pytest.raises(ReplayRefused, match="another call"):
        record.check_replay("a", 2, 1)
    with pytest.raises(ReplayRefused, match="119 s ago"):
        record.check_replay("a", 1, 119)
    record.check_replay("a", 1, 121)
    for number in range(100_000):
        record.check_replay(str(number), 1, 122)
    assert len(record._ids) <= 20_001


# floods ------------------------------------------------------------------------------------------------


class StuckStore(MemoryStore):
    """Reads of statistics and submits never end."""

    async def stats(self) -> Any:
        await asyncio.Event().wait()

    async def insert(self, jobs: Any, **more: Any) -> Any:
        await asyncio.Event().wait()

    async def report(self, reports: Any) -> Any:
        await asyncio.Event().wait()

    async def queues(self) -> Any:
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("kind", "method", "arguments"),
    [
        (MessageClass.CONTROL, "report", {"reports": []}),
        (MessageClass.DISPATCH, "insert", {"jobs": []}),
        (MessageClass.DATA, "queues", {}),
    ],
)
async def test_a_flood_of_one_node_leaves_room_for_the_others(
    kind: MessageClass, method: str, arguments: dict[str, Any]
) -> None:
    """Whatever the class, the greedy node gets its share, and another node is answered before any of its calls is."""
    world = HostileWorld(at_once=dict.fromkeys(list(MessageClass)[:3], 40))
    await world.start()
    world.store.__class__ = StuckStore
    answered: list[str] = []

    async def flood() -> None:
        answer = await world.ask(f"control.store.node.n1.{method}", world.request(encode(arguments)))
        assert answer.error is not None
        answered.append(answer.error.code)

    tasks = [asyncio.create_task(flood()) for _ in range(500)]
    for _ in range(20):
        await asyncio.sleep(0)
    pulses = await world.honest.beat([world.other])
    job = await world.honest.sessions()

    assert pulses[0].known
    assert job
    assert answered == ["rate_limited"] * 490
    assert world.service.refused["flood"] == 490
    assert world.service._callers.of("node:n1").busy[kind] == 10
    for task in (*tasks, *world.service._tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await world.stop()


async def test_wakes_are_bounded_and_a_caller_without_one_still_works(world: HostileWorld) -> None:
    codes = []
    for number in range(1001):
        body = world.request(encode({"topics": [f"job:{number}"]}))
        answer = await world.ask("control.store.node.n1.open_wake", body)
        codes.append(answer.error.code if answer.error else None)
    assert codes == [None] * 1000 + ["overloaded"]
    async with world.node.wake(["job:x"]) as wake:
        assert not await wake.wait(0.01)
    async with world.honest.wake(["job:y"]) as other:
        assert not await other.wait(0.01)
    assert len(world.service._wakes) <= 1001


async def test_a_wake_belongs_to_its_caller(world: HostileWorld) -> None:
    operator = await world.client("n1", role="operator").open()
    async with operator.wake(["job:x"]) as wake:
        await wake.wait(0.01)
        [number] = [each for each in world.service._wakes if each.startswith("operator:")]
        for method, more in (("close_wake", {}), ("await_wake", {"wait_s": 0})):
            await world.ask(f"control.store.node.n1.{method}", world.request(encode({"number": number, **more})))
        assert number in world.service._wakes


async def test_parts_that_never_finish_remove_only_those_of_their_caller(world: HostileWorld) -> None:
    piece = b"x" * (255 * 1024)
    operator = world.network.client("operator.ann")
    part = encode({"call": "honest", "number": 0, "of": 2, "data": b"mine"})
    await operator.request("control.at.m1.store.operator.ann.put_part", world.request(part), 1)
    for number in range(1000):
        body = world.request(encode({"call": f"c{number}", "number": 0, "of": 2, "data": piece}))
        await world.bus.publish("control.at.m1.store.node.n1.put_part", body)
        if number % 50 == 0:
            await world.node.sessions()
    await world.node.sessions()

    assert world.service._incoming.size <= 65 * len(piece)
    assert world.service._incoming.get("operator:ann", "honest", 0) == b"mine"


def test_parts_are_bounded_in_all_and_by_age() -> None:
    now = [0.0]
    parts = PartStore(now_s=lambda: now[0], most_bytes=1000, caller_bytes=500, caller_calls=10, kept_s=60)
    parts.put("small", "call", 0, b"x" * 100)
    for caller in ("greedy", "other", "third"):
        for number in range(20):
            parts.put(caller, str(number), 0, b"x" * 49)
    assert parts.size <= 1000
    assert parts.get("small", "call", 0) is not None
    parts.put("small", "call", 0, b"y")
    now[0] = 61
    parts.forget_old()
    assert parts.size == 0
    assert parts.take("small", "call") == {}


def test_callers_are_forgotten_when_idle_and_bounded_when_not() -> None:
    now = [0.0]
    records = CallerRecords(now_s=lambda: now[0], most=10)
    for number in range(10):
        records.of(f"node:{number}")
    with pytest.raises(Overloaded):
        records.of("node:new")
    now[0] = 301
    records.of("node:new")
    assert len(records) == 1


async def test_what_a_manager_keeps_of_rows_is_bounded_by_bytes(world: HostileWorld) -> None:
    rows = [await world.direct.submit(payload=b"x" * 60_000) for _ in range(10)]
    big = await world.direct.submit(payload=b"x" * 100_000)
    world.service._keep([*rows, big])
    assert big.id not in world.service._rows
    assert world.service._rows_bytes == 600_000
    world.service._keep(rows)
    assert world.service._rows_bytes == 600_000
    for row in rows:
        world.service._drop(row.id)
    assert world.service._rows_bytes == 0


async def test_refusals_are_all_counted_and_logged_now_and_then(
    world: HostileWorld, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        await world.refusal("data.store.node.n1.trim", world.request())
    assert world.service.refused["role"] == 100
    assert sum("refused reason=role" in record.message for record in caplog.records) == 1

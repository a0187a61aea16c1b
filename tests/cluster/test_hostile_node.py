"""A hostile node with a real certificate, on a real nats-server with TLS, against real managers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client

from mainstay.bus import Bus, BusMessage
from mainstay.bus.nats import NatsBus, client_tls, connect_nats
from mainstay.cluster.address import parse_address
from mainstay.cluster.manager import Manager, ManagerOptions
from mainstay.cluster.member_messages import MemberEnvelope, NodeEnd
from mainstay.cluster.node_messages import NodeRates, checked_beat
from mainstay.cluster.status import NodeBeat
from mainstay.errors import BusError, InvalidInput, RoleRefused
from mainstay.model import Session
from mainstay.stores import CALLS
from mainstay.stores.remote import MAINSTAY_VERSION, NODE_CALLS, RemoteStore, StoreAnswer, StoreRequest, open_remote
from mainstay.stores.remote.wire import encode
from mainstay.testing import MemoryStore
from tests.cluster.idle_load import idle
from tests.cluster.local_clusters import running_cluster, until
from tests.cluster.secure_bus import SecureBus
from tests.stores.remote.test_hostile_node import BOMBS
from tests.stores.remote.test_node_role import arguments


class Siege:
    """Two managers with one store, an honest node n2, and the connection of a hostile node n1."""

    def __init__(self, secure: SecureBus, stack: contextlib.AsyncExitStack) -> None:
        self.secure = secure
        self.stack = stack
        self.store = MemoryStore()
        self.managers: list[Manager] = []
        self.ids = itertools.count()

    async def start(self) -> None:
        for name in ("m1", "m2"):
            options = ManagerOptions(name=name, cluster="shop")
            manager = Manager(
                self.store, await self.connect(name), options, allowed_queues=lambda _: ["mail"], sample_load=idle
            )
            await manager.start()
            self.stack.push_async_callback(manager.stop)
            self.managers.append(manager)
        self.bus = await self.connect("n1")
        self.honest_bus = await self.connect("n2")
        self.honest = self.remote(self.honest_bus, "n2")
        self.session = f"n2.{'a' * 32}"
        await self.honest.open()
        await self.honest.open_session(Session(id=self.session, worker="n2", started_ms=self.store.clock.now_ms()))

    async def connect(self, name: str) -> Bus:
        bus = await self.secure.connect(self.secure.files[name])
        self.stack.push_async_callback(bus.close)
        return bus

    def remote(self, bus: Bus, name: str) -> RemoteStore:
        return RemoteStore(bus, role="node", name=name, cluster="shop", version=MAINSTAY_VERSION)

    @property
    def raw(self) -> Client:
        """The hostile client without the checks of our adapter."""
        assert isinstance(self.bus, NatsBus)
        return self.bus._client

    def request(self, arguments: bytes = b"\x80", **more: Any) -> bytes:
        values = {"v": MAINSTAY_VERSION, "c": "shop", "e": "default", "id": f"id{next(self.ids)}", **more}
        return msgspec.msgpack.encode(StoreRequest(a=msgspec.Raw(arguments), **values))

    async def ask(self, subject: str, body: bytes) -> StoreAnswer:
        return msgspec.msgpack.decode(await self.bus.request(subject, body, 5), type=StoreAnswer)

    def refused(self, reason: str) -> int:
        return sum(manager.calls.refused[reason] for manager in self.managers)

    async def heard(self) -> None:
        """Everything that the hostile node published before has been handled by the server and by both managers."""
        for name in ("m1", "m2"):
            await self.ask(f"control.at.{name}.store.node.n1.hello", self.request())


@pytest.fixture
async def siege(tmp_path: Path) -> AsyncIterator[Siege]:
    secure = SecureBus(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(secure.server.stop)
        made = Siege(secure, stack)
        await made.start()
        yield made


async def test_every_call_that_is_not_a_nodes_is_refused_by_every_manager(siege: Siege) -> None:
    hostile = siege.remote(siege.bus, "n1")
    methods = sorted(set(CALLS) - NODE_CALLS - {"close", "mend"})
    for method in methods:
        args, kwargs = arguments(method, siege.session)
        with pytest.raises(RoleRefused):
            await getattr(hostile, method)(*args, **kwargs)
    codes = set()
    for method in (*methods, "mend", "close", "nonsense"):
        for name in ("m1", "m2"):
            answer = await siege.ask(f"control.at.{name}.store.node.n1.{method}", siege.request())
            codes.add(answer.error.code if answer.error else None)
    assert codes == {"role_refused"}
    assert siege.refused("role") == len(methods) + 2 * (len(methods) + 3)


#: what it publishes -> nothing of it arrives at a manager or at another node
FORGED = (
    "control.store.node.n2.beat",
    "control.store.operator.ann.apply",
    "control.store.manager.m1.apply",
    "control.store.node.n1.n2.beat",
    "control.store.node.n1.store.operator.ann.apply",
    "control.at.m1.store.node.n2.close_session",
    "control.at.m1.store.node.n1.store.operator.ann.apply",
    "control.beat.n2",
    "control.beat.n1.n2",
    "control.ended.n2",
    "control.node.n2.drain",
    "control.node.n2.output",
    "control.manager.heard",
    "control.manager.closed",
    "control.manager.ended",
    "control.manager.m1.ask",
    "data.cluster.operator.ann.status",
    "data.cluster.node.n1.status",
    "data.bundle.operator.ann.publish",
    "telemetry.output.n2",
)


async def test_what_it_publishes_as_another_arrives_nowhere(siege: Siege) -> None:
    manager = await siege.connect("m1")
    heard = [await manager.subscribe(subject) for subject in FORGED if not subject.startswith("control.node")]
    heard += [await siege.honest_bus.subscribe("control.node.n2.>")]
    for subject in FORGED:
        await siege.bus.publish(subject, siege.request())
    await siege.heard()
    got = [message.subject for each in heard for message in await _waiting(each) if b"id" in message.body]
    assert [subject for subject in got if subject in FORGED] == []


async def _waiting(subscription: Any) -> list[BusMessage]:
    found = []
    while subscription.waiting:
        found.append(await anext(subscription))
    return found


async def test_it_overhears_nothing(siege: Siege) -> None:
    patterns = (
        "control.>",
        "control.node.n2.>",
        "control.beat.*",
        "control.manager.>",
        "dispatch.>",
        "data.>",
        "telemetry.output.*",
        "telemetry.output.n2",
    )
    overheard = [await siege.bus.subscribe(pattern) for pattern in patterns]
    raw: list[Any] = []

    async def take(message: Any) -> None:
        raw.append(message)

    for pattern in (">", "_INBOX.>", "_INBOX.node.n2.>", "_INBOX.manager.>", "$SYS.>"):
        await siege.raw.subscribe(pattern, cb=take)  # as no client of ours would
    await siege.honest_bus.publish("telemetry.output.n2", b"secret")
    await siege.honest.beat([siege.session])
    await siege.heard()
    assert [each.waiting for each in overheard] == [0] * len(patterns)
    assert raw == []


async def test_no_manager_speaks_for_it(siege: Siege) -> None:
    """A reply is any text: an answer to it would be published with the permissions of the manager."""
    drains = await siege.honest_bus.subscribe("control.node.n2.>")
    subjects = ("control.store.node.n1.hello", "control.at.m2.store.node.n1.hello", "control.ended.n1")
    end = MemberEnvelope(
        v=MAINSTAY_VERSION, c="shop", e="default", a=msgspec.Raw(encode(NodeEnd(incarnation="x", how="x")))
    )
    for subject in subjects:
        body = encode(end) if "ended" in subject else siege.request()
        await siege.bus.publish(subject, body, reply="control.node.n2.drain")
    await siege.heard()
    await siege.honest.sessions()
    assert [each for each in await _waiting(drains) if each.subject.endswith("drain")] == []
    assert siege.refused("reply") == 2


async def test_its_beats_and_its_end_touch_no_session_of_another(siege: Siege) -> None:
    beat = NodeBeat(node="n2", number=1, incarnation="b", sessions=(siege.session,), version=MAINSTAY_VERSION)
    await siege.honest_bus.publish("control.beat.n2", encode(beat))
    stolen = NodeBeat(node="n1", number=1, incarnation="a", sessions=(siege.session,), version=MAINSTAY_VERSION)
    await siege.bus.publish("control.beat.n1", encode(stolen))

    async def known() -> bool | None:
        return all({"n1", "n2"} <= set(manager.members.state.nodes) for manager in siege.managers) or None

    await until(known)
    end = NodeEnd(incarnation="a", how="it ended", sessions=(siege.session,))
    report = MemberEnvelope(v=MAINSTAY_VERSION, c="shop", e="default", a=msgspec.Raw(encode(end)))
    assert await siege.bus.request("control.ended.n1", encode(report), 5)
    await siege.heard()

    for manager in siege.managers:
        assert not manager.members.state.pending
        assert manager.members.state.nodes["n1"].beat.sessions == ()
        assert manager.members.state.nodes["n2"].state == "active"
    assert (await siege.honest.beat([siege.session]))[0].known


async def test_bombs_and_floods_of_beats_leave_the_managers_hearing(siege: Siege) -> None:
    for number in range(200):
        for body in BOMBS.values():
            await siege.bus.publish("control.beat.n1", body[:5000])
        labels = {str(n): "x" for n in range(500)}
        beat = NodeBeat(node="n1", number=number, incarnation=f"i{number}", labels=labels, version="x" * 100)
        await siege.bus.publish("control.beat.n1", encode(beat))
    await siege.heard()
    honest = NodeBeat(node="n2", number=1, incarnation="b", sessions=(siege.session,), version=MAINSTAY_VERSION)
    await siege.honest_bus.publish("control.beat.n2", encode(honest))

    async def active() -> bool | None:
        return all("n2" in manager.members.state.nodes for manager in siege.managers) or None

    await until(active)
    for manager in siege.managers:
        assert manager.members.ignored["flood"] > 1000
        assert "n1" not in manager.members.state.nodes
        assert not manager.members.state.refused


async def test_a_flood_of_one_node_delays_no_other(siege: Siege) -> None:
    """2,000 calls of the flood are sent first; all of the other node's are answered, and none of them is refused."""
    for number in range(2000):
        body = siege.request(encode({"job_id": "018bcfe5-6800-7000-8000-0123456789ab"}))
        await siege.bus.publish(f"{('data', 'control', 'dispatch')[number % 3]}.store.node.n1.events", body)
    pulses = [(await siege.honest.beat([siege.session]))[0].known for _ in range(20)]
    claims = [await siege.honest.claim(["mail"], siege.session, 1) for _ in range(20)]
    await siege.heard()

    assert pulses == [True] * 20
    assert claims == [[]] * 20
    for manager in siege.managers:
        assert manager.calls.refused["overload"] == 0
        assert all(each.busy[kind] <= 500 for each in manager.calls._callers._records.values() for kind in each.busy)


async def test_an_oversized_message_costs_its_sender_the_connection_and_no_other(siege: Siege) -> None:
    with contextlib.suppress(Exception):
        await siege.raw.publish("control.beat.n1", b"x" * 3_000_000)
    assert (await siege.honest.beat([siege.session]))[0].known


async def test_a_connection_under_the_name_of_another_node_is_not_reported(tmp_path: Path) -> None:
    """A client chooses the name of its connection: one that calls itself node.n2 must not take n2 for gone."""
    secure = SecureBus(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(secure.server.stop)
        manager = await secure.connect(secure.files["m1"])
        stack.push_async_callback(manager.close)
        notices = await manager.presence()
        hostile = parse_address(secure.files["n1"].url(f"127.0.0.1:{secure.port}"))
        for name in ("node.n2", "node.n1"):
            bus = await connect_nats(
                hostile.servers, name=name, inbox="_INBOX.node.n1", tls=client_tls(hostile.files), timeout_s=5
            )
            await bus.close()
        async with asyncio.timeout(10):
            found = [await anext(notices), await anext(notices)]
    assert [(notice.peer, notice.opened) for notice in found] == [("node.n1", True), ("node.n1", False)]


@pytest.mark.parametrize("url", ["nats://node:secret@127.0.0.1/shop", "nats://node:fifteen-letters@127.0.0.1/shop"])
async def test_a_short_password_refuses_to_start(url: str) -> None:
    with pytest.raises(InvalidInput, match="shorter than 16"):
        parse_address(url)
    options = {"cluster": "shop", "role": "node", "name": "n1"}
    with pytest.raises(InvalidInput, match="shorter than 16"):
        await open_remote(f"remote+{url}", clock=None, chain=None, options=options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["n1.x", "*", ">", "a b", ""])
async def test_a_name_that_is_no_word_of_a_subject_is_refused(name: str) -> None:
    url = "remote+nats://node:4nKx7PzQ2vLw9RtY@127.0.0.1/"
    options = {"cluster": "shop", "role": "node", "name": name}
    with pytest.raises(InvalidInput, match="name="):
        await open_remote(url, clock=None, chain=None, options=options)  # type: ignore[arg-type]


async def test_a_bus_that_refuses_a_client_is_named_without_its_password(tmp_path: Path) -> None:
    secure = SecureBus(tmp_path)
    try:
        with pytest.raises(BusError) as refused:
            await connect_nats(f"tls://node:4nKx7PzQ2vLw9RtY@127.0.0.1:{secure.port}", name="node.n1", timeout_s=0.5)
    finally:
        secure.server.stop()
    assert "4nKx7PzQ2vLw9RtY" not in str(refused.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"node": "n2"},
        {"incarnation": ""},
        {"incarnation": "x" * 1000},
        {"sessions": tuple(f"n1.{n}" for n in range(1000))},
        {"running": ("x",) * 1000},
        {"running": ("x" * 1000,)},
        {"labels": {str(n): "x" for n in range(100)}},
        {"labels": {"a": "x" * 1000}},
        {"host": "x" * 1000},
        {"number": 1 << 60},
        {"cores": -1},
    ],
)
def test_a_beat_that_is_not_one_is_ignored(fields: dict[str, Any]) -> None:
    good = NodeBeat(node="n1", number=1, incarnation="a")
    assert checked_beat(good, "n1") == good
    assert checked_beat(msgspec.structs.replace(good, **fields), "n1") is None


def test_the_messages_of_one_node_are_bounded_by_time_and_those_of_another_are_not() -> None:
    rates = NodeRates()
    assert sum(rates.admits("n1", 0.0) for _ in range(1000)) == 20
    assert rates.admits("n2", 0.0)
    assert sum(rates.admits("n1", 10.0) for _ in range(1000)) == 20
    assert sum(rates.admits("n1", 11.0) for _ in range(1000)) == 5
    for number in range(20_000):
        rates.admits(f"x{number}", 12.0)
    assert len(rates._buckets) <= 10_000


@pytest.mark.slow
async def test_no_password_is_in_a_log_or_an_argument(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with running_cluster(tmp_path / "c", managers=1, log_level="debug") as cluster:
        await cluster.ready()
        job = await cluster.submit("add", a=1, b=2)
        await cluster.settled([job])
        passwords = list(cluster.cluster.bus._passwords.values())
        pids = [process.pid for process in cluster.file.processes]
        arguments = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids)
    logged = "".join(capfd.readouterr()) + (tmp_path / "c" / "nats.log").read_text()
    assert "debug" in logged
    assert [password for password in passwords if password in logged or password.encode() in arguments] == []

"""Certificates, and what a real nats-server lets each of them do."""

from __future__ import annotations

import asyncio
import contextlib
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mainstay.bus import Bus
from mainstay.bus.nats import NatsBus, client_tls, connect_nats
from mainstay.cluster.address import parse_address
from mainstay.cluster.certs import CertificateFiles, identity_of, issue, make_authority, write_server_config
from mainstay.cluster.engine_check import check_joined, findings
from mainstay.cluster.permissions import Identity, permissions_of
from mainstay.errors import BusError, InvalidInput, NoResponders, RequestTimeout
from mainstay.load.fleet.live import BusOutput
from mainstay.load.fleet.watched_run import WatchedRun
from mainstay.stores.remote import ManagerConnection, RemoteCaller
from servers.nats import NatsCore
from servers.server import free_port
from tests.cluster.secure_bus import SecureBus
from tests.load.cli.moments import header, moments


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[SecureBus]:
    made = SecureBus(tmp_path)
    yield made
    made.server.stop()


@pytest.fixture
async def clients(bus: SecureBus) -> AsyncIterator[dict[str, Bus]]:
    made = {name: await bus.connect(files) for name, files in bus.files.items()}
    yield made
    for client in made.values():
        await client.close()


def test_a_certificate_names_its_holder_and_its_key_is_private(tmp_path: Path) -> None:
    make_authority(tmp_path, cluster="shop", environment="staging")
    files = issue(tmp_path, "node", "n1", queues=["mail", "a b"])

    expected = Identity(role="node", name="n1", cluster="shop", environment="staging", queues=("mail", "a b"))
    assert identity_of(files.cert.read_bytes()) == files.identity == expected
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("role", "name", "field"),
    [("boss", "x", "role"), ("node", "a.b", "name"), ("node", "", "name"), ("server", "s", "hosts")],
)
def test_bad_names_are_refused_by_field(tmp_path: Path, role: str, name: str, field: str) -> None:
    make_authority(tmp_path, cluster="shop")
    with pytest.raises(InvalidInput, match=f"^{field}:"):
        issue(tmp_path, role, name)


def test_a_folder_without_an_authority_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="certs init"):
        issue(tmp_path, "node", "n1")


#: who speaks as whom -> whether a manager hears it
SPEAKERS = {
    ("n1", "control.beat.n1"): True,
    ("n1", "control.beat.n2"): False,
    ("n1", "control.store.node.n1.beat"): True,
    ("n1", "control.store.node.n2.beat"): False,
    ("n1", "control.store.operator.ann.apply"): False,
    ("n1", "control.store.manager.m1.apply"): False,
    ("n1", "control.manager.heard"): False,
    ("n1", "data.cluster.operator.ann.status"): False,
    ("n1", "control.ended.n2"): False,
    ("n1", "data.bundle.node.n1.fetch"): True,
    ("n1", "data.bundle.node.n2.fetch"): False,
    ("n1", "data.bundle.operator.ann.put"): False,
    ("ann", "data.bundle.operator.ann.put"): True,
    ("ann", "data.cluster.operator.ann.status"): True,
    ("ann", "control.store.operator.ann.apply"): True,
    ("ann", "control.store.node.n1.apply"): False,
    ("ann", "control.beat.n1"): False,
    ("ann", "control.manager.heard"): False,
}


async def test_the_server_lets_each_role_speak_as_itself_only(clients: dict[str, Bus]) -> None:
    manager = clients["m1"]
    patterns = ("control.store.>", "control.beat.*", "control.ended.*", "control.manager.>", "data.cluster.>")
    patterns += ("data.bundle.>",)
    heard = [await manager.subscribe(pattern) for pattern in patterns]

    for speaker, subject in SPEAKERS:
        await clients[speaker].publish(subject, speaker.encode())
    # in order after the others: when they are heard, so is everything before them
    for speaker in ("n1", "ann"):
        await clients[speaker].publish(f"control.store.{'node' if speaker == 'n1' else 'operator'}.{speaker}.last", b"")

    got: set[tuple[str, str]] = set()
    last = 0
    async with asyncio.timeout(10):
        while last < 2:
            for subscription in heard:
                while subscription.waiting:
                    message = await anext(subscription)
                    last += message.subject.endswith(".last")
                    got.add((message.body.decode(), message.subject))
            await asyncio.sleep(0)
    assert {pair for pair in got if pair[0]} == {pair for pair, allowed in SPEAKERS.items() if allowed}


async def test_a_node_does_not_hear_what_is_for_another(clients: dict[str, Bus]) -> None:
    spy = clients["n1"]
    overheard = [await spy.subscribe(pattern) for pattern in ("control.node.n2.>", "control.store.>", "control.beat.*")]
    asked = await clients["n2"].subscribe("control.node.n2.>")
    await clients["n2"].publish("control.beat.n2", b"alive")
    await clients["m1"].publish("control.node.n2.drain", b"")
    async with asyncio.timeout(10):
        await anext(asked)

    assert [subscription.waiting for subscription in overheard] == [0, 0, 0]


async def test_a_node_answers_a_manager_and_gets_its_own_answers(clients: dict[str, Bus]) -> None:
    asked = await clients["n1"].subscribe("control.node.n1.>")
    calls = await clients["m1"].subscribe("control.store.>", group="managers")

    async def answer(bus: Bus, subscription) -> None:
        async with asyncio.timeout(10):
            message = await anext(subscription)
        await bus.publish(message.reply, b"yes")

    for asking, answering, subscription, subject in (
        ("m1", "n1", asked, "control.node.n1.ping"),
        ("n1", "m1", calls, "control.store.node.n1.hello"),
    ):
        task = asyncio.create_task(answer(clients[answering], subscription))
        assert await clients[asking].request(subject, b"", 5) == b"yes"
        await task


async def test_the_server_refuses_a_certificate_of_another_authority(bus: SecureBus, tmp_path: Path) -> None:
    make_authority(tmp_path / "other", cluster="shop")
    foreign = issue(tmp_path / "other", "manager", "m1")
    # a program of ours would not send it
    tls = client_tls({"ca": str(bus.files["m1"].ca), "cert": str(foreign.cert), "key": str(foreign.key)})
    with pytest.raises(BusError, match="another cluster"):
        await connect_nats(f"tls://127.0.0.1:{bus.port}", name="manager.m1", tls=tls, timeout_s=5)


async def test_a_certificate_that_the_server_does_not_know_is_refused(bus: SecureBus) -> None:
    late = issue(bus.folder, "node", "n3")
    with pytest.raises(BusError, match="does not know this certificate"):
        await bus.connect(late)


async def test_certificates_of_a_new_authority_and_of_the_old_one_are_valid_at_once(bus: SecureBus) -> None:
    old = bus.files["n1"]
    kept = CertificateFiles(
        ca=old.ca,
        cert=old.cert.rename(bus.folder / "kept.pem"),
        key=old.key.rename(bus.folder / "kept.key"),
        identity=old.identity,
    )
    make_authority(bus.folder, cluster="shop")
    new = issue(bus.folder, "node", "n1")
    bus.server.stop()
    for server_is_new in (False, True):
        if server_is_new:
            issue(bus.folder, "server", "bus", hosts=["127.0.0.1"])
        bus.server.start()
        for files in (kept, new):
            client = await bus.connect(files)
            await client.close()
        bus.server.stop()
    bus.server.start()


async def test_managers_hear_of_connections_and_nodes_cannot_pretend_to_be_another(
    bus: SecureBus, clients: dict[str, Bus]
) -> None:
    manager = clients["m1"]
    async with await manager.presence() as notices:
        files = bus.files["n2"]
        tls = client_tls({"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)})
        for name in ("node.n1", "node.n2"):
            client = await connect_nats(f"tls://127.0.0.1:{bus.port}", name=name, tls=tls, timeout_s=5)
            await client.close()
        async with asyncio.timeout(10):
            heard = [await anext(notices), await anext(notices)]
    assert [(notice.peer, notice.opened) for notice in heard] == [("node.n2", True), ("node.n2", False)]


async def test_a_configuration_of_ours_has_nothing_to_report(clients: dict[str, Bus]) -> None:
    manager = clients["m1"]
    assert isinstance(manager, NatsBus)
    engines, presence = await manager.engines(), await manager.shows_presence(10)
    assert findings(engines, presence=presence, denied=manager.denied, away_s=10.0) == []
    assert [(each.max_payload, each.ping_interval_s, each.ping_max) for each in engines] == [(1_100_000, 2.0, 2)]
    check_joined(version=manager.server_version, max_payload=manager.max_payload)


async def test_a_node_may_not_ask_about_the_servers(clients: dict[str, Bus]) -> None:
    node = clients["n1"]
    assert isinstance(node, NatsBus)
    assert await node.engines() == []
    assert not await node.shows_presence(0.2)
    assert node.denied


async def test_operators_and_managers_watch_a_load_test_and_nodes_do_not(clients: dict[str, Bus]) -> None:
    output = BusOutput(clients["m1"], "j1", epoch=1)
    await output.start(header("browse"))
    for moment in moments(header("browse"), seconds=0.3):
        output.add(moment)
    seen = {}
    for role, name in (("operator", "ann"), ("manager", "m2"), ("node", "n1")):
        caller = RemoteCaller(role=role, name=name, cluster="shop", environment="default")
        async with WatchedRun(ManagerConnection(clients[name], caller), "j1") as run:
            await run.asked.wait()
            seen[name] = None if run.history is None else run.history.windows

    assert seen == {"ann": 3, "m2": 3, "n1": None}


async def test_asking_without_an_answer_is_told_apart(clients: dict[str, Bus]) -> None:
    with pytest.raises((NoResponders, RequestTimeout)):
        await clients["n1"].request("control.store.node.n1.hello", b"", 1)


def test_another_machine_needs_tls() -> None:
    with pytest.raises(InvalidInput, match="TLS is required"):
        parse_address("nats://node:secret@10.0.0.1:4222/shop")


def test_a_node_has_no_subject_of_a_manager() -> None:
    node, manager = (permissions_of(Identity(role=role, name="x")) for role in ("node", "manager"))
    assert not set(node.subscribe) & set(manager.subscribe)
    assert not set(node.publish) & set(manager.publish)


async def test_a_member_whose_certificate_was_removed_is_put_out_when_the_server_reloads(
    bus: SecureBus, clients: dict[str, Bus]
) -> None:
    gone, stays = clients["n1"], clients["n2"]
    assert isinstance(gone, NatsBus)
    assert isinstance(stays, NatsBus)
    bus.files["n1"].cert.unlink()
    text = write_server_config(bus.folder, listen=f"127.0.0.1:{bus.port}", server="bus").read_text()
    bus.reload(text)
    async with asyncio.timeout(10):
        while gone.connected:
            await asyncio.sleep(0.01)
    with pytest.raises((NoResponders, RequestTimeout)):
        await stays.request("control.store.node.n2.hello", b"", 1)
    assert stays.connected
    assert not gone.connected


async def test_two_servers_are_one_bus_and_a_request_crosses_them(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    make_authority(certs, cluster="shop")
    issue(certs, "server", "bus", hosts=["localhost"])
    files = {name: issue(certs, role, name) for role, name in (("node", "n1"), ("manager", "m1"))}
    ports, routes = [free_port(), free_port()], [f"localhost:{free_port()}" for _ in range(2)]
    async with contextlib.AsyncExitStack() as stack:
        for port, route in zip(ports, routes, strict=True):
            config = write_server_config(
                certs, listen=f"127.0.0.1:{port}", server="bus", routes=routes, routes_listen=route
            ).read_text()
            place = tmp_path / str(port)
            place.mkdir()
            stack.enter_context(NatsCore(place, config.replace("{", "{{").replace("}", "}}"), port=port))
        clients = []
        for port, each in zip(ports, files.values(), strict=True):
            tls = client_tls({"ca": str(each.ca), "cert": str(each.cert), "key": str(each.key)})
            role, name = each.identity.role, each.identity.name
            client = await connect_nats(
                f"tls://localhost:{port}", name=f"{role}.{name}", inbox=f"_INBOX.{role}.{name}", tls=tls, timeout_s=20
            )
            stack.push_async_callback(client.close)
            clients.append(client)
        node, manager = clients
        calls = await manager.subscribe("control.store.>", group="managers")

        async def answer() -> None:
            message = await anext(calls)
            assert message.reply is not None
            await manager.publish(message.reply, b"yes")

        answering = asyncio.create_task(answer())
        async with asyncio.timeout(20):
            while True:  # subscriptions spread between the servers a little later
                try:
                    assert await node.request("control.store.node.n1.hello", b"", 5) == b"yes"
                    break
                except NoResponders:
                    await asyncio.sleep(0.01)
            await answering
        assert len(await manager.engines()) == 2

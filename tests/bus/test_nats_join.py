"""Joining a real bus: dead seeds beside a live one, another server after a loss, and servers that must not be used."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mainstay.bus.nats import JoinSettings, NatsBus, client_tls, connect_nats
from mainstay.bus.seeds import SeedEndpoint, SystemNetwork
from mainstay.cluster.certs import CertificateFiles, issue, make_authority, write_server_config
from mainstay.errors import BusError
from servers.nats import NatsCore
from servers.server import free_port

PLAIN = 'listen: "127.0.0.1:{port}"\n'
SOON = JoinSettings(first_wait_s=0.02, longest_wait_s=0.05)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsCore]:
    with NatsCore(tmp_path, PLAIN) as made:
        yield made


@asynccontextmanager
async def joined(url: str, **more: object) -> AsyncIterator[NatsBus]:
    bus = await connect_nats(url, name="node.n1", timeout_s=20, join=SOON, rng=random.Random(1), **more)  # type: ignore[arg-type]
    try:
        yield bus
    finally:
        await bus.close()


async def works(bus: NatsBus) -> bool:
    async with await bus.subscribe("data.test.>") as subscription:
        await bus.publish("data.test.one", b"1")
        async with asyncio.timeout(20):
            return (await anext(subscription)).body == b"1"


async def test_one_live_seed_is_enough(server: NatsCore) -> None:
    async with joined(f"nats://127.0.0.1:{free_port()},127.0.0.1:{server.port},localhost:{free_port()}") as bus:
        assert await works(bus)


class OneName(SystemNetwork):
    """A DNS that knows one name."""

    def __init__(self, host: str, addresses: Sequence[str]) -> None:
        super().__init__()
        self.host = host
        self.found = list(addresses)

    async def addresses(self, host: str) -> Sequence[str]:
        assert host == self.host
        return self.found


async def test_a_name_with_dead_addresses_leads_to_the_live_one(server: NatsCore) -> None:
    network = OneName("localhost", ["127.0.0.7", "127.0.0.1", "127.0.0.8"])
    async with joined(f"nats://localhost:{server.port}", network=network) as bus:
        assert await works(bus)


async def test_after_a_loss_the_client_goes_to_another_seed(server: NatsCore, tmp_path: Path) -> None:
    place = tmp_path / "second"
    place.mkdir()
    with NatsCore(place, PLAIN) as second:
        url = f"nats://127.0.0.1:{server.port},127.0.0.1:{second.port}"
        async with joined(url) as bus:
            await works(bus)
            used = bus.connected_port
            (server if used == server.port else second).stop()
            async with asyncio.timeout(20):
                while not bus.connected or bus.connected_port == used:
                    await asyncio.sleep(0.01)
            assert await works(bus)


async def test_a_program_waits_for_a_bus_that_starts_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    with caplog.at_level(logging.INFO, "mainstay.bus"):
        joining = asyncio.create_task(
            connect_nats(f"nats://127.0.0.1:{port}", name="node.n1", join=SOON, rng=random.Random(1))
        )
        async with asyncio.timeout(20):
            while not caplog.records:
                await asyncio.sleep(0.01)
        with NatsCore(tmp_path, PLAIN, port=port):
            async with asyncio.timeout(20):
                bus = await joining
            assert await works(bus)
            await bus.close()
    away = [record.getMessage() for record in caplog.records if "bus away" in record.getMessage()]
    assert len(away) == 1, "a line for each change, not for each try"
    assert f"127.0.0.1:{port}: nothing listens there" in away[0]
    assert any("bus found" in record.getMessage() for record in caplog.records)


async def test_a_command_gives_up_and_names_each_server() -> None:
    ports = [free_port(), free_port()]
    with pytest.raises(BusError) as failed:
        await connect_nats(f"nats://127.0.0.1:{ports[0]},localhost:{ports[1]}", name="x", timeout_s=0.3, join=SOON)
    assert f"127.0.0.1:{ports[0]}: nothing listens there" in str(failed.value)
    assert f"localhost:{ports[1]}" in str(failed.value)


class SecureServer:
    """A server with TLS for the name localhost, and a node with a certificate."""

    def __init__(self, folder: Path) -> None:
        self.certs = folder / "certs"
        make_authority(self.certs, cluster="shop")
        issue(self.certs, "server", "bus", hosts=["localhost"])
        self.node = issue(self.certs, "node", "n1")
        self.port = free_port()
        config = write_server_config(self.certs, listen=f"127.0.0.1:{self.port}", server="bus").read_text()
        self.server = NatsCore(folder, config.replace("{", "{{").replace("}", "}}"), port=self.port)

    async def connect(self, host: str, files: CertificateFiles | None = None, *, port: int = 0) -> NatsBus:
        used = files or self.node
        tls = client_tls({"ca": str(used.ca), "cert": str(used.cert), "key": str(used.key)})
        url = f"tls://{host}:{port or self.port}"
        return await connect_nats(url, name="node.n1", inbox="_INBOX.node.n1", tls=tls, timeout_s=5, join=SOON)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[SecureServer]:
    made = SecureServer(tmp_path)
    yield made
    made.server.stop()


async def test_the_certificate_is_checked_for_the_name_and_not_for_the_address(secure: SecureServer) -> None:
    bus = await secure.connect("localhost")
    await bus.close()
    with pytest.raises(BusError, match="does not name this address; issue it with --host"):
        await secure.connect("127.0.0.1")


async def test_a_server_without_tls_gets_nothing_from_a_client_with_tls(secure: SecureServer, server: NatsCore) -> None:
    with pytest.raises(BusError, match="speaks no TLS first"):
        await secure.connect("localhost", port=server.port)


async def test_a_certificate_that_is_not_in_the_configuration_ends_a_command_at_once(secure: SecureServer) -> None:
    late = issue(secure.certs, "node", "n2")
    with pytest.raises(BusError, match="does not know this certificate"):
        await secure.connect("localhost", late)


async def test_a_certificate_that_was_replaced_is_used_for_the_next_connection(secure: SecureServer) -> None:
    bus = await secure.connect("localhost")
    make_authority(secure.certs, cluster="shop")
    issue(secure.certs, "server", "bus", hosts=["localhost"])
    issue(secure.certs, "node", "n1")
    secure.server.stop()
    async with asyncio.timeout(20):
        while bus.connected:
            await asyncio.sleep(0.01)
    secure.server.start()
    async with asyncio.timeout(20):
        while not bus.connected:
            await asyncio.sleep(0.01)
    await bus.close()


async def test_a_client_can_be_closed_while_its_server_is_gone(secure: SecureServer) -> None:
    bus = await secure.connect("localhost")
    secure.server.stop()
    make_authority(secure.certs, cluster="shop")
    issue(secure.certs, "server", "bus", hosts=["localhost"])
    secure.server.start()
    async with asyncio.timeout(20):
        await bus.close()


async def test_a_search_of_the_system_probes_nothing_but_servers_of_the_bus() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail\r\n")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(speak, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with other:
        with pytest.raises(BusError, match="something else than a server of NATS"):
            await connect_nats(f"nats://127.0.0.1:{port}", name="x", timeout_s=0.1, join=SOON)


def test_a_message_shows_the_address_behind_a_name() -> None:
    from mainstay.bus.servers import Seed

    assert SeedEndpoint(Seed("bus.internal", 4222), "10.0.0.1").text == "bus.internal:4222 (10.0.0.1)"

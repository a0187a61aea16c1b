"""What only the bus over NATS does: its server dies, and comes back."""

from __future__ import annotations

import asyncio

import pytest

from mainstay.bus.nats import NatsBus, connect_nats
from mainstay.errors import NoResponders
from servers.nats import NatsCore
from servers.server import folder
from tests.bus.adapters import ANY_USER


async def away(bus: NatsBus) -> None:
    async with asyncio.timeout(20):
        while bus.connected:
            await asyncio.sleep(0.01)


async def test_a_client_whose_server_is_gone_closes_without_an_error_and_leaves_no_task() -> None:
    with folder("bus-") as place, NatsCore(place, ANY_USER) as server:
        before = asyncio.all_tasks()
        bus = await connect_nats(server.url("all"), name="node.n1", timeout_s=20)
        await bus.subscribe("data.x")
        server.kill()
        await away(bus)
        await bus.publish("data.x", b"waits for the server")

        await bus.close()
        await asyncio.sleep(0)

        assert asyncio.all_tasks() == before


async def test_a_subscription_outlives_its_server() -> None:
    with folder("bus-") as place, NatsCore(place, ANY_USER) as server:
        bus = await connect_nats(server.url("all"), name="node.n1", timeout_s=20)
        subscription = await bus.subscribe("data.x")
        server.kill()
        await away(bus)
        server.start()

        async with asyncio.timeout(20):
            while not subscription.waiting:
                await bus.publish("data.x", b"again")
                await asyncio.sleep(0.01)
        await bus.close()


async def test_a_client_that_its_server_has_thrown_out_is_back_with_its_subscriptions() -> None:
    with folder("bus-") as place, NatsCore(place, f"max_control_line: 512\n{ANY_USER}") as server:
        bus = await connect_nats(server.url("all"), name="node.n1", timeout_s=20)
        subscription = await bus.subscribe("data.x")
        await bus.publish("data." + 250 * "x", b"", reply="data." + 250 * "y")
        await away(bus)
        await bus.publish("data.x", b"lost, without an error")

        async with asyncio.timeout(20):
            while not subscription.waiting:
                await bus.publish("data.x", b"again")
                await asyncio.sleep(0.01)
        with pytest.raises(NoResponders):
            await bus.request("data.y", b"", 5)
        await bus.close()

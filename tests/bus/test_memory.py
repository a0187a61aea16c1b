"""What only the bus within one process does."""

from __future__ import annotations

import pytest

from mainstay.bus import QUEUE_LIMITS, MemoryBusNetwork, MessageClass
from mainstay.errors import InvalidInput, NoResponders, RequestTimeout
from mainstay.testing import run_virtual


def test_messages_of_a_client_arrive_in_order_and_at_once() -> None:
    async def main() -> list[bytes]:
        network = MemoryBusNetwork()
        sender, subscription = network.client("a"), await network.client("b").subscribe("data.x")
        for n in range(3):
            await sender.publish("data.x", str(n).encode())
        assert subscription.waiting == 3
        return [(await anext(subscription)).body for _ in range(3)]

    assert run_virtual(main()) == [b"0", b"1", b"2"]


def test_members_of_a_group_take_turns() -> None:
    async def main() -> list[int]:
        network = MemoryBusNetwork()
        sender = network.client("a")
        members = [await network.client(f"m{n}").subscribe("data.x", group="g") for n in range(3)]
        for _ in range(7):
            await sender.publish("data.x", b"")
        return [member.waiting for member in members]

    assert run_virtual(main()) == [3, 2, 2]


@pytest.mark.parametrize("kind", MessageClass)
def test_the_default_limit_of_a_queue_is_that_of_its_class(kind: MessageClass) -> None:
    async def main() -> int:
        bus = MemoryBusNetwork().client("a")
        subscription = await bus.subscribe(f"{kind}.>")
        for _ in range(QUEUE_LIMITS[kind] + 5):
            await bus.publish(f"{kind}.x", b"")
        assert subscription.waiting == QUEUE_LIMITS[kind]
        return subscription.dropped

    assert run_virtual(main()) == 5


def test_a_client_that_is_cut_off_gets_and_sends_nothing_until_it_is_back() -> None:
    async def main() -> None:
        network = MemoryBusNetwork()
        manager, node = network.client("manager"), network.client("node")
        beats, wakes = await manager.subscribe("control.beat.>"), await node.subscribe("dispatch.wake.node")
        notices = await manager.presence()

        network.disconnect("node")
        network.disconnect("node")
        await node.publish("control.beat.node", b"lost")
        await manager.publish("dispatch.wake.node", b"lost")
        with pytest.raises(NoResponders):
            await manager.request("dispatch.wake.node", b"", 1)
        with pytest.raises(RequestTimeout):
            await node.request("control.beat.node", b"", 1)
        assert (beats.waiting, wakes.waiting) == (0, 0)

        network.reconnect("node")
        network.reconnect("node")
        await node.publish("control.beat.node", b"back")
        await manager.publish("dispatch.wake.node", b"back")
        assert (beats.waiting, wakes.waiting, notices.waiting) == (1, 1, 2)
        closed, opened = await anext(notices), await anext(notices)
        assert (closed.opened, opened.opened) == (False, True)
        assert closed.connection != opened.connection

    run_virtual(main())


def test_a_client_gets_no_notices_about_itself() -> None:
    async def main() -> int:
        network = MemoryBusNetwork()
        notices = await network.client("a").presence()
        network.disconnect("a")
        network.reconnect("a")
        return notices.waiting

    assert run_virtual(main()) == 0


def test_nothing_of_a_closed_client_stays_in_the_network() -> None:
    async def main() -> None:
        network = MemoryBusNetwork()
        kept = {name: len(value) for name, value in vars(network).items() if hasattr(value, "__len__")}
        bus = network.client("a")
        await bus.subscribe("data.x")
        await bus.presence()
        with pytest.raises(RequestTimeout):
            await bus.request("data.x", b"", 1)
        await bus.close()

        assert {name: len(value) for name, value in vars(network).items() if hasattr(value, "__len__")} == kept

    run_virtual(main())


@pytest.mark.parametrize("name", ["", "a b", "a\n", "é"])
def test_a_bad_name_is_refused_by_field(name: str) -> None:
    with pytest.raises(InvalidInput, match="name: "):
        MemoryBusNetwork().client(name)

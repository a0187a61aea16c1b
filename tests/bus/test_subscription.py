"""The queue between the bus and one reader."""

from __future__ import annotations

import asyncio

from mainstay.bus import MemoryBusNetwork, MessageClass


async def test_a_reader_that_never_has_to_wait_leaves_the_loop_to_others() -> None:
    network = MemoryBusNetwork()
    manager, node = network.client("manager"), network.client("node")
    turns = read = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with await manager.subscribe("data.window.>", limit=100_000) as windows:
        for _ in range(100_000):
            await node.publish("data.window.n1", b"")
        other = asyncio.create_task(others())
        async for _ in windows:
            read += 1
            if not windows.waiting:
                break
        other.cancel()

    assert read == 100_000
    assert turns > 5  # one each millisecond; the slower the machine, the more


async def test_a_client_counts_what_its_queues_drop_by_class() -> None:
    network = MemoryBusNetwork()
    manager, node = network.client("manager"), network.client("node")
    async with (
        await manager.subscribe("data.window.>", limit=10) as windows,
        await manager.subscribe("telemetry.line.>", limit=5),
        await node.subscribe("data.>"),
    ):
        for _ in range(25):
            await node.publish("data.window.n1", b"")
            await node.publish("telemetry.line.n1", b"")
        assert (windows.waiting, windows.dropped) == (10, 15)
    assert manager.dropped == {MessageClass.DATA: 15, MessageClass.TELEMETRY: 20}
    assert node.dropped == {}

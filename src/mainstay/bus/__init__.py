"""Messages between the processes of a cluster: the `Bus` port, its subjects, and the adapter for one process.

Layer: just above errors, beside storage. Nothing here knows what the messages mean. The bus is lossy: it may lose,
repeat and reorder messages, and the code above it has to expect that. Start from `Bus` and `MemoryBusNetwork`.

>>> import asyncio
>>> async def main():
...     network = MemoryBusNetwork()
...     manager, node = network.client("manager"), network.client("node-1")
...     async with await manager.subscribe("control.beat.*") as beats:
...         await node.publish("control.beat.node-1", b"3 cores free")
...         async for message in beats:
...             return message.subject, message.body
>>> asyncio.run(main())
('control.beat.node-1', b'3 cores free')
"""

from __future__ import annotations

from .admission import LEVELS, Admission, CallRate, OverloadLevel, is_shed
from .memory import MemoryBus, MemoryBusNetwork
from .port import MAX_BODY_BYTES, QUEUE_LIMITS, Bus, BusMessage, PresenceNotice
from .subjects import MessageClass, check_pattern, check_subject, matches
from .subscription import Subscription

__all__ = [
    "LEVELS",
    "MAX_BODY_BYTES",
    "QUEUE_LIMITS",
    "Admission",
    "Bus",
    "BusMessage",
    "CallRate",
    "MemoryBus",
    "MemoryBusNetwork",
    "MessageClass",
    "OverloadLevel",
    "PresenceNotice",
    "Subscription",
    "check_pattern",
    "check_subject",
    "is_shed",
    "matches",
]

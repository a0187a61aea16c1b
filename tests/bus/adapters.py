"""The adapters that the suite of the bus runs on. A new adapter is one more entry of `ADAPTERS`."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, TypeAlias

from mainstay.bus import Bus, MemoryBusNetwork
from mainstay.bus.nats import connect_nats
from mainstay.testing import BusFaults, FaultyBusNetwork
from servers.nats import NatsCore
from servers.server import folder

#: connects a client with this name
Connect: TypeAlias = Callable[[str], Awaitable[Bus]]


class BusAdapter(NamedTuple):
    """One adapter: `open` starts what its clients connect to, and closes all of them at the end."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[Connect]]


@asynccontextmanager
async def _on(network: MemoryBusNetwork) -> AsyncIterator[Connect]:
    clients: list[Bus] = []

    async def connect(name: str) -> Bus:
        clients.append(network.client(name))
        return clients[-1]

    yield connect
    for client in clients:
        await client.close()


#: clients of the suite connect as this user, which may do everything
ANY_USER = """
listen: "127.0.0.1:{port}"
max_payload: 1100000
ping_interval: "2s"
accounts {{
  CLUSTER {{
    users: [ {{ user: all, password: all }} ]
    imports: [
      {{ stream: {{ account: SYS, subject: "$SYS.ACCOUNT.CLUSTER.CONNECT" }} }}
      {{ stream: {{ account: SYS, subject: "$SYS.ACCOUNT.CLUSTER.DISCONNECT" }} }}
    ]
  }}
  SYS {{ exports: [ {{ stream: "$SYS.ACCOUNT.CLUSTER.CONNECT" }}, {{ stream: "$SYS.ACCOUNT.CLUSTER.DISCONNECT" }} ] }}
}}
system_account: SYS
"""


@asynccontextmanager
async def _on_nats() -> AsyncIterator[Connect]:
    with folder("bus-") as place, NatsCore(place, ANY_USER) as server:
        clients: list[Bus] = []

        async def connect(name: str) -> Bus:
            clients.append(await connect_nats(server.url("all"), name=name, timeout_s=20))
            return clients[-1]

        yield connect
        for client in clients:
            await client.close()


ADAPTERS = [
    BusAdapter("memory", lambda: _on(MemoryBusNetwork())),
    # messages arrive after `publish` has returned, as over a wire
    BusAdapter("memory-late", lambda: _on(FaultyBusNetwork(rng=random.Random(1), faults=BusFaults(latency_s=0.001)))),
    BusAdapter("nats", _on_nats),
]

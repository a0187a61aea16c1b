"""A store in memory behind two managers, for the suite of all stores."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from mainstay.bus import MemoryBusNetwork
from mainstay.clock import Clock
from mainstay.stores import JobStore
from mainstay.stores.remote import RemoteStore, StoreRequest, StoreService
from mainstay.testing import MemoryStore

VERSION = "1.2.3"


class StoreBehindManagers(RemoteStore):
    """Closes its managers and their store with itself."""

    def __init__(self, store: MemoryStore, services: list[StoreService], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.behind = store
        self.services = services

    async def close(self) -> None:
        await super().close()
        for service in self.services:
            await service.stop()
        await self.behind.close()


async def open_behind_managers(clock: Clock, *, role: str = "operator", name: str = "ann") -> JobStore:
    store = MemoryStore(clock=clock)
    network = MemoryBusNetwork()
    services = [service_of(store, network, f"m{number}") for number in (1, 2)]
    for service in services:
        await service.start()
    made = StoreBehindManagers(
        store,
        services,
        network.client(f"{role}.{name}"),
        role=role,
        name=name,
        cluster="test",
        version=VERSION,
        rng=random.Random(1),
        clock=clock,
    )
    await made.open()
    return made


def service_of(store: JobStore, network: MemoryBusNetwork, manager: str, **more: Any) -> StoreService:
    return StoreService(
        store, network.client(f"manager.{manager}"), manager=manager, cluster="test", version=VERSION, **more
    )


def remote_of(network: MemoryBusNetwork, clock: Clock, *, seed: int = 3, **more: Any) -> RemoteStore:
    """An operator's client, which is not opened yet."""
    values = {"role": "operator", "name": "ann", "cluster": "test", "version": VERSION, "clock": clock, **more}
    return RemoteStore(network.client(f"operator.{values['name']}"), rng=random.Random(seed), **values)


class FirstAnswersLost(MemoryBusNetwork):
    """Loses the answers to the first try of every call, or of the calls of one method; `lost`: to how many tries."""

    lost = 1

    def __init__(self, method: str = "") -> None:
        super().__init__()
        self.tried: dict[str, int] = {}
        """by id of a call: how many tries were answered"""
        self._method = method
        self._calls: dict[str, str] = {}
        """by inbox"""

    def ask(self, sender: Any, message: Any) -> bool:
        if message.subject.endswith(self._method):
            self._calls[message.reply] = msgspec.msgpack.decode(message.body, type=StoreRequest).id
        return super().ask(sender, message)

    def send(self, sender: Any, message: Any) -> None:
        call = self._calls.get(message.subject)
        if call is not None:
            self.tried[call] = self.tried.get(call, 0) + 1
            if self.tried[call] <= self.lost:
                return
        super().send(sender, message)

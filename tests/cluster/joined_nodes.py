"""Nodes without processes of their own: many of them connect to a real bus from the process of a test."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Collection

from mainstay.bus import Bus
from mainstay.cluster.address import parse_address
from mainstay.cluster.liveness_settings import LivenessSettings
from mainstay.cluster.node_config import NodeConfig
from mainstay.cluster.node_heart import NodeHeart
from mainstay.control import Completion, Control
from mainstay.model import Session
from mainstay.stores.remote import MAINSTAY_VERSION, RemoteStore
from mainstay.worker import WorkerOptions


class JoinedNode:
    """A node's heart and its store through the managers. It is what its heart reports of."""

    def __init__(self, bus: Bus, store: RemoteStore, session: Session) -> None:
        self.bus = bus
        self.store = store
        self.control = Control(store)
        self.session = session
        self.running: list[str] = []
        self.is_stopping = False
        self.lost: list[str] = []

    @property
    def sessions(self) -> list[str]:
        return [self.session.id]

    def lose(self, sessions: Collection[str]) -> None:
        self.lost += sessions

    def isolate(self, *, grace_s: float, kill_s: float) -> None:
        self.lost.append(f"isolated for {grace_s:g} s and {kill_s:g} s")

    def rejoin(self) -> None:
        self.lost.append("heard again")

    async def work(self, queue: str = "default") -> int:
        """Run all jobs that it gets, one at a time; how many."""
        done = 0
        while rows := await self.control.claims.claim([queue], self.session.id, 1):
            await self.control.attempts.complete([Completion(row) for row in rows])
            done += len(rows)
        return done


@contextlib.asynccontextmanager
async def joined_node(url: str, name: str) -> AsyncIterator[JoinedNode]:
    address = parse_address(url)
    bus = await address.connect("node", name, timeout_s=30)
    store = RemoteStore(
        bus, role="node", name=name, cluster=address.cluster, version=MAINSTAY_VERSION, rng=random.Random(name)
    )
    try:
        await store.open()
        session = await Control(store).claims.open_session(worker=name, node=name)
        node = JoinedNode(bus, store, session)
        config = NodeConfig(
            url=url, options=WorkerOptions(target="shop:app", name=name, node=name), incarnation=name, parent=0
        )
        heart = asyncio.create_task(NodeHeart(bus, config, node, settings=LivenessSettings(beat_s=1.0)).run())
        try:
            yield node
        finally:
            heart.cancel()
            await asyncio.wait([heart])
    finally:
        await store.close()
        await bus.close()

"""Nodes that run an app: real engines and leads on one store in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from mainstay import App
from mainstay.control import Control
from mainstay.model import Session
from mainstay.stores import JobStore
from mainstay.testing import SimulatedHost
from mainstay.worker import Engine, EngineProcess
from mainstay.worker.leads import Leads
from mainstay.worker.program import placed_offer_of

BEAT_S = 0.5


class AppNode:
    """A node: an engine for placed work, its leads, and the heartbeats that its supervisor would send."""

    def __init__(
        self, app: App, store: JobStore, name: str, *, seed: int = 0, host: SimulatedHost | None = None
    ) -> None:
        self.name = name
        self.control = Control(store, rng=random.Random(f"control {name} {seed}"))
        self.engine: Engine
        self._app = app
        self._seed = seed
        self._host = host
        self._leads = Leads(app, self.control)
        self._beats: Any = None

    def _start(self, work: Coroutine[Any, Any, None]) -> Any:
        return asyncio.create_task(work) if self._host is None else self._host.start(work)

    async def open_session(self) -> Session:
        return await self.control.claims.open_session(
            worker=self.name, node=self.name, offer=placed_offer_of(self._app)
        )

    async def begin(self) -> AppNode:
        async def boot() -> None:
            self.engine = Engine(
                self._app,
                self.control,
                await self.open_session(),
                queues=(),
                concurrency=4,
                process=EngineProcess(open_session=self.open_session, on_retire=lambda _: None),
                rng=random.Random(f"engine {self.name} {self._seed}"),
            )
            self.engine.start()
            await self._leads.start(self.engine.session)

        await self._start(boot())
        self._beats = self._start(self._beat())
        return self

    async def _beat(self) -> None:
        while not self.engine.stopped.is_set():
            await asyncio.sleep(BEAT_S)
            (pulse,) = await self.control.claims.beat([self.engine.session.id])
            await self.engine.pulsed(
                pulse.session, known=pulse.known, cancelling=pulse.cancelling, assigned=pulse.assigned
            )
            await self.control.sweeper.sweep()

    @property
    def leads(self) -> bool:
        """Whether it holds the lead `placement`, as far as it knows."""
        placement = self._leads._placement
        return placement is not None and placement.leading

    def crash(self) -> None:
        assert self._host is not None
        self._host.crash()

    async def stop(self) -> None:
        await self._leads.stop()
        self.engine.drain(1.0)
        await self.engine.stopped.wait()
        self._beats.cancel()
        await asyncio.wait([self._beats])
        await self.control.store.close_session(self.engine.session.id)

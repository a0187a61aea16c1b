"""The leads that an engine competes for, with its duties under each."""

from __future__ import annotations

import asyncio

from ..control import Control, Duties
from ..control.check import watching
from ..model import Session
from ..stores import is_managed
from .program import Placing, Program


class Leads:
    """A service for one engine: `start`, then `stop`. Every session competes for `leader`; the session of a node also
    for `placement`, if its program has duties under it."""

    def __init__(self, program: Program, control: Control) -> None:
        self._program = program
        self._control = control
        self._leader: Duties | None = None
        self._placement: Duties | None = None
        self._changing = asyncio.Lock()
        self._places = True
        # behind a manager, a node holds no leads: managers do
        self._stopped = is_managed(control.store)

    async def start(self, session: Session) -> None:
        """Compete for this session. If another one was there before, it is lost, and so are its leads."""
        async with self._changing:
            await self._stop_all()
            if self._stopped:
                return
            self._leader = self._control.duties(
                session.id, check=watching(self._control.store), extra=list(self._program.duties(self._control))
            )
            self._leader.start()
            if self._places and session.node and isinstance(self._program, Placing):
                duties = self._program.placement_duties(self._control, session.id)
                if duties:
                    self._placement = self._control.placement_duties(session.id, duties)
                    self._placement.start()

    async def resign_placement(self) -> None:
        """Place no more work, for good: the first step of a drain. Another node leads within seconds."""
        self._places = False
        async with self._changing:
            placement, self._placement = self._placement, None
            if placement is not None:
                await placement.stop()

    async def stop(self) -> None:
        """Give up all leads, for good."""
        self._stopped = True
        async with self._changing:
            await self._stop_all()

    async def _stop_all(self) -> None:
        services = [service for service in (self._placement, self._leader) if service is not None]
        self._placement = self._leader = None
        for service in services:
            await service.stop()

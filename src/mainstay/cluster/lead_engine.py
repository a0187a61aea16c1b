"""The engine of a manager: claims the jobs that managers lead, and runs their handlers.

What it leads goes on without it: when its manager stops or dies, another one claims the job and leads on. So it stops
without a grace, and its session is closed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Sequence

import msgspec

from ..control import Control
from ..errors import MissingExtra, StoreError
from ..model import LEAD_QUEUE, Session
from ..stores import AnyChange
from ..worker import Engine, EngineProcess, LeadHost, Outage
from .lead_program import LeadProgram

log = logging.getLogger("mainstay.cluster")

#: jobs that one manager leads at a time
AT_ONCE = 64
#: bytes of a checkpoint: it contains what nodes have answered
_CHECKPOINT_BYTES = 8 * 1024 * 1024


class LeadEngine:
    """A service: `start`, then `stop`. An engine that a job would not leave is replaced."""

    def __init__(self, host: LeadHost, *, worker: str, machine: str, pid: int) -> None:
        settings = msgspec.structs.replace(host.control.settings, payload_limit=_CHECKPOINT_BYTES)
        self._control = Control(host.control.store, settings=settings, rng=host.rng, actor=f"manager:{worker}")
        self._program = LeadProgram(msgspec.structs.replace(host, control=self._control))
        self._rng = host.rng
        self._worker = worker
        self._machine = machine
        self._pid = pid
        self._engine: Engine | None = None
        self._beating: asyncio.Task[None] | None = None
        self._replacing: asyncio.Task[None] | None = None
        self.problem = ""
        """why it leads nothing; empty: it leads"""

    @property
    def leads(self) -> Collection[str]:
        """The jobs that it leads now."""
        return [] if self._engine is None else [run.job.id for run in self._engine.running]

    async def start(self) -> None:
        """Open a session, and begin to claim. A manager that lacks what a handler needs leaves all runs to others: it
        could only delay those that it claims."""
        try:
            self._program.check()
        except MissingExtra as error:
            self.problem = f"manager {self._worker} leads no jobs: {error}"
            log.warning("%s", self.problem)
            return
        await self._start_engine()
        self._beating = asyncio.create_task(self._beat(), name="mainstay manager engine heartbeat")

    async def stop(self) -> None:
        """Give everything back, so that another manager leads on at once. Safe to call twice."""
        replacing, self._replacing = self._replacing, None
        if replacing is not None:
            replacing.cancel()
            await asyncio.wait([replacing])
        engine, self._engine = self._engine, None
        if engine is not None:
            await self._stop_engine(engine)
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            await asyncio.wait([beating])

    async def _start_engine(self) -> None:
        session = await self._open_session()
        process = EngineProcess(
            open_session=self._open_session,
            on_retire=self._retire,
            keep=_leave_to_the_sweep,
            most_jobs=AT_ONCE,
        )
        engine = self._engine = Engine(
            self._program,
            self._control,
            session,
            queues=(LEAD_QUEUE,),
            concurrency=AT_ONCE,
            process=process,
            rng=self._rng,
        )
        engine.start()

    async def _stop_engine(self, engine: Engine) -> None:
        engine.drain(0.0)
        await engine.stopped.wait()
        with contextlib.suppress(StoreError):  # its lock is free, or its lease ends
            await self._control.claims.close_session(engine.session.id)

    async def _open_session(self) -> Session:
        return await self._control.claims.open_session(worker=self._worker, host=self._machine, pid=self._pid)

    def _retire(self, reason: str) -> None:
        """A handler would not stop. What else this engine leads is given back, and claimed by the next one."""
        log.error("the engine of manager %s is replaced: %s", self._worker, reason)
        self._replacing = asyncio.ensure_future(self._replace())

    async def _replace(self) -> None:
        if self._engine is not None:
            await self._stop_engine(self._engine)
            self._engine = None  # only now: until then a stop of the manager stops it
        outage = Outage("engine", self._rng)
        while True:
            try:
                await self._start_engine()
            except StoreError as error:
                await asyncio.sleep(outage.failed(error))
            else:
                outage.over()
                return

    async def _beat(self) -> None:
        every_s = self._control.settings.heartbeat_s
        outage = Outage("heartbeat", self._rng, longest_s=every_s)
        while True:
            wait_s = every_s
            try:
                engine = self._engine
                if engine is not None:
                    (pulse,) = await self._control.claims.beat([engine.session.id])
                    await engine.pulsed(pulse.session, known=pulse.known, cancelling=pulse.cancelling)
                outage.over()
            except Exception as error:  # noqa: BLE001 - without heartbeats it would lose what it leads
                wait_s = outage.failed(error)
            await asyncio.sleep(wait_s)


def _leave_to_the_sweep(changes: Sequence[AnyChange]) -> None:
    """An engine that stops does not wait for the store: what it led is taken back when its session has ended."""
    log.warning("the store does not answer; what was led is left to the sweep jobs=%d", len(changes))


__all__ = ["LeadEngine"]

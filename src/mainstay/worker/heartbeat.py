"""The loops of a supervisor: heartbeats for its engines, start marks, sweeps, and a watch for stuck engines.

They do not wait for each other. Each survives a store that is away, for as long as it takes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection

from ..control import Control
from ..stores import is_managed
from .engine_record import EngineRecord
from .messages import Pulsed
from .outage import Outage

log = logging.getLogger("mainstay.worker")

#: how often the deadlines in the recorders are checked
WATCH_S = 1.0
#: how often the recorders are read for jobs that have begun: a job that is there twice in a row is stored as begun
MARK_S = 0.3


class SupervisorLoops:
    """The loops of one supervisor."""

    def __init__(
        self,
        control: Control,
        engines: Callable[[], Collection[EngineRecord]],
        *,
        rng: random.Random,
        on_drain: Callable[[str], None],
    ) -> None:
        self._control = control
        self._engines = engines
        self._rng = rng
        self._on_drain = on_drain
        """called with every heartbeat that reports a drain of one of the engines, with the name of its actor"""
        self._sweeping = asyncio.Lock()
        """held during a sweep: an engine that is killed then would count as crashed"""
        self._heartbeat_stored = asyncio.Event()
        """a first heartbeat is stored: our own sessions do not look silent to a sweep, however long the start took"""
        self.swept = asyncio.Event()
        """the first sweep is done: jobs may be claimed"""

    async def beat(self) -> None:
        """Keep the sessions of all engines alive, in one write, together with the start marks."""
        every_s = self._control.settings.heartbeat_s
        outage = Outage("heartbeat", self._rng, longest_s=every_s)
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            try:
                await self._beat_once()
                self._heartbeat_stored.set()
                outage.over()
                wait_s = every_s - (loop.time() - started_s)
            except Exception as error:  # noqa: BLE001 - the engines live and need heartbeats, whatever failed
                wait_s = outage.failed(error)
            await asyncio.sleep(max(0.0, wait_s))

    async def mark(self) -> None:
        """Store that jobs have begun, except very short ones, before the next heartbeat: when the whole worker dies
        with its recorders, only the store knows which jobs ran."""
        outage = Outage("start marks", self._rng)
        previous: set[tuple[str, int]] = set()
        while True:
            wait_s = MARK_S
            marks = {engine: engine.marks() for engine in self._engines() if not engine.dead}
            lasting = {
                engine: part
                for engine, new in marks.items()
                if (part := [mark for mark in new if (mark.job_id, mark.token) in previous])
            }
            previous = {(mark.job_id, mark.token) for new in marks.values() for mark in new}
            if lasting:
                try:
                    await self._control.claims.report([mark for part in lasting.values() for mark in part])
                    outage.over()
                    for engine, part in lasting.items():
                        engine.marked(part)
                except Exception as error:  # noqa: BLE001 - the next heartbeat brings them, too
                    wait_s = max(MARK_S, outage.failed(error))
            await asyncio.sleep(wait_s)

    async def sweep(self) -> None:
        """Find dead sessions of other workers and overdue jobs. Jittered: workers do not sweep at the same time."""
        every_s = self._control.settings.sweep_s
        outage = Outage("sweep", self._rng)
        yielded = False
        await self._heartbeat_stored.wait()
        if is_managed(self._control.store):
            self.swept.set()
            return  # managers sweep
        while True:
            # a reap knows more about its engine than a sweep does: it goes first, but the sweep waits for it only once
            yielded = not yielded and any(engine.dead or engine.killed for engine in self._engines())
            wait_s = every_s * self._rng.uniform(0.75, 1.25)
            if not yielded:
                try:
                    async with self._sweeping:
                        swept = await self._control.sweeper.sweep()
                    if not swept.waiting:
                        outage.over()
                    if swept.again_s is not None:
                        wait_s = min(wait_s, swept.again_s)
                    self.swept.set()
                except Exception as error:  # noqa: BLE001 - recovery must not stop, whatever failed
                    wait_s = outage.failed(error)
            await asyncio.sleep(wait_s)

    async def watch(self) -> None:
        """Kill engines that do not end jobs which are over their deadline."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCH_S)
            now_ms = self._control.store.clock.lease_ms()
            for engine in list(self._engines()):
                engine.warn_if_blocked()
                if engine.leaving.is_set():
                    continue  # its grace is its limit
                stuck = engine.stuck(now_ms, loop.time())
                if stuck:
                    ids = ",".join(entry.job_id for entry in stuck)
                    log.error("engine does not end overdue jobs, killed pid=%d jobs=%s", engine.process.pid, ids)
                    async with self._sweeping:
                        engine.kill(blamed=stuck)

    async def _beat_once(self) -> None:
        kept = {engine.session: engine for engine in self._engines() if engine.session is not None and not engine.dead}
        # also sent when no engine is up yet: the sweep must know whether heartbeats are stored
        marks = {session: engine.marks() for session, engine in kept.items()}
        pulses = await self._control.claims.beat(list(kept), [mark for part in marks.values() for mark in part])
        for pulse in pulses:
            engine = kept[pulse.session]
            engine.marked(marks[pulse.session])
            message = Pulsed(
                session=pulse.session, known=pulse.known, cancelling=pulse.cancelling, assigned=pulse.assigned
            )
            engine.pulsed(message)
            # an engine that leaves marks its own session: that drains no other engine
            if pulse.draining_by is not None and pulse.draining_by != pulse.session:
                self._on_drain(pulse.draining_by)

"""What a supervisor does over and over: beat for its engines, store what has begun, sweep, and watch for what is stuck.

Four loops that do not wait for each other. Each survives a store that is away, for as long as it takes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection

from ..control import Control
from .engine_record import EngineRecord
from .messages import Pulsed
from .outage import Outage

log = logging.getLogger("mainstay.worker")

#: how often recorders are compared with the clock
WATCH_S = 1.0
#: how often recorders are looked at for jobs that have begun: one that is there at two looks is stored as begun
MARK_S = 0.3


class SupervisorLoops:
    """The loops of one supervisor."""

    def __init__(
        self,
        control: Control,
        crew: Callable[[], Collection[EngineRecord]],
        *,
        rng: random.Random,
        on_drain: Callable[[str], None],
    ) -> None:
        self._control = control
        self._crew = crew
        self._rng = rng
        self._on_drain = on_drain
        """told, with every beat, who asked one of the engines to drain"""
        self._judging = asyncio.Lock()
        """held by a sweep: an engine that we kill meanwhile would be taken for one that crashed"""
        self._beaten = asyncio.Event()
        """a first beat got through: our own sessions do not look silent to a sweep, however long the start took"""
        self.swept = asyncio.Event()
        """what was there before us has been swept: jobs may be claimed"""

    async def beat(self) -> None:
        """Keep the sessions of all engines alive, in one write; with it go the start marks."""
        every_s = self._control.settings.heartbeat_s
        outage = Outage("heartbeat", self._rng, longest_s=every_s)
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            try:
                await self._beat_once()
                self._beaten.set()
                outage.over()
                wait_s = every_s - (loop.time() - begun)
            except Exception as error:  # noqa: BLE001 - whatever it is, the engines live and must be beaten for
                wait_s = outage.failed(error)
            await asyncio.sleep(max(0.0, wait_s))

    async def mark(self) -> None:
        """Store that jobs have begun, those that are not over in a moment, without waiting for the next beat: when all
        of the worker dies at once, with its recorders, the store alone knows whom to blame."""
        outage = Outage("start marks", self._rng)
        seen: set[tuple[str, int]] = set()
        while True:
            wait_s = MARK_S
            marks = {member: member.marks() for member in self._crew() if not member.dead}
            lasting = {
                member: part
                for member, found in marks.items()
                if (part := [mark for mark in found if (mark.job_id, mark.token) in seen])
            }
            seen = {(mark.job_id, mark.token) for found in marks.values() for mark in found}
            if lasting:
                try:
                    await self._control.claims.report([mark for part in lasting.values() for mark in part])
                    outage.over()
                    for member, part in lasting.items():
                        member.marked(part)
                except Exception as error:  # noqa: BLE001 - the next beat brings them too
                    wait_s = max(MARK_S, outage.failed(error))
            await asyncio.sleep(wait_s)

    async def sweep(self) -> None:
        """Look for the dead of other workers and for what overran. Jittered: no two workers look at the same time."""
        every_s = self._control.settings.sweep_s
        outage = Outage("sweep", self._rng)
        yielded = False
        await self._beaten.wait()
        while True:
            # a burial knows more about its dead than a sweep does: let it go first, but do not wait for it for ever
            yielded = not yielded and any(member.dead or member.killed for member in self._crew())
            wait_s = every_s * self._rng.uniform(0.75, 1.25)
            if not yielded:
                try:
                    async with self._judging:
                        swept = await self._control.sweeper.sweep()
                    if not swept.waiting:
                        outage.over()
                    if swept.again_s is not None:
                        wait_s = min(wait_s, swept.again_s)
                    self.swept.set()
                except Exception as error:  # noqa: BLE001 - recovery must not stop, whatever it met
                    wait_s = outage.failed(error)
            await asyncio.sleep(wait_s)

    async def watch(self) -> None:
        """Kill engines that do not end what is past its deadline."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCH_S)
            now_ms = self._control.store.clock.lease_ms()
            for member in list(self._crew()):
                member.notice_silence()
                if member.leaving.is_set():
                    continue  # its grace is its limit
                stuck = member.stuck(now_ms, loop.time())
                if stuck:
                    ids = ",".join(entry.job_id for entry in stuck)
                    log.error("engine does not end what overran, killed pid=%d jobs=%s", member.process.pid, ids)
                    async with self._judging:
                        member.kill(blamed=stuck)

    async def _beat_once(self) -> None:
        kept = {member.session: member for member in self._crew() if member.session is not None and not member.dead}
        # with no engine up yet there is nobody to beat for, but whether a beat gets through must be known to the sweep
        marks = {session: member.marks() for session, member in kept.items()}
        pulses = await self._control.claims.beat(list(kept), [mark for part in marks.values() for mark in part])
        for pulse in pulses:
            member = kept[pulse.session]
            member.marked(marks[pulse.session])
            member.pulsed(Pulsed(session=pulse.session, known=pulse.known, cancelling=pulse.cancelling))
            if pulse.draining_by is not None:
                self._on_drain(pulse.draining_by)

"""The supervisor: runs no user code, so nothing a job does can stop it. It starts engines, keeps their sessions alive,
reaps dead ones and replaces them.

An engine is started, sends `Hello`, receives `StartClaiming` and works; then it retires, is drained, or dies. Each
engine fills a slot, and another takes the slot as soon as it takes no more jobs. The supervisor stops in steps, one for
each request: *drain* (finish within the grace), *hurry* (give jobs back now), *kill*. A drain of one engine, requested
through the store, is a drain of the whole worker: its engines end together, and none is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..control import Control
from ..errors import InvalidInput, MainstayError, StoreError
from ..stores import JobStore, open_store, shown_url
from .async_waits import first, within
from .crash_blame import EngineDeath, reap
from .engine_record import ISOLATED, EngineRecord
from .exits import describe_exit
from .heartbeat import SupervisorLoops
from .messages import CoresHeld, EngineConfig, FromEngine, Hello, Pulsed, Retiring, Unfit
from .outage import Outage
from .outbox import kept_files, write_kept
from .processes import Processes
from .spawn import OsProcesses
from .worker_options import WorkerOptions

log = logging.getLogger("mainstay.worker")

#: exit codes
STOPPED, FORCED, UNFIT = 0, 1, 2

#: the time that engines have beyond their grace before they are killed
_BEYOND_GRACE_S = 5.0
#: how long a supervisor that stops waits for a store that is away, to settle the jobs of its dead engines
_LAST_REAP_S = 8.0
#: an engine that lived for less than this is part of a crash loop
_SHORT_LIFE_S = 5.0
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 10.0
#: an engine that has not sent `Hello` by then is logged
_SLOW_START_S = 30.0
_STOPPED = "its worker was stopped"


class Supervisor:
    """`await Supervisor(options).run()` works until it is asked to stop, and returns an exit code.

    `processes` starts the engines; by default they are processes of this machine. `connect` opens the store at the URL
    that the engines name. `state` is where its engines keep changes that the store did not take (see `state_folder`).
    """

    def __init__(
        self,
        options: WorkerOptions,
        *,
        processes: Processes | None = None,
        connect: Callable[[str], Awaitable[JobStore]] = open_store,
        state: Path | None = None,
        rng: random.Random | None = None,
        ready: Callable[[Hello], None] | None = None,
    ) -> None:
        self._options = options
        self._processes = processes or OsProcesses()
        self._connect = connect
        self._state = state
        self._rng = rng or random.Random()
        self._ready = ready
        self._engines: dict[EngineRecord, None] = {}
        """in the order of their start: a set would have another order in each run of a simulation"""
        # the engine of placed work is the first: it says whether there is other work
        self._slots: list[EngineRecord | None] = [None] * (options.processes + bool(options.node))
        self._control: Control | None = None
        self._opening: asyncio.Task[SupervisorLoops] | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._up = asyncio.Event()
        """the first engine has come up"""
        self._claims_jobs = asyncio.Event()
        """an engine has come up whose program has jobs to claim: all slots are needed"""
        self._requests = 0
        self._stopping = asyncio.Event()
        self._reachable = asyncio.Event()
        """the managers of its node are in reach, or it is of no node: engines may run"""
        self._reachable.set()
        self._killing: asyncio.TimerHandle | None = None
        self._rolling: asyncio.Task[None] | None = None
        self._broken: BaseException | None = None
        self._code = STOPPED

    @property
    def pids(self) -> list[int]:
        """The processes of its engines."""
        return [engine.process.pid for engine in self._engines]

    @property
    def sessions(self) -> list[str]:
        """The sessions of its live engines."""
        return [engine.session for engine in self._engines if engine.session is not None and not engine.dead]

    @property
    def running(self) -> list[str]:
        """The ids of the jobs that its engines run now."""
        return [entry.job_id for engine in self._engines if not engine.dead for entry in engine.running()]

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stopping.is_set()

    async def run(self) -> int:
        """Work until asked to stop; no engine is left when it returns."""
        try:
            with self._signals():
                await asyncio.gather(*(self._keep_filled(slot) for slot in range(len(self._slots))))
                while self._engines:
                    await asyncio.wait([engine.reaped for engine in self._engines])
        finally:
            await self._close()
            self._processes.close()
        if self._broken is not None:
            raise self._broken
        return self._code

    def stop(self) -> None:
        """What a signal does: the first drains, the second gives jobs back now, the third kills."""
        self._requests += 1
        if self._requests == 1:
            log.info("draining grace=%gs engines=%d; again to stop now", self._options.grace_s, len(self._engines))
            self._begin_to_stop()
        elif self._requests == 2:
            log.warning("stopping now; again to kill")
            self._drain(0.0)
        else:
            self._kill_all()

    def drain(self, by: str) -> None:
        """A drain through the store: like the first signal, and repeated with every heartbeat from then on. A later
        signal still counts as the first: its sender, for example a service manager, expects it to drain."""
        if not self._stopping.is_set():
            log.info("asked to drain by=%s grace=%gs engines=%d", by, self._options.grace_s, len(self._engines))
            self._begin_to_stop()

    def isolate(self, *, grace_s: float, kill_s: float) -> None:
        """Stop all work, because the node of this worker hears no manager: others may begin it soon. Engines stop their
        jobs within the grace, and are killed after `kill_s`; none is started before `rejoin`."""
        if not self._reachable.is_set():
            return
        self._reachable.clear()
        engines = list(self._engines)
        log.error("the node hears no manager: all work is stopped until one is heard engines=%d", len(engines))
        for engine in engines:
            engine.isolate(grace_s)
        asyncio.get_running_loop().call_later(kill_s, self._kill_isolated, engines)

    def lose(self, sessions: Collection[str]) -> None:
        """Managers have closed these sessions: have their engines stop their jobs, and open others."""
        for engine in self._engines:
            if engine.session is not None and engine.session in sessions and not engine.dead:
                engine.pulsed(Pulsed(session=engine.session, known=False))

    def rejoin(self) -> None:
        """A manager is heard again: start engines, with new sessions."""
        if not self._reachable.is_set():
            log.warning("the node hears a manager again: work goes on")
            self._reachable.set()

    def _kill_isolated(self, engines: Sequence[EngineRecord]) -> None:
        for engine in engines:
            if not engine.dead:
                log.error("killed pid=%d: it has not stopped, and its node hears no manager", engine.process.pid)
                engine.kill(reason=ISOLATED)

    def roll(self) -> None:
        """Replace the engines one by one, each when its successor is up (SIGHUP: a deploy without a gap)."""
        if self._stopping.is_set():
            log.warning("restart refused: the worker stops")
        elif not self._reachable.is_set():
            log.warning("restart refused: the node hears no manager")
        elif self._rolling is not None and not self._rolling.done():
            pids = " ".join(str(engine.process.pid) for engine in self._engines if not engine.claiming.is_set())
            log.warning("restart refused: one is under way%s", f", waiting for pid={pids}" if pids else "")
        else:
            self._rolling = self._create_task(self._roll())

    # engines ------------------------------------------------------------------------------------

    async def _keep_filled(self, slot: int) -> None:
        """Start an engine whenever the slot is empty."""
        if slot > 0:
            # the others wait for the first: a mistake in the program is reported once
            await first(self._claims_jobs.wait(), self._stopping.wait())
        wait_s = 0.0
        while not self._stopping.is_set():
            await first(self._reachable.wait(), self._stopping.wait())
            if self._stopping.is_set():
                return
            try:
                engine = self._slots[slot] = self._slots[slot] or self._start_engine(slot)
            except OSError as error:  # no memory, too many processes: it may pass
                wait_s = min(_LONGEST_WAIT_S, max(_FIRST_WAIT_S, wait_s * 2))
                log.error("engine cannot be started: %s; again in %.1fs", error, wait_s)
                await within(self._stopping.wait(), wait_s)
                continue
            await first(engine.process.ended, engine.leaving.wait(), self._stopping.wait())
            if self._stopping.is_set():
                return
            if self._slots[slot] is not engine:
                continue  # a restart has filled the slot
            self._slots[slot] = None
            lived_s = asyncio.get_running_loop().time() - engine.started_s
            wait_s = 0.0 if lived_s >= _SHORT_LIFE_S else min(_LONGEST_WAIT_S, max(_FIRST_WAIT_S, wait_s * 2))
            await within(self._stopping.wait(), wait_s)

    def _start_engine(self, slot: int) -> EngineRecord:
        engine = EngineRecord(asyncio.get_running_loop().time())
        node = bool(self._options.node) and slot == 0
        engine.process = self._processes.spawn(
            EngineConfig(options=self._options, supervisor_pid=self._processes.pid, node=node),
            lambda message: self._receive(engine, message),
        )
        self._engines[engine] = None
        log.debug("engine started pid=%d", engine.process.pid)
        asyncio.get_running_loop().call_later(_SLOW_START_S, self._warn_if_slow, engine)
        engine.reaped = self._create_task(self._reap(engine))
        return engine

    def _warn_if_slow(self, engine: EngineRecord) -> None:
        if engine.hello is None and not engine.dead:
            pid = engine.process.pid
            log.warning("engine not ready after %gs pid=%d; does an import wait for something?", _SLOW_START_S, pid)

    def _receive(self, engine: EngineRecord, message: FromEngine) -> None:
        match message:
            case Hello():
                engine.hello = message
                self._create_task(self._register(engine, message))
            case Unfit():
                engine.unfit = message.reason
            case CoresHeld(cores):
                engine.cores = cores
                self._share_cores()
            case Retiring():
                log.warning("engine retires pid=%d: %s", engine.process.pid, message.reason)
                self._let_leave(engine)

    def _share_cores(self) -> None:
        """Tell each engine how many cores of the node the others hold for slices of load tests."""
        alive = [engine for engine in self._engines if not engine.dead]
        held = sum(engine.cores for engine in alive)
        for engine in alive:
            engine.tell_cores(held - engine.cores)

    async def _register(self, engine: EngineRecord, hello: Hello) -> None:
        """Send heartbeats for the session of an engine from now on, and let it claim."""
        if self._opening is None:
            self._url = hello.store_url
            self._opening = asyncio.create_task(self._open(hello), name="mainstay open")
        if hello.store_url == self._url:
            # opening the store may take as long as a lease: the first heartbeat is for this session, too
            engine.session = hello.session
        try:
            loops = await asyncio.shield(self._opening)
        except MainstayError as error:
            engine.unfit = str(error)
            engine.kill(reason=_STOPPED)
            return
        if hello.store_url != self._url:
            engine.unfit = f"the program names another store now ({shown_url(hello.store_url)}); restart the worker"
            engine.kill(reason=_STOPPED)
            return
        # the first sweep may have much to do; heartbeats for this session go on during it
        await loops.swept.wait()
        if engine.dead or engine.hello is not hello:
            return
        log.info("engine up pid=%d session=%s", engine.process.pid, hello.session)
        if hello.queues:
            self._claims_jobs.set()
        if not self._up.is_set():
            self._up.set()
            if self._ready is not None:
                self._ready(hello)
        self._share_cores()  # it must know before it claims
        if not self._stopping.is_set() and not engine.leaving.is_set():
            engine.start_claiming()

    async def _open(self, hello: Hello) -> SupervisorLoops:
        """Open the store as soon as it can be reached, and start the loops that use it."""
        if hello.store_url.startswith("memory:"):
            raise InvalidInput("store", "a store in memory is not shared between processes; use sqlite:///jobs.db")
        outage = Outage("open", self._rng)
        while True:
            try:
                store = await self._connect(hello.store_url)
            except StoreError as error:
                await asyncio.sleep(outage.failed(error))
                continue
            outage.over()
            if self._options.joined:
                self._create_task(self._write_left(store))
            control = self._control = Control(store, settings=hello.settings, rng=self._rng, actor="worker")
            loops = SupervisorLoops(control, lambda: self._engines, rng=self._rng, on_drain=self.drain)
            for loop in (loops.beat(), loops.mark(), loops.sweep(), loops.watch()):
                self._create_task(loop)
            return loops

    # reap ---------------------------------------------------------------------------------------

    async def _reap(self, engine: EngineRecord) -> None:
        """Wait until its process has ended, and settle its jobs."""
        status = await engine.process.ended
        self._share_cores()  # what it held is free: its generators end with it
        try:
            self._report_exit(engine, status)
            death = engine.death(status)
            if death is not None and self._control is not None:
                await self._settle_jobs(self._control, death)
        finally:
            self._engines.pop(engine, None)
            engine.process.close()

    def _report_exit(self, engine: EngineRecord, status: int) -> None:
        """Log how it ended, and stop if another engine could not start either."""
        pid = engine.process.pid
        exit_text = (
            "was killed by its supervisor" if engine.killed and status == -signal.SIGKILL else describe_exit(status)
        )
        if self._stopping.is_set() or (status == 0 and engine.leaving.is_set()):
            log.info("engine gone pid=%d: %s", pid, exit_text)
            return
        early = engine.hello is None and engine.unfit is None and status > 0
        reason = engine.unfit or (
            f"the engine {exit_text} before it was ready; see its output above" if early else None
        )
        if reason is not None and self._control is None:
            log.error("cannot start: %s", reason)
            self._code = UNFIT
            self._requests += 1
            self._stopping.set()
            self._kill_all()
        elif reason is not None:
            log.error("engine cannot start pid=%d: %s", pid, reason)
        else:
            log.error("engine died pid=%d: it %s; another takes its place", pid, exit_text)

    async def _settle_jobs(self, control: Control, death: EngineDeath) -> None:
        outage = Outage("reap", self._rng)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            try:
                await self._pass_on_drain(control, death)
                await self._write_outbox(control, death)
                result = await reap(control, death)
                await self._write_outbox(control, death)  # what conflicted is refused now, and no longer kept
            except Exception as error:  # noqa: BLE001 - its jobs have no owner until this is done
                wait_s = outage.failed(error)
            else:
                outage.over()
                level = logging.INFO if result.total else logging.DEBUG
                log.log(level, "engine reaped session=%s jobs: %s", death.session, result)
                return
            if self._stopping.is_set() and loop.time() - begun > min(control.settings.lease_s, _LAST_REAP_S):
                log.warning(
                    "engine not reaped session=%s; other workers find its jobs when the store is back", death.session
                )
                return
            await asyncio.sleep(wait_s)

    async def _pass_on_drain(self, control: Control, death: EngineDeath) -> None:
        """A drain that was requested since its last heartbeat is lost with its session, unless it is read now."""
        for session in await control.store.sessions():
            if session.id == death.session and session.is_draining and session.draining_by != session.id:
                self.drain(session.draining_by)

    async def _write_outbox(self, control: Control, death: EngineDeath) -> None:
        """Write the ends that the engine kept because the store was away, before its other jobs are settled."""
        files = kept_files(control.store.url, session=death.session, state=self._state)
        async for written in write_kept(control.store, files):
            log.info("kept end written job_id=%s outcome=%s", written.job_id, written.outcome)

    async def _write_left(self, store: JobStore) -> None:
        """Write the ends that an earlier start of this node kept: no operator can do it from elsewhere."""
        outage = Outage("kept ends", self._rng)
        while True:
            live = {engine.session for engine in self._engines}
            files = [each for each in kept_files(store.url, state=self._state) if each.header.session not in live]
            try:
                async for written in write_kept(store, files):
                    log.info("kept end written job_id=%s outcome=%s", written.job_id, written.outcome)
            except Exception as error:  # noqa: BLE001 - the next try may succeed
                await asyncio.sleep(outage.failed(error))
            else:
                outage.over()
                return

    def _let_leave(self, engine: EngineRecord) -> None:
        """It takes no more jobs, and is killed if it has not ended within its grace."""
        engine.leaving.set()
        own_s = engine.hello.settings.grace_s if engine.hello is not None else 0.0
        asyncio.get_running_loop().call_later(
            max(self._options.grace_s, own_s) + _BEYOND_GRACE_S,
            lambda: engine.kill(reason="its engine was replaced, and it did not end within the grace"),
        )

    async def _roll(self) -> None:
        log.info("restarting engines one by one engines=%d", len(self._slots))
        for slot in range(len(self._slots)):
            if slot > 0 and not self._claims_jobs.is_set():
                break  # the program has only placed work
            try:
                successor = self._start_engine(slot)
            except OSError as error:
                log.error("restart given up: %s; the running engines go on", error)
                return
            await first(successor.process.ended, successor.claiming.wait())
            if not successor.claiming.is_set() or self._stopping.is_set() or not self._reachable.is_set():
                log.error("restart given up pid=%d; the running engines go on", successor.process.pid)
                return
            old, self._slots[slot] = self._slots[slot], successor
            if old is not None:
                self._let_leave(old)
                old.drain(self._options.grace_s)
        log.info("restarted engines=%d", len(self._slots))

    # stopping -----------------------------------------------------------------------------------

    def _begin_to_stop(self) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            self._create_task(self._log_running())
        self._drain(self._options.grace_s)

    def _drain(self, grace_s: float) -> None:
        for engine in self._engines:
            engine.drain(grace_s)
        if self._killing is not None:
            self._killing.cancel()
        self._killing = asyncio.get_running_loop().call_later(grace_s + _BEYOND_GRACE_S, self._kill_all)

    def _kill_all(self) -> None:
        for engine in self._engines:
            if not engine.dead:
                if self._code == STOPPED:
                    log.warning("killed pid=%d; its jobs are given back", engine.process.pid)
                    self._code = FORCED
                engine.kill(reason=_STOPPED)

    async def _log_running(self) -> None:
        logged: set[str] = set()
        while self._engines:
            running = {entry.job_id for engine in self._engines for entry in engine.running()}
            if running and running != logged:
                log.info("waiting for jobs=%d: %s", len(running), " ".join(sorted(running)[:5]))
            logged = running
            await asyncio.sleep(1.0)

    async def _close(self) -> None:
        if self._killing is not None:
            self._killing.cancel()
        engines = list(self._engines)
        for engine in engines:
            engine.kill(reason=_STOPPED)
        tasks = [*self._tasks, *([self._opening] if self._opening is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for engine in engines:
            await engine.process.ended
        if self._control is not None:
            await self._control.store.close()

    # tasks --------------------------------------------------------------------------------------

    def _create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            # a mistake of ours: stop rather than go on without one of our parts
            log.critical("the supervisor broke, stopping", exc_info=error)
            self._broken = self._broken or error
            self.stop()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop, signal.SIGHUP: self.roll}
        set_up = []
        for number, handler in handlers.items():
            try:
                loop.add_signal_handler(number, handler)
            except (RuntimeError, ValueError):
                # not on the main thread, or a loop without signals: the program that runs us calls `stop`
                break
            set_up.append(number)
        try:
            yield
        finally:
            for number in set_up:
                loop.remove_signal_handler(number)

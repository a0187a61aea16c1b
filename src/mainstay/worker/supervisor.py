"""The supervisor: runs no user code, so nothing a job does can stop it. It starts engines, keeps their sessions alive,
buries the dead and replaces them.

Life of an engine here: started, says `Hello`, is told to `Go`, works; then it retires or is drained, or dies. Its place
is taken by another as soon as it takes no more jobs. The life of the supervisor itself is counted in requests to stop:
none, *drain* (finish within the grace), *hurry* (give back now), *kill*. Whoever asks one of the engines to drain,
through the store, asks the whole worker: they end together, and none is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from ..control import Control
from ..errors import InvalidInput, MainstayError, StoreError
from ..stores import open_store
from .async_waits import first, within
from .crash_blame import Death, bury
from .engine_record import EngineRecord
from .exits import in_words
from .heartbeat import SupervisorLoops
from .messages import FromEngine, Hello, Retiring, Unfit
from .outage import Outage
from .outbox import kept, write_kept
from .solo_turn import SoloTurn
from .spawn import ENGINE, spawn
from .worker_options import Orders, shown_url

log = logging.getLogger("mainstay.worker")

#: exit codes
STOPPED, FORCED, UNFIT = 0, 1, 2

#: what engines get beyond their grace before they are killed
_BEYOND_GRACE_S = 5.0
#: how long a supervisor that stops waits for a store that is away, to say what became of its engines
_LAST_BURIAL_S = 8.0
#: an engine that lived for less than this is part of a crash loop
_SHORT_LIFE_S = 5.0
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 10.0
#: an engine that has not said hello by then is worth a word
_SLOW_START_S = 30.0
_STOPPED = "its worker was stopped"


class Supervisor:
    """`await Supervisor(orders).run()` works until it is told to stop, and answers with an exit code."""

    def __init__(
        self,
        orders: Orders,
        *,
        command: Sequence[str] = ENGINE,
        rng: random.Random | None = None,
        ready: Callable[[Hello], None] | None = None,
    ) -> None:
        self._orders = orders
        self._command = command
        self._rng = rng or random.Random()
        self._ready = ready
        self._solitude = SoloTurn.create()
        self._crew: set[EngineRecord] = set()
        self._posts: list[_Post] = [_Post() for _ in range(orders.processes)]
        self._control: Control | None = None
        self._opening: asyncio.Task[SupervisorLoops] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._up = asyncio.Event()
        """the first engine has come up"""
        self._requests = 0
        self._stopping = asyncio.Event()
        self._killing: asyncio.TimerHandle | None = None
        self._rolling: asyncio.Task[None] | None = None
        self._broken: BaseException | None = None
        self._code = STOPPED

    @property
    def pids(self) -> list[int]:
        """The processes of its engines."""
        return [member.process.pid for member in self._crew]

    async def run(self) -> int:
        """Work until told to stop; what is left of the engines is gone when it returns."""
        try:
            with self._signals():
                first, *others = self._posts
                # the others wait for the first: what is wrong with the program is told once
                await asyncio.gather(self._man(first), *(self._man(post, after=self._up) for post in others))
                while self._crew:
                    await asyncio.wait([member.buried for member in self._crew])
        finally:
            await self._clear_up()
            self._solitude.close()
        if self._broken is not None:
            raise self._broken
        return self._code

    def stop(self) -> None:
        """What a signal does: the first drains, the second hurries, the third kills."""
        self._requests += 1
        if self._requests == 1:
            log.info("draining grace=%gs engines=%d; again to stop now", self._orders.grace_s, len(self._crew))
            self._begin_to_stop()
        elif self._requests == 2:
            log.warning("stopping now; again to kill")
            self._drain(0.0)
        else:
            self._kill_all()

    def drain(self, by: str) -> None:
        """What is asked through the store: as the first signal, and said with every heartbeat from then on. A signal
        that comes later is the first all the same: whoever sends it, a service manager say, expects it to drain."""
        if not self._stopping.is_set():
            log.info("asked to drain by=%s grace=%gs engines=%d", by, self._orders.grace_s, len(self._crew))
            self._begin_to_stop()

    def roll(self) -> None:
        """Replace the engines one by one, each when its successor is up (SIGHUP: a deploy without a gap)."""
        if self._stopping.is_set():
            log.warning("restart refused: the worker stops")
        elif self._rolling is not None and not self._rolling.done():
            pids = " ".join(str(member.process.pid) for member in self._crew if not member.going.is_set())
            log.warning("restart refused: one is under way%s", f", waiting for pid={pids}" if pids else "")
        else:
            self._rolling = self._start(self._roll())

    # engines ------------------------------------------------------------------------------------

    async def _man(self, post: _Post, *, after: asyncio.Event | None = None) -> None:
        """Keep one place taken."""
        if after is not None:
            await first(after.wait(), self._stopping.wait())
        wait_s = 0.0
        while not self._stopping.is_set():
            try:
                member = post.member = post.member or self._enlist()
            except OSError as error:  # no memory, no more processes: it may pass
                wait_s = min(_LONGEST_WAIT_S, max(_FIRST_WAIT_S, wait_s * 2))
                log.error("engine cannot be started: %s; again in %.1fs", error, wait_s)
                await within(self._stopping.wait(), wait_s)
                continue
            await first(member.process.ended, member.leaving.wait(), self._stopping.wait())
            if self._stopping.is_set():
                return
            if post.member is not member:
                continue  # relieved: its successor is there already
            post.member = None
            lived_s = asyncio.get_running_loop().time() - member.born_s
            if member.leaving.is_set() and lived_s >= _SHORT_LIFE_S:
                wait_s = 0.0
                continue
            wait_s = 0.0 if lived_s >= _SHORT_LIFE_S else min(_LONGEST_WAIT_S, max(_FIRST_WAIT_S, wait_s * 2))
            await within(self._stopping.wait(), wait_s)

    def _enlist(self) -> EngineRecord:
        member = EngineRecord(asyncio.get_running_loop().time())
        lock = self._solitude.fd
        member.process = spawn(
            lambda link_fd, recorder_fd: self._orders.config(link_fd, recorder_fd, lock),
            lambda message: self._heard(member, message),
            self._command,
            shared_fds=(lock,),
        )
        self._crew.add(member)
        log.debug("engine started pid=%d", member.process.pid)
        asyncio.get_running_loop().call_later(_SLOW_START_S, self._wonder, member)
        member.buried = self._start(self._attend(member))
        return member

    def _wonder(self, member: EngineRecord) -> None:
        if member.greeting is None and not member.dead:
            pid = member.process.pid
            log.warning("engine not ready after %gs pid=%d; does an import wait for something?", _SLOW_START_S, pid)

    def _heard(self, member: EngineRecord, message: FromEngine) -> None:
        match message:
            case Hello():
                member.greeting = message
                self._start(self._admit(member, message))
            case Unfit():
                member.unfit = message.reason
            case Retiring():
                log.warning("engine retires pid=%d: %s", member.process.pid, message.reason)
                self._see_off(member)

    async def _admit(self, member: EngineRecord, hello: Hello) -> None:
        """Let an engine claim: its session is beaten for from now on."""
        if self._opening is None:
            self._url = hello.store_url
            self._opening = asyncio.create_task(self._open(hello), name="mainstay open")
        if hello.store_url == self._url:
            # to open the store may take as long as a lease: the first beat is for this session, too
            member.session = hello.session
        try:
            keeper = await asyncio.shield(self._opening)
        except MainstayError as error:
            member.unfit = str(error)
            member.kill(wish=_STOPPED)
            return
        if hello.store_url != self._url:
            member.unfit = f"the program names another store now ({shown_url(hello.store_url)}); restart the worker"
            member.kill(wish=_STOPPED)
            return
        # what the dead left may be much: meanwhile its session is beaten for
        await keeper.swept.wait()
        if member.dead or member.greeting is not hello:
            return
        log.info("engine up pid=%d session=%s", member.process.pid, hello.session)
        if not self._up.is_set():
            self._up.set()
            if self._ready is not None:
                self._ready(hello)
        if not self._stopping.is_set():
            member.go()

    async def _open(self, hello: Hello) -> SupervisorLoops:
        """The store, as soon as it can be reached, and the loops that live on it."""
        if hello.store_url.startswith("memory:"):
            raise InvalidInput("store", "a store in memory is not shared between processes; use sqlite:///jobs.db")
        outage = Outage("open", self._rng)
        while True:
            try:
                store = await open_store(hello.store_url)
            except StoreError as error:
                await asyncio.sleep(outage.failed(error))
                continue
            outage.over()
            control = self._control = Control(store, settings=hello.settings, rng=self._rng, actor="worker")
            keeper = SupervisorLoops(control, lambda: self._crew, rng=self._rng, on_drain=self.drain)
            for loop in (keeper.beat(), keeper.mark(), keeper.sweep(), keeper.watch()):
                self._start(loop)
            return keeper

    # ends ---------------------------------------------------------------------------------------

    async def _attend(self, member: EngineRecord) -> None:
        """Wait for its death, and bury it."""
        status = await member.process.ended
        try:
            self._judge(member, status)
            death = member.death(status)
            if death is not None and self._control is not None:
                await self._bury(self._control, death)
        finally:
            self._crew.discard(member)
            member.process.close()

    def _judge(self, member: EngineRecord, status: int) -> None:
        """Say how it ended, and whether it makes sense to go on."""
        pid = member.process.pid
        how = "was killed by its supervisor" if member.killed and status == -signal.SIGKILL else in_words(status)
        if self._stopping.is_set() or (status == 0 and member.leaving.is_set()):
            log.info("engine gone pid=%d: %s", pid, how)
            return
        early = member.greeting is None and member.unfit is None and status > 0
        reason = member.unfit or (f"the engine {how} before it was ready; see what it said above" if early else None)
        if reason is not None and self._control is None:
            log.error("cannot start: %s", reason)
            self._code = UNFIT
            self._requests += 1
            self._stopping.set()
            self._kill_all()
        elif reason is not None:
            log.error("engine cannot start pid=%d: %s", pid, reason)
        else:
            log.error("engine died pid=%d: it %s; another takes its place", pid, how)

    async def _bury(self, control: Control, death: Death) -> None:
        outage = Outage("burial", self._rng)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            try:
                await self._heed(control, death)
                await self._write_kept(control, death)
                buried = await bury(control, death)
            except Exception as error:  # noqa: BLE001 - its jobs are in nobody's hands until this is done
                wait_s = outage.failed(error)
            else:
                outage.over()
                level = logging.INFO if buried.total else logging.DEBUG
                log.log(level, "engine buried session=%s jobs: %s", death.session, buried)
                return
            if self._stopping.is_set() and loop.time() - begun > min(control.settings.lease_s, _LAST_BURIAL_S):
                log.warning(
                    "engine not buried session=%s; other workers find its jobs when the store is back", death.session
                )
                return
            await asyncio.sleep(wait_s)

    async def _heed(self, control: Control, death: Death) -> None:
        """It may have been asked to drain since its last beat: that is forgotten with its session."""
        for session in await control.store.sessions():
            if session.id == death.session and session.is_draining:
                self.drain(session.draining_by)

    async def _write_kept(self, control: Control, death: Death) -> None:
        """What an engine kept because the store was away counts, before its jobs are taken for given up."""
        async for written in write_kept(control.store, kept(control.store.url, session=death.session)):
            log.info("kept ending written job_id=%s outcome=%s", written.job_id, written.outcome)

    def _see_off(self, member: EngineRecord) -> None:
        """It takes no more jobs; it has its grace to go."""
        member.leaving.set()
        own_s = member.greeting.settings.grace_s if member.greeting is not None else 0.0
        asyncio.get_running_loop().call_later(
            max(self._orders.grace_s, own_s) + _BEYOND_GRACE_S,
            lambda: member.kill(wish="its engine was replaced, and it did not end within the grace"),
        )

    async def _roll(self) -> None:
        log.info("restarting engines one by one engines=%d", len(self._posts))
        for post in self._posts:
            try:
                successor = self._enlist()
            except OSError as error:
                log.error("restart given up: %s; the engines that are there go on", error)
                return
            await first(successor.process.ended, successor.going.wait())
            if not successor.going.is_set() or self._stopping.is_set():
                log.error("restart given up pid=%d; the engines that are there go on", successor.process.pid)
                return
            old, post.member = post.member, successor
            if old is not None:
                self._see_off(old)
                old.drain(self._orders.grace_s)
        log.info("restarted engines=%d", len(self._posts))

    # stopping -----------------------------------------------------------------------------------

    def _begin_to_stop(self) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            self._start(self._tell_what_runs())
        self._drain(self._orders.grace_s)

    def _drain(self, grace_s: float) -> None:
        for member in self._crew:
            member.drain(grace_s)
        if self._killing is not None:
            self._killing.cancel()
        self._killing = asyncio.get_running_loop().call_later(grace_s + _BEYOND_GRACE_S, self._kill_all)

    def _kill_all(self) -> None:
        for member in self._crew:
            if not member.dead:
                if self._code == STOPPED:
                    log.warning("killed pid=%d; its jobs are given back", member.process.pid)
                    self._code = FORCED
                member.kill(wish=_STOPPED)

    async def _tell_what_runs(self) -> None:
        told: set[str] = set()
        while self._crew:
            running = {entry.job_id for member in self._crew for entry in member.running()}
            if running and running != told:
                log.info("waiting for jobs=%d: %s", len(running), " ".join(sorted(running)[:5]))
            told = running
            await asyncio.sleep(1.0)

    async def _clear_up(self) -> None:
        if self._killing is not None:
            self._killing.cancel()
        members = list(self._crew)
        for member in members:
            member.kill(wish=_STOPPED)
        tasks = [*self._tasks, *([self._opening] if self._opening is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for member in members:
            await member.process.ended
        if self._control is not None:
            await self._control.store.close()

    # tasks --------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # a mistake of ours; to go on with a part missing would be worse than to stop, loudly
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
            except (RuntimeError, ValueError):  # not on the main thread: whoever runs us there calls `stop`
                break
            set_up.append(number)
        try:
            yield
        finally:
            for number in set_up:
                loop.remove_signal_handler(number)


class _Post:
    """A place that one engine takes."""

    def __init__(self) -> None:
        self.member: EngineRecord | None = None

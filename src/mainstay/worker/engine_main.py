"""The engine's process: `python -m mainstay.worker.engine_main CONFIG`, spawned by a supervisor.

Loads the program, opens a session (which takes the lock that shows it lives), sends `Hello`, and works until it is
asked to drain. It dies with its supervisor, which sends its heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from ..control import Control
from ..errors import InvalidInput, MainstayError, StoreError, StoreLocked, StoreUnavailable
from ..event_loop import new_event_loop
from ..model import Session, is_reserved
from ..parent import die_with_parent
from ..stores import AnyChange
from . import logs, processors
from .async_waits import first, within
from .engine import Engine, EngineProcess
from .exits import leave_at_once
from .host_process import HostProcess, LinkWriter, OsHostProcess
from .leads import Leads
from .messages import (
    CoresElsewhere,
    CoresHeld,
    Drain,
    EngineConfig,
    FromEngine,
    Hello,
    Isolate,
    Retiring,
    StartClaiming,
    ToEngine,
    Unfit,
    line,
)
from .node_cores import NodeCores
from .outage import Outage
from .outbox import keep
from .output_capture import capture_output
from .program import Program, load_for, offer_of, placed_offer_of
from .spawn import leave_stopping_to_the_supervisor

log = logging.getLogger("mainstay.worker")

#: the loop and the store's writer thread share the interpreter; at the default of 5 ms each waits long for the other
SWITCH_S = 0.0005

_decode = msgspec.json.Decoder(ToEngine).decode


class EngineHost:
    """One engine and its link to the supervisor. `process` is where it runs; by default the process that `spawn`
    started with this configuration."""

    def __init__(
        self,
        config: EngineConfig,
        program: Program,
        *,
        process: HostProcess | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._config = config
        self._options = config.options
        self._program = program
        self._process = process or OsHostProcess(config)
        self._rng = rng or random.Random()
        self._writer: LinkWriter
        self._go = asyncio.Event()
        self._stop: Callable[[Engine], None] | None = None
        """how to stop the engine, once that was requested"""
        self._drained = asyncio.Event()
        self._engine: Engine | None = None
        self._control: Control
        self._cores = NodeCores(config.options.cores, on_change=lambda cores: self._send(CoresHeld(cores)))
        self._leads: Leads | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def run(self) -> int:
        """Work until asked to stop; the exit code."""
        reader, self._writer = await self._process.connect()
        listening = asyncio.create_task(self._listen(reader), name="mainstay link")
        try:
            async with self._program.lifespan():
                await self._work()
        finally:
            for task in (listening, *self._tasks):
                task.cancel()
            self._writer.close()
            await self._program.close()
        return 0

    async def _work(self) -> None:
        self._check_offer()
        control = self._control = await self._opened()
        session = await self._open_session()
        children = self._process.children(
            self._options,
            most=control.settings.children or children_at_most(self._concurrency, processors=processors.available()),
        )
        engine = self._engine = Engine(
            self._program,
            control,
            session,
            queues=() if self._config.node else self._queues,
            concurrency=self._concurrency,
            process=EngineProcess(
                recorder=self._process.recorder(),
                children=children,
                solo_turn=self._process.solo_turn(),
                open_session=self._open_session,
                on_retire=self._retire,
                cores=self._cores,
                keep=self._keep,
            ),
            rng=self._rng,
        )
        await first(self._go.wait(), self._drained.wait())
        leads = self._leads = Leads(self._program, control)
        try:
            if self._stop is None:
                engine.start()
                await leads.start(engine.session)
            else:
                self._stop(engine)
            await engine.stopped.wait()
        finally:
            # the supervisor closes the session when this process has ended
            await leads.stop()
        if engine.left_behind:
            # a thread that did not stop would keep the interpreter from exiting
            log.warning("exits with jobs that would not stop n=%d", engine.left_behind)
            await self._process.leave()

    def _check_offer(self) -> None:
        """A worker without tasks would look healthy while every job of its queues waits."""
        if reserved := [queue for queue in self._options.queues if is_reserved(queue)]:
            raise self._unfit("queues", f"{reserved[0]!r} is reserved, and no worker claims from it; name other queues")
        if self._config.node:
            offer = placed_offer_of(self._program)
            if offer is not None and not offer.tasks:
                log.warning("%s has no node jobs: node %s runs none", self._options.target, self._options.node)
            return
        offer = offer_of(self._program, self._queues)
        if offer is not None and not offer.tasks:
            raise self._unfit("app", f"{self._options.target} {self._without_tasks()}")

    def _unfit(self, field: str, rule: str) -> InvalidInput:
        """The error, which the supervisor has received."""
        error = InvalidInput(field, rule)
        self._send(Unfit(str(error)))
        return error

    def _without_tasks(self) -> str:
        """What is wrong with a program that this worker could run nothing of."""
        placed = placed_offer_of(self._program)
        if placed is not None and placed.tasks:
            return "has only node jobs, which run on nodes: name this one (--node NAME)"
        return (
            "has no tasks, studies or load tests, so this worker could run nothing: name the module that imports them "
            "(mainstay worker package.main:app), or import them where the app is made"
        )

    async def _opened(self) -> Control:
        """Open the store as soon as it can be reached."""
        outage = Outage("open", self._rng)
        while True:
            try:
                control = await self._program.open()
                await self._program.prepare(control)
            except (StoreLocked, StoreUnavailable) as error:
                await asyncio.sleep(outage.failed(error))
            except MainstayError as error:
                self._send(Unfit(str(error)))  # the link is closed when `main` gets it
                raise
            else:
                outage.over()
                return control

    async def _open_session(self) -> Session:
        """Open a session as soon as the store can be reached. A drain ends the tries: nothing will be claimed."""
        outage = Outage("session", self._rng)
        while True:
            try:
                session = await self._control.claims.open_session(
                    worker=self._options.name,
                    host=self._process.host,
                    pid=self._process.pid,
                    supervisor=self._config.supervisor_pid,
                    **self._session_options(),
                )
            except StoreError as error:
                if self._drained.is_set():
                    raise
                await within(self._drained.wait(), outage.failed(error))
            else:
                outage.over()
                hello = Hello(
                    session=session.id,
                    store_url=self._program.store_url,
                    settings=self._control.settings,
                    queues=self._queues if self._claims_jobs else (),
                )
                self._send(hello)
                if self._leads is not None and not self._drained.is_set():
                    # the session before was lost, and its leads with it
                    self._start_task(self._leads.start(session))
                return session

    def _session_options(self) -> dict[str, Any]:
        if not self._config.node:
            return {"offer": offer_of(self._program, self._queues)}
        return {
            "offer": placed_offer_of(self._program, cores=self._options.cores),
            "node": self._options.node,
            "labels": self._options.labels,
        }

    @property
    def _claims_jobs(self) -> bool:
        """Whether the program has jobs that engines claim from queues, as far as it says."""
        offer = offer_of(self._program, self._queues)
        return offer is None or bool(offer.tasks)

    @property
    def _queues(self) -> tuple[str, ...]:
        return self._options.queues or tuple(self._program.queues) or ("default",)

    @property
    def _concurrency(self) -> int:
        return self._options.concurrency or self._program.settings.concurrency

    @property
    def _grace_s(self) -> float:
        return self._program.settings.grace_s

    def _keep(self, changes: Sequence[AnyChange]) -> None:
        assert self._engine is not None
        store = self._control.store
        path = keep(
            changes,
            store_url=store.url,
            session=self._engine.session.id,
            at_ms=store.clock.now_ms(),
            state=self._process.state,
        )
        log.warning("store away n=%d ends of jobs kept in %s; when it is back: mainstay jobs sync", len(changes), path)

    def _retire(self, reason: str) -> None:
        self._send(Retiring(reason))
        self._drain(self._grace_s)

    def _send(self, message: FromEngine) -> None:
        self._writer.write(line(message))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Receive messages; longer work is done in tasks, so that a drain is always received."""
        try:
            while text := await reader.readline():
                self._receive(text)
        except Exception:
            log.exception("engine lost the link to its supervisor, draining")
            self._drain(self._grace_s)
        else:
            # the supervisor has ended: nothing sends our heartbeats
            self._end(Engine.abandon)

    def _receive(self, text: bytes) -> None:
        try:
            message = _decode(text)
        except msgspec.MsgspecError as error:
            log.warning("unknown message from the supervisor: %s", error)
            return
        if isinstance(message, StartClaiming):
            self._go.set()
        elif isinstance(message, Drain):
            self._drain(message.grace_s)
        elif isinstance(message, Isolate):
            grace_s = message.grace_s
            self._end(lambda engine: engine.isolate(grace_s))
        elif isinstance(message, CoresElsewhere):
            self._cores.elsewhere = message.cores
            if self._engine is not None:
                self._engine.cores_elsewhere(message.cores)
        elif self._engine is not None:
            pulsed = self._engine.pulsed(
                message.session, known=message.known, cancelling=message.cancelling, assigned=message.assigned
            )
            self._start_task(pulsed)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None and not self._drained.is_set():
            log.error("a message of the supervisor could not be handled; waiting for the next one", exc_info=error)

    def _drain(self, grace_s: float) -> None:
        self._end(lambda engine: engine.drain(grace_s))

    def _end(self, stop: Callable[[Engine], None]) -> None:
        self._stop = stop
        self._drained.set()
        if self._leads is not None:
            self._start_task(self._leads.resign_placement())
        if self._engine is not None and self._go.is_set():
            stop(self._engine)


def children_at_most(concurrency: int, *, processors: int) -> int:
    """How many child processes an engine has: more than one per processor would only slow each other down. At least
    two, so that one long job does not keep a suspect waiting."""
    return min(concurrency, max(2, processors))


def main() -> int:
    """Run the engine process to its end; the exit code."""
    leave_stopping_to_the_supervisor()
    config = msgspec.json.decode(sys.argv[1], type=EngineConfig)
    die_with_parent(config.supervisor_pid)
    capture_output(config.options.output, echo=config.options.echo)
    logs.configure(config.options.log_level, as_json=config.options.json_logs)
    sys.setswitchinterval(SWITCH_S)
    try:
        program = load_for(config.options)
    except Exception as error:
        # our errors say it all in a line, which the supervisor shows; an error with a cause needs its traceback
        if not isinstance(error, MainstayError) or error.__cause__ is not None:
            log.exception("cannot load %s", config.options.target)
        _send_unfit(config, error)
        return 2
    try:
        return run(EngineHost(config, program))
    except MainstayError as error:
        _send_unfit(config, error)
        return 2


def _send_unfit(config: EngineConfig, error: Exception) -> None:
    text = line(Unfit(str(error) if isinstance(error, MainstayError) else f"{type(error).__name__}: {error}"))
    with contextlib.suppress(OSError):
        os.write(config.link_fd, text)


def run(host: EngineHost) -> int:
    """Run on the fastest loop that is installed."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            return runner.run(host.run())
        except (SystemExit, KeyboardInterrupt) as error:
            leave_at_once(error)


if __name__ == "__main__":
    sys.exit(main())

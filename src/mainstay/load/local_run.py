"""Run a load test in this process, as a job: submitted, claimed, run and settled like any other.

The command that waits for the run is also its worker, so that it can show every window of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..app import App
from ..control import Control
from ..errors import InvalidInput, MainstayError
from ..model import Job, Session, private_queue
from ..worker import Engine, EngineProcess, Outage, offer_of, state_folder
from .generator_process import LineHandler
from .handler import ForegroundRun, LoadWork, summary_of
from .outputs import Output
from .planned_run import PlannedRun
from .sources import LoadTest
from .stats.model import Summary
from .stream import remade

log = logging.getLogger("mainstay.load")

#: in the working folder: the store and the recorded streams of runs without `--store`
FOLDER = ".mainstay"
STORE = f"sqlite:///{FOLDER}/load.db"
#: how long a run that is left waits for the store
_CANCEL_S = 2.0


class FinishedRun(NamedTuple):
    """A run that is over."""

    job: Job
    summary: Summary


def app_of(test: LoadTest, store: str | None = None) -> App:
    """An app with this load test only."""
    if store is None:
        _folder_here()
    app = App(store or STORE)
    app.load(test)
    app.loads.folder = _streams
    return app


def _streams() -> Path:
    """The folder for recordings: here, or where workers record if this folder cannot be written to."""
    try:
        return _folder_here("load")
    except InvalidInput:
        return state_folder("load")


def _folder_here(part: str = "") -> Path:
    why = "not writable"
    try:
        folder = Path(FOLDER, part).absolute()
        # private: recordings may contain responses of the target
        Path(FOLDER).mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    except OSError as error:
        why = error.strerror or str(error)
    rule = f"without a store, runs are kept in {FOLDER} in this folder, which cannot be used ({why})"
    advice = "name a store, like --store sqlite:////tmp/load.db, or change to a folder that you can write to"
    raise InvalidInput("store", f"{rule}; {advice}")


async def run_here(
    planned: PlannedRun,
    *,
    store: str | None = None,
    outputs: Sequence[Output] = (),
    stop: asyncio.Event | None = None,
    give_up: asyncio.Event | None = None,
    on_submitted: Callable[[str], None] | None = None,
    on_left: Callable[[Summary], None] | None = None,
    on_line: LineHandler | None = None,
) -> FinishedRun:
    """Submit a run and run it to its end. Raises `InvalidInput` if it cannot be started; otherwise its summary says how
    it ended.

    Setting `stop` ends it early, in good order, and so does a drain of this process through the store. Setting
    `give_up` after that ends it at once. Cancelling this call skips the teardowns; `on_left` takes the summary then.
    `on_line` takes the lines that steps print."""
    test, stop = planned.test, stop or asyncio.Event()
    foreground = ForegroundRun(
        planned=planned, outputs=outputs, stop=stop, give_up=give_up or asyncio.Event(), on_line=on_line
    )
    app = app_of(test, store)
    work = app.work("load", test.name)
    assert isinstance(work, LoadWork)
    work.foreground = foreground
    # no other worker must take the job: it waits in a queue whose name only this process knows
    queue = private_queue(secrets.token_hex(8))
    async with app:
        # a run that was killed here before is settled now: this store may never have another worker
        await app.control.sweeper.sweep()
        handle = await app.loads.submit(planned, {"queue": queue})
        if on_submitted is not None:
            on_submitted(handle.id)
        with _quiet():
            try:
                async with _engine(app, queue, stop):
                    job = await app.control.jobs.wait(handle.id)
            except asyncio.CancelledError:
                left = await _cancelled(app, handle.id)
                if on_left is not None and left is not None:
                    on_left(left)
                raise
    if foreground.refusal is not None:
        raise foreground.refusal
    summary = _stored_summary(app, job)
    if summary is not None:
        return FinishedRun(job, summary)
    why = job.error.message if job.error is not None else job.reason
    raise MainstayError(f"load test {test.name} (job {job.id}) is {job.status}: {why or 'no reason was recorded'}")


async def _cancelled(app: App, job_id: str) -> Summary | None:
    """Cancel a job that was left. Its worker gave it back to a queue that no other worker listens on, where it would
    wait forever. If the store cannot be reached in time, it stays there."""
    with contextlib.suppress(MainstayError, TimeoutError):
        async with asyncio.timeout(_CANCEL_S):
            await app.control.operations.cancel(job_id, actor="client", reason="given up")
            return _stored_summary(app, await app.control.jobs.get(job_id))
    return None


def _stored_summary(app: App, job: Job) -> Summary | None:
    """The summary of a job that has just been run here, with the curves that a job has no room for."""
    summary = summary_of(job, app.client.sealer)
    if summary is None or any(point.by_step for point in summary.points) or not Path(summary.stream).is_file():
        return summary
    recorded = remade(summary.stream)
    return msgspec.structs.replace(
        summary,
        points=recorded.points,
        distribution=recorded.distribution,
        response_distribution=recorded.response_distribution,
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the worker from logging how the job ended: the caller reports it."""
    log = logging.getLogger("mainstay.job")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


@contextlib.asynccontextmanager
async def _engine(app: App, queue: str, stop: asyncio.Event) -> AsyncIterator[None]:
    """A worker with one engine, in this process. It has one job, so a drain stops that job."""
    control = app.control

    async def open_session() -> Session:
        return await control.claims.open_session(worker="load", pid=os.getpid(), offer=offer_of(app, [queue]))

    async with app.lifespan():
        session = await open_session()
        process = EngineProcess(open_session=open_session)
        engine = Engine(app, control, session, queues=[queue], concurrency=1, process=process, rng=app.client.rng)
        engine.start()
        heartbeat = asyncio.create_task(_beat(control, engine, stop, app.client.rng), name="mainstay heartbeat")
        try:
            yield
        finally:
            engine.drain(0)
            await engine.stopped.wait()
            heartbeat.cancel()
            await asyncio.wait([heartbeat])
            await control.claims.close_session(engine.session.id)


async def _beat(control: Control, engine: Engine, stop: asyncio.Event, rng: random.Random | None) -> None:
    every_s = control.settings.heartbeat_s
    outage = Outage("heartbeat", rng or random.Random(), longest_s=every_s)
    while True:
        wait_s = every_s
        try:
            for pulse in await control.claims.beat([engine.session.id]):
                await engine.pulsed(pulse.session, known=pulse.known, cancelling=pulse.cancelling)
                if pulse.draining_by is not None and not stop.is_set():
                    log.warning("asked to drain by=%s; the run ends early", pulse.draining_by)
                    stop.set()
            outage.over()
        except Exception as error:  # noqa: BLE001 - the run goes on, and needs its heartbeats
            wait_s = outage.failed(error)
        await asyncio.sleep(wait_s)

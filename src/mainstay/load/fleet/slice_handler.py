"""The handler of slices on a node (`mainstay.worker.Work`): it serves the leader of a run until it is released.

It supervises generator processes and runs no user code. Whatever ends it, no generator is left when it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ...bundles import BundleClient, MachineBundles, code_environment
from ...bus import Bus
from ...clock import Clock
from ...control import Control, Decide
from ...errors import BadArguments, MainstayError, PayloadTooLarge, StaleClaim, StoreError
from ...stores import JobStore
from ...stores.remote import ManagerConnection, RemoteCaller, manager_connection
from ...task import AppClient
from ...worker import NODE_STORE, Context, GiveBack, LetGo, Mode, Outage, WorkerOptions, context, state_folder
from ..generator_process import Limits, LineHandler
from ..generators import Generators
from ..run_spec import RunOrder
from ..runner import LoadRunner, MakeSliceRunner
from ..sources import relocated
from ..stats.model import Window
from .messages import SliceEnd, encode
from .settings import FleetSettings
from .slice_code import bundle_in_use, check_modules
from .slice_service import SliceOutcome, SliceService
from .spec import SliceCall

log = logging.getLogger("mainstay.load")

#: after a request to stop: when generators are killed, and when a service that does not end is left
_KILL_S, _LEAVE_S = 1.0, 1.5
_LONGEST_REASON = 1000


class SliceLost(MainstayError):
    """The leader has given this assignment of a slice up: the slice has to run again."""

    code = "slice_lost"
    retryable = True


class SliceDone(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a slice. What it measured is in its checkpoint, and in the result of the run."""

    node: str
    gos: int
    """how many times it was under load"""


class SliceHandler:
    """Runs the slices of a node, several at once while there are cores."""

    mode: Mode = "loop"
    is_async = True
    decide: Decide | None = None
    supervises = True

    def __init__(self, client: AppClient, worker: Callable[[], WorkerOptions | None]) -> None:
        self._client = client
        self._worker = worker
        self._rng = client.rng or random.Random()
        self._bundles: MachineBundles | None = None
        self._serving: set[str] = set()
        self.runner: Callable[[Path | None], MakeSliceRunner] = generators_of
        """makes what makes the generators of a slice, whose code is in this folder; a simulation sets another"""
        self.settings = FleetSettings()

    def unpack(self, payload: bytes) -> SliceCall:
        try:
            return msgspec.msgpack.decode(payload, type=SliceCall)
        except msgspec.DecodeError as error:
            raise BadArguments("payload", f"is not one of a slice: {error}") from None

    def pack(self, result: SliceDone) -> msgspec.Raw:
        return msgspec.Raw(msgspec.msgpack.encode(result))

    async def call(self, call: SliceCall) -> SliceDone:
        """Serve the leader of the run. Raises `GiveBack` if the slice cannot run here, and `SliceLost` if it has to run
        again."""
        here, control = context(), await self._client.open()
        bus, caller = _connection(control.store)
        with self._served(here.id):
            here.link.take_cores(call.cores)
            async with self._code(call, bus, caller) as folder:
                slice_run = SliceRun(here, control, self.runner(folder), rng=self._rng)
                service = SliceService(
                    bus,
                    slice_run.make,
                    job=call.job,
                    number=call.number,
                    node=caller.name,
                    token=here.job.token,
                    settings=self.settings,
                    on_start=slice_run.mark_start,
                    on_end=slice_run.keep_end,
                )
                outcome = await slice_run.serve(service)
        if outcome.lost and not slice_run.started:
            raise GiveBack(outcome.lost[:_LONGEST_REASON])
        if outcome.lost:
            raise SliceLost(outcome.lost)
        return SliceDone(node=caller.name, gos=slice_run.gos)

    @contextlib.contextmanager
    def _served(self, slice_id: str) -> Iterator[None]:
        if slice_id in self._serving:
            # two services would answer the leader
            raise GiveBack("an earlier assignment of it has not ended on this node yet")
        self._serving.add(slice_id)
        try:
            yield
        finally:
            self._serving.remove(slice_id)

    @contextlib.asynccontextmanager
    async def _code(self, call: SliceCall, bus: Bus, caller: RemoteCaller) -> AsyncIterator[Path | None]:
        """Where the code of a slice is; None: it is installed."""
        if not call.code:
            await check_modules(call.modules)
            yield None
            return
        if self._bundles is None:
            self._bundles = _machine_bundles(bus, caller, self._worker(), self._client.clock, self._rng)
        async with bundle_in_use(self._bundles, call.code, within_s=self.settings.ready_s, rng=self._rng) as folder:
            yield folder


class SliceRun:
    """One assignment of a slice: its generators, and what the store has to know of it."""

    def __init__(self, here: Context, control: Control, make: MakeSliceRunner, *, rng: random.Random) -> None:
        self.started = False
        """it was under load"""
        self.gos = 0
        """how many times it was, to the end"""
        self._here = here
        self._control = control
        self._make = make
        self._rng = rng
        self._runners: list[LoadRunner] = []
        self._end: SliceEnd | None = None
        """that is not stored yet"""
        self._storing: dict[asyncio.Task[None], None] = {}
        self._saving: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        """the store has given the claim to another session"""

    def make(
        self,
        processes: int,
        on_window: Callable[[Window], None],
        *,
        on_line: LineHandler = lambda _, __: None,
        limits: Limits | None = None,
        first: int = 0,
        of: int | None = None,
        until: Callable[[], float] | None = None,
    ) -> LoadRunner:
        """Make the generators, which do not outlive `serve`."""
        runner = self._make(processes, on_window, on_line=on_line, limits=limits, first=first, of=of, until=until)
        self._runners.append(runner)
        return runner

    async def serve(self, service: SliceService) -> SliceOutcome:
        """Run the service to its end. If this is cancelled, or the claim is lost, the generators end within seconds."""
        serving = asyncio.ensure_future(service.run())
        losing = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait({serving, losing}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                raise LetGo("the claim of the slice was lost")
            outcome = await serving
            await self._all_stored()
            return outcome
        finally:
            losing.cancel()
            await self._stop(serving)
            for task in self._storing:
                task.cancel()

    async def _stop(self, serving: asyncio.Future[SliceOutcome]) -> None:
        if serving.done():
            return
        killing = asyncio.get_running_loop().call_later(_KILL_S, self._kill)
        try:
            serving.cancel()
            await asyncio.wait([serving], timeout=_LEAVE_S)
        finally:
            killing.cancel()
            if not serving.done():
                log.error("the service of a slice does not end job_id=%s; its generators are killed", self._here.id)
                self._kill()

    def _kill(self) -> None:
        for runner in self._runners:
            try:
                runner.kill()
            except Exception:
                log.exception("generators could not be killed job_id=%s", self._here.id)

    # what the store has to know ---------------------------------------------------------------------

    async def mark_start(self) -> None:
        """Load begins: from here on the store counts a loss as one of load."""
        self.started = True
        self._store(self._mark_start())

    async def keep_end(self, end: SliceEnd) -> None:
        """A go has ended: what it measured is stored with the slice, until the next go."""
        self.gos += 1
        self._end = end
        if self._saving is None or self._saving.done():
            self._saving = self._store(self._save_ends())

    def _store(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._storing[task] = None
        task.add_done_callback(self._stored)
        return task

    def _stored(self, task: asyncio.Task[None]) -> None:
        self._storing.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("what a slice did was not stored job_id=%s", self._here.id, exc_info=error)

    async def _all_stored(self) -> None:
        """Wait until the store has all of it: the end of a slice is not reported before what it measured."""
        while self._storing and not self._lost.is_set():
            await asyncio.wait([*self._storing])

    async def _mark_start(self) -> None:
        outage = Outage(f"start of a slice job_id={self._here.id}", self._rng)
        while True:
            try:
                [known] = await self._control.claims.start([self._here.job])
            except StoreError as error:
                await asyncio.sleep(outage.failed(error))
                continue
            outage.over()
            if not known:
                self._lost.set()
            return

    async def _save_ends(self) -> None:
        while (end := self._end) is not None:
            self._end = None
            try:
                await self._save(end)
            except StaleClaim:
                self._lost.set()

    async def _save(self, end: SliceEnd) -> None:
        # not packed by the app: the leader has no codec of it
        try:
            await self._here.link.save(encode(end))
        except PayloadTooLarge as error:
            log.warning("the end of a slice is stored without its sums job_id=%s: %s", self._here.id, error)
            await self._here.link.save(encode(msgspec.structs.replace(end, total=None)))


def _connection(store: JobStore) -> ManagerConnection:
    """The bus of this engine, and who it is there."""
    connection = manager_connection(store)
    if connection is None:
        raise GiveBack("this worker has not joined a cluster, so no leader can reach it; start it with node join")
    return connection


def _machine_bundles(
    bus: Bus, caller: RemoteCaller, worker: WorkerOptions | None, clock: Clock | None, rng: random.Random
) -> MachineBundles:
    options = worker or WorkerOptions(target="", name=caller.name)
    client = BundleClient(bus, **msgspec.structs.asdict(caller), rng=rng)
    folder = Path(options.cache) if options.cache else state_folder("bundles")
    return MachineBundles(folder, client, most_bytes=options.cache_bytes, oldest_s=options.cache_age_s, clock=clock)


def generators_of(folder: Path | None) -> MakeSliceRunner:
    """What makes generator processes whose code is in this folder; None: it is installed."""
    # the code of a test has no business with the managers
    environment = {NODE_STORE: "", **({} if folder is None else code_environment(str(folder)))}

    def make(
        processes: int,
        on_window: Callable[[Window], None],
        *,
        on_line: LineHandler = lambda _, __: None,
        limits: Limits | None = None,
        first: int = 0,
        of: int | None = None,
        until: Callable[[], float] | None = None,
    ) -> LoadRunner:
        return _NodeGenerators(
            processes,
            on_window,
            on_line=on_line,
            limits=limits,
            first=first,
            of=of,
            environment=environment,
            folder="" if folder is None else str(folder),
            until=until,
        )

    return make


class _NodeGenerators(Generators):
    """Generators whose test is in the bundle of its run, or installed on this node."""

    async def prepare(self, order: RunOrder) -> None:
        await super().prepare(msgspec.structs.replace(order, source=relocated(order.source, self._folder)))


__all__ = ["SliceDone", "SliceHandler", "SliceLost", "generators_of"]

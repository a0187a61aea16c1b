"""The handler of load tests on nodes: a manager leads the run, from its job and the rows of its slices.

All that a successor needs is stored before it is acted on. So a manager that stops, or dies, only leaves the run: its
slices run on, and the manager that claims the job next leads them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ...errors import (
    BadArguments,
    BusError,
    InvalidInput,
    MainstayError,
    PayloadTooLarge,
    SchemaTooNew,
    StaleClaim,
)
from ...model import Job
from ...stores import Query
from ...worker import (
    CANCELLED,
    OVERRAN,
    PASSING,
    STALLED,
    Context,
    GiveBack,
    LeadHost,
    LetGo,
    Mode,
    context,
)
from ..generator_process import GeneratorLost
from ..handler import SAVE_S, LoadFailed, raise_unless_passed, save_checkpoint, stored
from ..plan import SCHEMA
from ..run import LoadRun
from ..runner import RestartNeeded
from ..stats.model import Header, Summary, Window
from ..stream import StreamOutput
from .fleet_runner import FleetRunner
from .live import BusOutput
from .record import FleetRecord
from .run_time import RunTime
from .saved_run import SavedRun, StoredSlice, ended_round, next_step, saved_run_of, stored_slices
from .settings import RELEASE_S, FleetSettings
from .spec import FleetOptions
from .stored_assignments import StoredAssignments

log = logging.getLogger("mainstay.load")

T = TypeVar("T")

#: how often a run is started again after the loss of a slice, with `on_loss="restart"`
_MOST_RESTARTS = 3
#: before a job is given back because the store or the bus does not answer: the next claim may meet the same
_PAUSE_S = 1.0
_LONGEST_REASON = 1000
_PAGE = 500
#: how a run has ended that had no time left
_OVERRAN = f"cancelled: {OVERRAN}"
#: what ends the run; anything else that stops a leader leaves it to another one
_ENDS = (CANCELLED, OVERRAN, STALLED)


class FleetWork:
    """Leads the load tests on nodes of one cluster (`mainstay.worker.Work`)."""

    mode: Mode = "loop"
    is_async = True
    decide = None
    #: it runs no user code, and the loss of managers says nothing about a run
    supervises = True
    #: from the start of the first load, whichever managers lead the run
    keeps_time = True

    def __init__(self, host: LeadHost) -> None:
        self._host = host
        self.settings = FleetSettings()
        self.record: Callable[..., StreamOutput] = StreamOutput
        """makes the output that records a run into a file; a simulation sets one without a thread"""

    def unpack(self, payload: bytes) -> FleetOptions:
        return fleet_options_of(payload)

    def pack(self, result: Summary) -> msgspec.Raw:
        return msgspec.Raw(stored(result))

    async def call(self, options: FleetOptions) -> Summary:
        """Lead the run of a job to its end, and return its summary. Raises `LoadFailed` as on one machine, and
        `GiveBack` if this manager cannot lead it now: the slices run on, and the manager that claims the job next leads
        them."""
        try:
            return await _Lead(self, self._host, context(), options).run()
        except (BusError, *PASSING) as error:
            await asyncio.sleep(_PAUSE_S)
            raise GiveBack(f"its manager could not lead it: {error}"[:_LONGEST_REASON]) from error


def fleet_options_of(payload: bytes) -> FleetOptions:
    """Decode the payload of a job."""
    try:
        schema = msgspec.msgpack.decode(payload, type=_Head).schema
        if schema <= SCHEMA:
            return msgspec.msgpack.decode(payload, type=FleetOptions)
    except msgspec.DecodeError as error:
        raise BadArguments("payload", f"the options of the load test cannot be read: {error}") from None
    raise SchemaTooNew(
        f"the load test was submitted by a newer Mainstay (schema {schema} of load tests); upgrade the managers"
    )


class _Head(msgspec.Struct):
    schema: int = SCHEMA


class _Recording:
    """Records at the leader, in a place that the user has not chosen. So the run goes on if it cannot be written, and
    its summary says so: a successor may find a full disk while there is load."""

    def __init__(self, stream: StreamOutput) -> None:
        self.name = stream.name
        self.add = stream.add
        self.stop = stream.stop
        self._stream = stream

    async def start(self, header: Header) -> None:
        try:
            await self._stream.start(header)
        except InvalidInput as error:
            raise MainstayError(str(error)) from error


class _Lead:
    """One claim of a job by a manager."""

    def __init__(self, work: FleetWork, host: LeadHost, here: Context, options: FleetOptions) -> None:
        self._work = work
        self._host = host
        self._control = host.control
        self._here = here
        self._options = options
        self._fleet: FleetRunner | None = None
        self._saved: SavedRun
        self._time: RunTime
        self._stop_first = False
        """it was stopped before it led; a leader before this one may have begun the load"""

    async def run(self) -> Summary:
        job = self._here.job
        saved = saved_run_of(job)
        may_have_load = saved is not None and bool(saved.fleet.gos)
        slices = stored_slices(await self._through_stop(self._units(job), may_have_load=may_have_load))
        step = next_step(saved, slices, ended=ended_round(job))
        if step == "place":
            if self._stop_first:
                raise asyncio.CancelledError
            await self._await_cores()
        if step == "end":
            assert saved is not None
            self._take(saved)
            return self._ended(msgspec.msgpack.decode(saved.summary, type=Summary))
        if may_have_load:
            await self._through_stop(self._start(), may_have_load=True)
        newest = slices[0].call.round
        if saved is None or saved.fleet.round != newest:
            saved = SavedRun(
                summary=msgspec.Raw(b"\xc0") if saved is None else saved.summary,
                fleet=FleetRecord(round=newest),
                failures=job.failures,
                restarts=0 if saved is None else saved.restarts,
            )
        self._take(saved)
        return self._ended(await self._led(slices))

    def _take(self, saved: SavedRun) -> None:
        clock = self._control.store.clock
        self._saved = saved
        self._time = RunTime(self._here, clock, began_ms=saved.began_ms, extra_s=saved.extra_s)

    async def _start(self) -> None:
        """Store that there is load, or is about to be: the store counts its run timeout from here on, too."""
        if not (await self._control.claims.start([self._here.job]))[0]:
            raise LetGo("its claim was lost")

    async def _through_stop(self, work: Coroutine[Any, Any, T], *, may_have_load: bool) -> T:
        """The result of something short. If the job is stopped meanwhile and may have load, it is led nevertheless:
        what was measured has to be counted."""
        working: asyncio.Task[T] = asyncio.ensure_future(work)
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError:
            if not may_have_load or self._here.stopping not in _ENDS:
                working.cancel()
                await asyncio.wait([working])
                raise
            self._stop_first = True
            await asyncio.wait([working])
        return working.result()

    # the run ----------------------------------------------------------------------------------------

    async def _led(self, slices: list[StoredSlice]) -> Summary:
        job = self._here.job
        async with StoredAssignments(self._control, slices, actor=job.session or "", rng=self._host.rng) as assignments:
            stream = self._work.record(self._host.folder() / f"{job.id}-{job.token}.ndjson.zst")
            cores = [each.call.cores for each in slices]

            def make(processes: int, on_window: Callable[[Window], None], **given: Any) -> FleetRunner:
                self._fleet = FleetRunner(
                    processes,
                    on_window,
                    **given,
                    bus=self._host.bus,
                    data_bus=self._host.data_bus,
                    admission=self._host.admission,
                    job=job.id,
                    slices=cores,
                    assignments=assignments,
                    epoch=job.token,
                    record=self._saved.fleet,
                    save=self._save_record,
                    on_loss=self._options.on_loss,
                    releases_at_exit=False,
                    settings=self._work.settings,
                    clock=self._control.store.clock,
                )
                return self._fleet

            spec, live = self._options.spec, BusOutput(self._host.data_bus, job.id, epoch=job.token)
            recording = _Recording(stream)
            run = LoadRun(
                replace(spec, processes=sum(cores), header=replace(spec.header, processes=sum(cores))),
                job.id,
                token=job.token,
                clock=self._control.store.clock,
                outputs=[recording, live],
                stream=str(stream.path),
                on_line=live.said,
                runner=make,
                earlier=self._earlier(),
            )
            try:
                summary = await self._run_to_end(run)
            except RestartNeeded as error:
                await self._start_again(error)
                raise
            except (GeneratorLost, InvalidInput) as error:
                await self._release()
                raise LoadFailed(f"load test {job.name} could not be started: {error}") from error
            await self._save_end(summary)
            self._host.counts["windows_late"] += sum(each.late_windows for each in summary.slices)
            self._host.counts["cancels_unconfirmed"] += sum(each.stop == "unconfirmed" for each in summary.slices)
            return summary

    def _earlier(self) -> Summary | None:
        """What an earlier leader of this run has saved; None: it had no load yet."""
        if not self._saved.fleet.gos:
            return None
        return msgspec.msgpack.decode(self._saved.summary, type=Summary | None)

    async def _run_to_end(self, run: LoadRun) -> Summary:
        here, now_s = self._here, asyncio.get_running_loop().time
        earlier = self._earlier()
        # slices that do not answer this leader at once are not counted yet: numbers that were shown must not fall
        adopted_s, least = now_s() + self._work.settings.lost_s + SAVE_S, 0 if earlier is None else earlier.requests
        if self._stop_first:
            run.stop(f"cancelled: {here.stopping}")
        if earlier is not None:
            # the progress of the leader before earns time, too
            here.progress(earlier.elapsed_s, run.header.duration_s, f"{earlier.requests} requests")
        task = asyncio.ensure_future(run.run())
        timing = asyncio.ensure_future(self._watch_time(run))
        # a successor must know of a stop: it would take it for a loss
        news: set[asyncio.Future[Any]] = {task, timing, asyncio.ensure_future(run.stopped.wait())}
        try:
            while not task.done() and not timing.done():
                _, news = await asyncio.wait(news, timeout=SAVE_S, return_when=asyncio.FIRST_COMPLETED)
                if not task.done() and run.seconds:
                    so_far, points = run.so_far()
                    here.progress(run.elapsed_s, run.header.duration_s, f"{so_far.requests} requests")
                    if so_far.requests >= least or now_s() >= adopted_s:
                        await self._save(stored(so_far, points))
            if timing.done():
                timing.result()
                await self._within_grace(run, task)
        except asyncio.CancelledError:
            if here.stopping not in _ENDS:
                await self._leave(task)
                raise
            run.stop(f"cancelled: {here.stopping}")
            await self._within_grace(run, task)
        except LetGo:
            await self._leave(task)
            raise
        finally:
            timing.cancel()
            # if this was cancelled again, calls under way are not waited for
            if not task.cancelling():
                task.cancel()
            for one in news - {task}:
                one.cancel()
            await asyncio.wait({task} | news)
        return await task

    async def _watch_time(self, run: LoadRun) -> None:
        """Stop the load when its time is over. Nothing that the leader waits for delays it."""
        await self._time.is_over()
        run.stop(_OVERRAN)

    async def _within_grace(self, run: LoadRun, task: asyncio.Task[Summary]) -> None:
        """Wait for the end of a run that was stopped. If its load or its teardowns take too long, it is given up, and
        then killed: an engine that one run does not leave in time gives all its runs to other managers."""
        settings = self._work.settings
        killing_s = settings.unconfirmed_s
        patience_s = max(0.0, self._here.job.options.grace_s - killing_s - RELEASE_S)
        for within_s, escalate in (
            (patience_s, run.give_up),
            (killing_s - settings.let_go_s, run.kill),
        ):
            await asyncio.wait([task], timeout=within_s)
            if task.done():
                return
            log.warning("job=%s has not ended %g s after its stop: %s", self._here.id, within_s, escalate.__name__)
            escalate()
        await asyncio.wait([task])

    async def _leave(self, task: asyncio.Task[Summary]) -> None:
        """Another manager leads on, or is about to: nothing is stopped."""
        if self._fleet is not None:
            self._fleet.leave()
        task.cancel()
        await asyncio.wait([task])

    async def _release(self) -> None:
        if self._fleet is not None:
            await self._fleet.release()

    def _ended(self, summary: Summary) -> Summary:
        """The end of the job, as the summary says."""
        if self._here.stopping is not None:
            raise asyncio.CancelledError
        if summary.ended == _OVERRAN:
            raise self._time.error(summary.elapsed_s)
        raise_unless_passed(summary, self._here.job.name)
        return summary

    # cores ------------------------------------------------------------------------------------------

    async def _await_cores(self) -> None:
        await self._control.drivers.await_placement(self._here.job)
        raise LetGo("it waits for cores")

    async def _start_again(self, error: RestartNeeded) -> None:
        """Give all cores back, and have the whole run placed once more."""
        if self._saved.restarts >= _MOST_RESTARTS:
            again = f"was started again {_MOST_RESTARTS} times, and lost a slice each time"
            raise LoadFailed(f"load test {self._here.job.name} {again}: {error}") from error
        log.warning("job=%s is started again: %s", self._here.id, error)
        self._saved = replace(
            self._saved,
            restarts=self._saved.restarts + 1,
            fleet=FleetRecord(round=0),
            ended_round=self._saved.fleet.round,
        )
        self._time.began_ms, self._time.extra_s = 0, 0.0
        await self._write()
        await self._release()
        # the leader of placement cancels the slices that could not be released
        await self._await_cores()

    async def _units(self, job: Job) -> list[Job]:
        units: list[Job] = []
        cursor: str | None = None
        while True:
            page = await self._control.store.find(Query(parent=job.id), cursor=cursor, limit=_PAGE)
            units += page.jobs
            cursor = page.cursor
            if cursor is None:
                return units

    # what is stored ---------------------------------------------------------------------------------

    async def _save_record(self, record: FleetRecord) -> None:
        """Returns when it is stored: what follows must not happen without it."""
        is_first = bool(record.gos) and not self._time.began_ms
        if is_first:
            self._time.began_ms = round(record.gos[0].wall * 1000)
        self._saved = replace(self._saved, fleet=record)
        try:
            await self._here.save(msgspec.Raw(self._packed()))
        except StaleClaim as error:
            raise LetGo(str(error)) from None
        except PayloadTooLarge as error:
            raise self._too_large(error) from error
        if is_first:
            await self._start()

    async def _save(self, summary: bytes) -> None:
        self._saved = replace(self._saved, summary=msgspec.Raw(summary))
        await self._write()

    async def _save_end(self, summary: Summary) -> None:
        """Store the end, and only then release the slices: a successor that finds none would not know what they did."""
        self._saved = replace(self._saved, summary=msgspec.Raw(stored(summary)), over=True)
        if not await self._write():
            raise GiveBack("the store did not take the end of the run, which its slices keep for the next manager")
        await self._release()

    async def _write(self) -> bool:
        try:
            return await save_checkpoint(self._here, self._packed(), self._host.rng)
        except PayloadTooLarge as error:
            raise self._too_large(error) from error

    def _packed(self) -> bytes:
        saved = replace(self._saved, began_ms=self._time.began_ms, extra_s=self._time.extra_s)
        return msgspec.msgpack.encode(saved)

    def _too_large(self, error: PayloadTooLarge) -> LoadFailed:
        """The run has begun, so it must not read as one that could not be started."""
        why = "what its next leader would have to know cannot be stored"
        return LoadFailed(f"load test {self._here.job.name} was ended: {why} ({error})")


__all__ = ["FleetWork", "fleet_options_of"]

"""Runs of load tests as jobs of kind `load`: how a worker runs one, and what is stored with the job."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from ..clock import exact_duration
from ..control import Control, Decide
from ..errors import BadArguments, InvalidInput, MainstayError, SchemaTooNew, StaleClaim, StoreError
from ..lifecycle import table_of
from ..model import LEAD_QUEUE, Job
from ..task import AppClient, Sealer, enter_job
from ..worker import Context, LetGo, Mode, Outage, context
from .fleet.saved_run import saved_summary
from .fleet.settings import RELEASE_S, FleetSettings
from .generator_process import LineHandler
from .generators import Generators
from .outputs import Output
from .plan import SCHEMA, LoadOptions, RunPlan
from .planned_run import PlannedRun
from .run import LoadRun
from .runner import MakeRunner
from .sources import LoadTest
from .stats.model import Point, StepSummary, Summary
from .stats.thresholds import RUNNING, verdict_of
from .stream import StreamOutput

log = logging.getLogger("mainstay.load")

KIND = "load"
#: how often the summary so far is stored with the job, for dashboards and reports
SAVE_S = 2.0
#: a larger summary is stored without its curves; the recorded stream has them
_MOST_BYTES = 512 * 1024
#: time for everything besides the load: starting processes, setup, teardown
_OVERHEAD_S = 900.0
#: the time of a run on nodes whose plan has no end but a number of iterations
_WITHOUT_END_S = 3600.0
_GRACE_S = 15.0
#: how long a worker may take to notice a cancel
_NOTICE_S = 10.0
#: how a run ended that its own command stopped
INTERRUPTED = "interrupted"


class LoadFailed(MainstayError):
    """A load test failed a threshold, or could not be run to its end."""

    code = "load_failed"
    retryable = False


class ThresholdFailed(LoadFailed):
    """A load test ran to its end and failed a threshold."""

    code = "threshold_failed"


class ForegroundRun(msgspec.Struct, kw_only=True):
    """A run that a command in this process waits for. The command sees the windows through `outputs`; the summary is
    stored with the job, as for every run."""

    planned: PlannedRun
    """the plan that the job was submitted with"""
    outputs: Sequence[Output] = ()
    stop: asyncio.Event
    """when set, the run ends early, in good order"""
    give_up: asyncio.Event
    """when set after `stop`, the run ends at once"""
    on_line: LineHandler | None = None
    """takes the lines that steps print"""
    refusal: InvalidInput | None = None
    """why the run could not be started; the job has it as text"""


class LoadWork:
    """Runs the jobs of one load test (`mainstay.worker.Work`)."""

    mode: Mode = "loop"
    is_async = True
    decide: Decide | None = None

    def __init__(self, client: AppClient, test: LoadTest, folder: Callable[[], Path]) -> None:
        self._client = client
        self._test = test
        self._folder = folder
        self.foreground: ForegroundRun | None = None
        """set by the command that runs the only job of this handler; None in workers"""
        self.runner: MakeRunner = Generators
        """makes what produces the load; a simulation sets another"""
        self.record: Callable[[Path], StreamOutput] = StreamOutput
        """makes the output that records a run into a file; a simulation sets one without a thread"""

    def unpack(self, payload: bytes) -> LoadOptions:
        return options_of(self._client.sealer.open(payload, field="payload"))

    def pack(self, result: Summary) -> msgspec.Raw:
        return msgspec.Raw(self._client.sealer.seal(stored(result)))

    async def call(self, options: LoadOptions) -> Summary:
        """Run the test and return its summary. Raises `LoadFailed` if it could not be started, broke, or failed a
        threshold."""
        here, client = context(), self._client
        enter_job(client)
        control = await client.open()
        # from here on the store counts a crash as a crash: the load cannot be repeated unnoticed
        await control.claims.start([here.job])
        planned = self._planned(here, options)
        # one for each claim: a retry keeps the recordings of earlier attempts
        stream = self.record(self._folder() / f"{here.id}-{here.job.token}.ndjson.zst")
        foreground = self.foreground
        run = LoadRun(
            planned.spec(),
            here.id,
            token=here.job.token,
            clock=control.store.clock,
            outputs=[stream, *(foreground.outputs if foreground else ())],
            stream=str(stream.path),
            on_line=foreground.on_line if foreground else None,
            runner=self.runner,
        )
        try:
            summary = await _run_to_end(run, here, foreground, client.rng)
        except InvalidInput as error:
            if foreground is not None:
                foreground.refusal = error
            raise LoadFailed(f"load test {planned.test.name} could not be started: {error}") from error
        await save_checkpoint(here, stored(summary), client.rng)
        if here.stopping is not None:
            raise asyncio.CancelledError
        if summary.ended == INTERRUPTED:
            await _cancel(control, here)
        raise_unless_passed(summary, planned.test.name)
        return summary

    def _planned(self, here: Context, options: LoadOptions) -> PlannedRun:
        if self.foreground is not None:
            return self.foreground.planned
        planned = PlannedRun(self._test, options)
        for note in planned.notes:
            log.warning("%s load=%s job_id=%s", note, planned.test.name, here.id)
        return planned


def raise_unless_passed(summary: Summary, name: str) -> None:
    """The error that a job ends with whose run broke or failed a threshold."""
    if summary.ended.startswith("failed"):
        raise LoadFailed(f"load test {name}: {summary.ended}")
    if summary.verdict == "failed":
        broken = "; ".join(f"{one.text} (was {one.shown})" for one in summary.thresholds if not one.passed)
        raise ThresholdFailed(f"load test {name} failed its thresholds: {broken}")


async def _run_to_end(
    run: LoadRun, here: Context, foreground: ForegroundRun | None, rng: random.Random | None
) -> Summary:
    task = asyncio.ensure_future(run.run())
    try:
        await _until_done(task, run, here, foreground, rng)
    except asyncio.CancelledError:
        # cancelled, out of time, or the worker stops: calls under way may finish within the grace
        run.stop(f"cancelled: {here.stopping or 'stopped'}")
        if foreground is not None and foreground.give_up.is_set():
            run.kill()
        await asyncio.wait([task])
    except LetGo:
        # the claim is lost: another worker has the job, or it is settled
        run.stop("failed: the claim was lost")
        await asyncio.wait([task])
        raise
    finally:
        # if this was cancelled again, calls under way are not waited for
        if not task.cancelling():
            task.cancel()
        await asyncio.wait([task])
    return await task


async def _until_done(
    task: asyncio.Task[Summary],
    run: LoadRun,
    here: Context,
    foreground: ForegroundRun | None,
    rng: random.Random | None,
) -> None:
    stopping = asyncio.ensure_future(foreground.stop.wait() if foreground else asyncio.Event().wait())
    giving_up = asyncio.ensure_future(foreground.give_up.wait() if foreground else asyncio.Event().wait())
    try:
        while not task.done():
            await asyncio.wait({task, stopping}, timeout=SAVE_S, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done() and not task.done():
                run.stop(INTERRUPTED)
                await asyncio.wait({task, giving_up}, return_when=asyncio.FIRST_COMPLETED)
                if not task.done():
                    run.give_up()
                    await asyncio.wait([task])
            elif not task.done() and run.seconds:
                so_far, points = run.so_far()
                here.progress(run.elapsed_s, run.header.duration_s, f"{so_far.requests} requests")
                await save_checkpoint(here, stored(so_far, points), rng)
    finally:
        stopping.cancel()
        giving_up.cancel()


async def _cancel(control: Control, here: Context) -> None:
    """Record in the history of the job that its own command stopped it. The worker notices, and cancels this call."""
    await control.operations.cancel(here.id, actor="client", reason=INTERRUPTED)
    await asyncio.sleep(_NOTICE_S)


async def save_checkpoint(here: Context, data: bytes, rng: random.Random | None) -> bool:
    """Store the summary so far with the job; returns whether it is stored. A store that is away does not stop the load:
    each save is complete. Raises `LetGo` if the claim was lost."""
    outage = Outage("load", rng or random.Random())
    for _ in range(3):
        try:
            await here.save(msgspec.Raw(data))
        except StaleClaim as error:
            raise LetGo(str(error)) from None
        except StoreError as error:
            await asyncio.sleep(min(1.0, outage.failed(error)))
        else:
            return True
    return False


def stored(summary: Summary, points: Sequence[msgspec.Raw] | None = None) -> bytes:
    """A summary as it is stored with the job: with its own points, or with these, which are packed already. If it is
    too big, it is stored without the curves by step, or without any; with very many steps, each has only its counts and
    its service times."""
    data = _encode(summary if points is None else msgspec.structs.replace(summary, points=points))
    if len(data) <= _MOST_BYTES:
        return data
    whole = summary.points if points is None else [_point(packed) for packed in points]
    slim = msgspec.structs.replace(summary, points=[msgspec.structs.replace(point, by_step={}) for point in whole])
    data = _encode(slim)
    if len(data) <= _MOST_BYTES:
        return data
    slim = msgspec.structs.replace(slim, points=[], distribution=[], response_distribution=[])
    data = _encode(slim)
    if len(data) <= _MOST_BYTES:
        return data
    return _encode(msgspec.structs.replace(slim, steps=[_counted(step) for step in slim.steps], by_tag=[]))


def _counted(step: StepSummary) -> StepSummary:
    return msgspec.structs.replace(step, ok=None, response=None, phases={}, examples={})


_encode = msgspec.msgpack.Encoder().encode
_point = msgspec.msgpack.Decoder(Point).decode


def summary_of(job: Job, sealer: Sealer) -> Summary | None:
    """The stored summary of a run: the final one, or the last one that was saved on the way. None before the first.

    Its verdict agrees with the state of the job: see `as_job_stands`.
    """
    if job.kind != KIND:
        raise InvalidInput("job", f"{job.id} ({job.name}) is a {job.kind} job, not a load test")
    data = job.result if job.result is not None else job.checkpoint
    if data is None:
        return None
    if job.queue != LEAD_QUEUE:
        data = sealer.open(data, field="result")
    elif job.result is None:
        # a manager, which has no codec, saves the numbers with what its successor needs
        found = saved_summary(job)
        if found is None:
            return None
        data = found
    summary = msgspec.msgpack.decode(data, type=Summary | None)
    return None if summary is None else as_job_stands(job, summary)


def as_job_stands(job: Job, summary: Summary) -> Summary | None:
    """The summary with a verdict that agrees with the state of its job; None if it belongs to an earlier attempt than
    the running one.

    Only a job with a result can have passed. A summary that was saved on the way (or a recording without an end) is
    *running* while a worker holds the job, and *lost* when no worker does. A run that managers lead is running until
    its job is settled: its load goes on from one manager to the next, whose claim has another token.
    """
    if job.result is not None:
        return summary
    is_led = job.queue == LEAD_QUEUE
    state = table_of(job.parent).get(job.status)
    if state is not None and (state.holds or (is_led and not state.settled)):
        if not is_led and summary.header.token not in (0, job.token):
            return None
        return _ended_as(summary, RUNNING) if summary.verdict in ("passed", "lost") else summary
    if summary.verdict not in ("passed", "running"):
        return summary
    why = job.error.message if job.error is not None else job.reason
    ended = f"lost: the job is {job.status}" + (f" ({why})" if why else "")
    return _ended_as(summary, f"{ended}; the numbers are those of its first {summary.elapsed_s:.1f} s")


def _ended_as(summary: Summary, ended: str) -> Summary:
    return msgspec.structs.replace(summary, ended=ended, verdict=verdict_of(summary.thresholds, ended))


def options_of(payload: bytes) -> LoadOptions:
    """Decode the payload of a job."""
    try:
        schema = msgspec.msgpack.decode(payload, type=_Head).schema
        if schema <= SCHEMA:
            return msgspec.msgpack.decode(payload, type=LoadOptions)
    except msgspec.DecodeError as error:
        raise BadArguments("payload", f"the options of the load test cannot be read: {error}") from None
    raise SchemaTooNew(
        f"the load test was submitted by a newer Mainstay (schema {schema} of load tests); upgrade this worker"
    )


class _Head(msgspec.Struct):
    schema: int = SCHEMA


def limits_of(plan: RunPlan) -> dict[str, Any]:
    """The job options that follow from the plan: no automatic retry, and the time that the plan takes."""
    ends_s = None if plan.duration_s is None else plan.duration_s + plan.drain_s + _OVERHEAD_S
    return {
        "retries": 0,
        "crash_budget": 1,
        "timeout": "off" if ends_s is None else exact_duration(timedelta(seconds=ends_s)),
        "stall_timeout": "off",
        "grace": exact_duration(timedelta(seconds=plan.drain_s + _GRACE_S)),
    }


def limits_on_nodes(plan: RunPlan) -> dict[str, Any]:
    """The same for a run on nodes. Its time counts from its first load, and it always has an end: the cores are those
    of others, too. Its leader also waits for nodes that do not confirm the stop, and for the others to end. An engine
    that a run would not leave in time gives all its runs to other managers."""
    grace_s = plan.drain_s + _GRACE_S + FleetSettings().unconfirmed_s + RELEASE_S
    limits = {**limits_of(plan), "grace": exact_duration(timedelta(seconds=grace_s))}
    return (
        limits
        if plan.duration_s is not None
        else {**limits, "timeout": exact_duration(timedelta(seconds=_WITHOUT_END_S))}
    )

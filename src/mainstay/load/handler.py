"""Runs of load tests as jobs of kind `load`: what is stored of one, and how a worker runs it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..control import Control, Decide
from ..errors import BadArguments, InvalidInput, MainstayError, SchemaTooNew, StaleClaim, StoreError
from ..lifecycle import table_of
from ..model import Job
from ..task import AppClient
from ..task.current_client import begin
from ..worker import Context, Mode, context
from ..worker.context import LetGo
from ..worker.outage import Outage
from .generator_process import Said
from .outputs import Output
from .plan import SCHEMA, LoadOptions
from .run import LoadRun, Planned
from .sources import LoadTest
from .stats.model import Point, Summary
from .stats.thresholds import RUNNING, verdict_of
from .stream import StreamOutput

log = logging.getLogger("mainstay.load")

KIND = "load"
#: how often what is known by then is stored, so that others can follow
_SAVE_S = 2.0
#: beyond this, the curves are left out of what is stored with the job; the stream has them all
_MOST_BYTES = 512 * 1024
#: for what comes before and after the load: starting processes, setup, teardown
_ASIDE_S = 900.0
_GRACE_S = 15.0
#: how long a worker may take to hear of a cancel
_HEARD_S = 10.0
#: how a run ended that somebody stopped who watched it
INTERRUPTED = "interrupted"


class LoadFailed(MainstayError):
    """A load test came to its end, and a threshold was not kept; or it could not be run to its end."""

    code = "load_failed"
    retryable = False


class ThresholdFailed(LoadFailed):
    """A threshold was not kept."""

    code = "threshold_failed"


class Attached(NamedTuple):
    """Somebody in this process who watches a run: the command that started it."""

    outputs: Sequence[Output]
    stop: asyncio.Event
    """set: end early, in good order"""
    give_up: asyncio.Event
    """set after it: end at once"""
    said: Said | None = None
    """takes what the steps print"""


class LoadWork:
    """How jobs of one load test are run (`mainstay.worker.Work`)."""

    mode: Mode = "loop"
    is_async = True
    decide: Decide | None = None

    def __init__(self, client: AppClient, test: LoadTest, folder: Callable[[], Path]) -> None:
        self._client = client
        self._test = test
        self._folder = folder
        self.attached: dict[str, Attached] = {}
        """by job"""
        self.ended: dict[str, Summary | InvalidInput] = {}
        """how runs ended that somebody is attached to"""

    def unpack(self, payload: bytes) -> LoadOptions:
        return options_of(self._client.sealer.open(payload, field="payload"))

    def pack(self, result: Summary) -> msgspec.Raw:
        return msgspec.Raw(self._client.sealer.seal(stored(result)))

    async def call(self, options: LoadOptions) -> Summary:
        """Run it; the summary. Raises `ThresholdFailed`, or what made it impossible."""
        here, client = context(), self._client
        begin(client)
        control = await client.open()
        # it has begun, and a store that hears of our death is to know: nobody would make it good by running it again
        await control.claims.start([here.job])
        planned = Planned(self._test, options)
        self._warn(planned, here)
        folder = self._folder()
        # one for each claim: a retry keeps what the attempts before it recorded
        stream = StreamOutput(folder / f"{here.id}-{here.job.token}.ndjson.zst")
        attached = self.attached.get(here.id)
        outputs = [stream, *(attached.outputs if attached else ())]
        run = LoadRun(
            planned,
            here.id,
            token=here.job.token,
            clock=control.store.clock,
            outputs=outputs,
            stream=str(stream.path),
            said=attached.said if attached else None,
        )
        task = asyncio.ensure_future(run.run())
        try:
            await self._until_done(task, run, here, attached)
        except asyncio.CancelledError:
            # cancelled, out of time, or the worker leaves: what is under way is waited for, within the grace
            run.stop(f"cancelled: {here.stopping or 'stopped'}")
            if attached is not None and attached.give_up.is_set():
                run.kill()
            await asyncio.wait([task])
        except LetGo:
            # somebody else has the job, or it is over: this load is nobody's
            run.stop("failed: the claim was lost")
            await asyncio.wait([task])
            raise
        finally:
            # nobody waits any longer, not even for what is under way
            if not task.cancelling():
                task.cancel()
            await asyncio.wait([task])
        try:
            summary = await task
        except InvalidInput as error:
            if attached is not None:
                self.ended[here.id] = error
            raise LoadFailed(f"load test {planned.test.name} could not be started: {error}") from error
        if attached is not None:
            self.ended[here.id] = summary
        await _save(here, stored(summary))
        if here.stopping is not None:
            raise asyncio.CancelledError
        if summary.ended == INTERRUPTED:
            await _cancel(control, here)
        if summary.ended.startswith("failed"):
            raise LoadFailed(f"load test {planned.test.name}: {summary.ended}")
        if summary.verdict == "failed":
            broken = "; ".join(f"{one.text} (was {one.shown})" for one in summary.thresholds if not one.passed)
            raise ThresholdFailed(f"load test {planned.test.name} did not keep: {broken}")
        return summary

    def _warn(self, planned: Planned, here: Context) -> None:
        """Log what of the test has no effect. A command that waits for the run has shown it already."""
        for note in () if here.id in self.attached else planned.notes:
            log.warning("%s load=%s job_id=%s", note, planned.test.name, here.id)

    async def _until_done(
        self, task: asyncio.Task[Summary], run: LoadRun, here: Context, attached: Attached | None
    ) -> None:
        stopping = asyncio.ensure_future(attached.stop.wait() if attached else asyncio.Event().wait())
        giving_up = asyncio.ensure_future(attached.give_up.wait() if attached else asyncio.Event().wait())
        try:
            while not task.done():
                await asyncio.wait({task, stopping}, timeout=_SAVE_S, return_when=asyncio.FIRST_COMPLETED)
                if stopping.done() and not task.done():
                    run.stop(INTERRUPTED)
                    await asyncio.wait({task, giving_up}, return_when=asyncio.FIRST_COMPLETED)
                    if not task.done():
                        run.give_up()
                        await asyncio.wait([task])
                elif not task.done() and run.seconds:
                    so_far, points = run.so_far()
                    here.progress(run.elapsed_s, run.header.duration_s, f"{so_far.requests} requests")
                    await _save(here, stored(so_far, points))
        finally:
            stopping.cancel()
            giving_up.cancel()


async def _cancel(control: Control, here: Context) -> None:
    """Whoever ran it has stopped it: that is what its history is to say. Its worker hears of it, and ends this."""
    await control.operations.cancel(here.id, actor="client", reason=INTERRUPTED)
    await asyncio.sleep(_HEARD_S)


async def _save(here: Context, known: bytes) -> None:
    """Keep what is known with the job. A store that is away does not stop the load: the next save, or the end, says
    it all again."""
    outage = Outage("load", random.Random())
    for _ in range(3):
        try:
            await here.save(msgspec.Raw(known))
        except StaleClaim as error:
            raise LetGo(str(error)) from None
        except StoreError as error:
            await asyncio.sleep(min(1.0, outage.failed(error)))
        else:
            return


def stored(summary: Summary, points: Sequence[msgspec.Raw] | None = None) -> bytes:
    """A summary as it is kept with the job, with its own points or with these, which are packed: without the curves by
    step, or without all of them, if it got too big."""
    found = _encode(summary if points is None else msgspec.structs.replace(summary, points=points))
    if len(found) <= _MOST_BYTES:
        return found
    whole = summary.points if points is None else [_point(packed) for packed in points]
    slim = msgspec.structs.replace(summary, points=[msgspec.structs.replace(point, by_step={}) for point in whole])
    found = _encode(slim)
    if len(found) <= _MOST_BYTES:
        return found
    return _encode(msgspec.structs.replace(slim, points=[], distribution=[], response_distribution=[]))


_encode = msgspec.msgpack.Encoder().encode
_point = msgspec.msgpack.Decoder(Point).decode


def summary_of(job: Job, unpack: Callable[[bytes], Any]) -> Summary | None:
    """What is stored of a run: its end, or how it stood when that was last written. None before.

    Its verdict is one that the state of the job allows: see `as_job_stands`.
    """
    if job.kind != KIND:
        raise InvalidInput("job", f"{job.id} ({job.name}) is a {job.kind} job, not a load test")
    data = job.result if job.result is not None else job.checkpoint
    return None if data is None else as_job_stands(job, msgspec.convert(unpack(data), Summary))


def as_job_stands(job: Job, summary: Summary) -> Summary | None:
    """The summary with a verdict that the state of its job allows; None if it is of an earlier attempt than the one
    that runs now.

    Only a job that has a result can have passed. A report that was stored on the way (or a recording without an end)
    is of a run that is *running* while a worker holds the job, and *lost* when none does any more.
    """
    if job.result is not None:
        return summary
    state = table_of(job.parent).get(job.status)
    if state is not None and state.holds:
        if summary.header.token not in (0, job.token):
            return None
        return _ended_as(summary, RUNNING) if summary.verdict in ("passed", "lost") else summary
    if summary.verdict not in ("passed", "running"):
        return summary
    why = job.error.message if job.error is not None else job.reason
    told = f"lost: the job is {job.status}" + (f" ({why})" if why else "")
    return _ended_as(summary, f"{told}; the numbers are those of its first {summary.elapsed_s:.1f} s")


def _ended_as(summary: Summary, ended: str) -> Summary:
    return msgspec.structs.replace(summary, ended=ended, verdict=verdict_of(summary.thresholds, ended))


def options_of(payload: bytes) -> LoadOptions:
    """What a submission said."""
    try:
        schema = msgspec.msgpack.decode(payload, type=_Head).schema
        if schema <= SCHEMA:
            return msgspec.msgpack.decode(payload, type=LoadOptions)
    except msgspec.DecodeError as error:
        raise BadArguments("payload", f"what is to be run cannot be read: {error}") from None
    raise SchemaTooNew(f"the load test was submitted by a newer Mainstay (schema {schema} of load tests); upgrade this")


class _Head(msgspec.Struct):
    schema: int = SCHEMA


def limits_of(planned: Planned) -> dict[str, Any]:
    """The options of the job that follow from the plan: a load test is not repeated by itself, and has the time that
    its own plan takes."""
    plan = planned.plan
    ends_s = None if plan.duration_s is None else plan.duration_s + plan.drain_s + _ASIDE_S
    return {
        "retries": 0,
        "crash_budget": 1,
        "timeout": "off" if ends_s is None else f"{ends_s:g}s",
        "stall_timeout": "off",
        "grace": f"{plan.drain_s + _GRACE_S:g}s",
    }


__all__ = ["KIND", "Attached", "LoadFailed", "LoadWork", "ThresholdFailed", "as_job_stands", "limits_of", "summary_of"]

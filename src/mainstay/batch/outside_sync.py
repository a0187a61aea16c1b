"""Check the outside jobs of batches on request: record their states and wake their drivers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from ..errors import MainstayError
from ..lifecycle import JOB
from ..model import Job
from ..stores import Query, all_rows
from .outside_job import note_on_batch, outside_text
from .runners import LOCAL, Runners, shown_runner
from .service import BatchService
from .spec import KIND

#: the states of a batch that has a driver
_DRIVEN = tuple(name for name, state in JOB.states.items() if state.holds)


class SyncResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outside job of one batch."""

    job: str
    study: str
    status: str
    runner: str = ""
    name: str = ""
    """its name; empty: not started yet"""
    handle: str = ""
    state: str = ""
    """waiting, running, exited or gone; empty: not known"""
    exit_code: int | None = None
    text: str = ""
    """its state in words, with what to do"""
    new: bool = False
    """the batch did not know this state yet"""

    @property
    def fine(self) -> bool:
        return self.state not in ("", "gone") or not self.name


async def sync_outside(
    service: BatchService, runners: Runners, ids: Sequence[str] | None = None, *, actor: str
) -> AsyncIterator[SyncResult]:
    """Check the outside jobs of these batches, or of all batches that are not settled."""
    for job in await _batches(service, ids):
        if (result := await _sync(service, runners, job, actor)) is not None:
            yield result


async def _batches(service: BatchService, ids: Sequence[str] | None) -> list[Job]:
    if ids is not None:
        return [await service.control.jobs.get(job_id) for job_id in ids]
    driven = all_rows(service.control.store, Query(status=_DRIVEN))
    return [job async for job in driven if job.kind == KIND]


async def _sync(service: BatchService, runners: Runners, job: Job, actor: str) -> SyncResult | None:
    """None: the batch runs on workers."""
    result = SyncResult(job=job.id, study=job.name, status=job.status)
    try:
        status = await service.status(job.id)
    except MainstayError as error:
        return msgspec.structs.replace(result, name="?", text=f"{error}; with --app it may be readable")
    if status.spec.runner == LOCAL:
        return None
    record = status.outside
    result = msgspec.structs.replace(result, status=status.job.status, runner=shown_runner(status.spec.runner))
    if record is None:
        return msgspec.structs.replace(result, text="not started yet: a worker of its app will start it")
    result = msgspec.structs.replace(result, name=record.name, handle=record.handle)
    try:
        outside = await runners.get(status.spec.runner).look(record.handle, record.name)
    except MainstayError as error:
        return msgspec.structs.replace(result, text=str(error))
    text = outside_text(record, outside, job.id)
    new = (outside.state, outside.exit_code) != (record.state, record.exit_code)
    if new:
        await note_on_batch(service.control, status.job, text, actor=actor)
        await service.control.drivers.nudge(status.job)
    result = msgspec.structs.replace(result, state=outside.state, exit_code=outside.exit_code, text=text, new=new)
    if not outside.over or await service.has_workers():
        return result
    validation = await service.conclude(job.id, actor=actor)
    after = await service.control.jobs.get(job.id)
    if validation is not None:
        return msgspec.structs.replace(result, status=after.status, text=f"{text}; {validation.summary}")
    if JOB.states[after.status].settled:
        return msgspec.structs.replace(result, status=after.status)
    return msgspec.structs.replace(result, text=f"{text}; no worker is alive to continue the batch: start one")

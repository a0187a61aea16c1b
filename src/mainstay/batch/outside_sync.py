"""A look at the outside jobs of batches, by a person: what is seen is told, and their drivers are woken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from ..errors import MainstayError
from ..lifecycle import JOB
from ..model import Job
from ..stores import Query
from .outside_job import tell, told
from .runners import LOCAL, Runners, shown_runner
from .service import BatchService
from .spec import KIND

_PAGE = 500
#: a batch that has a driver stands in one of these
_DRIVEN = tuple(name for name, state in JOB.states.items() if state.holds)


class SyncResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outside job of one batch."""

    job: str
    study: str
    status: str
    runner: str = ""
    name: str = ""
    """what it was started as; empty: it was not yet"""
    handle: str = ""
    state: str = ""
    """waiting, running, exited or gone; empty: nobody could tell"""
    exit_code: int | None = None
    told: str = ""
    """in words, with what to do"""
    new: bool = False
    """its batch had not heard of it"""

    @property
    def fine(self) -> bool:
        return self.state not in ("", "gone") or not self.name


async def sync_outside(
    service: BatchService, runners: Runners, ids: Sequence[str] | None = None, *, actor: str
) -> AsyncIterator[SyncResult]:
    """Look at the outside jobs of these batches, or of all that are not settled."""
    if ids is not None:
        for job_id in ids:
            if (one := await _sync(service, runners, await service.control.jobs.get(job_id), actor)) is not None:
                yield one
        return
    cursor: str | None = None
    while True:
        page = await service.control.store.find(Query(status=_DRIVEN), cursor=cursor, limit=_PAGE)
        for job in page.jobs:
            if job.kind == KIND and (one := await _sync(service, runners, job, actor)) is not None:
                yield one
        cursor = page.cursor
        if cursor is None:
            return


async def _sync(service: BatchService, runners: Runners, job: Job, actor: str) -> SyncResult | None:
    """None: it runs on workers."""
    made = SyncResult(job=job.id, study=job.name, status=job.status)
    try:
        stands = await service.status(job.id)
    except MainstayError as error:
        return msgspec.structs.replace(made, name="?", told=f"{error}; an --app may be able to read it")
    if stands.spec.runner == LOCAL:
        return None
    begun = stands.outside
    made = msgspec.structs.replace(made, status=stands.job.status, runner=shown_runner(stands.spec.runner))
    if begun is None:
        return msgspec.structs.replace(made, told="not started yet: a worker of its app does that")
    made = msgspec.structs.replace(made, name=begun.name, handle=begun.handle)
    try:
        seen = await runners.get(stands.spec.runner).look(begun.handle, begun.name)
    except MainstayError as error:
        return msgspec.structs.replace(made, told=str(error))
    text = told(begun, seen, job.id)
    new = (seen.state, seen.exit_code) != (begun.state, begun.exit_code)
    if new:
        await tell(service.control, stands.job, text, actor=actor)
        await service.control.drivers.nudge(stands.job)
    made = msgspec.structs.replace(made, state=seen.state, exit_code=seen.exit_code, told=text, new=new)
    if not seen.over or await service.has_workers():
        return made
    found = await service.conclude(job.id, actor=actor)
    after = await service.control.jobs.get(job.id)
    if found is not None:
        return msgspec.structs.replace(made, status=after.status, told=f"{text}; {found.told}")
    if JOB.states[after.status].settled:
        return msgspec.structs.replace(made, status=after.status)
    return msgspec.structs.replace(made, told=f"{text}; no worker is there to go on with the batch: start one")

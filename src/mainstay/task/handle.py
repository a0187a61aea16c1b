"""A submitted job, as its submitter uses it."""

from __future__ import annotations

from datetime import timedelta
from typing import Generic, TypeVar

from ..control import InsertResult
from ..errors import JobFailed
from ..model import ErrorInfo, Job
from .client import AppClient
from .current_client import warn_of_wait
from .returns import Returns

R_co = TypeVar("R_co", covariant=True)

#: the actor of a cancel, in the audit trail
_ACTOR = "client"


class Handle(Generic[R_co]):
    """A job by its id. Each method reads from the store; nothing is cached.

    Each method has a `_sync` form for code without an event loop.
    """

    __slots__ = ("_client", "_returns", "created", "durability", "id")

    def __init__(
        self, client: AppClient, returns: Returns[R_co], job_id: str, *, created: bool = False, durability: str = ""
    ) -> None:
        self.id = job_id
        self.created = created
        """whether this submit created it; False: it was submitted before (by its key, or `unique`)"""
        self.durability = durability
        """what the acknowledged submit survives, as text: the requested level, and what the store is configured to
        give; empty for a handle made from an id"""
        self._client = client
        self._returns = returns

    @classmethod
    def of(cls, client: AppClient, returns: Returns[R_co], job: InsertResult) -> Handle[R_co]:
        """The handle of a job that was just submitted."""
        return cls(client, returns, job.id, created=job.created, durability=job.durability)

    async def result(self, timeout: str | timedelta | None = None) -> R_co:  # noqa: ASYNC109 - how users say it
        """Wait for the end and return the result of the task. Raises `JobFailed` if the job did not succeed, and
        `WaitTimeout` if the timeout is over first; the job continues then."""
        return self.result_of(await self.wait(timeout))

    def result_sync(self, timeout: str | timedelta | None = None) -> R_co:
        return self._client.run(lambda: self.result(timeout), what="result_sync")

    async def wait(self, timeout: str | timedelta | None = None) -> Job:  # noqa: ASYNC109 - how users say it
        """The row once the job has settled in any state; raises `WaitTimeout`. Inside a job, the wait holds the slot
        of that job in its worker; see docs/tasks.md, "Jobs after jobs"."""
        control = await self._client.open()
        await warn_of_wait(control, self.id)
        return await control.jobs.wait(self.id, timeout)

    def wait_sync(self, timeout: str | timedelta | None = None) -> Job:
        return self._client.run(lambda: self.wait(timeout), what="wait_sync")

    async def job(self) -> Job:
        """The row as it is now; raises `JobNotFound`."""
        return await (await self._client.open()).jobs.get(self.id)

    def job_sync(self) -> Job:
        return self._client.run(self.job, what="job_sync")

    async def status(self) -> str:
        """Its state now: scheduled, pending, running, succeeded ..."""
        return (await self.job()).status

    def status_sync(self) -> str:
        return self._client.run(self.status, what="status_sync")

    async def cancel(self, reason: str = "cancelled on request") -> Job:
        """Cancel it: at once if no worker holds it, else through `cancelling`. Twice is the same as once."""
        return await (await self._client.open()).operations.cancel(self.id, actor=_ACTOR, reason=reason)

    def cancel_sync(self, reason: str = "cancelled on request") -> Job:
        return self._client.run(lambda: self.cancel(reason), what="cancel_sync")

    async def story(self) -> list[str]:
        """Its events as text lines."""
        return await (await self._client.open()).jobs.story(self.id)

    def story_sync(self) -> list[str]:
        return self._client.run(self.story, what="story_sync")

    def result_of(self, job: Job) -> R_co:
        """The result of the task, from the row of the settled job; raises `JobFailed`."""
        if job.status == "succeeded":
            return self._returns.unpack(job.result, job_id=job.id)
        raise job_failure(job.id, job.name, job.status, job.reason, job.error)

    def __repr__(self) -> str:
        return f"Handle({self.id!r}{', created=True' if self.created else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


def job_failure(job_id: str, name: str, status: str, reason: str | None, error: ErrorInfo | None) -> JobFailed:
    """The error to raise for the result of a job that settled without one."""
    if error is not None:
        cause = f"{error.type}: {error.message}"
        reason = f"{reason} ({cause})" if reason else cause
    return JobFailed(job_id, name, status, reason, error_code=None if error is None else error.code)

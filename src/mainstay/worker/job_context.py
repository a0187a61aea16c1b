"""The running job, seen from inside: `context()`.

The context works the same on the loop, in a thread and in a child process; only the `Link` behind it differs.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine, MutableMapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

import msgspec

from ..clock import seconds
from ..control import Extension, JobRequest
from ..errors import InvalidInput, MainstayError
from ..model import ErrorInfo, Job, Progress

if TYPE_CHECKING:
    from .output_file import AttemptOutput

T = TypeVar("T")

log = logging.getLogger("mainstay.job")

_current: contextvars.ContextVar[Context] = contextvars.ContextVar("mainstay.context")


class Directive(BaseException):
    """How a job ends itself other than by returning. Not an `Exception`, so that an `except Exception` in the job does
    not catch it."""


class Retry(Directive):
    """Count a failure and try again; `after_s` replaces the backoff."""

    def __init__(self, after_s: float | None, reason: str) -> None:
        self.after_s = after_s
        self.reason = reason
        super().__init__(reason)


class Snooze(Directive):
    """Put it off; no failure is counted."""

    def __init__(self, wait_s: float, reason: str | None) -> None:
        self.wait_s = wait_s
        self.reason = reason
        super().__init__(reason or "put itself off")


class Skip(Directive):
    """End it as not needed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class GiveBack(Directive):
    """Release it, so that it can run elsewhere: it cannot run here, or not now. No failure is counted."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class OutOfTime(Directive):
    """End it as one that overran: it counts its time itself, from before this claim. `how`: the time and its limit."""

    def __init__(self, how: str) -> None:
        self.how = how
        super().__init__(how)


class LetGo(Directive):
    """It has given its claim away itself, with its own write: nothing more is written about it."""


class Stopped(Directive):
    """Raised by `Context.check` in a job that was asked to stop."""


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """How one of the jobs this one waited for ended."""

    id: str
    name: str
    status: str
    result: Any = None
    error: ErrorInfo | None = None


class Link(Protocol):
    """How a context reaches the store."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that the coroutines below run on."""
        ...

    def progress(self, progress: Progress) -> None:
        """Note it; it is sent with the next batch. Callable from any thread, never waits."""
        ...

    async def save(self, checkpoint: bytes) -> None:
        """Durable when it returns; raises `StaleClaim`."""
        ...

    async def extend(self) -> Extension: ...

    async def inputs(self) -> list[Input]: ...

    def take_cores(self, cores: int) -> None:
        """Have processes of its own use cores of the node until it ends; raises `GiveBack` if too few are free. Only
        for work that supervises."""
        ...


class Context:
    """One attempt of one job, seen from inside. Get it with `mainstay.context()`.

    `progress` and `submit` never wait. Calls that have to reach the store have two forms: `await save(...)` in an
    `async def`, `save_sync(...)` in a plain function. While the store is away, both wait until it is back; if the job
    is asked to stop during that wait, it ends there.
    """

    def __init__(self, job: Job, link: Link, *, pack: Callable[[Any], bytes], unpack: Callable[[bytes], Any]) -> None:
        self.job = job
        """the row as it was claimed"""
        self._followups: list[JobRequest] | None = []
        """the jobs given to `submit`; None once the job has ended"""
        self._link = link
        self._pack = pack
        self._unpack = unpack
        self._stopping: str | None = None
        self._log: logging.LoggerAdapter[logging.Logger] | None = None
        self.output: AttemptOutput | None = None
        """what it printed, once it has printed something where that is kept; for its worker"""

    # the job ------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def link(self) -> Link:
        """For its worker."""
        return self._link

    @property
    def attempt(self) -> int:
        """1 for the first. Attempts that failed, crashed or were lost with their worker count; snoozes and releases do
        not."""
        return self.job.attempt

    @property
    def checkpoint(self) -> Any:
        """The last data that an earlier attempt saved; None if none did."""
        return None if self.job.checkpoint is None else self._unpack(self.job.checkpoint)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger with `job_id`, `job_name` and `attempt` on every record, and with the keywords of the call:
        `context().log.info("sent", to="ann")`."""
        if self._log is None:
            self._log = _JobLog(log, {"job_id": self.id, "job_name": self.job.name, "attempt": self.attempt})
        return self._log

    # progress -----------------------------------------------------------------------------------

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far it is. Only this resets the stall timeout and earns more run time."""
        self._link.progress(Progress(done=done, total=total, message=message))

    async def save(self, checkpoint: Any) -> None:
        """Store data that the next attempt finds in `checkpoint`, if this one does not succeed."""
        await self._link.save(self._pack(checkpoint))

    def save_sync(self, checkpoint: Any) -> None:
        """`save`, for a plain function."""
        self._run(self._link.save(self._pack(checkpoint)))

    async def extend(self) -> Extension:
        """Request more run time. It is earned by progress: granted if progress rose since the last grant, at most five
        times, each half the one before."""
        return await self._link.extend()

    def extend_sync(self) -> Extension:
        """`extend`, for a plain function."""
        return self._run(self._link.extend())

    async def inputs(self) -> list[Input]:
        """How the jobs it waited for (`after`, a group) ended, in the order given."""
        return await self._link.inputs()

    def inputs_sync(self) -> list[Input]:
        """`inputs`, for a plain function."""
        return self._run(self._link.inputs())

    # stop ---------------------------------------------------------------------------------------

    @property
    def stopping(self) -> str | None:
        """Why it is asked to stop (cancelled, timed out, worker stops); None: go on. An `async def` is also cancelled;
        a plain function has to check this."""
        return self._stopping

    def check(self) -> None:
        """End the job here if it is asked to stop: for loops in plain functions."""
        if self._stopping is not None:
            raise Stopped(self._stopping)

    def stop(self, why: str) -> None:
        """Ask it to stop; called by its worker."""
        self._stopping = self._stopping or why

    # follow-ups ---------------------------------------------------------------------------------

    def submit(self, *jobs: Any) -> None:
        """Submit jobs (`task.job(...)`) in the same transaction as this one's success, or not at all."""
        if self._followups is None:
            raise MainstayError(f"job {self.id} has ended; it can no longer submit jobs with its success")
        for job in jobs:
            followup = getattr(job, "followup", None)
            request = job if followup is None else followup()
            if not isinstance(request, JobRequest):
                raise InvalidInput("submit", f"{job!r} is not a job to submit; write task.job(...)")
            self._followups.append(request)

    def close(self) -> tuple[JobRequest, ...]:
        """The job has ended: the jobs to submit with its success. Called by its worker."""
        followups, self._followups = self._followups, None
        if self.output is not None:
            self.output.close()
        return tuple(followups or ())

    def retry(self, after: str | timedelta | None = None, reason: str = "asked to be tried again") -> NoReturn:
        """End this attempt; count a failure and try again, after `after` if given, else after the usual backoff."""
        raise Retry(None if after is None else seconds(after, field="after"), reason)

    def snooze(self, wait: str | timedelta, reason: str | None = None) -> NoReturn:
        """End this attempt and run again after a wait; no failure is counted."""
        raise Snooze(seconds(wait, field="wait"), reason)

    def skip(self, reason: str) -> NoReturn:
        """End the job: it is not needed."""
        raise Skip(reason)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run on the worker's loop, from another thread."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(coroutine, self._link.loop).result()
        coroutine.close()
        raise MainstayError(
            f"job {self.id}: a _sync call inside {running!r} would wait for itself; use `await` in an async def"
        )


def context() -> Context:
    """The context of the job that is running here; raises outside of one.

    >>> context()
    Traceback (most recent call last):
    mainstay.errors.MainstayError: no job is running here; context() works inside a task only
    """
    current = _current.get(None)
    if current is None:
        raise MainstayError("no job is running here; context() works inside a task only")
    return current


def current_job() -> Context | None:
    """The context of the job that is running here; None outside of one."""
    return _current.get(None)


def enter(context: Context) -> contextvars.Token[Context]:
    """Make it the current one, in this task or thread."""
    return _current.set(context)


#: the keywords of the standard logger; every other keyword is a field of the record
_LOGGING = ("exc_info", "stack_info", "stacklevel", "extra")
#: the attributes that every record has; a field cannot replace them
_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class _JobLog(logging.LoggerAdapter[logging.Logger]):
    """Adds the fields of the job to the keywords of the call: `log.info("sent", to="ann")`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        given = {name: kwargs.pop(name) for name in list(kwargs) if name not in _LOGGING}
        fields = {**kwargs.get("extra", {}), **given}
        own = {f"{name}_" if name in _RECORD else name: value for name, value in fields.items()}
        kwargs["extra"] = {**(self.extra or {}), **own}
        return msg, kwargs

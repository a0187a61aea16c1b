"""The results of a test: the submitted jobs, the attempts, and the ends."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ..app import App
from ..errors import InvalidInput, MainstayError
from ..model import Job
from ..task import Task

_LISTED = 20


class DrainError(MainstayError):
    """The jobs did not end: one hangs, or they submit new ones without end."""

    code = "drain"


class SubmittedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was submitted."""

    id: str
    task: str
    arguments: Mapping[str, Any]
    """by name, as the task gets them; without arguments that were not given"""
    queue: str
    priority: int
    delay: timedelta
    """from the submit to its due time; zero: at once"""
    run_at: datetime
    key: str | None
    tags: tuple[str, ...]
    metadata: Mapping[str, str]
    job: Job
    """the current row, for everything else"""

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        options = [f"queue={self.queue}"] if self.queue != "default" else []
        if self.delay:
            options.append(f"delay={self.delay}")
        if self.key is not None:
            options.append(f"key={self.key!r}")
        return f"{self.task}({given})" + (f" with {', '.join(options)}" if options else "")


class RanJob(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one job."""

    id: str
    task: str
    attempt: int
    at: datetime
    """in virtual time"""


class DrainResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one drain."""

    runs: tuple[RanJob, ...] = ()
    """every attempt, in the order of their starts"""
    settled: tuple[Job, ...] = ()
    """the jobs that settled, in the order of their submits"""
    left: tuple[Job, ...] = ()
    """the jobs that did not settle: their queue is paused, for example, or they are due after `until`"""
    took: timedelta = timedelta()
    """how far the virtual clock moved"""

    @property
    def counts(self) -> dict[str, int]:
        """Settled jobs per status."""
        return dict(Counter(job.status for job in self.settled))

    @property
    def failed(self) -> tuple[Job, ...]:
        """The settled jobs that neither succeeded nor were skipped."""
        return tuple(job for job in self.settled if job.status not in ("succeeded", "skipped"))

    def expect_success(self) -> None:
        """Raise an AssertionError with the failures and their causes, unless every job succeeded or was skipped."""
        wrong = [f"  {job.name} is {job.status}: {_why(job)}" for job in self.failed]
        wrong += [f"  {job.name} is still {job.status}: {_why(job)}" for job in self.left]
        if wrong:
            raise AssertionError("\n".join(["not every job succeeded:", *wrong[:_LISTED], *_more(wrong)]))


def submitted_of(app: App, job: Job, now: Job) -> SubmittedJob:
    """A submitted job, from its first row and its current row."""
    task = app.tasks.get(job.name)
    try:
        arguments = {} if task is None else task.arguments(job.payload)
    except InvalidInput:  # submitted by name, for a task of another signature
        arguments = {}
    due_ms = max(job.created_ms, (job.options.not_before_ms or 0) if job.awaits or job.awaits_cores else job.due_ms)
    return SubmittedJob(
        id=job.id,
        task=job.name,
        arguments=arguments,
        queue=job.queue,
        priority=job.priority,
        delay=timedelta(milliseconds=due_ms - job.created_ms),
        run_at=datetime.fromtimestamp(due_ms / 1000, UTC),
        key=job.key,
        tags=job.options.tags,
        metadata=job.options.metadata,
        job=now,
    )


def matching(
    app: App, found: Sequence[SubmittedJob], task: Task[..., Any] | str | None, arguments: Mapping[str, Any]
) -> list[SubmittedJob]:
    """Those of a task whose arguments have these values; a default counts as given."""
    name = _named(app, task)
    known = app.tasks.get(name) if name is not None else None
    defaults = {} if known is None else _defaults(known)
    if known is not None and (odd := set(arguments) - set(inspect.signature(known.function).parameters)):
        raise InvalidInput(f"{name}.{min(odd)}", f"the task has no such parameter; it takes {_signature(known)}")
    return [
        each
        for each in found
        if (name is None or each.task == name)
        and all(_same({**defaults, **each.arguments}, key, value) for key, value in arguments.items())
    ]


def listing(found: Sequence[SubmittedJob]) -> str:
    """For the message of a failed assertion."""
    if not found:
        return "nothing was submitted"
    lines = [f"  {each}" for each in found]
    return "\n".join(["what was submitted:", *lines[:_LISTED], *_more(lines)])


def wanted(task: Task[..., Any] | str | None, arguments: Mapping[str, Any]) -> str:
    """The job that an assertion expects, as text."""
    name = getattr(task, "name", task) or "any task"
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _named(app: App, task: Task[..., Any] | str | None) -> str | None:
    if task is None or isinstance(task, str):
        return task
    if not isinstance(task, Task):
        raise InvalidInput("task", f"{task!r} is neither a task nor the name of one")
    if app.tasks.get(task.name) is not task:
        raise InvalidInput("task", f"{task!r} belongs to another app")
    return task.name


def _same(arguments: Mapping[str, Any], key: str, value: Any) -> bool:
    return key in arguments and bool(arguments[key] == value)


def _defaults(task: Task[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(task.function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def _signature(task: Task[..., Any]) -> str:
    return str(inspect.signature(task.function))


def _why(job: Job) -> str:
    if job.error is not None:
        return f"{job.error.type}: {job.error.message}"
    return job.reason or "no reason is stored"


def _more(lines: Sequence[str]) -> list[str]:
    return [f"  ... and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []

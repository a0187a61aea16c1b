"""Submit from the command line: one job, or one for each line of a file. With a task that checks the arguments, or
without."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import msgspec

from ...control import Control, InsertResult, JobRequest, stored_value
from ...errors import MainstayError, UnknownTask
from ...kinds import kinds
from ...model import Job
from ...words import counted
from ...worker import AppBase
from .. import Task
from .arguments import TypedArguments, read_object

CHUNK = 1000
_REQUEST = re.compile(r"requests\[(\d+)\]\.?")


class Maker(Protocol):
    """Makes the jobs of a submit and reads their results."""

    validated: bool

    def request(self, given: TypedArguments, *, key: str | None = None) -> JobRequest: ...

    async def result(self, job: Job) -> Any: ...


@runtime_checkable
class CheckedNow(Protocol):
    """A maker that refuses a job which could not run with what is active now."""

    async def check(self, request: JobRequest, control: Control) -> None: ...


class Checked:
    """Makes jobs of a task of an app, which checks the arguments."""

    validated = True

    def __init__(self, task: Task[..., Any], options: Mapping[str, Any]) -> None:
        self._task = task
        self._options = options
        self._submits = task.options(**options)

    def request(self, given: TypedArguments, *, key: str | None = None) -> JobRequest:
        """The job, after the hooks of the app."""
        submits = self._submits if key is None else self._task.options(**{**self._options, "key": key})
        return submits.job(**given.typed(self._task.signature)).ready()

    async def result(self, job: Job) -> Any:
        return await self._task.handle(job.id).result()


class Unchecked:
    """Makes jobs of a task of which only the name is known: the arguments are stored as given."""

    validated = False

    def __init__(self, control: Control, name: str, options: Mapping[str, Any]) -> None:
        self._control = control
        self._name = name
        self._options = options
        self._plan = control.jobs.plan(**options)

    def request(self, given: TypedArguments, *, key: str | None = None) -> JobRequest:
        plan = self._plan if key is None else self._control.jobs.plan(**{**self._options, "key": key})
        return JobRequest(self._name, given.plain(), plan)

    async def result(self, job: Job) -> Any:
        return None if job.result is None else stored_value(job.result)


def task_of(app: AppBase, name: str) -> Task[..., Any]:
    """The task of that name; raises `UnknownTask` with the closest name."""
    tasks: Mapping[str, Task[..., Any]] = app.part("task").tasks
    task = tasks.get(name)
    if task is None:
        # people leave out the module
        close = [known for known in tasks if known.endswith(f".{name}")]
        raise UnknownTask(name, close or [*tasks, *_other_names(app)])
    return task


def _other_names(app: AppBase) -> list[str]:
    """The names of other kinds that can be submitted."""
    return [name for kind in kinds() if kind.submission for name in app.part(kind.name).submitted_names]


class ArgumentLine(msgspec.Struct, frozen=True):
    """One line of a file of arguments."""

    number: int
    text: bytes


class Stored(msgspec.Struct, kw_only=True):
    """The jobs that are stored so far."""

    jobs: list[InsertResult] = []
    next_line: int = 1
    """the first line that is not stored"""

    @property
    def created(self) -> int:
        return sum(job.created for job in self.jobs)

    def data(self, **more: Any) -> dict[str, Any]:
        """The jobs for programs, with how the submit ended."""
        jobs = [{"id": job.id, "created": job.created} for job in self.jobs]
        return {"stored": len(jobs), "created": self.created, "next_line": self.next_line, **more, "jobs": jobs}


def lines_of(file: Iterable[bytes], *, start: int, on_read: Callable[[int], object]) -> Iterator[ArgumentLine]:
    """The lines from `start` on that are not empty; `on_read` gets the number of bytes of each line."""
    for number, text in enumerate(file, 1):
        on_read(len(text))
        if number >= start and text.strip():
            yield ArgumentLine(number, text)


async def submit_lines(
    control: Control,
    maker: Maker,
    lines: Iterator[ArgumentLine],
    given: TypedArguments,
    stored: Stored,
    *,
    key: str | None,
) -> None:
    """Submit a job for each line, in chunks that are stored whole or not at all. `stored` is updated with each chunk.

    An error names the line and how to continue.
    """
    while chunk := list(islice(lines, CHUNK)):
        line = chunk[0]
        try:
            requests = []
            for line in chunk:
                data = read_object(line.text, "the arguments")
                line_key = None if key is None else f"{key}:{line.number}"
                requests.append(maker.request(TypedArguments(data=data, texts=given.texts), key=line_key))
        except MainstayError as error:
            error.args = (f"line {line.number}: {error}\n{how_to_continue(stored)}",)
            raise
        storing = asyncio.ensure_future(_store(control, requests, chunk, stored))
        try:
            await asyncio.shield(storing)
        except asyncio.CancelledError:
            # Ctrl-C: the chunk may be stored already, and the message must be right
            await storing
            raise


async def _store(control: Control, requests: list[JobRequest], chunk: list[ArgumentLine], stored: Stored) -> None:
    try:
        stored.jobs += await control.jobs.submit_many(requests)
    except MainstayError as error:
        error.args = (f"{_with_line(str(error), chunk)}\n{how_to_continue(stored)}",)
        raise
    stored.next_line = chunk[-1].number + 1


def how_to_continue(stored: Stored) -> str:
    """How many jobs are stored, and the option that submits the rest."""
    if not stored.jobs:
        return "nothing is stored"
    jobs, line = counted(len(stored.jobs), "job is", "jobs are"), stored.next_line
    return f"{jobs} stored, from the lines before line {line}; continue with --from-line {line}"


def _with_line(message: str, chunk: list[ArgumentLine]) -> str:
    """The message with the number of the line instead of the place in the chunk."""
    match = _REQUEST.search(message)
    if match is None:
        return message if len(chunk) > 1 else f"line {chunk[0].number}: {message}"
    return f"line {chunk[int(match[1])].number}: {message[: match.start()]}{message[match.end() :].lstrip(': ')}"

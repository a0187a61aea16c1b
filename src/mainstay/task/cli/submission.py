"""Submit from the command line: one job, or one for each line. With a task that checks the arguments, or without."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

import msgspec

from ...app import App
from ...control import Control, InsertResult, JobRequest
from ...control.json_view import stored_value
from ...errors import MainstayError, UnknownTask
from ...kinds import kinds
from ...model import Job
from .. import Task
from .arguments import Given, read_object

CHUNK = 1000
_REQUEST = re.compile(r"requests\[(\d+)\]\.?")


class Maker(Protocol):
    """Makes what is submitted, and reads what comes back."""

    validated: bool

    def request(self, given: Given, *, key: str | None = None) -> JobRequest: ...

    async def result(self, job: Job) -> Any: ...


class Checked:
    """A task of an app: it says what fits."""

    validated = True

    def __init__(self, task: Task[..., Any], options: Mapping[str, Any]) -> None:
        self._task = task
        self._options = options
        self._submits = task.options(**options)

    def request(self, given: Given, *, key: str | None = None) -> JobRequest:
        """Bound, checked, and seen by the hooks of the app."""
        submits = self._submits if key is None else self._task.options(**{**self._options, "key": key})
        return submits.job(**given.typed(self._task)).ready()

    async def result(self, job: Job) -> Any:
        return await self._task.handle(job.id).result()


class Unchecked:
    """Only a name: whatever is given is stored for it."""

    validated = False

    def __init__(self, control: Control, name: str, options: Mapping[str, Any]) -> None:
        self._control = control
        self._name = name
        self._options = options
        self._plan = control.jobs.plan(**options)

    def request(self, given: Given, *, key: str | None = None) -> JobRequest:
        """As it is."""
        plan = self._plan if key is None else self._control.jobs.plan(**{**self._options, "key": key})
        return JobRequest(self._name, given.plain(), plan)

    async def result(self, job: Job) -> Any:
        return None if job.result is None else stored_value(job.result)


def task_of(app: App, name: str) -> Task[..., Any]:
    """The task of that name; raises `UnknownTask` with what may have been meant."""
    found = app.tasks.get(name)
    if found is None:
        # people leave out the module
        alike = [known for known in app.tasks if known.endswith(f".{name}")]
        raise UnknownTask(name, alike or [*app.tasks, *_others(app)])
    return found


def _others(app: App) -> list[str]:
    """What can be submitted besides tasks: the names of kinds that say how."""
    names = (app.part(kind.name).handlers for kind in kinds() if kind.submission)
    return [name for found in names for name in found]


class Line(msgspec.Struct, frozen=True):
    """One line of a file of arguments."""

    number: int
    text: bytes


class Stored(msgspec.Struct, kw_only=True):
    """How far it got."""

    jobs: list[InsertResult] = []
    next_line: int = 1
    """the first line that is not stored"""

    @property
    def created(self) -> int:
        return sum(job.created for job in self.jobs)


def lines_of(file: Iterable[bytes], *, start: int, seen: Callable[[int], object]) -> Iterator[Line]:
    """The lines from `start` on that are not empty; `seen` is told how many bytes were read."""
    for number, text in enumerate(file, 1):
        seen(len(text))
        if number >= start and text.strip():
            yield Line(number, text)


async def submit_lines(
    control: Control, maker: Maker, lines: Iterator[Line], given: Given, stored: Stored, *, key: str | None
) -> None:
    """Submit a job for each line, in chunks that are stored whole or not at all; `stored` says how far it got.

    An error names the line, and says how to go on.
    """
    while chunk := list(islice(lines, CHUNK)):
        line = chunk[0]
        try:
            requests = []
            for line in chunk:
                data = read_object(line.text, "the arguments")
                own = None if key is None else f"{key}:{line.number}"
                requests.append(maker.request(Given(data=data, texts=given.texts), key=own))
        except MainstayError as error:
            error.args = (f"line {line.number}: {error}\n{how_to_go_on(stored)}",)
            raise
        storing = asyncio.ensure_future(_store(control, requests, chunk, stored))
        try:
            await asyncio.shield(storing)
        except asyncio.CancelledError:
            # Ctrl-C: the chunk may be stored already, and what is told then must be right
            await storing
            raise


async def _store(control: Control, requests: list[JobRequest], chunk: list[Line], stored: Stored) -> None:
    try:
        stored.jobs += await control.jobs.submit_many(requests)
    except MainstayError as error:
        error.args = (f"{_with_line(str(error), chunk)}\n{how_to_go_on(stored)}",)
        raise
    stored.next_line = chunk[-1].number + 1


def how_to_go_on(stored: Stored) -> str:
    """What is stored, and from where the rest is to be submitted."""
    if not stored.jobs:
        return "nothing is stored"
    n = f"{len(stored.jobs):,} {'job is' if len(stored.jobs) == 1 else 'jobs are'}"
    return f"{n} stored, from the lines before line {stored.next_line}; go on with --from-line {stored.next_line}"


def _with_line(message: str, chunk: list[Line]) -> str:
    """Which line is meant by the place in a batch."""
    found = _REQUEST.search(message)
    if found is None:
        return message if len(chunk) > 1 else f"line {chunk[0].number}: {message}"
    return f"line {chunk[int(found[1])].number}: {message[: found.start()]}{message[found.end() :].lstrip(': ')}"

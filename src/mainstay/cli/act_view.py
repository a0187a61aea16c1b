"""How it looks when something is done to jobs: the preview, the progress, and what became of them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..control.bulk import BulkAnswer, JobSelection, paged, walk
from ..control.json_view import job_view
from ..errors import MainstayError
from ..lifecycle import is_stopping
from ..stores import JobStore
from . import jobs_view
from .common import coloured, printable
from .exits import FAILED

#: refused jobs that are named; the rest are counted, and all are in --json
_NAMED = 5
#: jobs named one by one up to here are answered for one by one
_SINGLY = 20

#: outcome -> what it means, in the words of a count
_SAID = {
    "already_applied": "already so",
    "invalid": "refused",
    "stale": "refused",
    "held": "being worked on",
    "missing": "gone",
    "conflict": "moved by others meanwhile",
}


class Told(Protocol):
    """Who is told of the answers as they come."""

    all_ok: bool

    def take(self, answers: Sequence[BulkAnswer]) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def told(verb: str, done: str, found: JobSelection, console: Console, *, as_json: bool) -> Told:
    """A person, or a program."""
    return _Program(verb) if as_json else _Person(done, found, console)


@contextlib.contextmanager
def counting(*, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A spinner while jobs are being counted."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("looking")
        yield lambda n: bar.update(task, description=f"{n:,} jobs match so far")


def show_preview(verb: str, found: JobSelection, console: Console) -> None:
    """How many there are, by state, and the first of them."""
    if not found.total:
        console.print("no jobs match")
        return
    line = Text(f"{verb} ")
    counted = sum(found.counts.values())
    if found.total < counted:
        line.append(f"the {found.total:,} oldest of ")
    line.append(f"{counted:,} {'job' if counted == 1 else 'jobs'}: ")
    for place, (status, n) in enumerate(sorted(found.counts.items(), key=lambda item: -item[1])):
        line.append(", " if place else "").append(f"{n:,} ").append_text(coloured(status))
    console.print(line)
    jobs_view.show_rows(found.first, found.now_ms, console)
    if found.total > len(found.first):
        console.print(Text(f"... and {found.total - len(found.first):,} more", style="dim"))


async def show_plan(verb: str, found: JobSelection, store: JobStore, console: Console, *, as_json: bool) -> None:
    """What would be done, and nothing else."""
    if not as_json:
        show_preview(verb, found, console)
        console.print(Text("nothing was done (--dry-run)", style="dim"))
        return
    with _Stream({"action": verb, "dry_run": True}) as out:
        if found.query is None:
            for ids in paged(found.ids):
                out.rows([job_view(job) for job in await store.get(ids) if job is not None])
        else:
            async for page in walk(store, found.query, limit=found.limit):
                out.rows([job_view(job) for job in page])
        out.rest = {"counts": found.counts, "total": found.total}


class _Person:
    """A bar while it lasts, and at the end what became of them."""

    def __init__(self, done: str, found: JobSelection, console: Console) -> None:
        self.all_ok = True
        self._done = done
        self._found = found
        self._console = console
        self._counts: Counter[str] = Counter()
        self._refused: list[BulkAnswer] = []
        err = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
        self._task = self._bar.add_task(done, total=found.total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        # also when it was cut short: what is done is done
        if self._counts:
            self._print_end()

    def take(self, answers: Sequence[BulkAnswer]) -> None:
        """Count a page of answers; few named jobs are answered for one by one."""
        for answer in answers:
            self._counts[answer.outcome] += 1
            if not answer.ok:
                self.all_ok = False
                if len(self._refused) < _NAMED:
                    self._refused.append(answer)
        self._bar.advance(self._task, len(answers))
        if self._found.query is None and len(self._found.ids) <= _SINGLY:
            for answer in answers:
                if answer.ok:
                    self._print_one(answer)

    def _print_one(self, answer: BulkAnswer) -> None:
        line = Text(f"{answer.id} ", style="dim").append_text(coloured(answer.status or answer.outcome))
        if answer.outcome == "already_applied":
            line.append(" already", style="dim")
        elif answer.status is not None and is_stopping(None, answer.status):
            line.append(" when its worker has stopped", style="dim")
        self._console.print(line, soft_wrap=True)

    def _print_end(self) -> None:
        for answer in self._refused:
            why = printable(answer.error or _SAID.get(answer.outcome, ""))
            # most errors name the job themselves
            line = Text(why) if answer.id in why else Text(f"{answer.id} ", style="dim").append(why)
            self._console.print(line, soft_wrap=True)
        left = sum(n for outcome, n in self._counts.items() if outcome in _SAID and outcome != "already_applied")
        if left > len(self._refused):
            self._console.print(Text(f"... and {left - len(self._refused):,} more; --json shows all", style="dim"))
        if self._found.query is None and len(self._found.ids) == 1:
            return  # it has been said
        said: Counter[str] = Counter()
        for outcome, n in self._counts.items():
            said[_SAID.get(outcome, self._done)] += n
        self._console.print(", ".join(f"{n:,} {words}" for words, n in said.most_common()))


class _Program:
    """One JSON value, written as the answers come."""

    def __init__(self, verb: str) -> None:
        self.all_ok = True
        self._counts: Counter[str] = Counter()
        self._out = _Stream({"action": verb, "dry_run": False})

    def __enter__(self) -> Self:
        self._out.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._out.rest = {"counts": dict(self._counts)}
        self._out.__exit__(kind, error, trace)

    def take(self, answers: Sequence[BulkAnswer]) -> None:
        """Write a page of answers."""
        self._counts.update(answer.outcome for answer in answers)
        self.all_ok = self.all_ok and all(answer.ok for answer in answers)
        self._out.rows(answers)


class _Stream:
    """A JSON object with a long list `jobs` in it that is never in memory as a whole."""

    def __init__(self, head: Mapping[str, Any]) -> None:
        self.rest: Mapping[str, Any] = {}
        self._head = head
        self._first = True

    def __enter__(self) -> Self:
        typer.echo(_json(self._head).removesuffix("}") + ',"jobs":[', nl=False)
        return self

    def rows(self, rows: Sequence[msgspec.Struct]) -> None:
        """Write some."""
        for row in rows:
            typer.echo(("" if self._first else ",") + "\n" + _json(row), nl=False)
            self._first = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        rest = dict(self.rest)
        if isinstance(error, MainstayError):
            rest["error"] = {"code": error.code, "message": str(error)}
        typer.echo("\n]," + _json(rest).removeprefix("{"))
        if isinstance(error, MainstayError):
            raise typer.Exit(FAILED) from error


def _json(data: Any) -> str:
    return msgspec.json.encode(data).decode()

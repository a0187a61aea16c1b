"""The output of commands that change jobs: the preview, the progress, and the result."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..control import job_view
from ..control.bulk import BulkAnswer, JobSelection, paged, walk
from ..errors import MainstayError
from ..lifecycle import is_stopping
from ..stores import JobStore
from ..words import counted
from . import jobs_view
from .commands import error_data
from .common import coloured, printable
from .exits import FAILED

#: refused jobs that are named; the rest are counted, and all are in --json
_NAMED = 5
#: up to this many jobs given by id have a line each
_SINGLY = 20

#: outcome -> its name in the summary
_OUTCOMES = {
    "already_applied": "already so",
    "invalid": "refused",
    "stale": "refused",
    "held": "being worked on",
    "missing": "gone",
    "conflict": "changed by others first",
}


@contextlib.contextmanager
def counting(*, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A spinner while jobs are being counted."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("searching")
        yield lambda n: bar.update(task, description=f"{n:,} jobs match so far")


def show_preview(verb: str, selection: JobSelection, console: Console) -> None:
    """The selected jobs: their number, by state, and the first of them."""
    if not selection.total:
        console.print("no jobs match")
        return
    line = Text(f"{verb} ")
    matching = sum(selection.counts.values())
    if selection.total < matching:
        line.append(f"the {selection.total:,} oldest of ")
    line.append(f"{counted(matching, 'job')}: ")
    for place, (status, n) in enumerate(sorted(selection.counts.items(), key=lambda item: -item[1])):
        line.append(", " if place else "").append(f"{n:,} ").append_text(coloured(status))
    console.print(line)
    jobs_view.show_rows(selection.first, selection.now_ms, console)
    if selection.total > len(selection.first):
        console.print(Text(f"... and {selection.total - len(selection.first):,} more", style="dim"))


async def show_plan(verb: str, selection: JobSelection, store: JobStore, console: Console, *, as_json: bool) -> None:
    """The selected jobs, for `--dry-run`."""
    if not as_json:
        show_preview(verb, selection, console)
        console.print(Text("nothing was done (--dry-run)", style="dim"))
        return
    with _json_jobs({"action": verb, "dry_run": True}) as stream:
        if selection.query is None:
            for ids in paged(selection.ids):
                stream.write([job_view(job) for job in await store.get(ids) if job is not None])
        else:
            async for page in walk(store, selection.query, limit=selection.limit):
                stream.write([job_view(job) for job in page])
        stream.rest = {"counts": selection.counts, "total": selection.total}


class BulkReport:
    """Counts the answers, and shows them as they come."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.all_ok = True

    def add(self, answers: Sequence[BulkAnswer]) -> None:
        """Add a page of answers."""
        self.counts.update(answer.outcome for answer in answers)
        self.all_ok = self.all_ok and all(answer.ok for answer in answers)


@contextlib.contextmanager
def json_report(verb: str) -> Iterator[BulkReport]:
    """One JSON value, written as the answers come."""
    with _json_jobs({"action": verb, "dry_run": False}) as stream:
        report = _JsonReport(stream)
        try:
            yield report
        finally:
            stream.rest = {"counts": dict(report.counts)}


@contextlib.contextmanager
def terminal_report(done: str, selection: JobSelection, console: Console) -> Iterator[BulkReport]:
    """A progress bar, and in the end a summary; also after an error, since what is done is done."""
    report = _TerminalReport(done, selection, console)
    try:
        with report.bar:
            yield report
    finally:
        if report.counts:
            report.print_summary()


class _JsonReport(BulkReport):
    def __init__(self, stream: _JsonStream) -> None:
        super().__init__()
        self._stream = stream

    def add(self, answers: Sequence[BulkAnswer]) -> None:
        super().add(answers)
        self._stream.write(answers)


class _TerminalReport(BulkReport):
    def __init__(self, done: str, selection: JobSelection, console: Console) -> None:
        super().__init__()
        self._done = done
        self._console = console
        self._given = len(selection.ids) if selection.query is None else None
        """the number of jobs that were given by id"""
        self._refusals = 0
        self._named: list[BulkAnswer] = []
        stderr = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal)
        self._task = self.bar.add_task(done, total=selection.total)

    def add(self, answers: Sequence[BulkAnswer]) -> None:
        super().add(answers)
        refused = [answer for answer in answers if not answer.ok]
        self._refusals += len(refused)
        self._named += refused[: _NAMED - len(self._named)]
        self.bar.advance(self._task, len(answers))
        if self._given is not None and self._given <= _SINGLY:
            for answer in answers:
                if answer.ok:
                    self._print_line(answer)

    def _print_line(self, answer: BulkAnswer) -> None:
        line = Text(f"{answer.id} ", style="dim").append_text(coloured(answer.status or answer.outcome))
        if answer.outcome == "already_applied":
            line.append(" already", style="dim")
        elif answer.status is not None and is_stopping(None, answer.status):
            line.append(" when its worker has stopped", style="dim")
        self._console.print(line, soft_wrap=True)

    def print_summary(self) -> None:
        """Print the refused jobs, and the number of jobs by outcome."""
        for answer in self._named:
            error = printable(answer.error or _OUTCOMES.get(answer.outcome, ""))
            # most errors name the job themselves
            line = Text(error) if answer.id in error else Text(f"{answer.id} ", style="dim").append(error)
            self._console.print(line, soft_wrap=True)
        if rest := self._refusals - len(self._named):
            self._console.print(Text(f"... and {rest:,} more; --json shows all", style="dim"))
        if self._given == 1:
            return  # its line says it
        by_name: Counter[str] = Counter()
        for outcome, n in self.counts.items():
            by_name[_OUTCOMES.get(outcome, self._done)] += n
        self._console.print(", ".join(f"{n:,} {name}" for name, n in by_name.most_common()))


class _JsonStream:
    """Writes a JSON object with a long list, without holding the list in memory."""

    def __init__(self) -> None:
        self.rest: dict[str, Any] = {}
        """fields after the list"""
        self._separator = ""

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Write elements of the list."""
        for row in rows:
            typer.echo(f"{self._separator}\n{_json(row)}", nl=False)
            self._separator = ","


@contextlib.contextmanager
def _json_jobs(head: Mapping[str, Any]) -> Iterator[_JsonStream]:
    """A JSON object with the fields of `head`, the list `jobs`, and the rest."""
    typer.echo(_json(head).removesuffix("}") + ',"jobs":[', nl=False)
    stream = _JsonStream()
    try:
        yield stream
    except MainstayError as error:
        stream.rest["error"] = error_data(error)
        raise typer.Exit(FAILED) from error
    finally:
        typer.echo("\n]," + _json(stream.rest).removeprefix("{"))


def _json(data: Any) -> str:
    return msgspec.json.encode(data).decode()

"""`mainstay check`: check every invariant of every job; with `--repair`, repair violations."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ..control.check import Report, check
from ..errors import MainstayError, StoreError
from ..lifecycle.invariants import INVARIANTS, Mend
from ..stores import Violation
from ..words import counted
from .commands import CommandOutput, command, error_data
from .common import JsonOption, aside, opened, print_command, printable, shortened
from .exits import DONE, FAILED, INTERRUPTED, NO
from .tables import Column, table
from .target import Where

#: findings shown; the rest are counted, and all are in --json
_SHOWN = 200
#: from this width on, a finding stands beside the job's id; below, under it, so that the id can be copied
_WIDE = 110

#: violations that may come from a change by hand: to be examined, and copied, before a repair overwrites them
EVIDENCE = frozenset(each.code for each in INVARIANTS if each.mend is Mend.ANCHOR) | {
    "payload_changed",
    "status_mismatch",
    "unknown_status",
    "stray_events",
}


class _CheckProgress:
    """The progress bar, and how far the check has come."""

    def __init__(self, *, quiet: bool) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("checking"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
        self._task = self.bar.add_task("checking", total=None)
        self.done = self.total = 0

    def __call__(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        self.bar.update(self._task, completed=done, total=total)


def check_store(
    where: Where,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair what has one safe answer; quarantine the rest.")
    ] = False,
    as_json: JsonOption = False,
) -> CommandOutput:
    """Check every job: its state, claim, numbers and payload, and the hash chain of its history.

    Without --repair nothing is changed. With it, violations with one safe answer are repaired, other jobs are
    quarantined, and each job's audit trail records the repair. Workers may run at the same time.

    Exit codes: 0 clean (or all repaired), 1 violations, 2 could not check, 130 stopped by Ctrl-C.

    [bold]Examples[/bold] (the default of --store is MAINSTAY_STORE)

      mainstay check --store sqlite:///jobs.db
      mainstay check --repair
      mainstay check --json | jq .violations
    """
    progress = _CheckProgress(quiet=as_json)
    try:
        report = asyncio.run(_check(where, progress, repair=repair))
    except MainstayError as error:
        if not as_json:
            raise
        return CommandOutput(_failure(where, error_data(error)), "", exit_code=FAILED)
    except KeyboardInterrupt:
        message = _interruption(progress, repair=repair)
        return CommandOutput(
            _failure(where, {"code": "interrupted", "message": message}),
            lambda _: aside(message, style=""),
            exit_code=INTERRUPTED,
        )
    return CommandOutput(
        {"clean": report.clean, "repair": repair, **msgspec.to_builtins(report)},
        lambda console: _show(report, console, where, repair=repair),
        exit_code=DONE if report.clean else NO,
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "check")(check_store)


async def _check(where: Where, progress: _CheckProgress, *, repair: bool) -> Report:
    try:
        async with opened(where.target().url) as store:
            with progress.bar:
                return await check(store, repair=repair, progress=progress)
    except MainstayError:
        raise
    except Exception as error:
        # any other error means "could not check", never "clean" and never a bare traceback
        raise StoreError(f"the check could not go on: {type(error).__name__}: {error}") from error


def _failure(where: Where, error: dict[str, str]) -> dict[str, Any]:
    return {"store": where.store or where.app, "clean": None, "error": error}


def _interruption(progress: _CheckProgress, *, repair: bool) -> str:
    rows = f"after {progress.done} of {progress.total} rows" if progress.total else "before the first row"
    return f"stopped {rows}; {'completed repairs stay' if repair else 'nothing was changed'}"


def _show(report: Report, console: Console, where: Where, *, repair: bool) -> None:
    for findings, colour in ((report.violations, "red"), (report.notices, "yellow")):
        if findings:
            _show_findings(findings, colour, console)
    console.print(_verdict(report))
    if report.remaining:
        _advise(report, console, where, repair=repair)


def _show_findings(findings: Sequence[Violation], colour: str, console: Console) -> None:
    shown = findings[:_SHOWN]
    if console.width >= _WIDE:
        console.print(_table(shown, colour))
    else:
        _print_by_job(shown, colour, console)
    console.print()
    if len(findings) > _SHOWN:
        console.print(Text(f"... and {len(findings) - _SHOWN} more; --json shows all", style="dim"))


def _table(findings: Sequence[Violation], colour: str) -> Table:
    column = Column[Violation]
    columns = [
        column("job", _job, no_wrap=True, style="dim"),
        column("what", lambda finding: _code(finding, colour), no_wrap=True),
        column("found", lambda finding: shortened(printable(finding.message))),
    ]
    if any(finding.repaired for finding in findings):
        columns.append(column("done", _repair))
    return table(columns, findings)


def _print_by_job(findings: Sequence[Violation], colour: str, console: Console) -> None:
    repaired = any(finding.repaired for finding in findings)
    code_width = max(len(finding.code) for finding in findings)
    jobs: dict[str, list[Violation]] = {}
    for finding in findings:
        jobs.setdefault(_job(finding), []).append(finding)
    for job, of_job in jobs.items():
        console.print(Text(job, style="dim"), soft_wrap=True)
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(min_width=min(code_width, console.width // 3), overflow="fold")
        grid.add_column(overflow="fold", ratio=2)
        if repaired:
            grid.add_column(overflow="fold", ratio=1)
        for finding in of_job:
            message = Text(shortened(printable(finding.message)))
            grid.add_row(_code(finding, colour), message, *([_repair(finding)] if repaired else []))
        console.print(Padding(grid, (0, 0, 0, 2)))


def _job(finding: Violation) -> str:
    return printable(finding.job_id or "(store)")


def _code(finding: Violation, colour: str) -> Text:
    return Text(finding.code, style="green" if finding.repaired else colour)


def _repair(finding: Violation) -> Text:
    if not finding.repaired:
        return Text("-", style="red")
    return Text(shortened(printable(finding.repaired)), style="green")


def _verdict(report: Report) -> Text:
    rows = f"; {counted(report.checked, 'row')} checked in {report.seconds:.1f} s"
    left = len(report.remaining)
    repaired = len(report.violations) - left
    if left:
        text = Text(counted(left, "violation"), style="bold red")
        text.append(f", {repaired} repaired" if repaired else "", style="green")
    elif repaired:
        text = Text(f"clean now: {counted(repaired, 'violation')} repaired", style="bold green")
    else:
        text = Text("clean", style="bold green")
    return text.append(rows, style="default not bold")


def _advise(report: Report, console: Console, where: Where, *, repair: bool) -> None:
    if repair:
        console.print(Text("the remaining ones need a person", style="dim"))
        return
    repair_line = "repair with:"
    evidence = [finding for finding in report.remaining if finding.code in EVIDENCE]
    if evidence:
        job = next((finding.job_id for finding in evidence if finding.job_id), "ID")
        copy = "stop the workers, copy the file," if report.store.startswith("sqlite:") else "copy the store"
        advice = f"this may be a change by hand; before a repair overwrites it, {copy} and look:"
        console.print(Text(advice, style="dim"))
        print_command(where.again(f"mainstay jobs show {job}"), console)
        repair_line = "then repair with:"
    console.print(Text(repair_line, style="dim"))
    print_command(where.again("mainstay check --repair"), console)

"""`mainstay check`: every invariant of every job, on demand; with `--repair`, mended."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ..control.check import Report, check
from ..errors import MainstayError, StoreError
from ..stores import Violation
from .common import FAILED, JsonOption, StoreOption, opened, print_json

VIOLATIONS = 1
#: rows shown in the table; the rest are counted, and all are in --json
_SHOWN = 200
#: from this width on, a job id stays on one line
_WIDE = 90

_HELP = """Check every job: its state, its claim, its numbers, its payload, and the proof of its history.

Nothing is changed without --repair. With it, what has one safe answer is mended, the rest is quarantined, and each
job's audit trail says what was done. Safe beside running workers.

Exit codes: 0 clean (or all mended), 1 violations, 2 could not check.

[bold]Examples[/bold]

  mainstay check --store sqlite:///jobs.db
  mainstay check --repair                    the store of MAINSTAY_STORE
  mainstay check --json | jq .violations     for programs
"""


def command(
    store: StoreOption = "",
    repair: Annotated[bool, typer.Option("--repair", help="Mend what can be mended.")] = False,
    as_json: JsonOption = False,
) -> None:
    try:
        report = asyncio.run(_checked(store, repair=repair, quiet=as_json))
    except MainstayError as error:
        if not as_json:
            raise
        print_json({"store": store, "clean": None, "error": {"code": error.code, "message": str(error)}})
        raise typer.Exit(FAILED) from None
    if as_json:
        print_json({"clean": report.clean, "repair": repair, **msgspec.to_builtins(report)})
    else:
        _show(report, Console(highlight=False), repair=repair)
    if not report.clean:
        raise typer.Exit(VIOLATIONS)


def register(app: typer.Typer) -> None:
    app.command(name="check", help=_HELP)(command)


async def _checked(url: str, *, repair: bool, quiet: bool) -> Report:
    console = Console(stderr=True)
    columns = (TextColumn("checking"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
    try:
        async with opened(url) as store:
            with bar:
                task = bar.add_task("checking", total=None)
                return await check(
                    store, repair=repair, progress=lambda done, total: bar.update(task, completed=done, total=total)
                )
    except MainstayError:
        raise
    except Exception as error:
        # whatever it is, the answer is "could not check", never "clean" and never a bare traceback
        raise StoreError(f"the check could not go on: {type(error).__name__}: {error}") from error


def _show(report: Report, console: Console, *, repair: bool) -> None:
    if report.violations:
        console.print(_table(report.violations, "red", console.width))
        _tell_rest(report.violations, console)
    if report.notices:
        console.print(_table(report.notices, "yellow", console.width))
        _tell_rest(report.notices, console)
    console.print(_verdict(report, repair=repair))


def _table(found: tuple[Violation, ...], colour: str, width: int) -> Table:
    mended = any(each.repaired for each in found)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("job", overflow="fold", style="dim", min_width=12, no_wrap=width >= _WIDE)
    table.add_column("what", overflow="fold", min_width=11)
    table.add_column("found", overflow="fold", ratio=2)
    if mended:
        table.add_column("done", overflow="fold", ratio=1)
    above: str | None = None
    for each in found[:_SHOWN]:
        code = Text(each.code, style="green" if each.repaired else colour)
        job = each.job_id or "(store)"
        cells = [Text("" if job == above else job), code, Text(each.message)]
        above = job
        if mended:
            cells.append(Text(each.repaired or "-", style="green" if each.repaired else "red"))
        table.add_row(*cells)
    return table


def _tell_rest(found: tuple[Violation, ...], console: Console) -> None:
    if len(found) > _SHOWN:
        console.print(Text(f"... and {len(found) - _SHOWN} more; --json shows all", style="dim"))


def _verdict(report: Report, *, repair: bool) -> Text:
    rows = f"{report.checked} {'row' if report.checked == 1 else 'rows'} checked in {report.seconds:.1f} s"
    left = len(report.remaining)
    mended = len(report.violations) - left
    if left:
        text = Text(f"{_count(left, 'violation')}", style="bold red")
        text.append(f", {mended} mended" if mended else "", style="green")
        text.append(f"; {rows}", style="default")
        advice = "these need a person" if repair else "mend what can be mended with: mainstay check --repair"
        return text.append(f"\n{advice}", style="dim not bold")
    if mended:
        return Text(f"clean now: {_count(mended, 'violation')} mended", style="bold green").append(
            f"; {rows}", style="default"
        )
    return Text("clean", style="bold green").append(f"; {rows}", style="default")


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"

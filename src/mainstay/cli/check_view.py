"""How the report of a check looks on a screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..control.check import Report
from ..lifecycle.invariants import INVARIANTS, Mend
from ..stores import Violation
from ..words import counted
from .common import print_command, printable, shortened

#: findings shown; the rest are counted, and all are in --json
_SHOWN = 200
#: from this width on, a job's id stands beside what was found; below, on a line of its own, where it can be copied
_WIDE = 110

#: what speaks of somebody's hand: worth a look and a copy before a repair writes over it
EVIDENCE = frozenset(each.code for each in INVARIANTS if each.mend is Mend.ANCHOR) | {
    "payload_changed",
    "status_mismatch",
    "unknown_status",
    "stray_events",
}


def show(report: Report, console: Console, *, repair: bool, look_with: str, mend_with: str) -> None:
    """What was found, and what to do about it: `look_with` has a place for a job's id, `mend_with` is a command."""
    for found, colour in ((report.violations, "red"), (report.notices, "yellow")):
        if found:
            _show_found(found, colour, console)
    console.print(_verdict(report))
    if report.remaining:
        _advise(report, console, repair=repair, look_with=look_with, mend_with=mend_with)


def stopped(done: int, total: int, *, repair: bool) -> str:
    """What to say when somebody pressed Ctrl-C."""
    where = f"after {done} of {total} rows" if total else "before the first row"
    return f"stopped {where}; {'what was mended stays mended' if repair else 'nothing was changed'}"


def _show_found(found: Sequence[Violation], colour: str, console: Console) -> None:
    shown = found[:_SHOWN]
    if console.width >= _WIDE:
        console.print(_table(shown, colour))
    else:
        _print_by_job(shown, colour, console)
    console.print()
    if len(found) > _SHOWN:
        console.print(Text(f"... and {len(found) - _SHOWN} more; --json shows all", style="dim"))


def _table(found: Sequence[Violation], colour: str) -> Table:
    mended = any(each.repaired for each in found)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("job", no_wrap=True, style="dim")
    table.add_column("what", no_wrap=True)
    table.add_column("found", overflow="fold")
    if mended:
        table.add_column("done", overflow="fold")
    for each in found:
        table.add_row(Text(_whose(each)), *_cells(each, colour, mended=mended))
    return table


def _print_by_job(found: Sequence[Violation], colour: str, console: Console) -> None:
    mended = any(each.repaired for each in found)
    codes = max(len(each.code) for each in found)
    jobs: dict[str, list[Violation]] = {}
    for each in found:
        jobs.setdefault(_whose(each), []).append(each)
    for job, its in jobs.items():
        console.print(Text(job, style="dim"), soft_wrap=True)
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(min_width=min(codes, console.width // 3), overflow="fold")
        grid.add_column(overflow="fold", ratio=2)
        if mended:
            grid.add_column(overflow="fold", ratio=1)
        for each in its:
            grid.add_row(*_cells(each, colour, mended=mended))
        console.print(Padding(grid, (0, 0, 0, 2)))


def _whose(found: Violation) -> str:
    return printable(found.job_id or "(store)")


def _cells(found: Violation, colour: str, *, mended: bool) -> list[Text]:
    cells = [
        Text(found.code, style="green" if found.repaired else colour),
        Text(shortened(printable(found.message))),
    ]
    if mended:
        done = shortened(printable(found.repaired)) if found.repaired else "-"
        cells.append(Text(done, style="green" if found.repaired else "red"))
    return cells


def _verdict(report: Report) -> Text:
    rows = f"; {counted(report.checked, 'row')} checked in {report.seconds:.1f} s"
    left = len(report.remaining)
    mended = len(report.violations) - left
    if left:
        text = Text(counted(left, "violation"), style="bold red")
        text.append(f", {mended} mended" if mended else "", style="green")
    elif mended:
        text = Text(f"clean now: {counted(mended, 'violation')} mended", style="bold green")
    else:
        text = Text("clean", style="bold green")
    return text.append(rows, style="default not bold")


def _advise(report: Report, console: Console, *, repair: bool, look_with: str, mend_with: str) -> None:
    if repair:
        console.print(Text("these need a person", style="dim"))
        return
    then = ""
    evidence = [each for each in report.remaining if each.code in EVIDENCE]
    if evidence:
        job = next((each.job_id for each in evidence if each.job_id), "ID")
        copy = "stop the workers, copy the file," if report.store.startswith("sqlite:") else "copy the store"
        console.print(
            Text(f"this may be a change by hand; before a repair overwrites it, {copy} and look:", style="dim")
        )
        print_command(look_with.format(job), console)
        then = "then "
    console.print(Text(f"{then}mend what can be mended with:", style="dim"))
    print_command(mend_with, console)

"""`mainstay check`: every invariant of every job, on demand; with `--repair`, mended."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..control.check import Report, check
from ..errors import MainstayError, StoreError
from . import check_view
from .command import command
from .common import JsonOption, opened, print_json, screen
from .exits import FAILED, INTERRUPTED, NO
from .target import Where


class _Progress:
    """How far the check has come."""

    def __init__(self, bar: Progress) -> None:
        self.bar = bar
        self._task = bar.add_task("checking", total=None)
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
) -> None:
    """Check every job: its state, claim, numbers and payload, and the hash chain of its history.

    Without --repair nothing is changed. With it, violations with one safe answer are repaired, other jobs are
    quarantined, and each job's audit trail records the repair. Workers may run at the same time.

    Exit codes: 0 clean (or all repaired), 1 violations, 2 could not check, 130 stopped by Ctrl-C.

    [bold]Examples[/bold] (the default of --store is MAINSTAY_STORE)

      mainstay check --store sqlite:///jobs.db
      mainstay check --repair
      mainstay check --json | jq .violations
    """
    seen = _Progress(_bar(quiet=as_json))
    try:
        report = asyncio.run(_checked(where, seen, repair=repair))
    except MainstayError as error:
        if not as_json:
            raise
        _print_failure(where, error.code, str(error))
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        told = check_view.stopped(seen.done, seen.total, repair=repair)
        if as_json:
            _print_failure(where, "interrupted", told)
        else:
            Console(stderr=True, highlight=False).print(told)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json({"clean": report.clean, "repair": repair, **msgspec.to_builtins(report)})
    else:
        show = where.again("mainstay jobs show {}")
        mend = where.again("mainstay check --repair")
        check_view.show(report, screen(), repair=repair, look_with=show, mend_with=mend)
    if not report.clean:
        raise typer.Exit(NO)


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "check")(check_store)


def _bar(*, quiet: bool) -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("checking"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)


async def _checked(where: Where, seen: _Progress, *, repair: bool) -> Report:
    try:
        async with opened(where.target().url) as store:
            with seen.bar:
                return await check(store, repair=repair, progress=seen)
    except MainstayError:
        raise
    except Exception as error:
        # whatever it is, the answer is "could not check", never "clean" and never a bare traceback
        raise StoreError(f"the check could not go on: {type(error).__name__}: {error}") from error


def _print_failure(where: Where, code: str, message: str) -> None:
    print_json({"store": where.store or where.app, "clean": None, "error": {"code": code, "message": message}})

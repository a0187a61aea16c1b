"""`mainstay outputs`: list outputs, verify them, and move them from an older layout."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from ..outputs import ENTRY_PREFIX, OutputAudit, OutputMigration, OutputStore, audit, migrate, open_outputs
from ..words import counted
from .commands import CommandOutput, command, command_group
from .common import JsonOption, print_command, printable, screen
from .exits import DONE, NO
from .tables import empty_table

T = TypeVar("T")

group = command_group("List outputs, and verify them.")

UrlArgument = Annotated[str, typer.Argument(metavar="URL", help="URL of the folder or bucket with the outputs.")]
StudyOption = Annotated[str, typer.Option("--study", help="Only outputs of this study.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="Lines to show, at most.")]
QuickOption = Annotated[bool, typer.Option("--quick", help="Compare names and sizes only; do not read the files.")]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be moved, and move nothing.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="outputs")


@command(group, "list")
def list_outputs(url: UrlArgument, study: StudyOption = "", limit: LimitOption = 50) -> CommandOutput:
    """List the studies with outputs, or the units of one study.

    An unfinished unit has files and no entry: its writer was stopped, or is still writing.

    Exit codes: 0 done, 2 error.

    [bold]Examples[/bold]

      mainstay outputs list file:///srv/outputs
      mainstay outputs list s3://lab/outputs --study sir --limit 20
      mainstay outputs list file:outputs --json | jq '.[].units'
    """
    lines = _with_outputs(url, lambda store: _lines(store, study))

    def show(console: Console) -> None:
        _show_lines(lines[:limit], console, first="unit" if study else "study")
        if len(lines) > limit:
            console.print(f"{len(lines) - limit:,} more; --limit shows them")

    return CommandOutput(lines[:limit], show)


@command(group, "verify")
def verify(url: UrlArgument, study: StudyOption = "", quick: QuickOption = False) -> CommandOutput:
    """Read every output and compare it with its published checksum.

    With --quick only names and sizes are compared, from a listing. Damage is reported; nothing is changed. To fix it,
    publish the unit again or restore the file.

    Exit codes: 0 all outputs are intact, 1 some are missing, corrupt or unreadable, 2 error.

    [bold]Examples[/bold]

      mainstay outputs verify file:///srv/outputs
      mainstay outputs verify s3://lab/outputs --study sir --quick
      mainstay outputs verify file:outputs --json | jq -r '.bad[].path'
    """
    result = _with_outputs(url, lambda store: audit(store, study or None, verify="size" if quick else "content"))
    return CommandOutput(result, lambda console: _show_audit(result, console), exit_code=NO if result.bad else DONE)


@command(group, "migrate")
def migrate_outputs(url: UrlArgument, dry_run: DryOption = False, as_json: JsonOption = False) -> CommandOutput:
    """Move outputs from an older layout to the current one.

    Each unit is copied, published and read again before the old copy is removed. You may stop and restart the command
    at any time. Units that cannot be moved stay where they are, and are listed.

    Exit codes: 0 nothing is left to move, 1 some units are left (or would be moved, with --dry-run), 2 error.

    [bold]Examples[/bold]

      mainstay outputs migrate file:///srv/outputs --dry-run
      mainstay outputs migrate s3://lab/outputs
      mainstay outputs migrate file:outputs --json | jq .left
    """
    console = screen()
    with console.status("looking for older layouts") as status:

        def progress(done: OutputMigration) -> None:
            status.update(f"{done.moved:,} units, {_size(done.bytes)}")

        quiet = as_json or not console.is_terminal
        result = _with_outputs(url, lambda store: migrate(store, dry_run=dry_run, progress=None if quiet else progress))
    unmoved = result.left or (dry_run and result.moved)
    return CommandOutput(
        result, lambda console: _show_migration(result, console, url), exit_code=NO if unmoved else DONE
    )


def _with_outputs(url: str, use: Callable[[OutputStore], Awaitable[T]]) -> T:
    async def run() -> T:
        # a folder that does not exist is a mistake, and is not created
        existing = url + ("&" if "?" in url else "?") + "create=no" if url.startswith("file:") else url
        async with await open_outputs(existing) as store:
            return await use(store)

    return asyncio.run(run())


async def _lines(store: OutputStore, study: str) -> list[dict[str, Any]]:
    """One line for each study, or for each unit of the given study."""
    lines: dict[str, dict[str, Any]] = {}
    async for folder, files in store.scan(study or None):
        _, its_study, _, unit = folder.split("/")
        name = unit if study else its_study
        line = lines.setdefault(name, {"name": name, "units": 0, "unfinished": 0, "files": 0, "bytes": 0})
        data = [blob.size for file, blob in files.items() if not file.startswith("_")]
        line["units" if any(file.startswith(ENTRY_PREFIX) for file in files) else "unfinished"] += 1
        line["files"] += len(data)
        line["bytes"] += sum(data)
    return list(lines.values())


def _show_lines(lines: list[dict[str, Any]], console: Console, *, first: str) -> None:
    if not lines:
        console.print("no outputs")
        return
    table = empty_table(first, numbers=("units", "unfinished", "files", "size"))
    for line in lines:
        numbers = [f"{line[name]:,}" for name in ("units", "unfinished", "files")]
        table.add_row(Text(printable(line["name"])), *numbers, _size(line["bytes"]))
    console.print(table)


def _show_audit(result: OutputAudit, console: Console) -> None:
    method = "read" if result.verify == "content" else "compared by size"
    amount = f"{counted(result.units, 'unit')}, {counted(result.files, 'file')}, {_size(result.bytes)}"
    console.print(f"{amount} {method}")
    if result.unfinished:
        console.print(
            f"{result.unfinished:,} unfinished: their writers were stopped, or are still writing", style="yellow"
        )
    for bad in result.bad:
        console.print(Text(f"{bad.state}: {printable(bad.path)}: {printable(bad.detail)}", style="red"), soft_wrap=True)
    if not result.bad:
        console.print("all outputs are intact", style="green")


def _show_migration(done: OutputMigration, console: Console, url: str) -> None:
    if not done.moved and not done.left:
        console.print("no outputs in an older layout")
        return
    verb = "would be moved" if done.dry_run else "moved"
    console.print(f"{counted(done.moved, 'unit')} {verb}: {counted(done.files, 'file')}, {_size(done.bytes)}")
    for folder, reason in done.left.items():
        console.print(Text(f"left: {printable(folder)}: {printable(reason)}", style="yellow"), soft_wrap=True)
    if done.dry_run and done.moved:
        # the options of a URL may contain credentials
        print_command(f"mainstay outputs migrate {'URL' if '?' in url else shlex.quote(url)}", console, indent=0)


def _size(n: float) -> str:
    """
    >>> _size(512), _size(1_500_000), _size(3 << 40)
    ('512 B', '1.4 MiB', '3,072.0 GiB')
    """
    units = ["B", "KiB", "MiB", "GiB"]
    while n >= 1024 and len(units) > 1:
        n /= 1024
        del units[0]
    return f"{n:.0f} B" if units[0] == "B" else f"{n:,.1f} {units[0]}"

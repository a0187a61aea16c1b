"""`mainstay jobs sync`: bring the store up to date with outside jobs and kept results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from ...cli import Column, CommandOutput, IdsArgument, coloured, command, local_actor, printable, table
from ...cli.exits import DONE, NO
from ...worker import OutboxResult, kept_files, write_kept
from ..outside_sync import SyncResult, sync_outside
from ..runners import Runners
from .session import BatchSession

#: outcomes of writing a kept result
_KEPT = {
    "applied": "written now",
    "already_applied": "was written before",
    "stale": "refused: another worker had the job by then",
    "conflict": "not written: the job changed in between. Check it, and sync again",
    "missing": "not written: the job is gone",
}


def register(group: typer.Typer) -> None:
    """Add the command."""
    command(group, "sync")(sync)


async def sync(session: BatchSession, job_ids: IdsArgument = None) -> CommandOutput:
    """Check the outside jobs of batches, with a scheduler for example, and record their state: for these batches, or
    for all that are not settled.

    No worker needs to run. An exit code is recorded but decides nothing: the outputs decide the result of a batch. If
    an outside job is gone, its batch does not change.

    Runners that the app declares need --app; exec:COMMAND can only be checked on the machine it runs on.

    Without ids, the command first writes results that workers of this machine kept because the store was unavailable
    when they had to stop (in MAINSTAY_STATE, or the user's state folder). Each result counts as if its worker had
    written it: it is refused if another worker has the job by now.

    Exit codes: 0 fine (also when there is nothing), 1 an outside job is gone or cannot be checked, or a kept result was
    refused, 2 error.

    [bold]Examples[/bold]

      mainstay jobs sync
      mainstay jobs sync 4de452e6b59d --app lab.sir:app
      mainstay jobs sync --json | jq '.outside[] | select(.state == "gone")'
    """
    service, app = session.service, session.app
    store = service.control.store
    # results that workers of this machine kept
    written = [] if job_ids else [one async for one in write_kept(store, kept_files(store.url))]
    runners = Runners() if app is None else app.part("batch").launcher.runners
    ids = [await session.full_id(given) for given in job_ids] if job_ids else None
    outside = [one async for one in sync_outside(service, runners, ids, actor=local_actor())]

    def show(console: Console) -> None:
        _show_kept(written, console)
        _show_outside(outside, console)

    fine = all(one.fine for one in written) and all(one.fine for one in outside)
    return CommandOutput({"kept": _data(written), "outside": _data(outside)}, show, exit_code=DONE if fine else NO)


def _show_kept(written: list[OutboxResult], console: Console) -> None:
    for one in written:
        style = "green" if one.fine else "yellow"
        line = f"{one.job_id} {one.name}: kept as {one.wanted}, {_KEPT[one.outcome]}"
        now = "" if one.status in (None, one.wanted) else f"; it is {one.status} now"
        console.print(Text(printable(line + now), style=style), soft_wrap=True)


def _data(results: Sequence[OutboxResult | SyncResult]) -> list[dict[str, Any]]:
    return [{**msgspec.to_builtins(one), "fine": one.fine} for one in results]


def _show_outside(outside: list[SyncResult], console: Console) -> None:
    if not outside:
        console.print("no batch has an outside job")
        return
    column = Column[SyncResult]
    columns = (
        column("job", lambda one: one.job),
        column("study", lambda one: one.study),
        column("status", lambda one: coloured(one.status)),
        column("outside", lambda one: Text(_state(one), style="green" if one.fine else "red")),
        column("handle", lambda one: one.handle),
    )
    console.print(table(columns, outside))
    for one in outside:
        if not one.fine or not one.name:
            console.print(Text(f"{one.job}: {printable(one.text)}", style="yellow"), soft_wrap=True)


def _state(one: SyncResult) -> str:
    if not one.state:
        return "not known" if one.name else "not started"
    return one.state if one.exit_code is None else f"{one.state} ({one.exit_code})"

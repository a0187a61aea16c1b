"""`mainstay jobs events` and `mainstay jobs explain`: what happened to a job, as a table and as sentences."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ..control import Control
from ..control.explain import Explanation, explained
from ..control.json_view import event_view
from ..lifecycle import Event
from ..model import Session
from ..stores import JobStore
from . import jobs_view
from .command import command
from .common import JsonOption, coloured, looking, print_command, print_json, printable, screen
from .ids import IdArgument, full_id
from .target import Where

_MOST = 10_000
#: what stands in advice for the app, which a store does not know
_ANY_APP = "MODULE:APP"


def register(group: typer.Typer) -> None:
    """Add the commands to the group of jobs."""
    command(group, "events")(events)
    command(group, "explain")(explain)


def events(
    where: Where,
    job_id: IdArgument,
    after: Annotated[int, typer.Option("--after", min=0, help="Show only events after this number.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, max=_MOST, help="Events to show, at most.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """Show the audit trail of a job: every transition, its actor, time and reason.

    A deleted job still has its tombstone. Below a full page is the option for the next page.

    Exit codes: 0 fine, 2 error (no such job, or several).

    [bold]Examples[/bold]

      mainstay jobs events 4de452e6b59d
      mainstay jobs events 4de452e6b59d --after 200 --json | jq .events[].reason
    """

    async def look(store: JobStore) -> tuple[str, list[Event], dict[str, Session]]:
        whole = await full_id(store, job_id)
        found = await Control(store).jobs.events(whole, after=after, limit=limit)
        return whole, found, {session.id: session for session in await store.sessions()}

    whole, found, sessions = looking(where, look)
    more = found[-1].seq if len(found) == limit else None
    if as_json:
        print_json({"id": whole, "events": [event_view(event) for event in found], "after": more})
        return
    console = screen()
    if not found:
        console.print(f"no events after {after}")
        return
    console.print(jobs_view.story_table(found, (), sessions))
    if more is not None:
        console.print(Text(f"more: add --after {more}", style="dim"), soft_wrap=True)


def explain(where: Where, job_id: IdArgument, as_json: JsonOption = False) -> None:
    """Explain a job in sentences: its state and the reason, what it waits for, which workers held it, why it was
    retried, what comes next, and what you can do.

    Exit codes: 0 fine, 2 error (no such job, or several).

    [bold]Examples[/bold]

      mainstay jobs explain 01a1e20f-5355-7137-b2a7-4de452e6b59d
      mainstay jobs explain 4de452e6b59d --json | jq -r .advice[].command
    """

    async def look(store: JobStore) -> Explanation:
        return await explained(store, await full_id(store, job_id))

    told = looking(where, look)
    advice = tuple(msgspec.structs.replace(each, command=_here(each.command, where)) for each in told.advice)
    told = msgspec.structs.replace(told, advice=advice)
    if as_json:
        print_json(msgspec.to_builtins(told))
    else:
        _show(told, screen())


def _here(command: str, where: Where) -> str:
    """The command as it is typed here: on the same store, or for the same app."""
    if _ANY_APP in command:
        return command.replace(_ANY_APP, where.app or _ANY_APP)
    return command if command == "mainstay --version" else where.again(command)


def _show(told: Explanation, console: Console) -> None:
    head = Text(printable(told.name or told.id), style="bold").append(" ")
    head.append_text(coloured(told.status) if told.status is not None else Text("deleted", style="magenta"))
    console.print(head)
    console.print(Text(told.id, style="dim"), soft_wrap=True)
    for section in told.sections:
        console.print()
        console.print(Text(section.title, style="bold"))
        for sentence in section.sentences:
            console.print(Padding(Text(printable(sentence)), (0, 0, 0, 2)))
    if told.advice:
        console.print()
        console.print(Text("what to do", style="bold"))
        for advice in told.advice:
            console.print(Padding(Text(f"{printable(advice.why)}:"), (0, 0, 0, 2)))
            print_command(printable(advice.command), console, indent=4)

"""`mainstay workers`: who is at work, who is silent, what they hold; and asking them to end."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec.structs import asdict
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..control import Control, overview
from ..control.explain import is_alive
from ..control.json_view import session_view
from ..control.overview import COUNTED, SessionOverview
from ..control.worker_drain import crew_of, worker_of
from ..errors import WorkerNotFound
from ..model import Session
from ..words import age, counted
from . import completion
from .act import myself
from .command import command
from .common import JsonOption, aside, looking, print_json, printable, screen, shortened, working
from .target import Where

_SHOWN = 200
_WITH_ID = 110


group = typer.Typer(help="List workers, and drain them.", no_args_is_help=True, rich_markup_mode="rich")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="workers")


@command(group, "list")
def list_workers(where: Where, as_json: JsonOption = False) -> None:
    """List the sessions of workers, one for each process, live ones first.

    A session is alive if its last heartbeat is within its lease. Jobs of a silent or dead session go back to their
    queue with the next sweep, which every worker runs once a second.

    Exit codes: 0 fine (also when there is no session), 2 error.

    [bold]Examples[/bold]

      mainstay workers list
      mainstay workers list --json | jq '.sessions[] | select(.at_work | not)'
    """
    seen = looking(where, overview.sessions)
    if as_json:
        print_json({"sessions": [{**asdict(each.view), "holds": each.holds, "leads": each.leads} for each in seen]})
    else:
        _show(seen, screen())


@command(group, "drain")
def drain(
    where: Where,
    workers: Annotated[
        list[str],
        typer.Argument(
            metavar="WORKER...", help="Names of workers, or ids of their sessions.", autocompletion=completion.workers
        ),
    ],
    actor: Annotated[
        str | None, typer.Option("--actor", help="Name of the actor in the audit trail. Default: your user and host.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Drain workers on any machine: ask them to stop cleanly, as Ctrl-C or SIGTERM does. A worker receives the request
    with its next heartbeat (2s). It takes no more jobs, has its grace period to finish running jobs, returns the rest
    to their queue, and exits with 0.

    Give the name of a worker, or the id of one of its sessions; all its processes stop together. A name that several
    workers share selects all of them. If one of the given workers does not exist, none is drained.

    A service manager may start the worker again.

    Exit codes: 0 the request was sent (now or before), 2 error.

    [bold]Examples[/bold]

      mainstay workers drain box-7-4711
      mainstay workers drain mail reports --actor deploy-2291
    """

    async def work(control: Control) -> tuple[list[Session], int, int]:
        there = await control.store.sessions()
        for which in workers:
            if not crew_of(which, there):
                raise WorkerNotFound(which)
        asked = [await control.operations.drain(which, actor=actor or myself()) for which in dict.fromkeys(workers)]
        found = {session.id: session for crew in asked for session in crew}
        clock = control.store.clock
        return list(found.values()), clock.lease_ms(), clock.now_ms()

    found, lease_ms, now_ms = working(where, work)
    if as_json:
        print_json({"sessions": [session_view(each, lease_ms=lease_ms, now_ms=now_ms) for each in found]})
        return
    for crew in _crews(found):
        if any(is_alive(session, lease_ms) for session in crew):
            screen().print(Text(_drains(crew)), soft_wrap=True)
        else:
            silent = age(lease_ms - max(session.beat_ms for session in crew))
            aside(f"{_called(crew)} is asked, but silent for {silent}: it hears of it only if it comes back in time")


def _crews(sessions: list[Session]) -> list[list[Session]]:
    crews: dict[object, list[Session]] = {}
    for session in sessions:
        crews.setdefault(worker_of(session), []).append(session)
    return list(crews.values())


def _called(crew: list[Session]) -> str:
    first, n = crew[0], len(crew)
    name = printable(first.worker) or shortened(first.id)
    return f"{name} on {printable(first.host)} ({counted(n, 'process', 'processes')})"


def _drains(crew: list[Session]) -> str:
    return f"{_called(crew)} drains, asked by {printable(crew[0].draining_by)}"


def _state(seen: SessionOverview) -> Text:
    if seen.session.dead:
        return Text("dead", style="red")
    if not seen.at_work:
        return Text("silent", style="red")
    leads = ", leads" if seen.leads else ""
    if not seen.session.is_draining:
        return Text(f"alive{leads}", style="green")
    return Text(f"draining{leads}", style="yellow")


def _show(seen: list[SessionOverview], console: Console) -> None:
    if not seen:
        console.print("no worker is alive: no session is open")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("worker", overflow="fold")
    table.add_column("state", no_wrap=True)
    table.add_column("host", overflow="fold")
    table.add_column("pid", justify="right", overflow="fold")
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("heard of", justify="right", no_wrap=True)
    table.add_column("holds", justify="right", no_wrap=True)
    if console.width >= _WITH_ID:
        table.add_column("session", style="dim", overflow="fold")
    for each in seen[:_SHOWN]:
        session = each.session
        holds = f"{each.holds}+" if each.holds == COUNTED else str(each.holds)
        cells = [
            Text(printable(session.worker) or shortened(session.id)),
            _state(each),
            Text(printable(session.host)),
            Text(str(session.pid or "")),
            Text(age(each.view.age_ms)),
            Text(f"{age(each.view.silent_ms)} ago"),
            Text(holds if each.holds else ""),
        ]
        if console.width >= _WITH_ID:
            cells.append(Text(printable(session.id)))
        table.add_row(*cells)
    console.print(table)
    if len(seen) > _SHOWN:
        console.print(Text(f"... and {len(seen) - _SHOWN} more; --json shows all", style="dim"))
    for crew in _crews([each.session for each in seen if each.at_work and each.session.is_draining]):
        console.print(Text(_drains(crew), style="dim"))
    if any(each.at_work for each in seen) and not any(each.leads for each in seen):
        said = "none of them leads: no schedule ticks until one does, within seconds"
        console.print(Text(said, style="yellow"))
    lost = sum(not each.at_work and each.holds for each in seen)
    if lost:
        held = counted(lost, "job is", "jobs are")
        console.print(Text(f"{held} held by dead sessions; the next sweep of a worker takes them back", style="yellow"))

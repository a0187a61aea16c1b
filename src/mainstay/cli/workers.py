"""`mainstay workers`: who is at work, who is silent, and what they hold."""

from __future__ import annotations

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..control import looks
from ..control.data import session_data
from ..control.looks import COUNTED, Seen
from .bundles import bundled
from .common import JsonOption, age, looking, print_json, printable, reflowed, screen, shortened
from .target import Where

_SHOWN = 200
_WITH_ID = 110

_LIST = reflowed("""
List the workers' sessions: one for each of their processes, the living first.

A session is at work if it was heard of within its lease. A silent or dead one that still holds jobs loses them to the
next sweep, which every worker does once a second.

Exit codes: 0 fine (also when nobody is there), 2 error.

[bold]Examples[/bold]

  mainstay workers list
  mainstay workers list --json | jq '.sessions[] | select(.at_work | not)'
""")

group = typer.Typer(help="See who is at work.", no_args_is_help=True, rich_markup_mode="rich")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="workers")


@group.command(name="list", help=_LIST)
@bundled
def list_workers(where: Where, as_json: JsonOption = False) -> None:
    """List the sessions."""
    seen = looking(where, looks.sessions)
    if as_json:
        print_json({"sessions": [{**session_data(each.session), **_data(each)} for each in seen]})
    else:
        _show(seen, screen())


def _data(seen: Seen) -> dict[str, object]:
    return {"at_work": seen.at_work, "silent_ms": seen.silent_ms, "age_ms": seen.age_ms, "holds": seen.holds}


def _state(seen: Seen) -> Text:
    if seen.session.dead:
        return Text("dead", style="red")
    return Text("alive", style="green") if seen.at_work else Text("silent", style="red")


def _show(seen: list[Seen], console: Console) -> None:
    if not seen:
        console.print("nobody is at work: no session is open")
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
            Text(age(each.age_ms)),
            Text(f"{age(each.silent_ms)} ago"),
            Text(holds if each.holds else ""),
        ]
        if console.width >= _WITH_ID:
            cells.append(Text(printable(session.id)))
        table.add_row(*cells)
    console.print(table)
    if len(seen) > _SHOWN:
        console.print(Text(f"... and {len(seen) - _SHOWN} more; --json shows all", style="dim"))
    lost = sum(not each.at_work and each.holds for each in seen)
    if lost:
        said = "1 job is" if lost == 1 else f"{lost} jobs are"
        console.print(Text(f"{said} held by nobody alive; the next sweep of a worker takes them back", style="yellow"))

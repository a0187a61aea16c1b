"""`mainstay workers`: list the sessions of workers with their jobs, and drain workers."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec.structs import asdict
from rich.console import Console
from rich.text import Text

from ..control import Control, crew_of, overview, session_view, worker_of
from ..control.explain import is_alive
from ..control.overview import COUNTED, SessionOverview
from ..errors import WorkerNotFound
from ..model import Session
from ..stores import JobStore
from ..words import age, counted
from . import completion
from .commands import CommandOutput, command, command_group
from .common import aside, printable, shortened
from .options import ActorOption, local_actor
from .tables import Column, table

_SHOWN = 200
_WITH_ID = 110

group = command_group("List workers, and drain them.")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="workers")


@command(group, "list")
async def list_workers(store: JobStore) -> CommandOutput:
    """List the sessions of workers, one for each process, live ones first.

    A session is alive if its last heartbeat is within its lease. Jobs of a silent or dead session go back to their
    queue with the next sweep, which every worker runs once a second. The session that runs the placed work of a node
    shows the name and the labels of the node.

    Exit codes: 0 fine (also when there is no session), 2 error.

    [bold]Examples[/bold]

      mainstay workers list
      mainstay workers list --json | jq '.sessions[] | select(.at_work | not)'
    """
    sessions = await overview.sessions(store)
    data = [{**asdict(each.view), "holds": each.holds, "leads": each.leads} for each in sessions]
    return CommandOutput({"sessions": data}, lambda console: _show(sessions, console))


@command(group, "drain")
async def drain(
    control: Control,
    workers: Annotated[
        list[str],
        typer.Argument(
            metavar="WORKER...", help="Names of workers, or ids of their sessions.", autocompletion=completion.workers
        ),
    ],
    actor: ActorOption = None,
) -> CommandOutput:
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
    sessions = await control.store.sessions()
    for name in workers:
        if not crew_of(name, sessions):
            raise WorkerNotFound(name)
    drained: dict[str, Session] = {}
    for name in dict.fromkeys(workers):
        crew = await control.operations.drain(name, actor=actor or local_actor())
        drained |= {session.id: session for session in crew}
    lease_ms, now_ms = control.store.clock.lease_ms(), control.store.clock.now_ms()
    data = [session_view(session, lease_ms=lease_ms, now_ms=now_ms) for session in drained.values()]
    return CommandOutput({"sessions": data}, lambda console: _show_drained(list(drained.values()), lease_ms, console))


def _show_drained(sessions: list[Session], lease_ms: int, console: Console) -> None:
    for crew in _by_worker(sessions):
        if any(is_alive(session, lease_ms) for session in crew):
            console.print(Text(_drain_line(crew)), soft_wrap=True)
        else:
            silence = age(lease_ms - max(session.beat_ms for session in crew))
            aside(
                f"{_title(crew)} has been silent for {silence}: it receives the request only if it comes back in time"
            )


def _by_worker(sessions: list[Session]) -> list[list[Session]]:
    crews: dict[object, list[Session]] = {}
    for session in sessions:
        crews.setdefault(worker_of(session), []).append(session)
    return list(crews.values())


def _name(session: Session) -> str:
    return session.worker or shortened(session.id)


def _title(crew: list[Session]) -> str:
    processes = counted(len(crew), "process", "processes")
    return f"{printable(_name(crew[0]))} on {printable(crew[0].host)} ({processes})"


def _drain_line(crew: list[Session]) -> str:
    return f"{_title(crew)} drains, requested by {printable(crew[0].draining_by)}"


def _state(each: SessionOverview) -> Text:
    if each.session.dead:
        return Text("dead", style="red")
    if not each.at_work:
        return Text("silent", style="red")
    leads = ", leads" if each.leads else ""
    if not each.session.is_draining:
        return Text(f"alive{leads}", style="green")
    return Text(f"draining{leads}", style="yellow")


def _node(session: Session) -> str:
    labels = " ".join(f"{key}={value}" for key, value in session.labels.items())
    return f"{session.node} {labels}".strip()


def _holds(each: SessionOverview) -> str:
    return f"{each.holds}+" if each.holds == COUNTED else str(each.holds or "")


def _show(sessions: list[SessionOverview], console: Console) -> None:
    if not sessions:
        console.print("no worker is alive: no session is open")
        return
    column = Column[SessionOverview]
    nodes = any(each.session.node for each in sessions)
    columns = (
        column("worker", lambda each: _name(each.session)),
        *([column("node", lambda each: _node(each.session))] if nodes else []),
        column("state", _state, no_wrap=True),
        column("host", lambda each: each.session.host),
        column("pid", lambda each: str(each.session.pid or ""), right=True, no_wrap=False),
        column("age", lambda each: age(each.view.age_ms), right=True),
        column("heard of", lambda each: f"{age(each.view.silent_ms)} ago", right=True),
        column("holds", _holds, right=True),
        column("session", lambda each: each.session.id, style="dim", min_screen=_WITH_ID),
    )
    console.print(table(columns, sessions[:_SHOWN], screen_width=console.width))
    if len(sessions) > _SHOWN:
        console.print(Text(f"... and {len(sessions) - _SHOWN} more; --json shows all", style="dim"))
    for crew in _by_worker([each.session for each in sessions if each.at_work and each.session.is_draining]):
        console.print(Text(_drain_line(crew), style="dim"))
    if any(each.at_work for each in sessions) and not any(each.leads for each in sessions):
        console.print(Text("no worker leads: schedules tick again when one does, within seconds", style="yellow"))
    lost = sum(not each.at_work and each.holds for each in sessions)
    if lost:
        held = counted(lost, "job is", "jobs are")
        console.print(Text(f"{held} held by dead sessions; the next sweep of a worker takes them back", style="yellow"))

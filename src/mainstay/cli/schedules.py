"""`mainstay schedules`: when they tick next, and running, pausing, resuming and dropping them."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Protocol

import typer

from ..control import Control
from ..control.json_view import schedule_data
from ..control.schedules import ScheduleView, describe, drop, pause, resume, run_now
from ..errors import InvalidInput
from ..lifecycle import time_text
from . import completion, schedules_view
from .act import myself
from .command import command
from .common import JsonOption, aside, print_json, screen
from .programs import Connected, connecting
from .target import Where

group = typer.Typer(help="List, run, pause, resume and drop schedules.", no_args_is_help=True, rich_markup_mode="rich")

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the schedule.", autocompletion=completion.schedules)
]
NamesArgument = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Names of the schedules.", autocompletion=completion.schedules)
]
ActorOption = Annotated[
    str | None, typer.Option("--actor", help="Name of the actor in the audit trail. Default: your user and host.")
]


class Operation(Protocol):
    """What can be done to a schedule by its name."""

    async def __call__(self, control: Control, name: str, *, actor: str) -> None: ...


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="schedules")


@command(group, "list")
def list_schedules(where: Where, as_json: JsonOption = False) -> None:
    """List the schedules: their ticks, in their time zone, and what they submit.

    With --app, the list includes schedules that the app declares and no worker has registered yet, and times that only
    the code knows.

    Exit codes: 0 fine (also when there are none), 2 error.

    [bold]Examples[/bold]

      mainstay schedules list
      mainstay schedules list --app shop.tasks:app
      mainstay schedules list --json | jq '.schedules[] | select(.paused)'
    """
    views, now_ms = connecting(where, _look)
    if as_json:
        print_json({"schedules": [schedule_data(view) for view in views]})
    else:
        schedules_view.show_list(views, now_ms, screen())


@command(group, "show")
def show_schedule(where: Where, name: NameArgument, as_json: JsonOption = False) -> None:
    """Show one schedule: its next ticks, last tick and last job, and why it does not tick.

    Exit codes: 0 fine, 2 error (no such schedule).

    [bold]Examples[/bold]

      mainstay schedules show sums
    """
    views, now_ms = connecting(where, _look)
    (view,) = _known(views, [name])
    if as_json:
        print_json(schedule_data(view))
    else:
        schedules_view.show_one(view, now_ms, screen(), where)


@command(group, "run")
def run_schedule(where: Where, name: NameArgument, actor: ActorOption = None, as_json: JsonOption = False) -> None:
    """Submit the job of a schedule now, in addition to its ticks, even if it is paused. Prints the id of the job.

    With overlap "skip", no second job is submitted while an earlier one is not settled: the command prints the id of
    the earlier job, and says so. With --app, the hooks of the app run as for a tick.

    Exit codes: 0 done, 2 error.

    [bold]Examples[/bold]

      mainstay schedules run sums --app shop.tasks:app
      mainstay jobs watch $(mainstay schedules run sums)
    """

    async def work(to: Connected) -> tuple[str, bool]:
        who = actor or myself()
        if to.app is None:
            made = await run_now(to.control, name, actor=who)
            return made.id, made.created
        handle = await to.app.run_schedule(name, actor=who)
        return handle.id, handle.created

    job_id, created = connecting(where, work)
    if as_json:
        print_json({"schedule": name, "id": job_id, "created": created})
        return
    if not created:
        said = f"schedule {name} has a job that is not settled yet, and makes no other beside it (overlap skip):"
        aside(said, style="dim")
    typer.echo(job_id)


@command(group, "pause")
def pause_schedules(where: Where, names: NamesArgument, actor: ActorOption = None, as_json: JsonOption = False) -> None:
    """Pause schedules: they do not tick until they are resumed, also after a restart of the workers.

    Exit codes: 0 done (or nothing to do), 2 error.

    [bold]Examples[/bold]

      mainstay schedules pause sums
    """
    _tell(connecting(where, _each(pause, "paused", names, actor, paused=True)), as_json=as_json)


@command(group, "resume")
def resume_schedules(
    where: Where, names: NamesArgument, actor: ActorOption = None, as_json: JsonOption = False
) -> None:
    """Resume schedules: they tick again from now on. Ticks missed while paused are not made up for.

    Exit codes: 0 done (or nothing to do), 2 error.

    [bold]Examples[/bold]

      mainstay schedules resume sums
    """
    _tell(connecting(where, _each(resume, "resumed", names, actor, paused=False)), as_json=as_json)


@command(group, "drop")
def drop_schedules(where: Where, names: NamesArgument, actor: ActorOption = None, as_json: JsonOption = False) -> None:
    """Remove schedules. Their jobs stay. An app that still declares a schedule registers it again when its next worker
    leads: to stop it for good, remove it from the code, or pause it.

    Exit codes: 0 done, 2 error.

    [bold]Examples[/bold]

      mainstay schedules drop sums
    """
    connecting(where, _each(drop, "dropped", names, actor))
    if as_json:
        print_json({"dropped": list(dict.fromkeys(names))})
        return
    for name in dict.fromkeys(names):
        typer.echo(f"schedule {name} is dropped; its jobs stay")


async def _look(to: Connected) -> tuple[list[ScheduleView], int]:
    views = await (describe(to.control) if to.app is None else to.app.describe_schedules())
    return views, to.control.store.clock.now_ms()


def _each(
    do: Operation, done: str, names: Sequence[str], actor: str | None, *, paused: bool | None = None
) -> Callable[[Connected], Awaitable[tuple[list[ScheduleView], int]]]:
    """Do it to all of them, or to none if one is misspelt; then look at them again. One that is `paused` or not, as it
    is to be, is left alone, and that is said."""

    async def work(to: Connected) -> tuple[list[ScheduleView], int]:
        who = actor or myself()
        views, now_ms = await _look(to)
        wanted = _known(views, names)
        for view in wanted:
            if not view.registered:
                raise InvalidInput("schedule", f"{view.name!r} is declared but not registered yet; a worker does that")
        for view in wanted:
            if view.paused is paused:
                aside(f"schedule {view.name} was {'paused already' if paused else 'not paused'}", style="dim")
                continue
            await do(to.control, view.name, actor=who)
            # nothing of it is kept in the store: whoever keeps a terminal's output can tell later
            aside(f"{time_text(now_ms)} {done} schedule={view.name} actor={who}", style="dim")
        views, now_ms = await _look(to)
        return [view for view in views if view.name in names], now_ms

    return work


def _known(views: Sequence[ScheduleView], names: Sequence[str]) -> list[ScheduleView]:
    found = {view.name: view for view in views}
    for name in names:
        if name not in found:
            close = difflib.get_close_matches(name, found, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(found) or 'none'}"
            raise InvalidInput("schedule", f"there is no schedule {name!r}; {hint}")
    return [found[name] for name in dict.fromkeys(names)]


def _tell(seen: tuple[list[ScheduleView], int], *, as_json: bool) -> None:
    views, now_ms = seen
    if as_json:
        print_json({"schedules": [schedule_data(view) for view in views]})
        return
    for view in views:
        typer.echo(schedules_view.told(view, now_ms))

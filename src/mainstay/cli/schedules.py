"""`mainstay schedules`: list, run, pause, resume and drop schedules."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Protocol
from zoneinfo import ZoneInfo

import typer
from rich.console import Console
from rich.text import Text

from ..control import Control, schedule_data
from ..control.schedules import ScheduleView, describe, drop, pause, resume, run_now
from ..errors import InvalidInput
from ..lifecycle import time_text
from ..words import age, counted
from . import completion
from .commands import CommandOutput, command, command_group
from .common import aside, coloured, print_command, printable
from .options import ActorOption, local_actor
from .programs import Connected
from .tables import Column, facts, table
from .target import Where

#: screen widths from which on the list has further columns
_WITH_LAST, _WITH_TASK, _WITH_RULES = 80, 100, 140

group = command_group("List, run, pause, resume and drop schedules.")

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the schedule.", autocompletion=completion.schedules)
]
NamesArgument = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Names of the schedules.", autocompletion=completion.schedules)
]


class ScheduleOperation(Protocol):
    """Changes one schedule, given by its name."""

    async def __call__(self, control: Control, name: str, *, actor: str) -> None: ...


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="schedules")


@command(group, "list")
async def list_schedules(to: Connected) -> CommandOutput:
    """List the schedules: their ticks, in their time zone, and what they submit.

    With --app, the list includes schedules that the app declares and no worker has registered yet, and times that only
    the code knows.

    Exit codes: 0 fine (also when there are none), 2 error.

    [bold]Examples[/bold]

      mainstay schedules list
      mainstay schedules list --app shop.tasks:app
      mainstay schedules list --json | jq '.schedules[] | select(.paused)'
    """
    schedules, now_ms = await _schedules(to)
    data = {"schedules": [schedule_data(each) for each in schedules]}
    return CommandOutput(data, lambda console: _show_list(schedules, now_ms, console))


@command(group, "show")
async def show_schedule(to: Connected, where: Where, name: NameArgument) -> CommandOutput:
    """Show one schedule: its next ticks, last tick and last job, and why it does not tick.

    Exit codes: 0 fine, 2 error (no such schedule).

    [bold]Examples[/bold]

      mainstay schedules show sums
    """
    schedules, now_ms = await _schedules(to)
    (schedule,) = _select(schedules, [name])
    return CommandOutput(schedule_data(schedule), lambda console: _show_one(schedule, now_ms, console, where))


@command(group, "run")
async def run_schedule(to: Connected, name: NameArgument, actor: ActorOption = None) -> CommandOutput:
    """Submit the job of a schedule now, in addition to its ticks, even if it is paused. Prints the id of the job.

    With overlap "skip", no second job is submitted while an earlier one is not settled: the command prints the id of
    the earlier job, and says so. With --app, the hooks of the app run as for a tick.

    Exit codes: 0 done, 2 error.

    [bold]Examples[/bold]

      mainstay schedules run sums --app shop.tasks:app
      mainstay jobs watch $(mainstay schedules run sums)
    """
    by = actor or local_actor()
    running = run_now(to.control, name, actor=by) if to.app is None else to.app.run_schedule(name, actor=by)
    job = await running

    def show(_: Console) -> None:
        if not job.created:
            aside(f"schedule {name} submits no second job while this one is not settled (overlap skip):", style="dim")
        typer.echo(job.id)

    return CommandOutput({"schedule": name, "id": job.id, "created": job.created}, show)


@command(group, "pause")
async def pause_schedules(to: Connected, names: NamesArgument, actor: ActorOption = None) -> CommandOutput:
    """Pause schedules: they do not tick until they are resumed, also after a restart of the workers.

    Exit codes: 0 done (or nothing to do), 2 error.

    [bold]Examples[/bold]

      mainstay schedules pause sums
    """
    return await _change(to, pause, "paused", names, actor, paused=True)


@command(group, "resume")
async def resume_schedules(to: Connected, names: NamesArgument, actor: ActorOption = None) -> CommandOutput:
    """Resume schedules: they tick again from now on. Ticks missed while paused are not made up for.

    Exit codes: 0 done (or nothing to do), 2 error.

    [bold]Examples[/bold]

      mainstay schedules resume sums
    """
    return await _change(to, resume, "resumed", names, actor, paused=False)


@command(group, "drop")
async def drop_schedules(to: Connected, names: NamesArgument, actor: ActorOption = None) -> CommandOutput:
    """Remove schedules. Their jobs stay. An app that still declares a schedule registers it again when its next worker
    leads: to stop it for good, remove it from the code, or pause it.

    Exit codes: 0 done, 2 error.

    [bold]Examples[/bold]

      mainstay schedules drop sums
    """
    await _change(to, drop, "dropped", names, actor)
    dropped = list(dict.fromkeys(names))
    return CommandOutput(
        {"dropped": dropped}, "\n".join(f"schedule {name} is dropped; its jobs stay" for name in dropped)
    )


async def _schedules(to: Connected) -> tuple[list[ScheduleView], int]:
    """All schedules, and the time at which they were read."""
    schedules = await (describe(to.control) if to.app is None else to.app.describe_schedules())
    return schedules, to.control.store.clock.now_ms()


async def _change(
    to: Connected,
    operation: ScheduleOperation,
    done: str,
    names: Sequence[str],
    actor: str | None,
    *,
    paused: bool | None = None,
) -> CommandOutput:
    """Change all named schedules, or none if one is misspelt. A schedule that is already `paused` as requested is left
    alone, with a remark."""
    by = actor or local_actor()
    schedules, now_ms = await _schedules(to)
    selected = _select(schedules, names)
    for schedule in selected:
        if not schedule.registered:
            rule = f"{schedule.name!r} is declared but not registered yet; a worker registers it when it starts"
            raise InvalidInput("schedule", rule)
    for schedule in selected:
        if schedule.paused is paused:
            aside(f"schedule {schedule.name} was {'paused already' if paused else 'not paused'}", style="dim")
            continue
        await operation(to.control, schedule.name, actor=by)
        # the store keeps no history of schedules: this line is the only record
        aside(f"{time_text(now_ms)} {done} schedule={schedule.name} actor={by}", style="dim")
    schedules, now_ms = await _schedules(to)
    changed = [schedule for schedule in schedules if schedule.name in names]
    data = {"schedules": [schedule_data(schedule) for schedule in changed]}
    return CommandOutput(data, "\n".join(_state_line(schedule, now_ms) for schedule in changed))


def _select(schedules: Sequence[ScheduleView], names: Sequence[str]) -> list[ScheduleView]:
    known = {schedule.name: schedule for schedule in schedules}
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
            raise InvalidInput("schedule", f"there is no schedule {name!r}; {hint}")
    return [known[name] for name in dict.fromkeys(names)]


def _show_list(schedules: Sequence[ScheduleView], now_ms: int, console: Console) -> None:
    if not schedules:
        console.print("no schedules")
        return
    column = Column[ScheduleView]
    columns = (
        column("schedule", lambda each: each.name),
        column("when", _when),
        column("next tick", lambda each: _next_tick(each, now_ms)),
        column("last tick", lambda each: _last_tick(each, now_ms), style="dim", min_screen=_WITH_LAST),
        column("task", lambda each: each.task, min_screen=_WITH_TASK),
        column("overlap", lambda each: each.overlap, no_wrap=True, min_screen=_WITH_RULES),
        column("catch up", lambda each: each.catch_up, no_wrap=True, min_screen=_WITH_RULES),
    )
    console.print(table(columns, schedules, screen_width=console.width))
    remarks = [remark for schedule in schedules for remark in _remarks(schedule)]
    if remarks:
        console.print()
    for remark in remarks:
        console.print(remark)


def _show_one(schedule: ScheduleView, now_ms: int, console: Console, where: Where) -> None:
    console.print(Text(printable(schedule.name), style="bold"))
    ticks = [_future(tick, schedule, now_ms) for tick in schedule.next_ticks]
    last_tick = schedule.last_tick
    last = f"{_local(last_tick, schedule.tz)} ({_last_tick(schedule, now_ms)})" if last_tick else "none yet"
    pairs: list[tuple[str, str | Text | None]] = [
        ("when", f"{schedule.when} ({schedule.tz})"),
        ("task", schedule.task),
        ("catch up", schedule.catch_up),
        ("overlap", schedule.overlap),
        *[("" if place else "next ticks", tick) for place, tick in enumerate(ticks)],
        ("last tick", last),
    ]
    if schedule.last_job is not None:
        last_job = Text(f"{schedule.last_job} ").append_text(coloured(schedule.last_status or "?"))
        pairs.append(("last job", last_job))
    console.print(facts(pairs))
    for remark in _remarks(schedule):
        console.print(remark)
    if schedule.last_job is not None:
        console.print("\nits jobs:")
        print_command(where.again(f"mainstay jobs list --tag schedule:{schedule.name}"), console)


def _state_line(schedule: ScheduleView, now_ms: int) -> str:
    name = printable(schedule.name)
    if schedule.paused:
        return f"schedule {name} is paused"
    if not schedule.next_ticks:
        return f"schedule {name} is not paused"
    return f"schedule {name} ticks next at {_future(schedule.next_ticks[0], schedule, now_ms)}"


def _when(schedule: ScheduleView) -> Text:
    when = Text(printable(schedule.when))
    return when if schedule.tz == "UTC" else when.append(f" {printable(schedule.tz)}", style="dim")


def _next_tick(schedule: ScheduleView, now_ms: int) -> Text:
    if schedule.paused:
        return Text("paused", style="yellow")
    if not schedule.registered:
        return Text("not registered yet", style="yellow")
    if schedule.next_ticks:
        return Text(_future(schedule.next_ticks[0], schedule, now_ms))
    return Text("?", style="red") if schedule.problem else Text("never again", style="dim")


def _last_tick(schedule: ScheduleView, now_ms: int) -> str:
    return "" if schedule.last_tick is None else f"{age(now_ms - _ms(schedule.last_tick))} ago"


def _remarks(schedule: ScheduleView) -> list[Text]:
    name, remarks = printable(schedule.name), []
    if schedule.problem is not None:
        remarks.append(Text(f"{name}: {printable(schedule.problem)}", style="red"))
    if not schedule.registered:
        remarks.append(Text(f"{name}: declared by the app; a worker registers it when it starts", style="yellow"))
    if schedule.paused:
        remarks.append(Text(f"{name}: paused; its ticks are skipped until it is resumed", style="yellow"))
    if schedule.ticks_without_job:
        ticks = counted(schedule.ticks_without_job, "tick")
        status = f"job {schedule.last_job} is still {schedule.last_status}"
        remarks.append(Text(f"{name}: {ticks} made no job, {status} (overlap skip)", style="yellow"))
    return remarks


def _future(tick: datetime, schedule: ScheduleView, now_ms: int) -> str:
    return f"{_local(tick, schedule.tz)} (in {age(_ms(tick) - now_ms)})"


def _local(at: datetime, tz: str) -> str:
    """A time in the time zone of its schedule."""
    local = at.astimezone(ZoneInfo(tz))
    return f"{local:%Y-%m-%d %H:%M:%S %Z}" if local.second else f"{local:%Y-%m-%d %H:%M %Z}"


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)

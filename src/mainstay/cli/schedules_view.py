"""How schedules look: as a table, one by one, and as data."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..control.schedules import ScheduleView
from ..words import age, counted, local_moment
from .common import coloured, print_command, printable
from .target import Where

#: widths of a terminal from which on the list has more to show
_WITH_LAST, _WITH_TASK, _WITH_RULES = 80, 100, 140


def show_list(views: Sequence[ScheduleView], now_ms: int, console: Console) -> None:
    """A table as wide as the terminal, and below it what is not as it should be."""
    if not views:
        console.print("no schedules")
        return
    console.print(_table(views, now_ms, console.width))
    remarks = [remark for view in views for remark in _remarks(view)]
    if remarks:
        console.print()
    for remark in remarks:
        console.print(remark)


def show_one(view: ScheduleView, now_ms: int, console: Console, where: Where) -> None:
    """All about one."""
    console.print(Text(printable(view.name), style="bold"))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("when", f"{printable(view.when)} ({printable(view.tz)})")
    grid.add_row("task", printable(view.task))
    grid.add_row("catch up", view.catch_up)
    grid.add_row("overlap", view.overlap)
    for place, tick in enumerate(view.next_ticks):
        grid.add_row("" if place else "next ticks", _coming(tick, view, now_ms))
    grid.add_row("last tick", "none yet" if view.last_tick is None else _gone(view.last_tick, view, now_ms))
    if view.last_job is not None:
        grid.add_row("last job", Text(f"{view.last_job} ").append_text(coloured(view.last_status or "?")))
    console.print(grid)
    for remark in _remarks(view):
        console.print(remark)
    if view.last_job is not None:
        console.print("\nits jobs:")
        print_command(where.again(f"mainstay jobs list --tag schedule:{view.name}"), console)


def told(view: ScheduleView, now_ms: int) -> str:
    """Where it stands, in a line."""
    if view.paused:
        return f"schedule {printable(view.name)} is paused"
    if not view.next_ticks:
        return f"schedule {printable(view.name)} is not paused"
    return f"schedule {printable(view.name)} ticks next at {_coming(view.next_ticks[0], view, now_ms)}"


def _table(views: Sequence[ScheduleView], now_ms: int, width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("schedule", overflow="fold")
    table.add_column("when", overflow="fold")
    table.add_column("next tick", overflow="fold")
    if width >= _WITH_LAST:
        table.add_column("last tick", overflow="fold")
    if width >= _WITH_TASK:
        table.add_column("task", overflow="fold")
    if width >= _WITH_RULES:
        table.add_column("overlap", no_wrap=True)
        table.add_column("catch up", no_wrap=True)
    for view in views:
        when = Text(printable(view.when))
        if view.tz != "UTC":
            when.append(f" {printable(view.tz)}", style="dim")
        last = "" if view.last_tick is None else f"{age(now_ms - _ms(view.last_tick))} ago"
        row = [Text(printable(view.name)), when, _next(view, now_ms), Text(last, style="dim")]
        row += [Text(printable(view.task)), Text(view.overlap), Text(view.catch_up)]
        table.add_row(*row[: len(table.columns)])
    return table


def _next(view: ScheduleView, now_ms: int) -> Text:
    if view.paused:
        return Text("paused", style="yellow")
    if not view.registered:
        return Text("not registered yet", style="yellow")
    if view.next_ticks:
        return Text(_coming(view.next_ticks[0], view, now_ms))
    return Text("?", style="red") if view.problem else Text("never again", style="dim")


def _remarks(view: ScheduleView) -> list[Text]:
    name, remarks = printable(view.name), []
    if view.problem is not None:
        remarks.append(Text(f"{name}: {printable(view.problem)}", style="red"))
    if not view.registered:
        remarks.append(Text(f"{name}: declared by the app; a worker registers it when it starts", style="yellow"))
    if view.paused:
        remarks.append(Text(f"{name}: paused; its ticks are passed over until it is resumed", style="yellow"))
    if view.ticks_without_job:
        n = counted(view.ticks_without_job, "tick")
        why = f"job {view.last_job} is still {view.last_status}"
        remarks.append(Text(f"{name}: {n} made no job, {why} (overlap skip)", style="yellow"))
    return remarks


def _coming(at: datetime, view: ScheduleView, now_ms: int) -> str:
    return f"{local_moment(at, view.tz)} (in {age(_ms(at) - now_ms)})"


def _gone(at: datetime, view: ScheduleView, now_ms: int) -> str:
    return f"{local_moment(at, view.tz)} ({age(now_ms - _ms(at))} ago)"


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)

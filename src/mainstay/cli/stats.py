"""`mainstay stats`: the state of a store at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..control.json_view import SessionView, StatsView, read_stats
from ..lifecycle import JOB
from ..model import QueueSettings
from ..stores import JobStore
from ..words import age, counted
from .command import command
from .common import (
    JsonOption,
    coloured_status,
    looking,
    print_json,
    printable,
    screen,
    shortened,
)
from .target import Where

#: sessions shown; the rest are counted, and all are in --json
_SHOWN = 20


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    stats: StatsView
    queues: list[QueueSettings]


def show_stats(where: Where, as_json: JsonOption = False) -> None:
    """Show jobs by state, the wait of the oldest job, rates, and the workers.

    Nothing is changed. Counters are updated as jobs change, so the cost does not depend on the number of jobs.

    Exit codes: 0 fine, 2 error.

    [bold]Examples[/bold] (the default of --store is MAINSTAY_STORE)

      mainstay stats --store sqlite:///jobs.db
      mainstay stats --json | jq .queues
    """
    seen: _Seen = looking(where, _look)
    if as_json:
        print_json(seen.stats)
    else:
        _show(seen, screen(), check_with=where.again("mainstay check"))


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "stats")(show_stats)


async def _look(store: JobStore) -> _Seen:
    return _Seen(stats=await read_stats(store), queues=await store.queues())


def _show(seen: _Seen, console: Console, *, check_with: str) -> None:
    stats = seen.stats
    paused = {queue.name: queue.reason for queue in seen.queues if queue.paused}
    if any(queue.counts for queue in stats.queues.values()):
        console.print(_by_queue(stats, paused))
        console.print()
        console.print(_by_state(stats))
        console.print()
    else:
        console.print("no jobs yet")
    for name, reason in paused.items():
        why = f": {printable(reason)}" if reason else ""
        console.print(Text(f"queue {printable(name)} is paused{why}", style="yellow"))
    for key, most in stats.limits.items():
        console.print(Text(f"limit: at most {most} at a time of {printable(key)}", style="dim"))
    for each in stats.unserved:
        console.print(Text(printable(each.text), style="bold yellow"))
    console.print(_sessions(stats))
    if stats.leader is None and stats.live_sessions:
        console.print(Text("no session leads: no schedule ticks until one does, within seconds", style="yellow"))
    if stats.aside:
        console.print(Text(f"{stats.aside} rows are set aside because they cannot be read", style="bold red"))
    for finding in stats.findings:
        console.print(Text(f"finding: {printable(finding)}", style="bold red"))
    if stats.aside or stats.findings:
        console.print(Text(f"look closer with: {check_with}", style="dim"), soft_wrap=True)


def _by_queue(stats: StatsView, paused: Collection[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("queue", overflow="fold")
    table.add_column("state", overflow="fold")
    table.add_column("jobs", justify="right", no_wrap=True)
    table.add_column("oldest ready", justify="right", no_wrap=True)
    for name in sorted(stats.queues):
        found = stats.queues[name]
        title = printable(name) + (" (paused)" if name in paused else "")
        for status in in_order(found.counts):
            state = JOB.get(status)
            ready = found.oldest_ready_ms if state is not None and state.claimable else None
            waits = "" if ready is None else age(stats.at_ms - ready)
            table.add_row(title, coloured_status(status), f"{found.counts[status]:,}", waits)
            title = ""
    return table


def _by_state(stats: StatsView) -> Table:
    total: Counter[str] = Counter()
    for queue in stats.queues.values():
        total.update(queue.counts)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("state", overflow="fold")
    table.add_column("jobs", justify="right", no_wrap=True)
    table.add_column("moves into it per minute (last 5 min)", justify="right")
    for status in in_order(total.keys() | stats.rates.keys()):
        rate = stats.rates.get(status, 0.0)
        table.add_row(coloured_status(status), f"{total[status]:,}", f"{rate:,.1f}" if rate else "-")
    return table


def in_order(statuses: Iterable[str]) -> list[str]:
    """In the order of the lifecycle; what only a newer version knows comes last."""
    order = {name: place for place, name in enumerate(JOB.states)}
    return sorted(statuses, key=lambda status: (order.get(status, len(order)), status))


def _sessions(stats: StatsView) -> Text:
    n = stats.live_sessions
    text = Text(f"{counted(n, 'session')} at work" if n else "no worker is alive", style="dim")
    # the living first: however many dead there are, they must not push them off the screen
    for session in sorted(stats.sessions, key=lambda each: each.at_work, reverse=True)[:_SHOWN]:
        silent = age(session.silent_ms)
        if session.dead:
            heard = Text(f"found dead, silent for {silent}", style="not dim red")
        elif not session.at_work:
            heard = Text(f"silent for {silent}, not swept yet", style="not dim red")
        else:
            heard = Text(f"heard of {silent} ago{', leads' if session.id == stats.leader else ''}", style="dim")
        text.append(f"\n  {_who(session)}  ", style="not dim").append_text(heard)
    if len(stats.sessions) > _SHOWN:
        text.append(f"\n  ... and {len(stats.sessions) - _SHOWN} more; --json shows all")
    return text


def _who(session: SessionView) -> str:
    pid = f"pid {session.pid}" if session.pid else ""
    where = f"{'on ' if pid else ''}{printable(session.host)}" if session.host else ""
    place = " ".join(filter(None, (pid, where)))
    return "  ".join(filter(None, (printable(session.worker) or shortened(session.id), place)))

"""`mainstay stats`: the state of a store at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..control import SessionView, StatsView, read_stats
from ..lifecycle import JOB
from ..stores import JobStore
from ..words import age, counted
from .commands import CommandOutput, command
from .common import coloured_status, printable, shortened
from .tables import empty_table
from .target import Where

#: sessions shown; the rest are counted, and all are in --json
_SHOWN = 20


async def show_stats(store: JobStore, where: Where) -> CommandOutput:
    """Show jobs by state, the wait of the oldest job, rates, and the workers.

    Nothing is changed. Counters are updated as jobs change, so the cost does not depend on the number of jobs.

    Exit codes: 0 fine, 2 error.

    [bold]Examples[/bold] (the default of --store is MAINSTAY_STORE)

      mainstay stats --store sqlite:///jobs.db
      mainstay stats --json | jq .queues
    """
    stats = await read_stats(store)
    paused = {queue.name: queue.reason for queue in await store.queues() if queue.paused}
    return CommandOutput(stats, lambda console: _show(stats, paused, console, check_with=where.again("mainstay check")))


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "stats")(show_stats)


def _show(stats: StatsView, paused: dict[str, str | None], console: Console, *, check_with: str) -> None:
    if any(queue.counts for queue in stats.queues.values()):
        console.print(_by_queue(stats, paused))
        console.print()
        console.print(_by_state(stats))
        console.print()
    else:
        console.print("no jobs yet")
    for name, reason in paused.items():
        because = f": {printable(reason)}" if reason else ""
        console.print(Text(f"queue {printable(name)} is paused{because}", style="yellow"))
    for key, most in stats.limits.items():
        console.print(Text(f"limit: at most {most} at a time of {printable(key)}", style="dim"))
    for each in stats.unserved:
        console.print(Text(printable(each.text), style="bold yellow"))
    console.print(_sessions(stats))
    if stats.leader is None and stats.live_sessions:
        console.print(Text("no worker leads: schedules tick again when one does, within seconds", style="yellow"))
    if stats.aside:
        console.print(Text(f"{stats.aside} rows are set aside because they cannot be read", style="bold red"))
    for finding in stats.findings:
        console.print(Text(f"finding: {printable(finding)}", style="bold red"))
    if stats.aside or stats.findings:
        console.print(Text(f"look closer with: {check_with}", style="dim"), soft_wrap=True)


def _by_queue(stats: StatsView, paused: Collection[str]) -> Table:
    table = empty_table("queue", "state", numbers=("jobs", "oldest ready"))
    for name in sorted(stats.queues):
        queue = stats.queues[name]
        title = printable(name) + (" (paused)" if name in paused else "")
        for status in in_order(queue.counts):
            state = JOB.get(status)
            ready_ms = queue.oldest_ready_ms if state is not None and state.claimable else None
            wait = "" if ready_ms is None else age(stats.at_ms - ready_ms)
            table.add_row(title, coloured_status(status), f"{queue.counts[status]:,}", wait)
            title = ""
    return table


def _by_state(stats: StatsView) -> Table:
    totals: Counter[str] = Counter()
    for queue in stats.queues.values():
        totals.update(queue.counts)
    table = empty_table("state", numbers=("jobs", "moves into it per minute (last 5 min)"))
    for status in in_order(totals.keys() | stats.rates.keys()):
        rate = stats.rates.get(status, 0.0)
        table.add_row(coloured_status(status), f"{totals[status]:,}", f"{rate:,.1f}" if rate else "-")
    return table


def in_order(statuses: Iterable[str]) -> list[str]:
    """States in the order of the lifecycle; those that only a newer version knows come last."""
    order = {name: place for place, name in enumerate(JOB.states)}
    return sorted(statuses, key=lambda status: (order.get(status, len(order)), status))


def _sessions(stats: StatsView) -> Text:
    n = stats.live_sessions
    text = Text(f"{counted(n, 'session')} at work" if n else "no worker is alive", style="dim")
    # live sessions first, so that many dead ones do not push them off the screen
    for session in sorted(stats.sessions, key=lambda each: each.at_work, reverse=True)[:_SHOWN]:
        silent = age(session.silent_ms)
        if session.dead:
            heard = Text(f"found dead, silent for {silent}", style="not dim red")
        elif not session.at_work:
            heard = Text(f"silent for {silent}, not swept yet", style="not dim red")
        else:
            heard = Text(f"heard of {silent} ago{', leads' if session.id == stats.leader else ''}", style="dim")
        text.append(f"\n  {_session(session)}  ", style="not dim").append_text(heard)
    if len(stats.sessions) > _SHOWN:
        text.append(f"\n  ... and {len(stats.sessions) - _SHOWN} more; --json shows all")
    return text


def _session(session: SessionView) -> str:
    pid = f"pid {session.pid}" if session.pid else ""
    host = f"{'on ' if pid else ''}{printable(session.host)}" if session.host else ""
    process = " ".join(filter(None, (pid, host)))
    return "  ".join(filter(None, (printable(session.worker) or shortened(session.id), process)))

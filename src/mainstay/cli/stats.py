"""`mainstay stats`: the state of a store at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..lifecycle import JOB
from ..model import QueueSettings, Session
from ..stores import JobStore, Stats
from .common import JsonOption, StoreOption, age, coloured, looking, print_json, printable

#: sessions shown; the rest are counted, and all are in --json
_SHOWN = 20

_HELP = """Show how many jobs are in which state, how long the oldest waits, how fast it goes, and who works.

Nothing is changed. Counts are kept as jobs move, so this costs the same with a thousand and with a million jobs.

Exit codes: 0 fine, 2 error.

[bold]Examples[/bold]

  mainstay stats --store sqlite:///jobs.db
  mainstay stats --json | jq .queues         the store of MAINSTAY_STORE, for programs
"""


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    stats: Stats
    sessions: list[Session]
    queues: list[QueueSettings]
    limits: dict[str, int]
    lease_ms: int


def command(store: StoreOption = "", as_json: JsonOption = False) -> None:
    seen: _Seen = looking(store, _look, as_json=as_json)
    if as_json:
        print_json(_data(seen))
    else:
        _show(seen, Console(highlight=False))


def register(app: typer.Typer) -> None:
    app.command(name="stats", help=_HELP)(command)


async def _look(store: JobStore) -> _Seen:
    return _Seen(
        stats=await store.stats(),
        sessions=await store.sessions(),
        queues=await store.queues(),
        limits=await store.limits(),
        lease_ms=store.clock.lease_ms(),
    )


def _data(seen: _Seen) -> dict[str, Any]:
    stats = msgspec.to_builtins(seen.stats)
    settings = {queue.name: queue for queue in seen.queues}
    for name in sorted(stats["queues"].keys() | settings.keys()):
        queue = stats["queues"].setdefault(name, {"counts": {}, "oldest_ready_ms": None})
        queue["paused"] = name in settings and settings[name].paused
    # the count is that of the living; the list says who they are, and who was found dead
    stats["live_sessions"] = stats.pop("sessions")
    stats["sessions"] = [
        {**msgspec.to_builtins(session), "silent_ms": seen.lease_ms - session.beat_ms} for session in seen.sessions
    ]
    return {**stats, "limits": seen.limits}


def _show(seen: _Seen, console: Console) -> None:
    stats = seen.stats
    paused = {queue.name: queue.reason for queue in seen.queues if queue.paused}
    if stats.queues:
        console.print(_by_queue(stats, paused))
        console.print()
        console.print(_by_state(stats))
        console.print()
    else:
        console.print("no jobs yet")
    for name, reason in paused.items():
        why = f": {printable(reason)}" if reason else ""
        console.print(Text(f"queue {printable(name)} is paused{why}", style="yellow"))
    for key, most in seen.limits.items():
        console.print(Text(f"limit: at most {most} at a time of {printable(key)}", style="dim"))
    console.print(_sessions(seen))
    if stats.aside:
        console.print(Text(f"{stats.aside} rows are set aside because they cannot be read", style="bold red"))
    for finding in stats.findings:
        console.print(Text(f"finding: {printable(finding)}", style="bold red"))
    if stats.aside or stats.findings:
        console.print(Text("look closer with: mainstay check", style="dim"))


def _by_queue(stats: Stats, paused: Collection[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("queue", overflow="fold")
    table.add_column("state", overflow="fold")
    table.add_column("jobs", justify="right", no_wrap=True)
    table.add_column("oldest ready", justify="right", no_wrap=True)
    for name in sorted(stats.queues):
        found = stats.queues[name]
        waits = "" if found.oldest_ready_ms is None else age(stats.at_ms - found.oldest_ready_ms)
        title = printable(name) + (" (paused)" if name in paused else "")
        for status in _ordered(found.counts):
            table.add_row(title, coloured(status), f"{found.counts[status]:,}", waits)
            title = waits = ""
    return table


def _by_state(stats: Stats) -> Table:
    total: Counter[str] = Counter()
    for queue in stats.queues.values():
        total.update(queue.counts)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("state", overflow="fold")
    table.add_column("jobs", justify="right", no_wrap=True)
    table.add_column("moves into it per minute", justify="right")
    for status in _ordered(total.keys() | stats.rates.keys()):
        rate = stats.rates.get(status, 0.0)
        table.add_row(coloured(status), f"{total[status]:,}", f"{rate:,.1f}" if rate else "-")
    return table


def _ordered(statuses: Iterable[str]) -> list[str]:
    """In the order of the lifecycle; what only a newer version knows comes last."""
    order = {name: place for place, name in enumerate(JOB.states)}
    return sorted(statuses, key=lambda status: (order.get(status, len(order)), status))


def _sessions(seen: _Seen) -> Text:
    n = seen.stats.sessions
    text = Text(f"{n} {'session' if n == 1 else 'sessions'} at work" if n else "nobody is at work", style="dim")
    for session in seen.sessions[:_SHOWN]:
        who = printable(session.worker or session.id[:8])
        where = f"pid {session.pid} on {printable(session.host)}" if session.pid else printable(session.host)
        heard = "found dead" if session.dead else f"heard of {age(seen.lease_ms - session.beat_ms)} ago"
        text.append(f"\n  {who}  {where}  ", style="not dim").append(heard, style="red" if session.dead else "")
    if len(seen.sessions) > _SHOWN:
        text.append(f"\n  ... and {len(seen.sessions) - _SHOWN} more; --json shows all")
    return text

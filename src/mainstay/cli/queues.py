"""`mainstay queues`: what waits where, and pausing, resuming and purging."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..control import Control, bulk, overview
from ..control.actions import WAITING, deleting, withdrawing
from ..control.bulk import JobSelection
from ..control.overview import QueueOverview, QueuesOverview, check_known, known_queues
from ..model import QueueSettings
from ..stores import JobStore, Query
from ..words import age
from . import act, act_view, completion
from .act import Manner, myself
from .command import command
from .common import JsonOption, aside, looking, print_json, printable, screen, working
from .stats import in_order
from .target import Where

_WIDE = 100


group = typer.Typer(help="List, pause, resume and purge queues.", no_args_is_help=True, rich_markup_mode="rich")

QueueArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="Name of the queue.", autocompletion=completion.queues)
]
QueuesArgument = Annotated[
    list[str], typer.Argument(metavar="QUEUE...", help="Names of the queues.", autocompletion=completion.queues)
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="queues")


@command(group, "list")
def list_queues(where: Where, as_json: JsonOption = False) -> None:
    """List the queues: jobs by state, the wait of the oldest job, and which queues are paused.

    Counters are updated as jobs change, so the cost does not depend on the number of jobs. Rates are those of the whole
    store.

    Exit codes: 0 fine, 2 error.

    [bold]Examples[/bold]

      mainstay queues list
      mainstay queues list --json | jq '.queues[] | select(.paused)'
    """
    seen = looking(where, overview.queues)
    if as_json:
        print_json(msgspec.to_builtins(seen))
    else:
        _show(seen, screen())


@command(group, "pause")
def pause(
    where: Where,
    queues: QueuesArgument,
    reason: Annotated[str | None, typer.Option("--reason", "-r", help="Why.", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """Pause queues: workers take no more of their jobs. Running jobs continue, and new jobs can be submitted. A queue
    without jobs can be paused in advance.

    Exit codes: 0 done (or nothing to do), 2 error.

    [bold]Examples[/bold]

      mainstay queues pause mail --reason "the provider is down"
    """

    async def work(control: Control) -> list[QueueSettings]:
        known = await known_queues(control.store)
        for queue in dict.fromkeys(queues):
            await control.operations.pause(queue, reason=reason, actor=myself())
            if queue not in known:
                aside(f"no job is in queue {printable(queue)} yet; is the name right? there are {_listed(known)}")
        return await _settings(control.store, queues)

    _tell(working(where, work), as_json=as_json)


@command(group, "resume")
def resume(where: Where, queues: QueuesArgument, as_json: JsonOption = False) -> None:
    """Resume queues: workers take their jobs again.

    Exit codes: 0 done (or nothing to do), 2 error.

    [bold]Examples[/bold]

      mainstay queues resume mail
    """

    async def work(control: Control) -> list[QueueSettings]:
        await check_known(control.store, queues)
        for queue in queues:
            await control.operations.resume(queue, actor=myself())
        return await _settings(control.store, queues)

    _tell(working(where, work), as_json=as_json)


@command(group, "purge")
def purge(
    where: Where,
    manner: Manner,
    queue: QueueArgument,
    delete: Annotated[bool, typer.Option("--delete", help="Delete them instead of cancelling them.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Purge a queue: cancel every waiting job in it. Running and settled jobs are not changed.

    With --delete the jobs are deleted instead, with their payloads and events; a tombstone of each stays. The command
    shows what it would do and asks first: --yes skips the question, --dry-run only shows.

    Exit codes: 0 done, 1 some jobs were not changed (a worker took them first), 2 error, or not confirmed.

    [bold]Examples[/bold]

      mainstay queues purge mail --dry-run
      mainstay queues purge mail --reason "sent by mistake" --yes
    """

    async def find(store: JobStore) -> JobSelection:
        await check_known(store, [queue])
        with act_view.counting(quiet=as_json) as seen:
            return await bulk.matching(store, Query(queue=queue, status=WAITING), limit=manner.limit, on_count=seen)

    why = manner.reason or f"queue {queue} was purged"
    action = (deleting if delete else withdrawing)(actor=manner.who, reason=why)
    act.settle(action, where, looking(where, find), manner, as_json=as_json)


def _show(seen: QueuesOverview, console: Console) -> None:
    if not seen.queues:
        console.print("no queues yet")
        return
    states = in_order({status for queue in seen.queues for status, n in queue.counts.items() if n})
    console.print(_wide(seen, states) if console.width >= _WIDE else _narrow(seen, states))
    console.print()
    for queue in seen.queues:
        if queue.paused:
            why = f": {printable(queue.reason)}" if queue.reason else ""
            who = f" ({printable(queue.set_by)}, {age(seen.at_ms - queue.set_ms)} ago)" if queue.set_ms else ""
            console.print(Text(f"queue {printable(queue.name)} is paused{why}{who}", style="yellow"))
    are = "session is" if seen.live_sessions == 1 else "sessions are"
    console.print(Text(f"{seen.live_sessions or 'no'} {are} alive", style="dim"))
    rates = ", ".join(f"{rate:,.1f} {status}" for status in in_order(seen.rates) if (rate := seen.rates[status]))
    if rates:
        console.print(Text(f"per minute, all queues, last 5 min: {rates}", style="dim"))


def _wide(seen: QueuesOverview, states: Sequence[str]) -> Table:
    """One line for a queue, one column for a state."""
    table = _table()
    for status in states:
        table.add_column(status, justify="right")
    table.add_column("oldest ready", justify="right")
    table.add_column("at work", justify="right")
    for queue in seen.queues:
        counts = [f"{queue.counts.get(status, 0):,}" if queue.counts.get(status) else "" for status in states]
        table.add_row(_title(queue), *counts, _oldest(queue, seen), str(queue.sessions_at_work or ""))
    return table


def _narrow(seen: QueuesOverview, states: Sequence[str]) -> Table:
    """One line for a queue, its states in words."""
    table = _table()
    table.add_column("jobs", overflow="fold")
    table.add_column("oldest ready", justify="right", no_wrap=True)
    table.add_column("at work", justify="right", no_wrap=True)
    for queue in seen.queues:
        counts = ", ".join(f"{n:,} {status}" for status in states if (n := queue.counts.get(status)))
        table.add_row(_title(queue), counts, _oldest(queue, seen), str(queue.sessions_at_work or ""))
    return table


def _table() -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("queue", overflow="fold")
    return table


def _title(queue: QueueOverview) -> Text:
    title = Text(printable(queue.name))
    return title.append(" (paused)", style="yellow") if queue.paused else title


def _oldest(queue: QueueOverview, seen: QueuesOverview) -> str:
    return "" if queue.oldest_ready_ms is None else age(seen.at_ms - queue.oldest_ready_ms)


async def _settings(store: JobStore, names: Sequence[str]) -> list[QueueSettings]:
    found = {queue.name: queue for queue in await store.queues()}
    return [found.get(name, QueueSettings(name=name)) for name in dict.fromkeys(names)]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(printable, sorted(names))) or "none"


def _tell(queues: Sequence[QueueSettings], *, as_json: bool) -> None:
    if as_json:
        data: list[dict[str, Any]] = [msgspec.to_builtins(queue) for queue in queues]
        print_json({"queues": data})
        return
    console = screen()
    for queue in queues:
        why = f": {printable(queue.reason)}" if queue.reason else ""
        said = f"is paused{why}" if queue.paused else "hands out its jobs"
        console.print(f"queue {printable(queue.name)} {said}", markup=False)

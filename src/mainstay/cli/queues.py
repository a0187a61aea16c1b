"""`mainstay queues`: list, pause, resume and purge queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..control import WAITING_STATES, Control, bulk, deleting, overview, withdrawing
from ..control.bulk import JobSelection
from ..control.overview import QueueOverview, QueuesOverview, check_known, known_queues
from ..model import QueueSettings
from ..stores import JobStore, Query
from ..words import age, counted
from . import completion, job_actions_view
from .commands import CommandOutput, command, command_group
from .common import aside, opened, printable, using
from .job_actions import BulkOptions, carry_out
from .options import local_actor
from .stats import in_order
from .tables import Column, table
from .target import Where

_WIDE = 100

group = command_group("List, pause, resume and purge queues.")

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
async def list_queues(store: JobStore) -> CommandOutput:
    """List the queues: jobs by state, the wait of the oldest job, and which queues are paused.

    Counters are updated as jobs change, so the cost does not depend on the number of jobs. Rates are those of the whole
    store.

    Exit codes: 0 fine, 2 error.

    [bold]Examples[/bold]

      mainstay queues list
      mainstay queues list --json | jq '.queues[] | select(.paused)'
    """
    queues = await overview.queues(store)
    return CommandOutput(queues, lambda console: _show(queues, console))


@command(group, "pause")
async def pause(
    control: Control,
    queues: QueuesArgument,
    reason: Annotated[str | None, typer.Option("--reason", "-r", help="Why.", show_default=False)] = None,
) -> CommandOutput:
    """Pause queues: workers take no more of their jobs. Running jobs continue, and new jobs can be submitted. A queue
    without jobs can be paused in advance.

    Exit codes: 0 done (or nothing to do), 2 error.

    [bold]Examples[/bold]

      mainstay queues pause mail --reason "the provider is down"
    """
    known = await known_queues(control.store)
    for queue in dict.fromkeys(queues):
        await control.operations.pause(queue, reason=reason, actor=local_actor())
        if queue not in known:
            names = ", ".join(map(printable, sorted(known))) or "none"
            aside(f"no job is in queue {printable(queue)} yet; is the name right? Known queues: {names}")
    return await _settings(control.store, queues)


@command(group, "resume")
async def resume(control: Control, queues: QueuesArgument) -> CommandOutput:
    """Resume queues: workers take their jobs again.

    Exit codes: 0 done (or nothing to do), 2 error.

    [bold]Examples[/bold]

      mainstay queues resume mail
    """
    await check_known(control.store, queues)
    for queue in queues:
        await control.operations.resume(queue, actor=local_actor())
    return await _settings(control.store, queues)


@command(group, "purge")
def purge(
    where: Where,
    options: BulkOptions,
    queue: QueueArgument,
    delete: Annotated[bool, typer.Option("--delete", help="Delete them instead of cancelling them.")] = False,
) -> int:
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
        with job_actions_view.counting(quiet=options.as_json) as seen:
            return await bulk.matching(
                store, Query(queue=queue, status=WAITING_STATES), limit=options.limit, on_count=seen
            )

    reason = options.reason or f"queue {queue} was purged"
    action = (deleting if delete else withdrawing)(actor=options.audit_name, reason=reason)
    return carry_out(action, where, using(opened(where.target().url), find), options)


def _show(overview: QueuesOverview, console: Console) -> None:
    if not overview.queues:
        console.print("no queues yet")
        return
    states = in_order({status for queue in overview.queues for status, n in queue.counts.items() if n})
    console.print(_table(overview, states, wide=console.width >= _WIDE))
    console.print()
    for queue in overview.queues:
        if queue.paused:
            change = f" ({printable(queue.set_by)}, {age(overview.at_ms - queue.set_ms)} ago)" if queue.set_ms else ""
            console.print(Text(f"queue {_paused(queue)}{change}", style="yellow"))
    alive = (
        counted(overview.live_sessions, "session is", "sessions are") if overview.live_sessions else "no sessions are"
    )
    console.print(Text(f"{alive} alive", style="dim"))
    rates = [f"{overview.rates[status]:,.1f} {status}" for status in in_order(overview.rates) if overview.rates[status]]
    if rates:
        console.print(Text(f"per minute, all queues, last 5 min: {', '.join(rates)}", style="dim"))


def _table(overview: QueuesOverview, states: Sequence[str], *, wide: bool) -> Table:
    """One line for each queue, with a column for each state if there is room for it."""
    column = Column[QueueOverview]
    columns = (
        column("queue", _title),
        *([_count_column(status) for status in states] if wide else [_counts_column(states)]),
        column("oldest ready", lambda queue: _oldest(queue, overview.at_ms), right=True),
        column("at work", lambda queue: str(queue.sessions_at_work or ""), right=True),
    )
    return table(columns, overview.queues)


def _count_column(status: str) -> Column[QueueOverview]:
    return Column(status, lambda queue: f"{queue.counts[status]:,}" if queue.counts.get(status) else "", right=True)


def _counts_column(states: Sequence[str]) -> Column[QueueOverview]:
    def counts(queue: QueueOverview) -> str:
        return ", ".join(f"{n:,} {status}" for status in states if (n := queue.counts.get(status)))

    return Column("jobs", counts)


def _title(queue: QueueOverview) -> Text:
    title = Text(printable(queue.name))
    return title.append(" (paused)", style="yellow") if queue.paused else title


def _oldest(queue: QueueOverview, now_ms: int) -> str:
    return "" if queue.oldest_ready_ms is None else age(now_ms - queue.oldest_ready_ms)


def _paused(queue: QueueOverview | QueueSettings) -> str:
    reason = f": {printable(queue.reason)}" if queue.reason else ""
    return f"{printable(queue.name)} is paused{reason}"


async def _settings(store: JobStore, names: Sequence[str]) -> CommandOutput:
    stored = {queue.name: queue for queue in await store.queues()}
    queues = [stored.get(name, QueueSettings(name=name)) for name in dict.fromkeys(names)]
    lines = (_paused(queue) if queue.paused else f"{printable(queue.name)} is not paused" for queue in queues)
    return CommandOutput({"queues": queues}, "\n".join(f"queue {line}" for line in lines))

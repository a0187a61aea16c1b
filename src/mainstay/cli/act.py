"""`mainstay jobs cancel`, `retry`, `force` and `delete`: for one job, for several, or for all that match."""

from __future__ import annotations

import getpass
import socket
import sys
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from ..control import Control, bulk
from ..control.actions import Action, cancelling, deleting, retrying
from ..control.bulk import BulkAnswer, JobSelection
from ..control.job_filter import state_meant
from ..errors import InvalidInput
from ..lifecycle import JOB, UNIT
from ..model import Job
from ..stores import JobStore, Query
from ..words import counted
from . import act_view, completion
from .command import command
from .common import JsonOption, Refused, looking, screen, working
from .exits import NO
from .filters import Filters
from .ids import IdsArgument, full_id
from .options import Options, panel
from .target import Where

_panel = panel("Action")


class Manner(Options, frozen=True, kw_only=True):
    """How something is done to jobs."""

    yes: Annotated[bool, _panel("--yes", "-y", help="Do not ask for confirmation.")] = False
    dry_run: Annotated[bool, _panel("--dry-run", help="Show what would be done, and change nothing.")] = False
    limit: Annotated[
        int | None,
        _panel(
            "--limit", "-l", min=1, help="Act on at most this many jobs, the oldest first. Default: all that match."
        ),
    ] = None
    actor: Annotated[
        str | None, _panel("--actor", help="Name of the actor in the audit trail. Default: your user and host.")
    ] = None
    reason: Annotated[str | None, _panel("--reason", "-r", help="Reason, kept in the audit trail.")] = None

    @property
    def who(self) -> str:
        """Who does it, for the audit trail."""
        return self.actor or myself()


def register(group: typer.Typer) -> None:
    """Add the commands to the group of jobs."""
    for function in (cancel, retry, force, delete):
        command(group, function.__name__)(function)


def cancel(
    where: Where, filters: Filters, manner: Manner, ids: IdsArgument = None, as_json: JsonOption = False
) -> None:
    """Cancel jobs. A job that no worker runs is cancelled at once; otherwise its worker is asked to stop it, within its
    grace period.

    With filters, the command shows what it would do and asks first: --yes skips the question, --dry-run only shows. It
    starts with the oldest jobs; --limit stops after a few.

    Without --status, a filter selects every job that is not settled.

    Exit codes: 0 done (or nothing to do), 1 some jobs were not changed, 2 error, or not confirmed.

    [bold]Examples[/bold]

      mainstay jobs cancel 4de452e6b59d --reason "sent by mistake"
      mainstay jobs cancel --queue mail --older-than 1d
    """
    run(cancelling(actor=manner.who, reason=manner.reason), where, ids, filters, manner, as_json=as_json)


def retry(where: Where, filters: Filters, manner: Manner, ids: IdsArgument = None, as_json: JsonOption = False) -> None:
    """Retry jobs: send jobs that settled without success, or that wait for their next attempt, back to their queue.

    With filters, the command shows what it would do and asks first: --yes skips the question, --dry-run only shows. It
    starts with the oldest jobs; --limit stops after a few.

    Without --status, a filter selects every job that failed, timed out, is partial or quarantined.

    Exit codes: 0 done (or nothing to do), 1 some jobs were not changed, 2 error, or not confirmed.

    [bold]Examples[/bold]

      mainstay jobs retry 4de452e6b59d
      mainstay jobs retry --status quarantined --text "connection refused"
    """
    run(retrying(actor=manner.who, reason=manner.reason), where, ids, filters, manner, as_json=as_json)


def force(
    where: Where,
    filters: Filters,
    manner: Manner,
    to: Annotated[str, typer.Option("--to", help="The state to move the jobs to.", autocompletion=completion.state)],
    ids: IdsArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Move jobs to a state that the lifecycle does not allow. The audit trail records the move as forced, with actor
    and reason. Jobs in a final state cannot be moved.

    With filters, the command shows what it would do and asks first: --yes skips the question, --dry-run only shows. It
    starts with the oldest jobs; --limit stops after a few.

    A filter must include --status.

    Exit codes: 0 done (or nothing to do), 1 some jobs were not changed, 2 error, or not confirmed.

    [bold]Examples[/bold]

      mainstay jobs force 4de452e6b59d --to failed --reason "its host burned down"
    """
    if to not in JOB.states and to not in UNIT.states:
        raise InvalidInput("to", f"{to!r} is not a state; {state_meant(to)}")
    why = manner.reason
    if not why:
        raise InvalidInput(
            "reason", "a forced move needs a reason, for the audit trail: --reason 'its host burned down'"
        )

    async def do(control: Control, ids: Sequence[str]) -> list[BulkAnswer]:
        async def one(job_id: str) -> Job:
            return await control.operations.force(job_id, to, actor=manner.who, reason=why)

        return await bulk.one_by_one(ids, one)

    action = Action(verb=f"force to {to}", done=f"forced to {to}", states=(), do=do)
    run(action, where, ids, filters, manner, as_json=as_json)


def delete(
    where: Where, filters: Filters, manner: Manner, ids: IdsArgument = None, as_json: JsonOption = False
) -> None:
    """Delete jobs that no worker runs, with their payload, result and events. A tombstone stays.

    With filters, the command shows what it would do and asks first: --yes skips the question, --dry-run only shows. It
    starts with the oldest jobs; --limit stops after a few.

    Without --status, a filter selects every settled job.

    Exit codes: 0 done (or nothing to do), 1 some jobs were not changed, 2 error, or not confirmed.

    [bold]Examples[/bold]

      mainstay jobs delete 4de452e6b59d --reason "personal data"
      mainstay jobs delete --status cancelled,skipped --older-than 90d --yes
    """
    run(deleting(actor=manner.who, reason=manner.reason), where, ids, filters, manner, as_json=as_json)


def run(
    action: Action,
    where: Where,
    ids: Sequence[str] | None,
    filters: Filters,
    manner: Manner,
    *,
    as_json: bool,
) -> None:
    """Find the jobs, show and ask where that is due, do it, and leave with the exit code that says how it went."""

    async def find(store: JobStore) -> JobSelection:
        query = await _query(store, action, filters) if not ids else None
        return await _found(store, ids or (), query, manner, as_json=as_json)

    if bool(ids) is filters.any:
        given = "give ids or filters, not both" if ids else f"which? give ids, or a filter: {_example(action)}"
        raise InvalidInput("jobs", given)
    found = looking(where, find)
    settle(action, where, found, manner, as_json=as_json)


def settle(action: Action, where: Where, found: JobSelection, manner: Manner, *, as_json: bool) -> None:
    """The same once the jobs are found."""
    by_filter = found.query is not None
    if manner.dry_run:

        async def show(store: JobStore) -> None:
            await act_view.show_plan(action.verb, found, store, screen(), as_json=as_json)

        looking(where, show)
        return
    if by_filter and not as_json:
        act_view.show_preview(action.verb, found, screen())
    if by_filter and found.total and not manner.yes:
        _ask(action.verb, found, as_json=as_json)
    told = act_view.told(action.verb, action.done, found, screen(), as_json=as_json)

    async def work(control: Control) -> None:
        with told:
            async for answers in bulk.carry_out(control, found, action.do):
                told.take(answers)

    working(where, work)
    if not told.all_ok:
        raise typer.Exit(NO)


async def _found(
    store: JobStore, ids: Sequence[str], query: Query | None, manner: Manner, *, as_json: bool
) -> JobSelection:
    if query is None:
        return await bulk.named(store, [await full_id(store, each) for each in ids][: manner.limit])
    with act_view.counting(quiet=as_json) as seen:
        return await bulk.matching(store, query, limit=manner.limit, on_count=seen)


async def _query(store: JobStore, action: Action, filters: Filters) -> Query:
    query = await filters.query(store)
    if query.status is not None:
        return query
    if not action.states:
        raise InvalidInput("status", f"to {action.verb} by filter, say which: --status running")
    return msgspec.structs.replace(query, status=action.states)


def _ask(verb: str, found: JobSelection, *, as_json: bool) -> None:
    n = counted(found.total, "job")
    if as_json or not sys.stdin.isatty():
        raise Refused(
            "yes", f"this would {verb} {n}, and there is no terminal to ask on; add --yes, or look with --dry-run"
        )
    if not typer.confirm(f"{verb} {n}?"):
        raise Refused("yes", "not confirmed; nothing was done")


def _example(action: Action) -> str:
    return f"--status {','.join(action.states[:2]) or 'running'}"


def myself() -> str:
    """Who sits at this terminal, as user@host."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no such user in this container
        user = "unknown"
    return f"{user}@{socket.gethostname()}"

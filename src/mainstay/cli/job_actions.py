"""`mainstay jobs cancel`, `retry`, `force` and `delete`: for jobs given by id, or for all jobs that match a filter."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from ..control import Action, Control, bulk, cancelling, deleting, retrying, state_meant
from ..control.bulk import BulkAnswer, JobSelection
from ..errors import InvalidInput
from ..lifecycle import JOB, UNIT
from ..model import Job
from ..stores import JobStore
from ..words import counted
from . import completion, job_actions_view
from .common import InvalidUsage, JsonOption, open_control, opened, screen, using
from .exits import DONE, NO
from .filters import Filters
from .ids import IdsArgument, full_id
from .options import OptionGroup, local_actor, panel
from .target import Where

_panel = panel("Action")


class BulkOptions(OptionGroup, frozen=True, kw_only=True):
    """Options of a command that changes many jobs."""

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
    as_json: JsonOption = False

    @property
    def audit_name(self) -> str:
        """Name of the actor in the audit trail."""
        return self.actor or local_actor()


class JobActionOptions(BulkOptions, frozen=True, kw_only=True):
    """Options of a command that changes jobs given by id, or by a filter."""

    ids: IdsArgument = None


def cancel(where: Where, filters: Filters, options: JobActionOptions) -> int:
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
    action = cancelling(actor=options.audit_name, reason=options.reason)
    return _find_and_change(action, where, filters, options)


def retry(where: Where, filters: Filters, options: JobActionOptions) -> int:
    """Retry jobs: send jobs that settled without success, or that wait for their next attempt, back to their queue.

    With filters, the command shows what it would do and asks first: --yes skips the question, --dry-run only shows. It
    starts with the oldest jobs; --limit stops after a few.

    Without --status, a filter selects every job that failed, timed out, is partial or quarantined.

    Exit codes: 0 done (or nothing to do), 1 some jobs were not changed, 2 error, or not confirmed.

    [bold]Examples[/bold]

      mainstay jobs retry 4de452e6b59d
      mainstay jobs retry --status quarantined --text "connection refused"
    """
    action = retrying(actor=options.audit_name, reason=options.reason)
    return _find_and_change(action, where, filters, options)


def force(
    where: Where,
    filters: Filters,
    options: JobActionOptions,
    to: Annotated[str, typer.Option("--to", help="The state to move the jobs to.", autocompletion=completion.state)],
) -> int:
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
    reason = options.reason
    if not reason:
        rule = "a forced move needs a reason, for the audit trail: --reason 'its host burned down'"
        raise InvalidInput("reason", rule)

    async def do(control: Control, ids: Sequence[str]) -> list[BulkAnswer]:
        async def force_one(job_id: str) -> Job:
            return await control.operations.force(job_id, to, actor=options.audit_name, reason=reason)

        return await bulk.one_by_one(ids, force_one)

    action = Action(verb=f"force to {to}", done=f"forced to {to}", states=(), do=do)
    return _find_and_change(action, where, filters, options)


def delete(where: Where, filters: Filters, options: JobActionOptions) -> int:
    """Delete jobs that no worker runs, with their payload, result and events. A tombstone stays.

    With filters, the command shows what it would do and asks first: --yes skips the question, --dry-run only shows. It
    starts with the oldest jobs; --limit stops after a few.

    Without --status, a filter selects every settled job.

    Exit codes: 0 done (or nothing to do), 1 some jobs were not changed, 2 error, or not confirmed.

    [bold]Examples[/bold]

      mainstay jobs delete 4de452e6b59d --reason "personal data"
      mainstay jobs delete --status cancelled,skipped --older-than 90d --yes
    """
    action = deleting(actor=options.audit_name, reason=options.reason)
    return _find_and_change(action, where, filters, options)


def _find_and_change(action: Action, where: Where, filters: Filters, options: JobActionOptions) -> int:
    ids = options.ids
    example = f"--status {','.join(action.states[:2]) or 'running'}"
    if bool(ids) is filters.any:
        rule = "give ids or filters, not both" if ids else f"which? give ids, or a filter: {example}"
        raise InvalidInput("jobs", rule)

    async def find(store: JobStore) -> JobSelection:
        if ids:
            return await bulk.named(store, [await full_id(store, each) for each in ids][: options.limit])
        query = await filters.query(store)
        if query.status is None:
            if not action.states:
                raise InvalidInput("status", f"to {action.verb} by filter, give the states: {example}")
            query = msgspec.structs.replace(query, status=action.states)
        with job_actions_view.counting(quiet=options.as_json) as seen:
            return await bulk.matching(store, query, limit=options.limit, on_count=seen)

    return carry_out(action, where, using(opened(where.target().url), find), options)


def carry_out(action: Action, where: Where, selection: JobSelection, options: BulkOptions) -> int:
    """Change the selected jobs, and return the exit code. Jobs that a filter selected are shown first, and the user is
    asked."""
    if options.dry_run:
        using(
            opened(where.target().url),
            lambda store: job_actions_view.show_plan(action.verb, selection, store, screen(), as_json=options.as_json),
        )
        return DONE
    by_filter = selection.query is not None
    if by_filter and not options.as_json:
        job_actions_view.show_preview(action.verb, selection, screen())
    if by_filter and selection.total and not options.yes:
        _confirm(action.verb, selection, as_json=options.as_json)
    changed = using(
        open_control(where.target()), lambda control: _change(control, action, selection, as_json=options.as_json)
    )
    return DONE if changed else NO


async def _change(control: Control, action: Action, selection: JobSelection, *, as_json: bool) -> bool:
    """Change the jobs and report the result; whether all were changed."""
    if as_json:
        reporting = job_actions_view.json_report(action.verb)
    else:
        reporting = job_actions_view.terminal_report(action.done, selection, screen())
    with reporting as report:
        async for answers in bulk.carry_out(control, selection, action.do):
            report.add(answers)
    return report.all_ok


def _confirm(verb: str, selection: JobSelection, *, as_json: bool) -> None:
    jobs = counted(selection.total, "job")
    if as_json or not sys.stdin.isatty():
        rule = f"this would {verb} {jobs}, and there is no terminal to ask on; add --yes, or look with --dry-run"
        raise InvalidUsage("yes", rule)
    if not typer.confirm(f"{verb} {jobs}?"):
        raise InvalidUsage("yes", "not confirmed; nothing was done")

"""`mainstay jobs status`, `validate`, `resume` and `outputs`: what operators do to batches."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from ...cli import (
    CommandOutput,
    ForOption,
    IdArgument,
    JsonOption,
    Where,
    aside,
    busy,
    command,
    local_actor,
    observation,
    screen,
    stderr_console,
    watch,
    watch_view,
)
from ...cli.exits import DONE, FAILED, NO
from ...cli.observation import Pace
from ...errors import InvalidInput
from ...stores import JobStore
from .. import Batch, BatchService, BatchStatus, OutputStatus, ResumeOutcome, Validation
from ..advice import batch_advice
from ..report.model import batch_report
from ..report.text import show_advice
from ..spec import KIND
from . import lists, view
from .follow import exit_code_of, follow, follow_as_data, pace_of
from .progress import BatchProgress, look
from .report import report_output
from .session import BatchSession

WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Watch until the job is settled.")]
LimitOption = Annotated[int, typer.Option("--limit", "-l", min=1, help="Lines to show, at most.")]


def register(group: typer.Typer) -> None:
    """Add the commands to the group of jobs."""
    for function in (status, validate, resume, outputs):
        command(group, function.__name__)(function)


# status -------------------------------------------------------------------------------------------------


async def status(
    session: BatchSession,
    where: Where,
    job_id: IdArgument,
    watch: WatchOption = False,
    for_: ForOption = None,
    as_json: JsonOption = False,
) -> CommandOutput | int:
    """Show the status of a job. For a batch: units, outputs, rate, estimated end, and what to do next.

    With --watch, show it until the job is settled; with --json as well, print one line of JSON for each change.

    Exit codes: 0 fine (with --watch: it succeeded), 1 with --watch: it settled otherwise, 2 error, or not settled
    within --for, 3 with --watch: it is partial, 130 Ctrl-C.

    [bold]Examples[/bold]

      mainstay jobs status 4de452e6b59d
      mainstay jobs status 4de452e6b59d --watch && echo done
      mainstay jobs status 4de452e6b59d --watch --json | jq .units.done
    """
    pace = pace_of(for_)
    if for_ is not None and not watch:
        raise InvalidInput("for", "needs --watch")
    service, full = session.service, await session.full_id(job_id)
    job = await service.control.jobs.get(full)
    if job.kind != KIND or job.parent is not None:
        return await _plain_status(service.control.store, full, pace, watch_it=watch, as_json=as_json)
    if not watch:
        return _status_output(await look(service, full), where)
    if as_json:
        progress = await follow_as_data(service, full, pace, where)
        return exit_code_of(progress.status.job.status)
    progress = await follow(service, full, pace, stderr_console())
    return _status_output(progress, where, exit_code=exit_code_of(progress.status.job.status))


async def _plain_status(
    store: JobStore, job_id: str, pace: Pace, *, watch_it: bool, as_json: bool
) -> CommandOutput | int:
    """The status of a job of another kind."""
    if watch_it:
        console = screen()
        lines = as_json or not console.is_terminal
        return DONE if await watch.follow(store, job_id, pace, console, lines=lines) else NO
    now = await anext(observation.observe_job(store, job_id, pace, history=0))
    data = next(iter(watch_view.job_lines(now)))
    return CommandOutput(data, lambda console: console.print(watch_view.JobFrame(console.height).draw(now)))


def _status_output(progress: BatchProgress, where: Where, *, exit_code: int = DONE) -> CommandOutput:
    def show(console: Console) -> None:
        console.print(view.frame(progress, console.width))
        show_advice(view.advice(progress), console, again=where.again)

    return CommandOutput(view.progress_data(progress, where), show, exit_code=exit_code)


# validate -----------------------------------------------------------------------------------------------


async def validate(
    session: BatchSession,
    where: Where,
    job_id: IdArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Ignore earlier validation results, and do not wait for the backoff.")
    ] = False,
    as_json: JsonOption = False,
) -> CommandOutput:
    """Validate all outputs of a batch now, and report what is missing or corrupt.

    A batch that waits for its validation, or is partial, changes its state by the result. A batch that has succeeded or
    failed keeps its state; the result is only reported.

    With --force, earlier results are ignored, and the backoff is skipped. To accept missing outputs: mainstay jobs
    force ID --to succeeded, with a reason.

    Exit codes: 0 all outputs are present and intact, 1 none is, 2 error, or the storage does not answer, 3 some are
    missing or corrupt.

    [bold]Examples[/bold]

      mainstay jobs validate 4de452e6b59d
      mainstay jobs validate 4de452e6b59d --force --json | jq .missing
    """
    service = session.service
    with busy("reading the outputs", quiet=as_json):
        full = await session.full_id(job_id)
        before = await service.status(full)
        validation = await service.validate(full, force=force, actor=local_actor())
        now = await service.status(full)
    data = {"id": now.job.id, "was": before.job.status, "status": now.job.status}
    return CommandOutput(
        {**data, **msgspec.to_builtins(validation)},
        lambda console: _show_validation(validation, before, now, where, console),
        exit_code=FAILED if validation.verdict == "unknown" else exit_code_of(validation.verdict),
    )


def _show_validation(
    validation: Validation, before: BatchStatus, now: BatchStatus, where: Where, console: Console
) -> None:
    style = {"succeeded": "green", "unknown": "yellow"}.get(validation.verdict, "red")
    console.print(Text(validation.summary, style=style))
    lists.show_lacking(validation, console)
    if now.job.status != before.job.status:
        console.print(f"the batch was {before.job.status} and is {now.job.status} now")
    elif now.job.status != validation.verdict:
        console.print(f"the batch stays {now.job.status}")
    if validation.verdict in ("partial", "failed"):
        advice = batch_advice(now.job.id, now.job.status, lacking=validation.expected - validation.present)
        show_advice(advice, console, again=where.again)


# resume -------------------------------------------------------------------------------------------------


async def resume(
    session: BatchSession,
    where: Where,
    job_id: IdArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be run, and why; run nothing.")] = False,
    with_this_code: Annotated[
        bool, typer.Option("--with-this-code", help="Run what is missing with the current code of --app.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Watch until the job is settled.")] = False,
    for_: ForOption = None,
    limit: LimitOption = 50,
    reason: Annotated[
        str, typer.Option("--reason", "-r", help="Reason, kept in the audit trail.", show_default=False)
    ] = "resumed on request",
    as_json: JsonOption = False,
) -> CommandOutput:
    """Run again the units of a batch whose outputs are missing or corrupt, and no others.

    The same job continues. If it had succeeded and its outputs were damaged later, a new job that is linked to it makes
    the rest. --dry-run prints what would be run, and why.

    A batch belongs to the code it was submitted with: workers with other code refuse its units. With --with-this-code,
    the current code of --app makes what is missing, in a new job that is linked to this one.

    Intact outputs stay. Every entry names the source that made it, and reports count the units made by other code. To
    make every unit with the new code, submit the study again.

    Exit codes: 0 resumed, or nothing to do (with --wait: it succeeded), 1 with --wait: it settled otherwise, 2 error,
    or it cannot be resumed now, 3 with --wait: it is partial, 130 Ctrl-C.

    [bold]Examples[/bold]

      mainstay jobs resume 4de452e6b59d --dry-run
      mainstay jobs resume 4de452e6b59d --wait
      mainstay jobs resume 4de452e6b59d --with-this-code --app sir:app --wait
      mainstay jobs resume 4de452e6b59d --dry-run --json | jq -r .run[].unit
    """
    service, full = session.service, await session.full_id(job_id)
    by = await session.study_of(full) if with_this_code else None
    if dry_run:
        with busy("reading the outputs", quiet=as_json):
            return await _resume_plan(service, full, by, limit)
    pace = pace_of(for_)
    outcome = await service.resume(full, actor=local_actor(), reason=reason, by=by)
    if outcome.how == "nothing" or not (wait or for_ is not None):
        return CommandOutput(outcome, lambda _: _show_resumed(outcome, where))
    if not as_json:
        _show_resumed(outcome, where)
    await follow(service, outcome.id, pace, stderr_console(quiet=as_json))
    if by is not None:
        await _validate_if_partial(service, full)
    report = await batch_report(service, outcome.id)
    return report_output(report, where, exit_code=exit_code_of(report.status))


async def _resume_plan(service: BatchService, job_id: str, by: Batch | None, limit: int) -> CommandOutput:
    """The units that a resume would run, and the code that would run them if it is not that of the submit."""
    spec = await service.spec(job_id)
    names = ["units", *(one.name for one in spec.aggregations)]
    units = [one async for one in service.to_run(job_id)]
    code = ""
    if by is not None:
        code = f"by code {by.source or by.code}; it was submitted for {(spec.sources or (spec.code,))[0] or spec.code}"

    def show(console: Console) -> None:
        lists.show_to_run(units, names, limit, console)
        if code:
            console.print(Text(code, style="dim"))

    return CommandOutput({**lists.to_run_data(job_id, units, names), "code": code}, show)


async def _validate_if_partial(service: BatchService, job_id: str) -> None:
    """Validate a partial batch again: the linked job may have completed it."""
    if (await service.control.jobs.get(job_id)).status == "partial":
        await service.validate(job_id, actor=local_actor())


def _show_resumed(outcome: ResumeOutcome, where: Where) -> None:
    if outcome.how == "nothing":
        typer.echo("nothing to do: all outputs are present and intact")
        return
    if outcome.how == "resumed":
        typer.echo(f"{outcome.id} continues: missing and corrupt outputs are made again")
    else:
        typer.echo(f"a new job, linked to this one, runs {outcome.units:,} units again: {outcome.id}")
    aside(where.again(f"mainstay jobs status {outcome.id} --watch"), style="cyan")


# outputs ------------------------------------------------------------------------------------------------


async def outputs(
    session: BatchSession,
    job_id: IdArgument,
    missing: Annotated[bool, typer.Option("--missing", help="Only missing outputs.")] = False,
    corrupt: Annotated[bool, typer.Option("--corrupt", help="Only corrupt outputs.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Show all lines.")] = False,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
) -> CommandOutput:
    """List the expected outputs of a batch, with location and state.

    Exit codes: 0 fine, 2 error.

    [bold]Examples[/bold]

      mainstay jobs outputs 4de452e6b59d
      mainstay jobs outputs 4de452e6b59d --missing --corrupt --all
      mainstay jobs outputs 4de452e6b59d --missing --json | jq -r .outputs[].path
    """
    states = {name for name, on in (("missing", missing), ("corrupt", corrupt)) if on}
    counts: Counter[str] = Counter()
    listed: list[OutputStatus] = []
    with busy("reading the outputs", quiet=as_json):
        full = await session.full_id(job_id)
        start: int | None = 0
        while start is not None:
            some, start = await session.service.outputs(full, start=start)
            counts.update(one.state for one in some)
            listed += [one for one in some if not states or one.state in states]
            if not every:
                del listed[limit:]
        place = (await session.service.store(full)).place
    matching = sum(n for state, n in counts.items() if not states or state in states)
    return CommandOutput(
        {"id": full, "place": place, "counts": counts, "matching": matching, "outputs": listed},
        lambda console: lists.show_outputs(listed, counts, matching, place, console),
    )

"""`mainstay jobs status`, `validate`, `resume` and `outputs`: what operators do to batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from ...cli import (
    IdArgument,
    JsonOption,
    Where,
    aside,
    command,
    local_actor,
    observation,
    print_json,
    screen,
    watch,
    watch_view,
)
from ...cli.exits import DONE, FAILED
from ...cli.observation import Pace
from ...errors import InvalidInput
from .. import Batch, BatchService, BatchStatus, OutputStatus, ResumeOutcome, UnitToRun, Validation
from ..advice import batch_advice
from ..report.model import BatchReport, batch_report
from ..report.text import show_advice
from ..spec import KIND
from . import lists, view
from .follow import ForOption, exit_code_of, follow, follow_as_data, pace_of, progress_console
from .progress import BatchProgress, look
from .report import print_report
from .session import busy, study_of, with_service, with_studies

WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Watch until the job is settled.")]
LimitOption = Annotated[int, typer.Option("--limit", "-l", min=1, help="Lines to show, at most.")]


def register(group: typer.Typer) -> None:
    """Add the commands to the group of jobs."""
    for function in (status, validate, resume, outputs):
        command(group, function.__name__)(function)


# status -------------------------------------------------------------------------------------------------


def status(
    where: Where, job_id: IdArgument, watch: WatchOption = False, for_: ForOption = None, as_json: JsonOption = False
) -> None:
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

    async def work(service: BatchService, full: str) -> int:
        job = await service.control.jobs.get(full)
        if job.kind != KIND or job.parent is not None:
            return await _plain_status(service, full, pace, watch_it=watch, as_json=as_json)
        if not watch:
            _show_status(await look(service, full), where, as_json=as_json)
            return DONE
        if as_json:
            progress = await follow_as_data(service, full, pace, where)
        else:
            await follow(service, full, pace, progress_console())
            progress = await look(service, full)
            _show_status(progress, where, as_json=False)
        return exit_code_of(progress.status.job.status)

    _leave(with_service(where, job_id, work))


async def _plain_status(service: BatchService, job_id: str, pace: Pace, *, watch_it: bool, as_json: bool) -> int:
    """The status of a job of another kind."""
    store, console = service.control.store, screen()
    if watch_it:
        lines = as_json or not console.is_terminal
        return exit_code_of("succeeded" if await watch.follow(store, job_id, pace, console, lines=lines) else "failed")
    async for seen in observation.observe_job(store, job_id, pace, history=0):
        if as_json:
            print_json(next(iter(watch_view.job_lines(seen))))
        else:
            console.print(watch_view.JobFrame(console.height).draw(seen))
        break
    return DONE


def _show_status(progress: BatchProgress, where: Where, *, as_json: bool) -> None:
    if as_json:
        print_json(view.progress_data(progress, where))
        return
    console = screen()
    console.print(view.frame(progress, console.width))
    show_advice(view.advice(progress), console, again=where.again)


# validate -----------------------------------------------------------------------------------------------


def validate(
    where: Where,
    job_id: IdArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Ignore earlier validation results, and do not wait for the backoff.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
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

    async def work(service: BatchService, full: str) -> tuple[Validation, BatchStatus, BatchStatus]:
        before = await service.status(full)
        validation = await service.validate(full, force=force, actor=local_actor())
        return validation, before, await service.status(full)

    with busy("reading the outputs", quiet=as_json):
        validation, before, now = with_service(where, job_id, work)
    if as_json:
        data = {"id": now.job.id, "was": before.job.status, "status": now.job.status}
        print_json({**data, **msgspec.to_builtins(validation)})
    else:
        _show_validation(validation, before, now, where)
    _leave(FAILED if validation.verdict == "unknown" else exit_code_of(validation.verdict))


def _show_validation(validation: Validation, before: BatchStatus, now: BatchStatus, where: Where) -> None:
    console = screen()
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


def resume(
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
) -> None:
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
    if dry_run:
        with busy("reading the outputs", quiet=as_json):
            plan = with_studies(
                where, job_id, lambda service, full, studies: _to_run(service, full, studies, by_app=with_this_code)
            )
        if as_json:
            print_json({**lists.to_run_data(plan.id, plan.units, plan.names), "code": plan.code})
        else:
            lists.show_to_run(plan.units, plan.names, limit, screen())
            if plan.code:
                screen().print(Text(plan.code, style="dim"))
        return
    pace = pace_of(for_)

    async def work(service: BatchService, full: str, studies: Mapping[str, Batch] | None) -> BatchReport | None:
        by = await study_of(service, full, studies) if with_this_code else None
        done = await service.resume(full, actor=local_actor(), reason=reason, by=by)
        waits = (wait or for_ is not None) and done.how != "nothing"
        if not (as_json and waits):
            _print_resumed(done, where, as_json=as_json)
        if not waits:
            return None
        await follow(service, done.id, pace, progress_console(quiet=as_json))
        if by is not None:
            await _validate_if_partial(service, full)
        return await batch_report(service, done.id)

    report = with_studies(where, job_id, work)
    if report is not None:
        print_report(report, where, as_json=as_json)
        _leave(exit_code_of(report.status))


class _ResumePlan(msgspec.Struct, frozen=True):
    """The units that a resume would run."""

    id: str
    units: list[UnitToRun]
    names: list[str]
    code: str
    """the code that would run them, in words; empty: the code it was submitted for"""


async def _to_run(
    service: BatchService, job_id: str, studies: Mapping[str, Batch] | None, *, by_app: bool
) -> _ResumePlan:
    spec = await service.spec(job_id)
    names = ["units", *(one.name for one in spec.aggregations)]
    code = ""
    if by_app:
        by = await study_of(service, job_id, studies)
        code = f"by code {by.source or by.code}; it was submitted for {(spec.sources or (spec.code,))[0] or spec.code}"
    return _ResumePlan(job_id, [one async for one in service.to_run(job_id)], names, code)


async def _validate_if_partial(service: BatchService, job_id: str) -> None:
    """Validate a partial batch again: the linked job may have completed it."""
    if (await service.control.jobs.get(job_id)).status == "partial":
        await service.validate(job_id, actor=local_actor())


def _print_resumed(done: ResumeOutcome, where: Where, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(done))
    elif done.how == "nothing":
        typer.echo("nothing to do: all outputs are present and intact")
    elif done.how == "resumed":
        typer.echo(f"{done.id} continues: missing and corrupt outputs are made again")
        aside(where.again(f"mainstay jobs status {done.id} --watch"), style="cyan")
    else:
        typer.echo(f"a new job, linked to this one, runs {done.units:,} units again: {done.id}")
        aside(where.again(f"mainstay jobs status {done.id} --watch"), style="cyan")


# outputs ------------------------------------------------------------------------------------------------


def outputs(
    where: Where,
    job_id: IdArgument,
    missing: Annotated[bool, typer.Option("--missing", help="Only missing outputs.")] = False,
    corrupt: Annotated[bool, typer.Option("--corrupt", help="Only corrupt outputs.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Show all lines.")] = False,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """List the expected outputs of a batch, with location and state.

    Exit codes: 0 fine, 2 error.

    [bold]Examples[/bold]

      mainstay jobs outputs 4de452e6b59d
      mainstay jobs outputs 4de452e6b59d --missing --corrupt --all
      mainstay jobs outputs 4de452e6b59d --missing --json | jq -r .outputs[].path
    """
    states = {name for name, on in (("missing", missing), ("corrupt", corrupt)) if on}

    async def work(service: BatchService, full: str) -> tuple[str, str, Counter[str], list[OutputStatus]]:
        counts: Counter[str] = Counter()
        listed: list[OutputStatus] = []
        start: int | None = 0
        while start is not None:
            some, start = await service.outputs(full, start=start)
            counts.update(one.state for one in some)
            listed += (one for one in some if (not states or one.state in states) and (every or len(listed) < limit))
        return full, (await service.store(full)).place, counts, listed

    with busy("reading the outputs", quiet=as_json):
        full, place, counts, listed = with_service(where, job_id, work)
    listed = listed if every else listed[:limit]
    matching = sum(n for state, n in counts.items() if not states or state in states)
    if as_json:
        data: dict[str, Any] = {"id": full, "place": place, "counts": counts, "matching": matching}
        print_json({**data, "outputs": msgspec.to_builtins(listed)})
    else:
        lists.show_outputs(listed, counts, matching, place, screen())


def _leave(code: int) -> None:
    if code:
        raise typer.Exit(code)

"""`mainstay jobs status`, `validate`, `resume`, `outputs` and `report`: what people do to batches."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from ...cli import observation, watch, watch_view
from ...cli.command import command
from ...cli.common import JsonOption, aside, print_json, screen
from ...cli.exits import DONE, FAILED
from ...cli.ids import IdArgument
from ...cli.observation import Pace
from ...cli.options import local_actor
from ...cli.target import Where
from ...clock import seconds
from ...errors import InvalidInput
from .. import Batch, Desk, Output, Resumed, Status, ToRun, Validation
from ..report.html import batch_html
from ..report.model import BatchReport, advice_for, batch_report
from ..spec import KIND
from . import lists, view
from .follow import code_of, follow, follow_as_data
from .progress import BatchStatusView, Rate, look
from .report_view import show_report
from .session import at_desk, study_of, with_studies

_EVERY_S = 0.5


WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Watch until the job is settled.")]
ForOption = Annotated[str | None, typer.Option("--for", metavar="TIME", help="Wait at most this time.")]
LimitOption = Annotated[int, typer.Option("--limit", "-l", min=1, help="Lines to show, at most.")]


def register(group: typer.Typer) -> None:
    """Add the commands to the group of jobs."""
    for function in (status, validate, resume, outputs, report):
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
    pace = Pace(every_s=_EVERY_S, for_s=None if for_ is None else seconds(for_, field="for"))
    if for_ is not None and not watch:
        raise InvalidInput("for", "is for --watch; without it this looks once")

    async def work(desk: Desk, whole: str) -> int:
        job = await desk.control.jobs.get(whole)
        if job.kind != KIND or job.parent is not None:
            return await _plain_status(desk, whole, pace, watch_it=watch, as_json=as_json)
        if not watch:
            seen = await look(desk, whole, Rate(), asyncio.get_running_loop().time())
            _show_status(seen, where, as_json=as_json)
            return DONE
        if as_json:
            seen = await follow_as_data(desk, whole, pace, where)
        else:
            await follow(desk, whole, pace, Console(stderr=True, highlight=False, soft_wrap=True))
            seen = await look(desk, whole, Rate(), asyncio.get_running_loop().time())
            _show_status(seen, where, as_json=False)
        return code_of(seen.status.job.status)

    _leave(at_desk(where, job_id, work))


async def _plain_status(desk: Desk, job_id: str, pace: Pace, *, watch_it: bool, as_json: bool) -> int:
    """Of a job that is no batch."""
    store, console = desk.control.store, screen()
    if watch_it:
        lines = as_json or not console.is_terminal
        return code_of("succeeded" if await watch.follow(store, job_id, pace, console, lines=lines) else "failed")
    async for seen in observation.observe_job(store, job_id, pace, history=0):
        if as_json:
            print_json(next(iter(watch_view.job_lines(seen))))
        else:
            console.print(watch_view.JobFrame(console.height).draw(seen))
        break
    return DONE


def _show_status(seen: BatchStatusView, where: Where, *, as_json: bool) -> None:
    if as_json:
        print_json(view.status_data(seen, where))
        return
    console = screen()
    console.print(view.frame(seen, console.width))
    view.show_advice(view.advice(seen, where), console)


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

    async def work(desk: Desk, whole: str) -> tuple[Validation, Status, Status]:
        before = await desk.status(whole)
        found = await desk.validate(whole, force=force, actor=local_actor())
        return found, before, await desk.status(whole)

    with _busy("looking at the outputs", quiet=as_json):
        found, before, now = at_desk(where, job_id, work)
    if as_json:
        data = {"id": now.job.id, "was": before.job.status, "status": now.job.status}
        print_json({**data, **msgspec.to_builtins(found)})
    else:
        _show_validation(found, before, now, where)
    _leave(FAILED if found.verdict == "unknown" else code_of(found.verdict))


def _show_validation(found: Validation, before: Status, now: Status, where: Where) -> None:
    console = screen()
    style = {"succeeded": "green", "unknown": "yellow"}.get(found.verdict, "red")
    console.print(Text(found.told, style=style))
    lists.show_lacking(found, console)
    if now.job.status != before.job.status:
        console.print(f"the batch was {before.job.status} and is {now.job.status} now")
    elif now.job.status != found.verdict:
        console.print(f"the batch stays {now.job.status}")
    if found.verdict in ("partial", "failed"):
        told = advice_for(now.job.id, now.job.status, lacking=found.expected - found.present)
        view.show_advice(view.here(told, where), console)


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
        with _busy("looking at the outputs", quiet=as_json):
            seen = with_studies(
                where, job_id, lambda desk, whole, studies: _to_run(desk, whole, studies, by_app=with_this_code)
            )
        if as_json:
            print_json({**lists.to_run_data(seen.id, seen.units, seen.names), "code": seen.code})
        else:
            lists.show_to_run(seen.units, seen.names, limit, screen())
            if seen.code:
                screen().print(Text(seen.code, style="dim"))
        return
    pace = Pace(every_s=_EVERY_S, for_s=None if for_ is None else seconds(for_, field="for"))

    async def work(desk: Desk, whole: str, studies: Mapping[str, Batch] | None) -> BatchReport | None:
        by = await study_of(desk, whole, studies) if with_this_code else None
        done = await desk.resume(whole, actor=local_actor(), reason=reason, by=by)
        waits = (wait or for_ is not None) and done.how != "nothing"
        if not (as_json and waits):
            _tell_resumed(done, where, as_json=as_json)
        if not waits:
            return None
        await follow(desk, done.id, pace, Console(stderr=True, highlight=False, soft_wrap=True, quiet=as_json))
        if by is not None:
            await _move_on(desk, whole)
        return await batch_report(desk, done.id)

    told = with_studies(where, job_id, work)
    if told is not None:
        _show_report(told, where, as_json=as_json)
        _leave(code_of(told.status))


class _Planned(msgspec.Struct, frozen=True):
    """What a resume would run."""

    id: str
    units: list[ToRun]
    names: list[str]
    code: str
    """by which code, in words, if that is not the code it was submitted for"""


async def _to_run(desk: Desk, job_id: str, studies: Mapping[str, Batch] | None, *, by_app: bool) -> _Planned:
    spec = await desk.spec(job_id)
    names = ["units", *(one.name for one in spec.aggregations)]
    code = ""
    if by_app:
        by = await study_of(desk, job_id, studies)
        code = f"by code {by.source or by.code}; it was submitted for {(spec.sources or (spec.code,))[0] or spec.code}"
    return _Planned(job_id, [one async for one in desk.to_run(job_id)], names, code)


async def _move_on(desk: Desk, job_id: str) -> None:
    """The batch that was partial may be whole by now. One that is not stays as it is."""
    if (await desk.control.jobs.get(job_id)).status == "partial":
        await desk.validate(job_id, actor=local_actor())


def _tell_resumed(done: Resumed, where: Where, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(done))
    elif done.how == "nothing":
        typer.echo("nothing to do: all its outputs are there, and intact")
    elif done.how == "resumed":
        typer.echo(f"{done.id} goes on: what is missing or corrupt is made again")
        aside(where.again(f"mainstay jobs status {done.id} --watch"), style="cyan")
    else:
        typer.echo(f"a job of its own, linked to it, makes {done.units:,} units again: {done.id}")
        aside(where.again(f"mainstay jobs status {done.id} --watch"), style="cyan")


# outputs and report -------------------------------------------------------------------------------------


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
    wanted = {name for name, on in (("missing", missing), ("corrupt", corrupt)) if on}

    async def work(desk: Desk, whole: str) -> tuple[str, str, Counter[str], list[Output]]:
        counts: Counter[str] = Counter()
        kept: list[Output] = []
        start: int | None = 0
        while start is not None:
            some, start = await desk.outputs(whole, start=start)
            counts.update(one.state for one in some)
            kept += (one for one in some if (not wanted or one.state in wanted) and (every or len(kept) < limit))
        return whole, (await desk.store(whole)).place, counts, kept

    with _busy("looking at the outputs", quiet=as_json):
        whole, place, counts, kept = at_desk(where, job_id, work)
    kept = kept if every else kept[:limit]
    matching = sum(n for state, n in counts.items() if not wanted or state in wanted)
    if as_json:
        data: dict[str, Any] = {"id": whole, "place": place, "counts": counts, "matching": matching}
        print_json({**data, "outputs": msgspec.to_builtins(kept)})
    else:
        lists.show_outputs(kept, counts, matching, place, screen())


def report(
    where: Where,
    job_id: IdArgument,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the report as one HTML page.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Report a batch: units, outputs, errors, validations, and a map of the parameter sets by outcome.

    Exit codes: 0 fine, 2 error.

    [bold]Examples[/bold]

      mainstay jobs report 4de452e6b59d
      mainstay jobs report 4de452e6b59d --html sir.html
      mainstay jobs report 4de452e6b59d --json | jq .troubles
    """
    with _busy("reading what happened", quiet=as_json):
        told = at_desk(where, job_id, batch_report)
    if html is not None:
        try:
            html.write_text(batch_html(told), encoding="utf-8")
        except OSError as error:
            raise InvalidInput("html", f"{str(html)!r} cannot be written: {error.strerror}") from None
        if not as_json:
            typer.echo(f"written to {html}")
            return
    _show_report(told, where, as_json=as_json)


def _show_report(told: BatchReport, where: Where, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(told))
    else:
        show_report(told, where, screen())


def _busy(what: str, *, quiet: bool) -> Any:
    return Console(stderr=True, highlight=False, quiet=quiet).status(what)


def _leave(code: int) -> None:
    if code:
        raise typer.Exit(code)

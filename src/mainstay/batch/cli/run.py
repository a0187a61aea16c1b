"""`mainstay batch run`: submit a study, look on, and report."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from ...cli.command import command
from ...cli.common import JsonOption, aside, print_json, screen
from ...cli.observation import Pace
from ...cli.options import panel
from ...cli.programs import Connected, connecting
from ...cli.target import Where
from ...cli.termination import cancelled_by_signals
from ...clock import seconds
from ...control.explain import is_alive
from ...errors import InvalidInput, WaitTimeout
from ...model import Job
from .. import BatchRun, Desk
from ..report.html import batch_html
from ..report.model import BatchReport, batch_report
from .follow import code_of, follow
from .inputs import budget_given, seeds_given, sets_given, typed
from .local_worker import Crew, crew
from .report_view import show_report
from .target import Meant, meant

_EVERY_S = 0.5
_panel = panel("Study")


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run."""

    params: list[dict[str, Any]] | None
    seeds: list[int] | None
    outputs: str | None
    force: bool
    failure_budget: float | None
    deadline: str | None
    runner: str
    options: dict[str, Any]


def register(group: typer.Typer) -> None:
    """Add the command to the group of batches."""
    command(group, "run")(run)


def run(
    target: Annotated[
        str, typer.Argument(metavar="FILE|MODULE:APP", envvar="MAINSTAY_APP", help="File or module:app of the study.")
    ],
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="Name of the study; needed if the app has several.")
    ] = None,
    param: Annotated[
        list[str] | None,
        _panel(
            "--param", "-p", metavar="NAME=VALUES", help="Values of a parameter: 0.2,0.3 or 0.1:0.5:0.1 or a JSON list."
        ),
    ] = None,
    params_file: Annotated[
        str | None, _panel("--params-file", metavar="FILE", help="File of parameter sets: .csv, .json or .jsonl.")
    ] = None,
    seeds: Annotated[
        str | None, _panel("--seeds", metavar="SEEDS", help="Number of seeds, or a list: 10, 0-9 or 1,5,7.")
    ] = None,
    outputs: Annotated[
        str | None,
        _panel(
            "--outputs", envvar="MAINSTAY_OUTPUTS", metavar="URL", help="URL of the folder or bucket for the outputs."
        ),
    ] = None,
    force: Annotated[bool, _panel("--force", help="Run every unit, also those whose outputs exist.")] = False,
    failure_budget: Annotated[
        str | None,
        _panel("--failure-budget", metavar="10%", help="Stop early if more than this share of the units fail."),
    ] = None,
    deadline: Annotated[str | None, _panel("--deadline", metavar="TIME", help="Time limit of the whole batch.")] = None,
    runner: Annotated[
        str, _panel("--runner", help="Runner of the units: local, exec:COMMAND, or one of the app's.")
    ] = "local",
    queue: Annotated[
        str | None, _panel("--queue", "-q", help="Queue of the units. Default: that of the study.")
    ] = None,
    priority: Annotated[
        int | None, _panel("--priority", min=-100, max=100, help="Priority, -100 to 100; higher runs first.")
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", "-w", min=0, help="Worker processes to run here while the batch runs.")
    ] = 0,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Submit the job, print its id and exit.")] = False,
    for_: Annotated[str | None, typer.Option("--for", metavar="TIME", help="Wait at most this time.")] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Also write the report as an HTML page.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a study: every set of parameters with every seed. The command submits it, shows its progress, and reports at
    the end.

    STUDY may be omitted if the app has only one batch. Outputs that exist already, from any run, are not made again.

    Values are read by the parameter types that the study declares. Without a declared type a value is JSON, True or
    False, a number, or else text; None, NaN and 007 are refused as ambiguous.

    Text in double quotes is always text. A range includes both ends. Several --param options make every combination;
    --params-file has one set in each line or object.

    Workers of the app must run somewhere; --workers runs some here while the command runs. Ctrl-C and SIGTERM do not
    stop the batch: running units are returned without counting a failure, and the batch continues with other workers,
    or when you run the same command again.

    Exit codes: 0 succeeded (with --no-wait: submitted), 1 failed, timed out or cancelled, 2 error, or not settled
    within --for, 3 partial, 130 Ctrl-C, 143 SIGTERM.

    [bold]Examples[/bold]

      mainstay batch run sir.py --param beta=0.2,0.3 --seeds 10 --workers 2
      mainstay batch run lab.sir:app simulate --param beta=0.1:0.5:0.1 --seeds 0-99 --report sir.html
      mainstay batch run sir.py --params-file sets.csv --seeds 1,5,7 --outputs s3://lab/out --no-wait
    """
    found = meant(target, study)
    if found.app.store_url.startswith("memory:"):
        raise InvalidInput(
            "store", "memory: is gone when this command ends, and the batch with it; name one that stays"
        )
    if no_wait and (workers or report or for_):
        raise InvalidInput("no-wait", "there is nothing to be done meanwhile; leave out --workers, --report and --for")
    wanted = Study(
        params=_sets(param or (), params_file, found),
        seeds=seeds_given(seeds),
        outputs=outputs,
        force=force,
        failure_budget=budget_given(failure_budget),
        deadline=deadline,
        runner=runner,
        options={name: given for name, given in (("queue", queue), ("priority", priority)) if given is not None},
    )
    pace = Pace(every_s=_EVERY_S, for_s=None if for_ is None else seconds(for_, field="for"))

    async def work(to: Connected) -> BatchReport | None:
        return await _run(to, found, wanted, pace, workers=workers, wait=not no_wait, as_json=as_json)

    told = connecting(_where(found), work, creates=True)
    if told is None:
        return
    if report is not None:
        report.write_text(batch_html(told), encoding="utf-8")
    if as_json:
        print_json(msgspec.to_builtins(told))
    else:
        show_report(told, _where(found), screen())
    if code := code_of(told.status):
        raise typer.Exit(code)


def _sets(words: list[str] | tuple[()], file: str | None, found: Meant) -> list[dict[str, Any]] | None:
    unit = found.study.unit
    sets = sets_given(words, file, unit.fields)
    return None if sets is None else typed(sets, unit.given)


async def _run(
    to: Connected, found: Meant, wanted: Study, pace: Pace, *, workers: int, wait: bool, as_json: bool
) -> BatchReport | None:
    """Submit it, and see it through if asked to: what became of it."""
    app = found.app
    given = msgspec.structs.asdict(wanted)
    options = given.pop("options")
    made = await app.submit_batch(found.study, **given, **options)
    if not wait:
        _tell(made, as_json=as_json)
        return None
    desk = Desk(to.control, sealer=app.client.sealer)
    try:
        hands = crew(found, workers, queue=options.get("queue")) if workers else None
        with cancelled_by_signals():
            await _see_through(desk, made, found, pace, hands, quiet=as_json)
        return await batch_report(desk, made.id)
    finally:
        await desk.close()


def _tell(made: BatchRun, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": made.id, "created": made.created})
        return
    if not made.created:
        aside("was submitted before, and is not settled yet:")
    typer.echo(made.id)


async def _see_through(
    desk: Desk,
    made: BatchRun,
    found: Meant,
    pace: Pace,
    hands: contextlib.AbstractAsyncContextManager[Crew] | None,
    *,
    quiet: bool,
) -> Job:
    console = Console(stderr=True, highlight=False, soft_wrap=True, quiet=quiet)
    verb = "submitted" if made.created else "was submitted before, and goes on"
    console.print(f"{found.study.name} {verb}: {made.id}", markup=False)
    try:
        if hands is None:
            await _tell_if_alone(desk, found, console)
            return await follow(desk, made.id, pace, console)
        async with hands as started:
            return await _until_settled(desk, made.id, pace, console, started)
    except (asyncio.CancelledError, WaitTimeout):
        _tell_how_to_come_back(made.id, found, console)
        raise


async def _until_settled(desk: Desk, job_id: str, pace: Pace, console: Console, hands: Crew) -> Job:
    """Looks on; or fails if our own workers do."""
    looking = asyncio.ensure_future(follow(desk, job_id, pace, console))
    lost = asyncio.ensure_future(hands.ended())
    try:
        await asyncio.wait([looking, lost], return_when=asyncio.FIRST_COMPLETED)
        return looking.result() if looking.done() else lost.result()
    finally:
        for each in (looking, lost):
            each.cancel()
        await asyncio.gather(looking, lost, return_exceptions=True)


async def _tell_if_alone(desk: Desk, found: Meant, console: Console) -> None:
    store = desk.control.store
    lease_ms = store.clock.lease_ms()
    if not any(is_alive(session, lease_ms) for session in await store.sessions()):
        console.print("no worker is alive now; it waits for one:", style="yellow")
        console.print(f"  {_worker(found)}", style="cyan", markup=False)


def _tell_how_to_come_back(job_id: str, found: Meant, console: Console) -> None:
    console.print("it stays where it is, and goes on while workers are there; to come back:", style="yellow")
    for line in (_where(found).again(f"mainstay jobs status {job_id} --watch"), _worker(found)):
        console.print(f"  {line}", style="cyan", markup=False)


def _worker(found: Meant) -> str:
    return f"mainstay worker {shlex.quote(found.target)}"


def _where(found: Meant) -> Where:
    return Where(app=found.target, typed=frozenset({"app"}))

"""`mainstay batch run`: submit a study, show its progress, and report."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ...cli import (
    CommandOutput,
    ForOption,
    JsonOption,
    OptionGroup,
    aside,
    cancelled_by_signals,
    connected,
    panel,
    stderr_console,
    using,
)
from ...cli.observation import Pace
from ...errors import InvalidInput, WaitTimeout
from .. import Batch, BatchRun, BatchService
from ..report.model import BatchReport, batch_report
from .follow import exit_code_of, follow, pace_of
from .inputs import budget_given, seeds_given, sets_given, typed
from .local_worker import LocalWorker, local_worker
from .report import report_output, write_page
from .session import batch_session
from .target import StudyTarget, study_target

_panel = panel("Study")


class StudyOptions(OptionGroup, frozen=True, kw_only=True):
    """The options of a study: what to run, and how."""

    param: Annotated[
        list[str] | None,
        _panel(
            "--param", "-p", metavar="NAME=VALUES", help="Values of a parameter: 0.2,0.3 or 0.1:0.5:0.1 or a JSON list."
        ),
    ] = None
    params_file: Annotated[
        str | None, _panel("--params-file", metavar="FILE", help="File of parameter sets: .csv, .json or .jsonl.")
    ] = None
    seeds: Annotated[
        str | None, _panel("--seeds", metavar="SEEDS", help="Number of seeds, or a list: 10, 0-9 or 1,5,7.")
    ] = None
    outputs: Annotated[
        str | None,
        _panel(
            "--outputs", envvar="MAINSTAY_OUTPUTS", metavar="URL", help="URL of the folder or bucket for the outputs."
        ),
    ] = None
    force: Annotated[bool, _panel("--force", help="Run every unit, also those whose outputs exist.")] = False
    failure_budget: Annotated[
        str | None,
        _panel("--failure-budget", metavar="10%", help="Stop early if more than this share of the units fail."),
    ] = None
    deadline: Annotated[str | None, _panel("--deadline", metavar="TIME", help="Time limit of the whole batch.")] = None
    runner: Annotated[
        str, _panel("--runner", help="Runner of the units: local, exec:COMMAND, or one of the app's.")
    ] = "local"
    queue: Annotated[str | None, _panel("--queue", "-q", help="Queue of the units. Default: that of the study.")] = None
    priority: Annotated[
        int | None, _panel("--priority", min=-100, max=100, help="Priority, -100 to 100; higher runs first.")
    ] = None

    def arguments(self, study: Batch) -> dict[str, Any]:
        """The arguments of `submit_batch`."""
        sets = sets_given(self.param or (), self.params_file, study.unit.fields)
        options = {"queue": self.queue, "priority": self.priority}
        return {
            "params": None if sets is None else typed(sets, study.unit.given),
            "seeds": seeds_given(self.seeds),
            "outputs": self.outputs,
            "force": self.force,
            "failure_budget": budget_given(self.failure_budget),
            "deadline": self.deadline,
            "runner": self.runner,
            **{name: value for name, value in options.items() if value is not None},
        }


def run(
    study_options: StudyOptions,
    target: Annotated[
        str, typer.Argument(metavar="FILE|MODULE:APP", envvar="MAINSTAY_APP", help="File or module:app of the study.")
    ],
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="Name of the study; needed if the app has several.")
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", "-w", min=0, help="Worker processes to run here while the batch runs.")
    ] = 0,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Submit the job, print its id and exit.")] = False,
    for_: ForOption = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Also write the report as an HTML page.")
    ] = None,
    as_json: JsonOption = False,
) -> CommandOutput:
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
    chosen = study_target(target, study)
    if chosen.app.store_url.startswith("memory:"):
        raise InvalidInput("store", "memory: ends with this command, and the batch with it; use a store that lasts")
    if no_wait and (workers or report or for_):
        raise InvalidInput("no-wait", "the command does not wait; leave out --workers, --report and --for")
    arguments = study_options.arguments(chosen.study)
    connection = connected(chosen.where, creates=True)
    if no_wait:
        batch = using(connection, lambda _: chosen.app.submit_batch(chosen.study, **arguments))
        return CommandOutput({"id": batch.id, "created": batch.created}, lambda _: _show_submitted(batch))
    worker = local_worker(chosen, workers, queue=study_options.queue) if workers else None
    pace, console = pace_of(for_), stderr_console(quiet=as_json)
    finished = using(
        batch_session(connection), lambda session: _run(session.service, chosen, arguments, pace, worker, console)
    )
    if report is not None:
        write_page(finished, report, option="report")
    return report_output(finished, chosen.where, exit_code=exit_code_of(finished.status))


def _show_submitted(batch: BatchRun) -> None:
    if not batch.created:
        aside("was submitted before, and is not settled yet:")
    typer.echo(batch.id)


async def _run(
    service: BatchService,
    chosen: StudyTarget,
    arguments: dict[str, Any],
    pace: Pace,
    worker: contextlib.AbstractAsyncContextManager[LocalWorker] | None,
    console: Console,
) -> BatchReport:
    batch = await chosen.app.submit_batch(chosen.study, **arguments)
    verb = "submitted" if batch.created else "was submitted before, and continues"
    with cancelled_by_signals():
        console.print(f"{chosen.study.name} {verb}: {batch.id}", markup=False)
        try:
            if worker is None:
                await _warn_without_workers(service, chosen, console)
                await follow(service, batch.id, pace, console)
            else:
                async with worker as started:
                    await _until_settled(service, batch.id, pace, console, started)
        except (asyncio.CancelledError, WaitTimeout):
            console.print("the batch continues while workers of its app run; to come back:", style="yellow")
            for line in (chosen.where.again(f"mainstay jobs status {batch.id} --watch"), chosen.worker_command):
                console.print(f"  {line}", style="cyan", markup=False)
            raise
    return await batch_report(service, batch.id)


async def _until_settled(service: BatchService, job_id: str, pace: Pace, console: Console, worker: LocalWorker) -> None:
    """Follow the batch; fail if our own worker ends."""
    following = asyncio.ensure_future(follow(service, job_id, pace, console))
    ended = asyncio.ensure_future(worker.ended())
    try:
        await asyncio.wait([following, ended], return_when=asyncio.FIRST_COMPLETED)
        if not following.done():
            ended.result()
        following.result()
    finally:
        for each in (following, ended):
            each.cancel()
        await asyncio.gather(following, ended, return_exceptions=True)


async def _warn_without_workers(service: BatchService, chosen: StudyTarget, console: Console) -> None:
    if not await service.has_workers():
        console.print("no worker is alive; the batch waits for one:", style="yellow")
        console.print(f"  {chosen.worker_command}", style="cyan", markup=False)

"""`mainstay batch exec`: the command of an outside job, which runs the units of one batch."""

from __future__ import annotations

import logging
import os
from typing import Annotated

import typer

from ...cli import Connected, IdArgument, Where, aside, command, connecting, full_id
from ...clock import seconds
from ...errors import InvalidInput
from ...worker import Hello, WorkerOptions, logs
from ..outside_job import worker_name
from ..outside_worker import execute, queue_to_serve


def register(group: typer.Typer) -> None:
    """Add the command."""
    command(group, "exec")(run_units)


def run_units(
    job_id: IdArgument,
    app: Annotated[
        str,
        typer.Option("--app", "-a", envvar="MAINSTAY_APP", metavar="MODULE:APP", help="The app, as module:variable."),
    ],
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            "-c",
            min=1,
            help="Units that each process runs at a time.",
            show_default="from the settings, 10",
        ),
    ] = None,
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, help="Number of engine processes.")] = 1,
    grace: Annotated[
        str, typer.Option("--grace", help="Time that running units have to finish after SIGTERM.")
    ] = "20s",
    linger: Annotated[str, typer.Option("--linger", help="Time to stay when no unit is open.")] = "15s",
    log_level: Annotated[
        str, typer.Option("--log-level", metavar="|".join(logs.LEVELS), help="Lowest level that is logged.")
    ] = "info",
    json_logs: Annotated[bool, typer.Option("--json-logs", help="Write logs as JSON, one object a line.")] = False,
) -> None:
    """Run the units of one batch that was submitted with an outside runner, until none is left.

    Outside runners start this command. You may also start it by hand, on any machine and any number of times: the
    processes share the units. A normal worker of the app must run somewhere, since it plans the units and validates the
    outputs.

    SIGTERM drains: units that do not finish within the grace period are returned without counting a failure. When no
    unit is open, the command stays for --linger, since aggregations may follow.

    Exit codes: 0 no unit is left open, 1 stopped before that, or a process had to be killed, 2 could not start.

    [bold]Examples[/bold]

      mainstay batch exec 01a1e20f-5355-7137-b2a7-4de452e6b59d --app lab.sir:app
      mainstay batch exec 4de452e6b59d --app lab.sir:app --processes 8 --concurrency 1
    """
    linger_s, grace_s = seconds(linger, field="linger"), seconds(grace, field="grace")

    async def work(to: Connected) -> int:
        if to.app is None:
            raise InvalidInput("app", "name the app: --app module:app")
        job = await to.control.jobs.get(await full_id(to.control.store, job_id))
        orders = WorkerOptions(
            target=app,
            name=f"{worker_name(job.id)}{os.getpid()}",
            queues=(queue_to_serve(job, to.app.client.sealer),),
            concurrency=concurrency,
            processes=processes,
            grace_s=grace_s,
            log_level=log_level,
            json_logs=json_logs,
        )

        # not earlier: opening the store mutes the log
        logs.configure(log_level, as_json=json_logs)
        logging.getLogger("mainstay").setLevel(logging.NOTSET)

        def ready(_: Hello) -> None:
            if not json_logs:
                aside(f"{orders.name} (pid {os.getpid()}) runs the units of {job.name}, job {job.id}", style="")

        return await execute(to.control, job, orders, linger_s=linger_s, ready=ready)

    raise typer.Exit(connecting(Where(app=app, typed=frozenset({"app"})), work))

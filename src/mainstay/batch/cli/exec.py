"""`mainstay batch exec`: the command of an outside job, which runs the units of one batch."""

from __future__ import annotations

import logging
import os
from typing import Annotated

import typer

from ...cli import Connected, IdArgument, ProcessOptions, Where, aside, concurrency_option, connected, full_id, using
from ...clock import seconds
from ...errors import InvalidInput
from ...worker import Hello
from ..outside_job import worker_name
from ..outside_worker import execute, queue_to_serve


class UnitProcessOptions(ProcessOptions, frozen=True, kw_only=True):
    """How the units of a batch are run."""

    concurrency: Annotated[int | None, concurrency_option("Units")] = None
    grace: Annotated[str, typer.Option("--grace", help="Time that running units have to finish after SIGTERM.")] = "20s"
    linger: Annotated[str, typer.Option("--linger", help="Time to stay when no unit is open.")] = "15s"


def run_units(
    process: UnitProcessOptions,
    job_id: IdArgument,
    app: Annotated[
        str,
        typer.Option("--app", "-a", envvar="MAINSTAY_APP", metavar="MODULE:APP", help="The app, as module:variable."),
    ],
) -> int:
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
    where = Where(app=app, typed=frozenset({"app"}))
    linger_s = seconds(process.linger, field="linger")
    return using(connected(where), lambda to: _run_units(to, job_id, app, process, linger_s))


async def _run_units(to: Connected, given: str, target: str, process: UnitProcessOptions, linger_s: float) -> int:
    if to.app is None:
        raise InvalidInput("app", "name the app: --app module:app")
    job = await to.control.jobs.get(await full_id(to.control.store, given))
    queue = queue_to_serve(job, to.app.client.sealer)
    orders = process.worker_options(target, name=f"{worker_name(job.id)}{os.getpid()}", queues=(queue,))

    # not earlier: opening the store mutes the log
    process.configure()
    logging.getLogger("mainstay").setLevel(logging.NOTSET)

    def ready(_: Hello) -> None:
        if not process.json_logs:
            aside(f"{orders.name} (pid {os.getpid()}) runs the units of {job.name}, job {job.id}", style="")

    return await execute(to.control, job, orders, linger_s=linger_s, ready=ready)

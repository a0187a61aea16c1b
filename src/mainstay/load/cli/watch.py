"""`mainstay load watch`: follow a load test that another command has submitted."""

from __future__ import annotations

from typing import Annotated

import typer

from ...cli import ClusterWhere, IdArgument
from ..extra import extra_needed


def watch(
    where: ClusterWhere,
    job: IdArgument,
    ui: Annotated[
        str | None,
        typer.Option(
            "--ui",
            metavar="full|ci|none",
            help="Live display: full screen, plain lines, or none.",
            show_default="full on a terminal, else ci",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 98 if the result is not trustworthy.")] = False,
) -> int:
    """Follow a load test, from any moment to its end, and show its result. Ctrl-C leaves; the run goes on.

    A run on nodes is shown live, with its last minute in detail and the hour before coarsely. A run on one machine is
    shown as its numbers are saved with its job, every two seconds.

    --cluster also takes the address of a server of the cluster (http or https), with the token in MAINSTAY_TOKEN, and
    the whole ID.

    Exit codes: 0 passed, 1 the run failed or was cancelled, 2 it cannot be followed, 98 not trustworthy, with --strict,
    99 a threshold failed, 130 left with Ctrl-C.

    [bold]Examples[/bold]

      mainstay load watch 4de452e6b59d
      mainstay load watch 4de452e6b59d --cluster nats://bus-1/main --ui ci
      mainstay load watch 018f6e7c-5d3b-7c1e-9f52-4de452e6b59d --cluster https://load.example.com
    """
    with extra_needed("a load test"):
        from .watched_job import watch_run  # noqa: PLC0415 - an extra

    return watch_run(where, job, ui=ui, strict=strict)

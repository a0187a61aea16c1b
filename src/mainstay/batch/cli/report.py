"""`mainstay jobs report`, and the report at the end of the commands that wait for a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ...cli import IdArgument, JsonOption, Where, command, print_json, screen
from ...errors import InvalidInput
from ..report.model import BatchReport, batch_report
from ..report.text import show_report
from .session import busy, with_service


def register(group: typer.Typer) -> None:
    """Add the command to the group of jobs."""
    command(group, "report")(report)


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
    with busy("reading the stores", quiet=as_json):
        batch = with_service(where, job_id, batch_report)
    if html is not None:
        write_page(batch, html, option="html")
        if not as_json:
            typer.echo(f"written to {html}")
            return
    print_report(batch, where, as_json=as_json)


def print_report(report: BatchReport, where: Where, *, as_json: bool) -> None:
    """Print a report for people or for programs."""
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        show_report(report, screen(), again=where.again)


def write_page(report: BatchReport, file: Path, *, option: str) -> None:
    """Write a report as an HTML page."""
    from ..report.html import batch_html  # noqa: PLC0415 - the template engine takes 30 ms to import

    try:
        file.write_text(batch_html(report), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(option, f"{str(file)!r} cannot be written: {error.strerror}") from None

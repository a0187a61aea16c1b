"""`mainstay jobs report`, and the report at the end of the commands that wait for a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...cli import CommandOutput, IdArgument, JsonOption, Where, busy, command
from ...cli.exits import DONE
from ...errors import InvalidInput
from ..report.model import BatchReport, batch_report
from ..report.text import show_report
from .session import BatchSession


def register(group: typer.Typer) -> None:
    """Add the command to the group of jobs."""
    command(group, "report")(report)


async def report(
    session: BatchSession,
    where: Where,
    job_id: IdArgument,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the report as one HTML page.")
    ] = None,
    as_json: JsonOption = False,
) -> CommandOutput:
    """Report a batch: units, outputs, errors, validations, and a map of the parameter sets by outcome.

    Exit codes: 0 fine, 2 error.

    [bold]Examples[/bold]

      mainstay jobs report 4de452e6b59d
      mainstay jobs report 4de452e6b59d --html sir.html
      mainstay jobs report 4de452e6b59d --json | jq .troubles
    """
    with busy("reading the stores", quiet=as_json):
        batch = await batch_report(session.service, await session.full_id(job_id))
    if html is None:
        return report_output(batch, where)
    write_page(batch, html, option="html")
    return CommandOutput(batch, f"written to {html}")


def report_output(report: BatchReport, where: Where, *, exit_code: int = DONE) -> CommandOutput:
    """A report as the output of a command."""
    return CommandOutput(report, lambda console: show_report(report, console, again=where.again), exit_code=exit_code)


def write_page(report: BatchReport, file: Path, *, option: str) -> None:
    """Write a report as an HTML page."""
    from ..report.html import batch_html  # noqa: PLC0415 - the template engine takes 30 ms to import

    try:
        file.write_text(batch_html(report), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(option, f"{str(file)!r} cannot be written: {error.strerror}") from None

"""`mainstay load report` and `mainstay load compare`: reports of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ...cli import ClusterWhere, aside, print_json, screen
from ..extra import extra_needed
from .files import STDOUT, errors_for, print_content, to_stdout
from .options import ComparisonPaths, ReportPaths

_RESULT = "A recorded stream, a JSON summary, or the id of the job."


def report(
    where: ClusterWhere, paths: ReportPaths, result: Annotated[str, typer.Argument(metavar="RESULT", help=_RESULT)]
) -> None:
    """Report a finished load test as it was reported at its end, or write it as an HTML page, CSV, JUnit XML, or
    histograms for other tools.

    RESULT is a recorded stream (.ndjson or .ndjson.zst), a JSON summary, or the id of its job in the store, or among
    the runs of this folder. --hdr and --otlp need the stream: a summary has no histograms of steps.

    A run that has not ended or was killed is reported up to its last window, and the report says so.

    Exit codes: 0 reported, 2 error.

    [bold]Examples[/bold]

      mainstay load report 4de452e6b59d
      mainstay load report run.ndjson.zst --html run.html --csv run.csv
      mainstay load report 4de452e6b59d --store postgresql://db/jobs --json -
      mainstay load report 4de452e6b59d --cluster .mainstay/cluster
    """
    with errors_for(paths.json):
        with extra_needed("a report"):
            from ..report.files import report_content, write_report  # noqa: PLC0415 - an extra
            from ..report.text import show_summary  # noqa: PLC0415 - the same
            from .results import result_of  # noqa: PLC0415 - the same
        given = paths.given()
        printed = to_stdout(given)
        run = result_of(result, where)
        for kind, path in given.items():
            if kind == printed:
                print_content(report_content(kind, run.summary, steps=run.steps))
                continue
            for written in write_report(kind, path, run.summary, steps=run.steps):
                message = f"{written} is written"
                if printed is None:
                    screen().print(message, markup=False, soft_wrap=True)
                else:
                    aside(message, style="")
        if not given:
            show_summary(run.summary, screen())
            if run.note:
                screen().print(run.note, style="yellow", markup=False)


def compare(
    where: ClusterWhere,
    paths: ComparisonPaths,
    a: Annotated[str, typer.Argument(metavar="A", help="The earlier run.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The later run.")],
    tolerance: Annotated[
        str, typer.Option("--tolerance", metavar="10%", help="A change smaller than this counts as no change.")
    ] = "10%",
) -> int:
    """Compare two load tests: which steps became faster or slower, and whether the runs are comparable at all.

    A and B are recorded streams, JSON summaries, or ids of jobs; A is the earlier run. A change counts if it exceeds
    the tolerance, and the random variation within the runs.

    Exit codes: 0 nothing became worse, 1 something did, 97 not comparable (the runs differ in load or length, one did
    not end or is not trustworthy, or there were too few requests to judge a regression), 2 error.

    [bold]Examples[/bold]

      mainstay load compare before.json after.json
      mainstay load compare 4de452e6b59d 81f0c3b8e2aa --tolerance 5% --html change.html
    """
    with errors_for(paths.json):
        with extra_needed("a comparison"):
            from ..report.compare import compare as compare_runs  # noqa: PLC0415 - an extra
            from ..report.compare_page import comparison_html  # noqa: PLC0415 - the same
            from ..report.compare_text import show_comparison  # noqa: PLC0415 - the same
            from ..report.files import write_whole  # noqa: PLC0415 - the same
            from ..target.units import share_of  # noqa: PLC0415 - the same
            from .results import result_of  # noqa: PLC0415 - the same
        given = paths.given()
        printed = to_stdout(given)
        part = share_of(tolerance, field="tolerance")
        first, second = result_of(a, where), result_of(b, where)
        found = compare_runs(first, second, tolerance=part)
        for kind, path in given.items():
            if path == STDOUT and kind == "json":
                print_json(msgspec.to_builtins(found))
                continue
            page = comparison_html(found, first, second).encode() if kind == "html" else msgspec.json.encode(found)
            if path == STDOUT:
                print_content(page)
            else:
                write_whole(kind, Path(path), page)
        if printed is None:
            show_comparison(found, screen())
        return found.exit_code

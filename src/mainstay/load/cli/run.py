"""`mainstay load run`: put load on a system, look on, and report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...cli.command import command
from ...cli.options import panel
from .requirements import errors_for, load_needed

_much = panel("How much")
_what = panel("On what")
_out = panel("What comes out")


def register(group: typer.Typer) -> None:
    """Add the command."""
    command(group, "run")(run)


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The load test.")],
    workflows: Annotated[
        list[str] | None, typer.Argument(metavar="[WORKFLOW]...", help="Only these, with what they depend on.")
    ] = None,
    vus: Annotated[int | None, _much("--vus", "-u", min=1, help="Virtual users.")] = None,
    duration: Annotated[str | None, _much("--duration", "-d", metavar="TIME", help="How long.")] = None,
    rate: Annotated[str | None, _much("--rate", "-r", metavar="2000/s", help="Open model.")] = None,
    stages: Annotated[str | None, _much("--stages", metavar="30s:100,...", help="Ramps.")] = None,
    iterations: Annotated[int | None, _much("--iterations", "-n", min=1, help="So many in all.")] = None,
    arrivals: Annotated[
        str | None, _much("--arrivals", metavar="constant|poisson", help="With a rate: evenly, or at random.")
    ] = None,
    max_in_flight: Annotated[
        int | None, _much("--max-in-flight", min=1, help="With a rate: so many iterations under way at most.")
    ] = None,
    catch_up: Annotated[
        bool | None, _much("--catch-up/--no-catch-up", help="With a rate: what cannot start waits, or is dropped.")
    ] = None,
    think: Annotated[str | None, _much("--think", metavar="1s-3s", help="A pause after each iteration.")] = None,
    pacing: Annotated[str | None, _much("--pacing", metavar="TIME", help="Iterations start so far apart.")] = None,
    processes: Annotated[
        int | None, _much("--processes", "-p", min=1, help="Generators.", show_default="one for each core")
    ] = None,
    drain: Annotated[
        str | None, _much("--drain", metavar="TIME", help="What is under way in the end may take so long.")
    ] = None,
    seed: Annotated[int, _much("--seed", help="Of all that is by chance.")] = 0,
    base_url: Annotated[str | None, _what("--base-url", metavar="URL", help="Goes before /paths.")] = None,
    set_: Annotated[
        list[str] | None, _what("--set", metavar="KEY=VALUE", help="For self.params; may be repeated.")
    ] = None,
    timeout: Annotated[str | None, _what("--timeout", metavar="TIME", help="For each call.")] = None,
    insecure: Annotated[bool, _what("--insecure", "-k", help="Do not verify certificates.")] = False,
    ca: Annotated[str | None, _what("--ca", metavar="FILE", help="Certificates to trust instead.")] = None,
    cert: Annotated[str | None, _what("--cert", metavar="FILE", help="Our certificate.")] = None,
    key: Annotated[str | None, _what("--key", metavar="FILE", help="The key of it.")] = None,
    proxy: Annotated[str | None, _what("--proxy", metavar="URL", help="http://host:port.")] = None,
    threshold: Annotated[
        list[str] | None, _out("--threshold", "-t", metavar="TEXT", help="What must hold, too; may be repeated.")
    ] = None,
    strict: Annotated[bool, _out("--strict", help="What is not trustworthy has not passed.")] = False,
    ui: Annotated[
        str | None, _out("--ui", metavar="full|ci|none", help="What is shown.", show_default="by the terminal")
    ] = None,
    json: Annotated[str | None, _out("--json", metavar="PATH", help="Summary; - for stdout.")] = None,
    html: Annotated[str | None, _out("--html", metavar="PATH", help="Report, as a page; - for stdout.")] = None,
    csv: Annotated[str | None, _out("--csv", metavar="PATH", help="Steps, and points; - for steps on stdout.")] = None,
    ndjson: Annotated[
        str | None, _out("--ndjson", metavar="PATH", help="The stream itself; .zst compresses, - for stdout.")
    ] = None,
    junit: Annotated[str | None, _out("--junit", metavar="PATH", help="For build servers; - for stdout.")] = None,
    hdr: Annotated[str | None, _out("--hdr", metavar="PATH", help="Histograms, for HdrHistogram's tools.")] = None,
    otlp: Annotated[str | None, _out("--otlp", metavar="PATH", help="Histograms, as OTLP in JSON.")] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="What it is called.", show_default="that of the file")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", metavar="KEY=VALUE", help="A tag; may be repeated.")] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            "-s",
            metavar="URL",
            help="Where the job is kept. With --detach, MAINSTAY_STORE stands in for it.",
            show_default="one in .mainstay",
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Submit it, print its id, and leave.")] = False,
    queue: Annotated[
        str | None, typer.Option("--queue", help="With --detach: the queue it waits in.", show_default="default")
    ] = None,
) -> None:
    """Run a load test: the workflows of a file, or those that are named. Its values are those of the classes; what is
    given here goes before them.

    Closed model: --vus users, each as fast as the answers come. Open model: --rate new iterations a second, however
    long the answers take. --stages ramps either: "30s:100,1m:500" goes to 100 users within 30 seconds and to 500 within
    another minute; "30s:200/s" does so with a rate.

    Each run is a job in a store: an SQLite file in the folder .mainstay here, unless --store names another.
    MAINSTAY_STORE does not, so that load tests do not write among the jobs of a program. --detach only submits the run:
    a worker of the store that --store or MAINSTAY_STORE names runs it.

    One report may go to stdout, which is nothing else then: --json -, --html -, --csv -, --junit - or --ndjson -.

    Ctrl-C ends the run in good order; pressed again it gives up what is under way, and after that the teardowns as
    well. There is a report in any case.

    Exit codes: 0 passed, 1 the run failed or was cancelled, 2 it could not start, 98 not trustworthy with --strict, 99
    a threshold failed, 130 Ctrl-C, or its process was drained (mainstay workers drain).

    [bold]Examples[/bold]

      mainstay load run shop.py
      mainstay load run shop.py --vus 500 --duration 1m --html shop.html
      mainstay load run shop.py Browse --rate 2000/s --threshold "p95 < 200ms"
      mainstay load run shop.py --base-url https://staging.test --set user=ann
      mainstay load run shop.py --ui ci --strict --junit load.xml
    """
    with errors_for(json):
        with load_needed("a load test"):
            from ..plan import LoadOptions  # noqa: PLC0415 - an extra
            from . import execution as running  # noqa: PLC0415 - the same
        options = LoadOptions(
            workflows=tuple(workflows or ()),
            vus=vus,
            duration=duration,
            rate=rate,
            stages=stages,
            iterations=iterations,
            arrivals=arrivals,
            max_in_flight=max_in_flight,
            catch_up=catch_up,
            seed=seed,
            think=think,
            pacing=pacing,
            processes=processes,
            drain=drain,
            base_url=base_url,
            params=running.pairs(set_ or (), field="set"),
            tags=running.pairs(tag or (), field="tag"),
            timeout=timeout,
            verify=not insecure,
            ca=ca,
            cert=cert,
            key=key,
            proxy=proxy,
            thresholds=tuple(threshold or ()),
        )
        files = {
            "json": json, "html": html, "csv": csv, "ndjson": ndjson, "junit": junit, "hdr": hdr, "otlp": otlp
        }  # fmt: skip
        asked = running.Asked(
            file=file,
            options=options,
            name=name,
            store=store,
            ui=ui,
            files={kind: path for kind, path in files.items() if path is not None},
            strict=strict,
            queue=queue,
        )
        code = running.submitted(asked) if detach else running.ran(asked)
    raise typer.Exit(code)

"""`mainstay load run`: put load on a system, look on, and report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...cli.command import command
from ...cli.options import panel
from .requirements import errors_for, load_needed

_much = panel("Load")
_what = panel("System under test")
_out = panel("Results")


def register(group: typer.Typer) -> None:
    """Add the command."""
    command(group, "run")(run)


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Python file with the load test.")],
    workflows: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORKFLOW]...", help="Run only these workflows and those they depend on."),
    ] = None,
    vus: Annotated[int | None, _much("--vus", "-u", min=1, help="Number of virtual users (closed model).")] = None,
    duration: Annotated[str | None, _much("--duration", "-d", metavar="TIME", help="Length of the test.")] = None,
    rate: Annotated[
        str | None, _much("--rate", "-r", metavar="2000/s", help="Iterations started a second (open model).")
    ] = None,
    stages: Annotated[
        str | None,
        _much("--stages", metavar="30s:100,...", help="Ramp users or rate: time:target, separated by commas."),
    ] = None,
    iterations: Annotated[
        int | None, _much("--iterations", "-n", min=1, help="Stop after this many iterations in all.")
    ] = None,
    arrivals: Annotated[
        str | None,
        _much("--arrivals", metavar="constant|poisson", help="With a rate: start iterations evenly, or at random."),
    ] = None,
    max_in_flight: Annotated[
        int | None, _much("--max-in-flight", min=1, help="With a rate: iterations in flight, at most.")
    ] = None,
    catch_up: Annotated[
        bool | None,
        _much(
            "--catch-up/--no-catch-up", help="With a rate: iterations that cannot start in time wait, or are dropped."
        ),
    ] = None,
    think: Annotated[str | None, _much("--think", metavar="1s-3s", help="Pause after each iteration.")] = None,
    pacing: Annotated[
        str | None,
        _much("--pacing", metavar="TIME", help="Time from the start of one iteration to the start of the next."),
    ] = None,
    processes: Annotated[
        int | None,
        _much("--processes", "-p", min=1, help="Number of generator processes.", show_default="one per core"),
    ] = None,
    drain: Annotated[
        str | None, _much("--drain", metavar="TIME", help="Time that iterations in flight have to finish at the end.")
    ] = None,
    seed: Annotated[int, _much("--seed", help="Seed for every random choice.")] = 0,
    base_url: Annotated[
        str | None, _what("--base-url", metavar="URL", help="Prefix of every URL that starts with /.")
    ] = None,
    set_: Annotated[
        list[str] | None, _what("--set", metavar="KEY=VALUE", help="Set a value of self.params; may be repeated.")
    ] = None,
    timeout: Annotated[str | None, _what("--timeout", metavar="TIME", help="Time limit of each call.")] = None,
    insecure: Annotated[bool, _what("--insecure", "-k", help="Do not verify the server's certificate.")] = False,
    ca: Annotated[
        str | None, _what("--ca", metavar="FILE", help="CA certificates to trust (PEM), instead of the system's.")
    ] = None,
    cert: Annotated[str | None, _what("--cert", metavar="FILE", help="Client certificate (PEM).")] = None,
    key: Annotated[str | None, _what("--key", metavar="FILE", help="Private key of the client certificate.")] = None,
    proxy: Annotated[
        str | None, _what("--proxy", metavar="URL", help="Proxy to connect through: http://host:port.")
    ] = None,
    threshold: Annotated[
        list[str] | None,
        _out("--threshold", "-t", metavar="TEXT", help="Add a threshold, such as 'p95 < 200ms'; may be repeated."),
    ] = None,
    strict: Annotated[bool, _out("--strict", help="Exit with 98 if the result is not trustworthy.")] = False,
    ui: Annotated[
        str | None,
        _out(
            "--ui",
            metavar="full|ci|none",
            help="Live display: full screen, plain lines, or none.",
            show_default="full on a terminal, else ci",
        ),
    ] = None,
    json: Annotated[str | None, _out("--json", metavar="PATH", help="Write the summary as JSON; - for stdout.")] = None,
    html: Annotated[
        str | None, _out("--html", metavar="PATH", help="Write the report as an HTML page; - for stdout.")
    ] = None,
    csv: Annotated[
        str | None,
        _out("--csv", metavar="PATH", help="Write CSV: steps, and a second file of points; - for steps on stdout."),
    ] = None,
    ndjson: Annotated[
        str | None,
        _out("--ndjson", metavar="PATH", help="Record the stream of windows; .zst compresses, - for stdout."),
    ] = None,
    junit: Annotated[
        str | None, _out("--junit", metavar="PATH", help="Write JUnit XML for build servers; - for stdout.")
    ] = None,
    hdr: Annotated[str | None, _out("--hdr", metavar="PATH", help="Write histograms for HdrHistogram's tools.")] = None,
    otlp: Annotated[str | None, _out("--otlp", metavar="PATH", help="Write histograms as OTLP in JSON.")] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the test.", show_default="name of the file")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="KEY=VALUE", help="Tag of the job; may be repeated.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            "-s",
            metavar="URL",
            help="Store of the job. With --detach, the default is MAINSTAY_STORE.",
            show_default="SQLite in .mainstay",
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Submit the job, print its id and exit.")] = False,
    queue: Annotated[
        str | None, typer.Option("--queue", help="With --detach: queue of the job.", show_default="default")
    ] = None,
) -> None:
    """Run a load test: all workflows of a file, or those you name. Options given here override the values of the
    workflow classes.

    Closed model: --vus users, each waits for its responses. Open model: --rate new iterations a second, however long
    the responses take. --stages ramps either: "30s:100,1m:500" ramps to 100 users within 30 seconds and to 500 within
    another minute; "30s:200/s" does the same with a rate.

    Each run is a job in a store: an SQLite file in the folder .mainstay, unless you give --store. MAINSTAY_STORE is
    ignored, so that load tests do not mix with the jobs of a program. --detach only submits the run: a worker of the
    store given by --store or MAINSTAY_STORE runs it.

    One report may go to stdout, which then carries nothing else: --json -, --html -, --csv -, --junit - or --ndjson -.

    Ctrl-C ends the run cleanly; a second Ctrl-C abandons iterations in flight, a third one the teardowns as well. A
    report is written in any case.

    Exit codes: 0 passed, 1 the run failed or was cancelled, 2 it could not start, 98 not trustworthy, with --strict, 99
    a threshold failed, 130 Ctrl-C, or the process was drained (mainstay workers drain).

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

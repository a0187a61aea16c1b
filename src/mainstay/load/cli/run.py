"""`mainstay load run`: run a load test, show how it proceeds, and report it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ..extra import extra_needed
from .files import errors_for
from .options import AmountOptions, ClusterRunOptions, ConnectionOptions, RunOptions, RunPaths


def run(
    given: RunOptions,
    amount: AmountOptions,
    connection: ConnectionOptions,
    paths: RunPaths,
    cluster: ClusterRunOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Python file with the load test.")],
    workflows: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORKFLOW]...", help="Run only these workflows and those they depend on."),
    ] = None,
) -> int:
    """Run a load test: all workflows of a file, or those you name. Options given here override the values of the
    workflow classes.

    Closed model: --vus users, each waits for its responses. Open model: --rate new iterations a second, however long
    the responses take. --stages ramps either: "30s:100,1m:500" ramps to 100 users within 30 seconds and to 500 within
    another minute; "30s:200/s" does the same with a rate.

    Each run is a job in a store: an SQLite file in the folder .mainstay, unless you give --store. MAINSTAY_STORE is
    ignored, so that load tests do not mix with the jobs of a program. --detach only submits the run: a worker of the
    store given by --store or MAINSTAY_STORE runs it.

    --nodes spreads the load over nodes of a cluster: the file and what it imports are sent there, all nodes start at
    one instant, and this command shows and reports the run as if it were here. It may be interrupted, and loses only
    what it shows if its connection is lost.

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
      mainstay load run shop.py --nodes 8 --wait 5m
    """
    with errors_for(paths.json):
        with extra_needed("a load test"):
            from ..plan import LoadOptions  # noqa: PLC0415 - an extra
            from . import execution, on_nodes  # noqa: PLC0415 - the same
        options = LoadOptions(
            workflows=tuple(workflows or ()),
            base_url=given.base_url,
            params=execution.pairs(given.set_ or (), field="set"),
            tags=execution.pairs(given.tag or (), field="tag"),
            timeout=given.timeout,
            thresholds=tuple(given.threshold or ()),
            verify=not connection.insecure,
            ca=connection.ca,
            cert=connection.cert,
            key=connection.key,
            proxy=connection.proxy,
            **msgspec.structs.asdict(amount),
        )
        if cluster.wanted:
            return on_nodes.run_on_nodes(file, options, given, cluster, paths.given())
        carry_out = execution.submit_test if given.detach else execution.run_test
        return carry_out(file, options, given, paths.given())

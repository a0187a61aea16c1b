"""`python -m bench`: run, print the ratios, keep the JSON.

Suites: `sqlite` compares the SQLite store with a hand-written loop on the same schema, `queues` compares Mainstay with
other job queues, each in an environment of its own, on servers that are started for the run, and `batch` runs the same
study through Mainstay and what people use for it (`batch_study`), and very many units on each store (`batch_100k`).
`load` puts the same load on one nginx with Mainstay and with other load generators.
`registry` times one job, and a thousand, in a folder and in what stands in for each cloud.
`web` asks, watches and pages through a server of the HTTP API.
`nodes` runs node jobs on three nodes, and kills, freezes and stops their leader.
`cluster` runs empty tasks on a node, through a manager, beside a direct worker. `window-flood` measures heartbeats and
cancels while statistics flood a manager, beside an idle one.
`fan-in` gives our manager and the master of Locust the same statistics of very many reporters.
`load-nodes` runs a load test on four nodes beside a Locust of a master and four workers, and times its start.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import apsw
import msgspec
from rich.console import Console
from rich.table import Table

from docs import generate

from . import (
    batch,
    batch_report,
    cluster,
    cluster_report,
    fan_in,
    fan_in_report,
    fleet,
    load,
    load_nodes,
    load_nodes_report,
    load_report,
    nodes,
    nodes_report,
    queues,
    registry,
    report,
    web,
    web_report,
    window_flood,
    window_flood_report,
)
from .report import Section
from .scenarios import SCENARIOS, Row, Sizes

RESULTS = Path(__file__).parent / "results"
QUICK = Sizes(
    bulk=2000,
    singly=640,
    drain=1000,
    latency_jobs=2000,
    latency_samples=20,
    pickups=10,
    stored=5000,
    flat=1000,
    repeats=1,
)
QUICK_QUEUES = queues.Sizes(share=0.005, repeats=1, idle=5, load=40, watch_s=6.0)
QUICK_BATCH = batch.Sizes(units=40, scale=(100, 200))
QUICK_LOAD = load.Sizes(seconds=4, connections=(4,), rounds=1, users=200)
QUICK_WEB = web.Sizes(
    seconds=1, connections=(2,), middle=2, clients=4, watched=5, moves=1, jobs=1500, pages=20, times=5
)
QUICK_CLUSTER = cluster.Sizes(jobs=200, rounds=1, pickups=3)
QUICK_FAN_IN = fan_in.FanInSizes(reporters=(5,), limit=(10,), seconds=2, rounds=1)
QUICK_LOAD_NODES = load_nodes.NodesSizes(connections=(40,), seconds=4, rounds=1, starts=1)
QUICK_FLOOD = window_flood.FloodSizes(rounds=1, calls=20)
QUICK_NODES = nodes.Sizes(wakes=5, jobs=20, kills=1, stops=1, freezes=0)
SUITES = {
    "sqlite": tuple(SCENARIOS),
    "queues": fleet.SCENARIOS,
    "batch": batch.SCENARIOS,
    "load": load.SCENARIOS,
    "registry": ("registry",),
    "web": web.SCENARIOS,
    "nodes": nodes.SCENARIOS,
    "cluster": cluster.SCENARIOS,
    "load-nodes": load_nodes.SCENARIOS,
    "fan-in": fan_in.SCENARIOS,
    "window-flood": window_flood.SCENARIOS,
}


def main() -> int:
    # so that a plain kill takes the servers and workers down as well
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    given = _arguments()
    wanted = [name for only in given.only or SUITES for name in SUITES.get(only, (only,))]
    names = {suite: [name for name in wanted if name in scenarios] for suite, scenarios in SUITES.items()}
    # there is nothing to choose in the other suite
    if names["sqlite"] and not given.systems:
        _run_sqlite(names["sqlite"], given, _kept_in("sqlite", names, given))
    failed = 0
    if names["queues"] and _chosen(given, fleet.systems()):
        failed |= _run_queues(names["queues"], given, _kept_in("queues", names, given))
    if names["batch"] and _chosen(given, batch.systems()):
        failed |= _run_batch(names["batch"], given, _kept_in("batch", names, given))
    if names["load"] and _chosen(given, load.systems()):
        failed |= _run_load(names["load"], given, _kept_in("load", names, given))
    if names["registry"] and not given.systems:
        _run_registry(given, _kept_in("registry", names, given))
    if names["web"] and not given.systems:
        failed |= _run_web(names["web"], given, _kept_in("web", names, given))
    if names["nodes"] and not given.systems:
        failed |= _run_nodes(names["nodes"], given, _kept_in("nodes", names, given))
    if names["cluster"] and not given.systems:
        failed |= _run_cluster(names["cluster"], given, _kept_in("cluster", names, given))
    if names["load-nodes"] and not given.systems:
        failed |= _run_load_nodes(names["load-nodes"], given, _kept_in("load-nodes", names, given))
    if names["fan-in"] and not given.systems:
        failed |= _run_fan_in(names["fan-in"], given, _kept_in("fan-in", names, given))
    if names["window-flood"] and not given.systems:
        failed |= _run_flood(names["window-flood"], given, _kept_in("window-flood", names, given))
    return failed


def _chosen(given: argparse.Namespace, known: Iterable[str]) -> list[str]:
    """Of the systems of a suite."""
    return [name for name in known if not given.systems or name in given.systems]


def _kept_in(suite: str, names: dict[str, list[str]], given: argparse.Namespace) -> Path | None:
    """Where the JSON goes. What is kept with the code is of one whole run, never of a part."""
    whole = not (given.quick or given.systems) and set(names[suite]) == set(SUITES[suite])
    folder: Path | None = given.results or (RESULTS if whole else None)
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve() / f"{suite}.json"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*SUITES, *(name for scenarios in SUITES.values() for name in scenarios)]
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, measures nothing")
    parser.add_argument("--only", choices=names, action="append", help="run only this suite or scenario (repeatable)")
    parser.add_argument("--systems", type=_systems, help="only these, e.g. celery,mainstay-redis")
    parser.add_argument("--watch", type=float, help="seconds to wait for a killed job to be run again (default: 150)")
    parser.add_argument("--results", type=Path, help="folder to keep the JSON in (default: bench/results, if whole)")
    return parser.parse_args()


def _systems(text: str) -> list[str]:
    names = text.split(",")
    known = dict.fromkeys([*fleet.systems(), *batch.systems(), *load.systems()])
    if unknown := set(names) - set(known):
        raise argparse.ArgumentTypeError(f"no such system: {', '.join(unknown)}; there are {', '.join(known)}")
    return names


# -- beside a hand-written loop -----------------------------------------------------------------


def _run_sqlite(names: list[str], given: argparse.Namespace, out: Path | None) -> None:
    sizes = QUICK if given.quick else Sizes()
    console = Console(stderr=True)
    rows: list[Row] = []
    with console.status("starting") as status:
        for name in names:
            rows += SCENARIOS[name](sizes, status.update)
    Console().print(_table(rows))
    if out is not None:
        out.write_text(json.dumps(_record(rows, sizes), indent=2) + "\n")
        console.print(f"kept in {out}")


def _table(rows: list[Row]) -> Table:
    table = Table(
        title="SQLite, durable, audit on; baseline: hand-written SQL on the same schema; best of each side's runs"
    )
    table.add_column("scenario")
    for head in ("baseline", "mainstay", "ratio"):
        table.add_column(head, justify="right")
    table.add_column("bar")
    for row in rows:
        style = {True: "green", False: "red", None: ""}[row.met]
        table.add_row(
            f"{row.scenario} [{row.unit}]".replace("[", r"\["),
            f"{row.raw:,.1f}" if row.raw < 1000 else f"{row.raw:,.0f}",
            f"{row.ours:,.1f}" if row.ours < 1000 else f"{row.ours:,.0f}",
            f"{row.ratio:.2f}",
            row.bar,
            style=style,
        )
    return table


def _record(rows: list[Row], sizes: Sizes) -> dict[str, object]:
    return {
        "at": time.strftime("%Y-%m-%d"),
        "machine": {"cpus": os.cpu_count(), "system": platform.system(), "release": platform.release()},
        "versions": {"python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()},
        "sizes": msgspec.to_builtins(sizes),
        "rows": [{**msgspec.to_builtins(row), "ratio": round(row.ratio, 3)} for row in rows],
    }


# -- beside other queues ------------------------------------------------------------------------


def _run_queues(names: list[str], given: argparse.Namespace, out: Path | None) -> int:
    known = fleet.systems()
    chosen = [known[name] for name in _chosen(given, known)]
    sizes = QUICK_QUEUES if given.quick else queues.Sizes()
    if given.watch is not None:
        sizes = msgspec.structs.replace(sizes, watch_s=given.watch)
    console = Console(stderr=True)
    with console.status("starting") as status:
        found = fleet.measure(chosen, names, sizes, _telling(console, status.update))
    trouble = [text for system in found.systems for text in system.trouble]
    _show(report.sections(found), report.about(found))
    _warn(console, found.skipped, trouble)
    if out is not None:
        report.save(found, out)
        console.print(f"kept in {out}")
        if out == report.KEPT:
            generate.main([])
    return 1 if trouble else 0


# -- batches ------------------------------------------------------------------------------------


def _run_batch(names: list[str], given: argparse.Namespace, out: Path | None) -> int:
    sizes = QUICK_BATCH if given.quick else batch.Sizes()
    console = Console(stderr=True)
    with console.status("starting") as status:
        found = batch.measure(_chosen(given, batch.systems()), names, sizes, _telling(console, status.update))
    _show(batch_report.sections(found), batch_report.about(found))
    _warn(console, found.skipped, found.trouble)
    if out is not None:
        batch_report.save(found, out)
        console.print(f"kept in {out}")
        if out == batch_report.KEPT:
            generate.main([])
    return 1 if found.trouble else 0


# -- load generators ----------------------------------------------------------------------------


def _run_load(names: list[str], given: argparse.Namespace, out: Path | None) -> int:
    sizes = QUICK_LOAD if given.quick else load.Sizes()
    console = Console(stderr=True)
    with console.status("starting") as status:
        found = load.measure(_chosen(given, load.systems()), names, sizes, _telling(console, status.update))
    _show(load_report.sections(found), load_report.about(found))
    _warn(console, found.skipped, found.trouble)
    if out is not None:
        load_report.save(found, out)
        console.print(f"kept in {out}")
        if out == load_report.KEPT:
            generate.main([])
    return 1 if found.trouble else 0


# -- registries ---------------------------------------------------------------------------------


def _run_registry(given: argparse.Namespace, out: Path | None) -> None:
    sizes = registry.Sizes(calls=20, lists=2) if given.quick else registry.Sizes()
    console = Console(stderr=True)
    with console.status("starting") as status:
        found, skipped = registry.measure(sizes, _telling(console, status.update))
    Console().print(registry.table(found))
    _warn(console, skipped, [])
    if out is not None:
        registry.save(found, skipped, sizes, out)
        console.print(f"kept in {out}")


# -- the HTTP side ------------------------------------------------------------------------------


def _run_web(names: list[str], given: argparse.Namespace, out: Path | None) -> int:
    sizes = QUICK_WEB if given.quick else web.Sizes()
    console = Console(stderr=True)
    with console.status("starting") as status:
        found = web.measure(names, sizes, _telling(console, status.update))
    _show(web_report.sections(found), web_report.about(found))
    _warn(console, found.skipped, found.trouble)
    if out is not None:
        web_report.save(found, out)
        console.print(f"kept in {out}")
        if out == web_report.KEPT:
            generate.main([])
    return 1 if found.trouble else 0


# -- nodes --------------------------------------------------------------------------------------


def _run_nodes(names: list[str], given: argparse.Namespace, out: Path | None) -> int:
    sizes = QUICK_NODES if given.quick else nodes.Sizes()
    console = Console(stderr=True)
    with console.status("starting") as status:
        found = nodes.measure(names, sizes, _telling(console, status.update))
    _show(nodes_report.sections(found), nodes_report.about(found))
    _warn(console, found.skipped, found.trouble)
    if out is not None:
        nodes_report.save(found, out)
        console.print(f"kept in {out}")
        if out == nodes_report.KEPT:
            generate.main([])
    return 1 if found.trouble else 0


# -- a cluster ----------------------------------------------------------------------------------


def _run_cluster(names: list[str], given: argparse.Namespace, out: Path | None) -> int:
    sizes = QUICK_CLUSTER if given.quick else cluster.Sizes()
    console = Console(stderr=True)
    with console.status("starting") as status:
        found = cluster.measure(names, sizes, _telling(console, status.update))
    _show(cluster_report.sections(found), cluster_report.about(found))
    _warn(console, {}, found.trouble)
    if out is not None:
        cluster_report.save(found, out)
        console.print(f"kept in {out}")
        if out == cluster_report.KEPT:
            generate.main([])
    return 1 if found.trouble else 0


# -- a flood of statistics ----------------------------------------------------------------------


def _run_flood(names: list[str], given: argparse.Namespace, out: Path | None) -> int:
    sizes = QUICK_FLOOD if given.quick else window_flood.FloodSizes()
    console = Console(stderr=True)
    with console.status("starting") as status:
        found = window_flood.measure(names, sizes, _telling(console, status.update))
    _show(window_flood_report.sections(found), window_flood_report.about(found))
    _warn(console, {}, found.trouble)
    if out is not None:
        window_flood_report.save(found, out)
        console.print(f"kept in {out}")
        if out == window_flood_report.KEPT:
            generate.main([])
    return 1 if found.trouble else 0


# -- load tests on nodes ------------------------------------------------------------------------


def _run_load_nodes(names: list[str], given: argparse.Namespace, out: Path | None) -> int:
    sizes = QUICK_LOAD_NODES if given.quick else load_nodes.NodesSizes()
    console = Console(stderr=True)
    with console.status("starting") as status:
        found = load_nodes.measure(names, sizes, _telling(console, status.update))
    _show(load_nodes_report.sections(found), load_nodes_report.about(found))
    _warn(console, found.skipped, found.trouble)
    if out is not None:
        load_nodes_report.save(found, out)
        console.print(f"kept in {out}")
        if out == load_nodes_report.KEPT:
            generate.main([])
    return 1 if found.trouble else 0


def _run_fan_in(names: list[str], given: argparse.Namespace, out: Path | None) -> int:
    sizes = QUICK_FAN_IN if given.quick else fan_in.FanInSizes()
    console = Console(stderr=True)
    with console.status("starting") as status:
        found = fan_in.measure(names, sizes, _telling(console, status.update))
    _show(fan_in_report.sections(found), fan_in_report.about(found))
    _warn(console, found.skipped, found.trouble)
    if out is not None:
        fan_in_report.save(found, out)
        console.print(f"kept in {out}")
        if out == fan_in_report.KEPT:
            generate.main([])
    return 1 if found.trouble else 0


# -- what is shown ------------------------------------------------------------------------------


def _show(sections: list[Section], about: str) -> None:
    console = Console()
    for section in sections:
        table = Table(title=section.title, title_justify="left")
        for heading in section.headings:
            table.add_column(heading)
        for line in section.lines:
            table.add_row(*line, style="bold" if line[0].startswith("Mainstay") else "")
        console.print(table)
    console.print(about, soft_wrap=True)


def _warn(console: Console, skipped: dict[str, str], trouble: list[str]) -> None:
    for name, why in skipped.items():
        console.print(f"SKIPPED {name}: {why}", style="bold red")
    for text in trouble:
        console.print(f"TROUBLE {text}", style="bold red", markup=False)


def _telling(console: Console, update: Callable[[str], None]) -> Callable[[str], None]:
    """A line that changes where somebody watches, a line each, with the time, where it goes to a file."""
    if console.is_terminal:
        return update
    began = time.monotonic()
    return lambda what: console.print(f"{time.monotonic() - began:6.0f} s  {what}", markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())

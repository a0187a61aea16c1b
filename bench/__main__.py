"""`python -m bench`: run, print the ratios, keep the JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

import apsw
import msgspec
from rich.console import Console
from rich.table import Table

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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, measures nothing")
    parser.add_argument("--only", choices=SCENARIOS, action="append", help="run only this scenario (repeatable)")
    parser.add_argument("--out", type=Path, help="where to keep the JSON (default: bench/results/sqlite.json)")
    given = parser.parse_args()
    sizes = QUICK if given.quick else Sizes()
    console = Console(stderr=True)
    rows: list[Row] = []
    with console.status("starting") as status:
        for name in given.only or SCENARIOS:
            rows += SCENARIOS[name](sizes, status.update)
    Console().print(_table(rows))
    out = given.out or (None if given.quick or given.only else RESULTS / "sqlite.json")
    if out is not None:
        out.write_text(json.dumps(_record(rows, sizes), indent=2) + "\n")
        console.print(f"kept in {out}")
    return 0


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


if __name__ == "__main__":
    sys.exit(main())

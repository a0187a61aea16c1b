"""`python -m soak`: a million jobs, ten engines, random kills; nothing lost, nothing doubled, or it fails."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from docs import generate

from . import report
from .run import Plan, Soak, Tell, soak

_EACH_S = 10.0


def main() -> int:
    # so that a plain kill takes the server and the workers down as well
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    given = _arguments()
    plan = Plan(
        jobs=given.jobs,
        engines=given.engines,
        kill_every_s=given.kill_every,
        most_kills=given.most_kills,
        seed=given.seed,
    )
    found = [_one(store, plan) for store in given.store or ["postgres", "redis"]]
    shown = Console()
    table = Table(*(heading.replace("**", "") for heading in report.headings(found)))
    for line in report.lines(found):
        table.add_row(*(cell.replace("**", "").replace("`", "") for cell in line))
    shown.print(table)
    for each in found:
        for example in each.account.examples:
            shown.print(f"{each.store}: {example}", style="bold red", markup=False)
        print(f"kept in {report.save(each, given.results or report.KEPT)}", file=sys.stderr)
    if given.results is None:
        generate.main([])
    return 0 if all(each.right for each in found) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--jobs", type=int, default=Plan().jobs, help="how many (default: a million)")
    parser.add_argument("--engines", type=int, default=Plan().engines, help="engine processes (default: 10)")
    parser.add_argument(
        "--kill-every", type=float, default=Plan().kill_every_s, help="seconds, on average (default: 5)"
    )
    parser.add_argument("--most-kills", type=int, help="stop killing after so many (default: never)")
    parser.add_argument("--seed", type=int, default=Plan().seed, help="of what is killed, and when")
    parser.add_argument(
        "--store",
        action="append",
        help="postgres or redis, on a server started for it, or the URL of an empty store (repeatable; default: both)",
    )
    parser.add_argument("--results", type=Path, help="folder to keep the JSON in (default: soak/results, and the docs)")
    return parser.parse_args()


def _one(store: str, plan: Plan) -> Soak:
    console = Console(stderr=True)
    if not console.is_terminal:
        return asyncio.run(soak(store, plan, _lines(console)))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bars:
        bar = bars.add_task(store, total=plan.jobs)
        return asyncio.run(
            soak(
                store, plan, lambda what, n, of: bars.update(bar, description=f"{store}: {what}", completed=n, total=of)
            )
        )


def _lines(console: Console) -> Tell:
    """A line now and then where it goes to a file."""
    began = told = time.monotonic()

    def tell(what: str, n: int, of: int) -> None:
        nonlocal told
        if time.monotonic() - told > _EACH_S:
            told = time.monotonic()
            console.print(f"{told - began:6.0f} s  {what} {n:,} of {of:,}", markup=False, highlight=False)

    return tell


if __name__ == "__main__":
    sys.exit(main())

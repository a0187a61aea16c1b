"""Before and after in one go: the same work by two revisions of Mainstay, in turns, and the ratio of their medians.

    make compare REV=v1.2            this tree beside that revision
    python -m bench.revisions REV [--rounds 7] [--only queues,batch,load,web] [--json FILE]

Each round runs both revisions, the one that begins alternates, so drifts of the machine meet both. The dependencies
are those of this environment. A ratio above 1 means that this tree is faster. A ratio of the
medians below 0.95 is marked as slower: repeat it alone with more rounds before you believe it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

from rich.console import Console
from rich.progress import track
from rich.table import Table

from servers import SERVERS, Nginx, Server, folder

ROOT = Path(__file__).parents[1]
WORK = Path(__file__).with_name("revision_work.py")
#: what counts as slower: a median ratio below it
TOLERANCE = 0.95
SUITES = {
    "queues": [(store, work) for store in ("sqlite", "postgresql", "redis") for work in ("submit", "run")],
    "batch": [("sqlite", "batch")],
    "load": [("sqlite", "load")],
    "web": [("sqlite", "web")],
}
_S = TypeVar("_S", Nginx, Server)


class Cell(NamedTuple):
    """One workload on one store."""

    store: str
    work: str


class Compared(NamedTuple):
    """One measured rate of both revisions."""

    name: str
    before: list[float]
    after: list[float]

    @property
    def ratios(self) -> list[float]:
        """After by before, of each round, sorted.

        >>> Compared("run", [10.0, 10.0], [11.0, 9.0]).ratios
        [0.9, 1.1]
        """
        return sorted(after / before for before, after in zip(self.before, self.after, strict=True))

    @property
    def ratio(self) -> float:
        return statistics.median(self.after) / statistics.median(self.before)

    @property
    def slower(self) -> bool:
        return self.ratio < TOLERANCE


def main() -> int:
    given = _arguments()
    cells = [Cell(*cell) for suite in given.only.split(",") for cell in SUITES[suite]]
    with ExitStack() as stack:
        place = stack.enter_context(folder("mainstay-compare-"))
        bench = _Bench(stack, place, {"before": _checkout(given.revision, place), "after": ROOT / "src"})
        compared = _measure(cells, given.rounds, bench)
    _show(given.revision, compared)
    if given.json:
        rows = [{"name": c.name, "before": c.before, "after": c.after, "ratio": round(c.ratio, 4)} for c in compared]
        Path(given.json).write_text(json.dumps({"revision": given.revision, "rows": rows}, indent=1) + "\n")
    return 1 if any(c.slower for c in compared) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.revisions", description="Compare with another revision.")
    parser.add_argument("revision", help="a commit, branch or tag to compare this tree with")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default=",".join(SUITES), help="suites, separated by commas")
    parser.add_argument("--json", help="write every measured rate to this file")
    return parser.parse_args()


def _checkout(revision: str, place: Path) -> Path:
    """The source of a revision, as files."""
    tree = place / "before"
    tree.mkdir()
    archive = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)
    return tree / "src"


class _Bench:
    """Both source trees, and servers that are started when the first workload needs them."""

    def __init__(self, stack: ExitStack, place: Path, trees: dict[str, Path]) -> None:
        self._stack = stack
        self._place = place
        self._trees = trees
        self._started: dict[str, Server] = {}
        self._runs = 0

    def run(self, cell: Cell, side: str) -> dict[str, tuple[float, float]]:
        """One workload in one tree, on a store without jobs: what it measured, by name."""
        self._runs += 1
        own = self._place / f"run{self._runs}"
        own.mkdir()
        env = os.environ | {
            "PYTHONPATH": str(self._trees[side]),
            "BENCH_FOLDER": str(own),
            "BENCH_URL": self._new_store(cell.store, own),
            "BENCH_TARGET": self._target.url() if cell.work == "load" else "",
        }
        script = shutil.copy(WORK, own)
        done = subprocess.run(
            [sys.executable, script, cell.work],
            env=env,
            cwd=own,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{cell.work} on {cell.store} failed in the tree {side}:\n{done.stderr[-3000:]}")
        found: dict[str, tuple[float, float]] = json.loads(done.stdout.splitlines()[-1])
        return found

    def _new_store(self, store: str, own: Path) -> str:
        if store == "sqlite":
            return f"sqlite:///{own}/jobs.db"
        if store not in self._started:
            self._started[store] = self._start(SERVERS[store], store)
        url = self._started[store].database(own.name)
        return f"{url}?auto_migrate=on" if store == "postgresql" else f"{url}?prefix={own.name}"

    @cached_property
    def _target(self) -> Nginx:
        return self._start(Nginx, "nginx")

    def _start(self, make: Callable[[Path], _S], name: str) -> _S:
        own = self._place / name
        own.mkdir()
        own.chmod(0o755)
        server = make(own)
        self._stack.callback(server.stop)
        return server


def _measure(cells: list[Cell], rounds: int, bench: _Bench) -> list[Compared]:
    rates: dict[str, dict[str, list[float]]] = {}
    for turn in track(range(rounds), "rounds", console=Console(stderr=True)):
        for cell in cells:
            for side in ("before", "after") if turn % 2 == 0 else ("after", "before"):
                for name, (count, took_s) in bench.run(cell, side).items():
                    label = f"{name} ({cell.store})" if cell.work in ("submit", "run") else name
                    rates.setdefault(label, {"before": [], "after": []})[side].append(count / took_s)
    return [Compared(name, **sides) for name, sides in rates.items()]


def _show(revision: str, compared: list[Compared]) -> None:
    table = Table(title=f"this tree beside {revision}: work a second, medians of {len(compared[0].before)} rounds")
    for head in ("", "before", "after", "ratio", "lowest", "highest", ""):
        table.add_column(head, justify="left" if not head else "right")
    for each in compared:
        low, high = each.ratios[0], each.ratios[-1]
        verdict = "[red]slower[/]" if each.slower else ""
        rates = (f"{statistics.median(rates):,.0f}" for rates in (each.before, each.after))
        table.add_row(each.name, *rates, f"{each.ratio:.3f}", f"{low:.3f}", f"{high:.3f}", verdict)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m sim`: run worlds for many seeds; print, replay and shorten what fails.

    python -m sim --seeds 1000                       seeds 0 to 999 of every small world, on all cores
    python -m sim --world nodes --seeds 5000:6000    these, of one world
    python -m sim --world big --seeds 100            the big worlds
    python -m sim --world nodes --replay 1234        one seed again, with its trace and the faults that it needs
    python -m sim --world leader                     what nodes that only beat cost the leader of a cluster

Exit codes: 0 all runs are good, 1 some are not, 2 bad arguments.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from functools import partial

from rich.console import Console
from rich.progress import Progress

from .leader_cost import CLUSTER_SIZES, cost_lines, measure
from .runs import World, simulate
from .shrink import shrink
from .worlds import SIZES, WORLDS, run_seed

#: failures that are printed
_SHOWN = 5
#: measures the leader of big clusters
_LEADER = "leader"


def main(arguments: list[str] | None = None) -> int:
    given = _arguments(arguments)
    logging.disable(logging.CRITICAL)  # workers warn of every fault
    if given.world == _LEADER:
        print(*cost_lines([measure(nodes) for nodes in CLUSTER_SIZES]), sep="\n")
        return 0
    if given.replay is not None:
        return _replay(WORLDS[given.world], given.replay)
    return max(_run(name, given.seeds) for name in SIZES.get(given.world, (given.world,)))


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sim", description="Run Mainstay in seeded simulation.")
    parser.add_argument("--seeds", type=_seeds, default=range(200), metavar="N|FROM:TO", help="default: 200")
    parser.add_argument(
        "--world", choices=[*SIZES, *WORLDS, _LEADER], default="small", help="a world or a size; default: small"
    )
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one seed again and shorten its faults")
    given = parser.parse_args(arguments)
    if given.replay is not None and given.world not in WORLDS:
        parser.error(f"--replay needs one world: --world {'|'.join(WORLDS)}")
    return given


def _seeds(text: str) -> range:
    """Seeds as a count or a range.

    >>> _seeds("3"), _seeds("5:8")
    (range(0, 3), range(5, 8))
    """
    first, colon, last = text.partition(":")
    return range(int(first), int(last)) if colon else range(int(first))


def _run(name: str, seeds: range) -> int:
    console = Console()
    began_s, failed, virtual_s = time.monotonic(), [], 0.0
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool, Progress(console=console) as progress:
        task = progress.add_task("seeds", total=len(seeds))
        for result in pool.imap_unordered(partial(run_seed, name), seeds, chunksize=5):
            progress.advance(task)
            virtual_s += result.virtual_s
            if result.failed:
                failed.append(result)
    took_s = time.monotonic() - began_s
    console.print(f"{name}: {len(seeds)} seeds in {took_s:.1f} s: {virtual_s / took_s:,.0f} simulated seconds a second")
    for result in sorted(failed, key=lambda result: result.seed)[:_SHOWN]:
        console.print(f"[red]seed {result.seed}[/]: {result.error}", highlight=False)
        console.print(f"  python -m sim --world {name} --replay {result.seed}", highlight=False)
    if failed:
        console.print(f"[red]{len(failed)} of {len(seeds)} seeds failed[/]")
    return 1 if failed else 0


def _replay(world: type[World], seed: int) -> int:
    result = simulate(world, seed, keep_trace=True)
    print(*result.trace, sep="\n")
    print(f"\nseed {seed}: {result.error or 'good'}")
    if not result.failed:
        return 0
    needed = shrink(result.faults, lambda faults: simulate(world, seed, faults=faults).failed)
    print(result.where)
    print(f"{len(needed)} of {len(result.faults)} faults are needed for it:", *needed, sep="\n  ")
    return 1


if __name__ == "__main__":
    sys.exit(main())

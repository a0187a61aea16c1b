"""dask.bag: two processes, a look for each file before and after."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import dask.bag

from bench.peers.studies import unit

if __name__ == "__main__":
    folder, units = Path(sys.argv[1]), int(sys.argv[2])
    if todo := [seed for seed in range(units) if not unit.is_there(folder, seed)]:
        # its own choice of partitions: about a hundred
        bag = dask.bag.from_sequence(todo)
        bag.map(functools.partial(unit.make, folder)).compute(scheduler="processes", num_workers=2)
    unit.check(folder, units)

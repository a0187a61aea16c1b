"""joblib: two processes, a look for each file before and after."""

from __future__ import annotations

import sys
from pathlib import Path

from joblib import Parallel, delayed

from bench.peers.studies import unit

if __name__ == "__main__":
    folder, units = Path(sys.argv[1]), int(sys.argv[2])
    todo = [seed for seed in range(units) if not unit.is_there(folder, seed)]
    Parallel(n_jobs=2)(delayed(unit.make)(folder, seed) for seed in todo)
    unit.check(folder, units)

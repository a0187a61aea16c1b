"""What a workflow's shell command runs: `python -m bench.peers.studies.make_one FILE`."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.peers.studies import unit

if __name__ == "__main__":
    path = Path(sys.argv[1])
    unit.make(path.parent, int(path.stem))

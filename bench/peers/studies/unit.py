"""One unit of the study: about a millisecond of plain Python, and the file that a peer keeps of it."""

from __future__ import annotations

import json
import random
from pathlib import Path

STEPS = 2500


def simulate(seed: int) -> bytes:
    """An epidemic in a thousand people, a small step at a time.

    >>> simulate(1) == simulate(1) != simulate(2)
    True
    """
    rng = random.Random(seed)
    susceptible, infected, peak = 990.0, 10.0, 10.0
    for _ in range(STEPS):
        caught = 0.01 * susceptible * infected / 1000 * rng.uniform(0.9, 1.1)
        susceptible -= caught
        infected += caught - 0.004 * infected
        peak = max(peak, infected)
    return json.dumps({"seed": seed, "peak": peak, "left": susceptible}).encode()


def path_of(folder: Path, seed: int) -> Path:
    return folder / f"{seed}.json"


def is_there(folder: Path, seed: int) -> bool:
    """The check that such a script has."""
    return path_of(folder, seed).exists()


def make(folder: Path, seed: int) -> None:
    path_of(folder, seed).write_bytes(simulate(seed))


def check(folder: Path, units: int) -> None:
    """End the program with the list of what is missing, if something is."""
    if missing := [seed for seed in range(units) if not is_there(folder, seed)]:
        raise SystemExit(f"{len(missing)} outputs are missing: {missing[:10]}")

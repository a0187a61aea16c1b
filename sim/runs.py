"""One run of a world, and many of them."""

from __future__ import annotations

import hashlib
import random
import traceback
from collections.abc import Sequence
from typing import Protocol

import msgspec

from mainstay.testing.virtual_loop import VirtualLoop, virtual_loop

from .faults import Fault

#: faults are over by then; what remains is healing
FAULTS_UNTIL_S = 60.0


class Violation(AssertionError):
    """A run ended in a state that must not exist."""


class World(Protocol):
    """Hosts around a store. Made for one run."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None: ...

    @classmethod
    def draw(cls, rng: random.Random, count: int) -> list[Fault]:
        """As many faults, all over before `FAULTS_UNTIL_S`."""
        ...

    async def run(self, faults: Sequence[Fault]) -> None:
        """Work while the faults happen, heal, and check; raises `Violation`."""
        ...

    def trace(self) -> list[str]:
        """What happened, line by line: the same for the same seed and faults."""
        ...


class RunResult(msgspec.Struct, kw_only=True):
    """How one run ended."""

    seed: int
    faults: list[Fault]
    error: str = ""
    """empty if all is well"""
    where: str = ""
    """the traceback of the error"""
    digest: str
    """of the trace: two runs of one seed have the same"""
    virtual_s: float
    steps: int
    trace: list[str] = []

    @property
    def failed(self) -> bool:
        return bool(self.error)


def simulate(
    world: type[World],
    seed: int,
    *,
    faults: Sequence[Fault] | None = None,
    fault_count: int = 8,
    keep_trace: bool = False,
) -> RunResult:
    """Run a world once. The faults are drawn from the seed unless they are given."""
    rng = random.Random(f"faults {seed}")
    chosen = world.draw(rng, rng.randint(0, fault_count)) if faults is None else list(faults)
    error = where = ""
    with virtual_loop(seed) as loop:
        made = world(loop, seed)
        try:
            loop.run_until_complete(made.run(chosen))
        except Exception as raised:  # noqa: BLE001 - whatever it is, the run failed
            error = f"{type(raised).__name__}: {raised}"
            where = traceback.format_exc()
        trace = made.trace()
        return RunResult(
            seed=seed,
            faults=chosen,
            error=error,
            where=where,
            digest=hashlib.sha256("\n".join(trace).encode()).hexdigest()[:16],
            virtual_s=loop.true_s,
            steps=loop.steps,
            trace=trace if keep_trace or error else [],
        )

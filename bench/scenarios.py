"""What is measured. Each scenario runs both sides in turn, several times, and compares the best run of each.

The best, because virtual machines like those this runs on change their speed by half within seconds, and that noise
only ever makes a run slower; medians of few runs compare one side's slow moments with the other's fast ones. All runs
are kept in the JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from . import ours
from .raw import RawStore

SIDES = ("raw", "ours")
BULK, BATCH, CALLERS = 1000, 100, 64


class Row(msgspec.Struct, kw_only=True):
    """One line of the report. For rates a ratio above one means that we are faster; for times, below one."""

    scenario: str
    unit: str
    raw: float
    ours: float
    bar: str = ""
    met: bool | None = None
    runs: dict[str, list[float]] = {}

    @property
    def ratio(self) -> float:
        return self.ours / self.raw if self.raw else float("nan")


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much work each scenario does."""

    bulk: int = 50_000
    singly: int = 10_000
    drain: int = 20_000
    latency_jobs: int = 60_000
    latency_samples: int = 300
    pickups: int = 200
    stored: int = 1_000_000
    flat: int = 20_000
    repeats: int = 5


Tell = Callable[[str], None]


def submit_bulk(sizes: Sizes, tell: Tell) -> list[Row]:
    n = sizes.bulk

    def raw(path: Path) -> float:
        with _raw(path) as store:
            return n / _timed(lambda: [store.submit(BULK) for _ in range(0, n, BULK)])

    def mine(path: Path) -> float:
        return n / _timed_async(path, lambda control: ours.submit_bulk(control, n, BULK))

    row = _rates("submit, 1,000 a call", raw, mine, sizes, tell)
    return [_judged(row, "at least half the baseline", row.ratio >= 0.5)]


def submit_singly(sizes: Sizes, tell: Tell) -> list[Row]:
    n = sizes.singly

    def alone(path: Path) -> float:
        # what one gets without group commit
        few = n // 8
        with _raw(path) as store:
            return few / _timed(lambda: [store.submit(1) for _ in range(few)])

    def together(path: Path) -> float:
        # the best group commit could do: all callers in every commit
        with _raw(path) as store:
            return n / _timed(lambda: [store.submit(CALLERS) for _ in range(0, n, CALLERS)])

    def mine(path: Path) -> float:
        return n / _timed_async(path, lambda control: ours.submit_singly(control, n, CALLERS))

    what = f"submit, one a call, {CALLERS} callers"
    return [
        _rates(f"{what} (baseline: one a commit)", alone, mine, sizes, tell),
        _rates(f"{what} (baseline: {CALLERS} a commit)", together, mine, sizes, tell),
    ]


def claim_complete(sizes: Sizes, tell: Tell) -> list[Row]:
    n = sizes.drain

    def raw(path: Path) -> float:
        with _raw(path) as store:
            for _ in range(0, n, BULK):
                store.submit(BULK)
            return n / _timed(lambda: store.drain(BATCH))

    def mine(path: Path) -> float:
        ours.run(path, lambda control: ours.submit_bulk(control, n, BULK))
        return n / _timed_async(path, lambda control: ours.drain(control, BATCH))

    row = _rates("claim + complete, 100 a call", raw, mine, sizes, tell)
    return [_judged(row, "at least half the baseline", row.ratio >= 0.5)]


def latency_beside_workers(sizes: Sizes, tell: Tell) -> list[Row]:
    """Submit one job at a time while two worker processes claim and complete as fast as they can."""
    found = {side: _latencies_beside(side, sizes, tell) for side in SIDES}
    rows = []
    for name, at in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        pair = {side: _quantile(found[side], at) for side in SIDES}
        row = Row(scenario=f"submit beside 2 saturated workers, {name}", unit="ms", **pair)
        rows.append(_judged(row, "p99 under 50 ms", row.ours < 50) if name == "p99" else row)
    return rows


def pickup(sizes: Sizes, tell: Tell) -> list[Row]:
    """From the call of submit to the claim in an idle process, at random moments."""
    found = {side: _pickups(side, sizes, tell) for side in SIDES}
    return [
        Row(
            scenario=f"idle pickup in another process, {name}", unit="ms", **{s: _quantile(found[s], at) for s in SIDES}
        )
        for name, at in (("p50", 0.5), ("p99", 0.99))
    ]


def flat(sizes: Sizes, tell: Tell) -> list[Row]:
    """The cost of a job with a thousand and with a million jobs stored."""
    costs: dict[tuple[str, int], dict[str, list[float]]] = {}
    few, many = 1000, sizes.stored
    with _folder() as folder:
        for stored in (few, many):
            path = folder / f"{stored}.db"
            with _raw(path) as store:
                store.store_settled(stored, lambda n, stored=stored: tell(f"storing jobs: {n:,} of {stored:,}"))  # type: ignore[misc]
        # in turn, so that a change of the machine's mood falls on both
        for _ in range(sizes.repeats):
            for stored in (few, many):
                tell(f"cost per job with {stored:,} stored")
                path = folder / f"{stored}.db"
                for side in SIDES:
                    submit_us, drain_us = _cost(side, path, sizes.flat)
                    for what, us in (("submit", submit_us), ("claim + complete", drain_us)):
                        costs.setdefault((what, stored), {}).setdefault(side, []).append(us)
    rows = []
    for what in ("submit", "claim + complete"):
        best = {stored: {side: min(us) for side, us in costs[what, stored].items()} for stored in (few, many)}
        for stored in (few, many):
            row = Row(scenario=f"{what}, {stored:,} stored", unit="us/job", runs=costs[what, stored], **best[stored])
            rows.append(row)
        growth = best[many]["ours"] / best[few]["ours"]
        _judged(rows[-1], f"within 1.5x of {few:,} stored (is {growth:.2f}x)", growth <= 1.5)
    return rows


SCENARIOS: dict[str, Callable[[Sizes, Tell], list[Row]]] = {
    "bulk": submit_bulk,
    "singly": submit_singly,
    "drain": claim_complete,
    "latency": latency_beside_workers,
    "pickup": pickup,
    "flat": flat,
}


# -- helpers ----------------------------------------------------------------------------------


def _rates(scenario: str, raw: Callable[[Path], float], mine: Callable[[Path], float], sizes: Sizes, tell: Tell) -> Row:
    runs: dict[str, list[float]] = {side: [] for side in SIDES}
    for turn in range(sizes.repeats):
        for side, measure in (("raw", raw), ("ours", mine)):
            tell(f"{scenario}: {side}, run {turn + 1} of {sizes.repeats}")
            with _folder() as folder:
                runs[side].append(measure(folder / "jobs.db"))
    return Row(scenario=scenario, unit="jobs/s", runs=runs, **{side: max(values) for side, values in runs.items()})


def _cost(side: str, path: Path, n: int) -> tuple[float, float]:
    """Microseconds per job to submit, and to claim and complete."""
    if side == "raw":
        with _raw(path) as store:
            submit_s = _timed(lambda: [store.submit(BULK) for _ in range(0, n, BULK)])
            drain_s = _timed(lambda: store.drain(BATCH))
    else:
        submit_s = _timed_async(path, lambda control: ours.submit_bulk(control, n, BULK))
        drain_s = _timed_async(path, lambda control: ours.drain(control, BATCH))
    return submit_s / n * 1e6, drain_s / n * 1e6


def _latencies_beside(side: str, sizes: Sizes, tell: Tell) -> list[float]:
    tell(f"submit beside saturated workers: {side}")
    rng = random.Random(7)
    with _folder() as folder:
        path = folder / "jobs.db"
        ours.run(path, lambda control: ours.submit_bulk(control, sizes.latency_jobs, BULK))
        with _role("saturate", side, path), _role("saturate", side, path):
            return _submit_times(side, path, sizes.latency_samples, lambda: rng.uniform(0.001, 0.01))


def _pickups(side: str, sizes: Sizes, tell: Tell) -> list[float]:
    tell(f"idle pickup: {side}")
    rng = random.Random(7)
    times: list[float] = []
    with _folder() as folder:
        path = folder / "jobs.db"
        with _role("pick_up", side, path) as child:
            assert child.stdout is not None

            def picked_up(began_ns: int) -> None:
                assert child.stdout is not None
                times.append((int(child.stdout.readline()) - began_ns) / 1e6)

            _submit_times(side, path, sizes.pickups, lambda: rng.uniform(0.01, 0.05), picked_up)
    return times


def _submit_times(
    side: str,
    path: Path,
    samples: int,
    gap: Callable[[], float],
    after: Callable[[int], None] = lambda _: None,
) -> list[float]:
    """Milliseconds each submit took; `after` is called with when it began."""
    times: list[float] = []

    def note(began_ns: int) -> None:
        times.append((time.monotonic_ns() - began_ns) / 1e6)
        after(began_ns)

    if side == "raw":
        with _raw(path) as store:
            for _ in range(samples):
                time.sleep(gap())
                began_ns = time.monotonic_ns()
                store.submit(1)
                note(began_ns)
        return times

    async def work(control: ours.Control) -> None:
        for i in range(samples):
            await asyncio.sleep(gap())
            began_ns = time.monotonic_ns()
            await control.jobs.submit("bench.task", {"i": i})
            note(began_ns)

    ours.run(path, work)
    return times


@contextlib.contextmanager
def _role(role: str, side: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.roles", role, side, str(path)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        if child.stdout.readline() != "ready\n":
            raise RuntimeError(f"{' '.join(command)} did not start")
        yield child
    finally:
        child.communicate()


@contextlib.contextmanager
def _raw(path: Path) -> Iterator[RawStore]:
    store = RawStore(path)
    try:
        yield store
    finally:
        store.close()


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mainstay-bench-") as name:
        yield Path(name)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _timed_async(path: Path, work: Callable[[ours.Control], object]) -> float:
    """Opening and closing do not count."""

    async def timed(control: ours.Control) -> float:
        began = time.perf_counter()
        await work(control)  # type: ignore[misc]
        return time.perf_counter() - began

    return float(ours.run(path, timed))


def _quantile(values: list[float], at: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * at))]


def _judged(row: Row, bar: str, met: bool) -> Row:
    row.bar, row.met = bar, met
    return row

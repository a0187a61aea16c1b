"""Who is better, and whether we keep what we set out to: ourselves on each store beside the best peer on the same."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .queues import US, Drain, Found, Latency, Rates, best

Measure = Callable[[Found], float | None]

ROW_AT_A_TIME = ("procrastinate", "dbos", "saq-postgres")
"""The peers on PostgreSQL that write every job by itself."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One measure. A ratio above one means that we are better, whether more is better or less."""

    store: str
    measure: str
    better: str
    """What the better one is: faster, sooner, smaller."""
    ours: float
    peer: str
    theirs: float
    bar: str = ""
    met: bool | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs if self.better == "faster" else self.theirs / self.ours

    @property
    def text(self) -> str:
        """
        >>> def text(ours, theirs, better):
        ...     return Verdict(store="redis", measure="", better=better, ours=ours, peer="", theirs=theirs).text
        >>> text(5000, 1000, "faster"), text(4.0, 2.0, "sooner"), text(1.0, 1.0, "smaller")
        ('5.0x faster', '2.0x later', 'the same')
        """
        if f"{self.ratio:.1f}" == "1.0":
            return "the same"
        return f"{self.ratio:.1f}x {self.better}" if self.ratio > 1 else f"{1 / self.ratio:.1f}x {WORSE[self.better]}"


WORSE = {"faster": "slower", "sooner": "later", "smaller": "larger"}


def best_memory(found: Found) -> float | None:
    return min((drain.rss_mb for drain in found.rates.one), default=None)


def best_cpu(found: Found) -> float | None:
    return min((drain.cpu_us for drain in found.rates.one if drain.cpu_us), default=None)


def _top(runs: list[float] | None) -> float | None:
    return max(runs or [], default=None)


def _done(drains: list[Drain]) -> float | None:
    return best(drains)


def _of_far(read: Callable[[Rates], float | None]) -> Measure:
    return lambda found: read(found.far) if found.far else None


def _wait(latency: Latency | None, field: str) -> float | None:
    return getattr(latency, field) if latency and latency.samples else None


DONE = "worked off, 1 process, jobs/s"
FAR = "worked off, 1 process, 2 ms away, jobs/s"
SAFE = "idle pickup p50, ms, of those that run a killed job again"

MEASURES: tuple[tuple[str, str, Measure], ...] = (
    ("submit, one a call, jobs/s", "faster", lambda found: _top(found.rates.submit_one)),
    ("submit, bulk, jobs/s", "faster", lambda found: _top(found.rates.submit_bulk)),
    (DONE, "faster", lambda found: found.rates.done),
    ("worked off, 2 processes, jobs/s", "faster", lambda found: _done(found.rates.two)),
    ("submit, one a call, 2 ms away, jobs/s", "faster", _of_far(lambda far: _top(far.submit_one))),
    ("submit, bulk, 2 ms away, jobs/s", "faster", _of_far(lambda far: _top(far.submit_bulk))),
    (FAR, "faster", _of_far(lambda far: far.done)),
    ("worker CPU, us a job", "smaller", best_cpu),
    ("idle pickup p50, ms", "sooner", lambda found: _wait(found.idle, "p50")),
    (SAFE, "sooner", lambda found: _wait(found.idle, "p50")),
    ("idle pickup p99, ms", "sooner", lambda found: _wait(found.idle, "p99")),
    ("pickup under load p50, ms", "sooner", lambda found: _wait(found.load, "p50")),
    ("pickup under load p99, ms", "sooner", lambda found: _wait(found.load, "p99")),
    ("memory of one worker, MB", "smaller", best_memory),
    ("killed job run again, s", "sooner", lambda found: found.kill.rerun_s if found.kill else None),
)


def verdicts(systems: list[Found]) -> list[Verdict]:
    """Of each of ours that was measured. SQLite, which has no peer, is set beside the peers of every server."""
    found = []
    for us in systems:
        if us.name.startswith(US):
            peers = [each for each in systems if not each.name.startswith(US)]
            if us.store != "sqlite":
                peers = [each for each in peers if each.store == us.store]
            found += _beside(us, peers, _survivors(systems))
    return found


def _survivors(systems: list[Found]) -> set[str]:
    """Those that ran a killed job again, with whatever setting: a variant speaks for the system."""
    return {each.variant_of or each.name for each in systems if each.kill and each.kill.rerun_s is not None}


def _beside(us: Found, peers: list[Found], survivors: set[str]) -> list[Verdict]:
    made: dict[str, Verdict] = {}
    for title, better, measure in MEASURES:
        among = [each for each in peers if title != SAFE or (each.variant_of or each.name) in survivors]
        if verdict := _verdict(us, among, title, better, measure):
            made[title] = verdict
        if title == DONE and us.store == "postgresql":
            plain = [each for each in peers if each.name in ROW_AT_A_TIME]
            if verdict := _verdict(us, plain, f"{DONE}, of Procrastinate, DBOS, SAQ", better, measure):
                made[verdict.measure] = verdict
    return [_judged(verdict, made) for verdict in made.values()]


def _verdict(us: Found, peers: list[Found], title: str, better: str, measure: Measure) -> Verdict | None:
    theirs = [(value, each.title) for each in peers if (value := measure(each)) is not None]
    ours = measure(us)
    if ours is None or not theirs:
        return None
    value, peer = max(theirs) if better == "faster" else min(theirs)
    return Verdict(store=us.store, measure=title, better=better, ours=ours, peer=peer, theirs=value)


def _judged(verdict: Verdict, made: dict[str, Verdict]) -> Verdict:
    """With what we set out to keep, and whether we do."""
    if verdict.store == "sqlite":
        return verdict
    bars: dict[str, tuple[str, Callable[[], bool]]] = {
        f"{DONE}, of Procrastinate, DBOS, SAQ": ("at least 10x", lambda: verdict.ratio >= 10),
        DONE: ("at least 5x", lambda: verdict.ratio >= 5)
        if verdict.store == "redis"
        else ("ahead of PgQueuer and awa", lambda: verdict.ratio > 1),
        SAFE: ("no later", lambda: verdict.ratio >= 0.95),
    }
    if DONE in made:
        bars[FAR] = ("further ahead than near", lambda: verdict.ratio > made[DONE].ratio)
    if verdict.measure not in bars:
        return verdict
    bar, met = bars[verdict.measure]
    return msgspec.structs.replace(verdict, bar=bar, met=met())

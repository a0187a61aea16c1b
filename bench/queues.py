"""What is measured of every system, ourselves included: no-op jobs, the same harness, taking turns.

Rates are the best of the runs, for the reason given in `scenarios`; all runs are kept. Between two runs of one system
every other one has its turn, so that a change of the machine's mood falls on all.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from .peers import slots
from .peers.slots import Slots
from .stands import Stand, StandFailed, Workers

Tell = Callable[[str], None]

STALL_S = 40
"""A drain with no new start for this long has lost the rest."""
SINGLY = 1500
"""Enough to tell the rate of one job a call, where the backlog itself comes as a bulk."""
BOOT_S = 60
LATENCY_LIMIT_S = 15
GIVE_UP = 3
"""A system that has not picked up this many jobs in time is not asked again."""
WARM_UP = 5
SLEEP_S, KILL_AFTER_S, RESTART_AFTER_S = 5.0, 1.5, 1.0
BYSTANDERS = 3
US = "mainstay"
"""How the names of our own systems begin."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much work each scenario does."""

    share: float = 1.0
    """Of each system's own number of jobs."""
    repeats: int = 2
    idle: int = 100
    load: int = 600
    load_rate: float = 100.0
    watch_s: float = 150.0


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """A backlog, worked off. Rates are jobs a second."""

    jobs: int
    started: float
    """From the first start to the last; of several processes, while all of them ran."""
    committed: float | None = None
    """The same until the store says that all are done, if the system can say so."""
    lost: int = 0
    repeated: int = 0
    processes: int = 1
    """In how many processes the jobs ran: one worker may leave the others nothing."""
    cpu_us: float | None = None
    """Processor time of the workers a job; unlike a rate it hardly depends on what else the machine does."""
    rss_mb: float = 0.0
    pss_mb: float = 0.0


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds from the call of submit to the start of the job."""

    samples: int = 0
    """When there are none, the other numbers mean nothing."""
    p50: float = 0.0
    p99: float = 0.0
    worst: float = 0.0
    lost: int = 0


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the job whose worker was killed, and of those queued behind it. Seconds after the kill."""

    watched_s: float
    rerun_s: float | None = None
    bystanders_s: list[float | None] = []
    """A bystander that ran before the kill counts as 0."""


class Rates(msgspec.Struct, kw_only=True):
    """Jobs a second, of every run."""

    submit_one: list[float] = []
    submit_bulk: list[float] = []
    one: list[Drain] = []
    """Worked off by one process."""
    two: list[Drain] = []

    @property
    def done(self) -> float | None:
        """The best of one process, to the last commit where that is known: what is started is not yet done."""
        return best(self.one)


def best(drains: list[Drain]) -> float | None:
    return max((drain.committed or drain.started for drain in drains), default=None)


class Found(msgspec.Struct, kw_only=True):
    """All that was measured of one system."""

    name: str
    title: str
    version: str
    store: str
    setting: str
    variant_of: str = ""
    rates: Rates = msgspec.field(default_factory=Rates)
    near: Rates | None = None
    """Through the proxy that will delay, not yet delaying: what the proxy itself costs."""
    far: Rates | None = None
    """With a slower wire to the server; see `distance`."""
    idle: Latency | None = None
    load: Latency | None = None
    kill: Kill | None = None
    trouble: list[str] = []


class Seat(msgspec.Struct, frozen=True):
    """A system in the run: where it is set up, and what was found."""

    stand: Stand
    found: Found

    @property
    def is_ours(self) -> bool:
        return self.found.name.startswith(US)


# -- rates --------------------------------------------------------------------------------------


def throughput(seats: list[Seat], marks: Slots, sizes: Sizes, tell: Tell) -> None:
    """Submit a backlog, then start workers and see how fast they work it off."""
    for turn in range(sizes.repeats):
        for seat in seats:
            rates = seat.found.rates
            for processes, drains in ((1, rates.one), (2, rates.two)):
                tell(f"throughput: {seat.found.title}, {processes} worker processes, run {turn + 1} of {sizes.repeats}")
                with trouble(seat):
                    drains.append(drain(seat.stand, marks, _backlog(seat.stand, rates, sizes), processes))


def jobs_of(stand: Stand, share: float) -> int:
    return max(50, int(stand.system.jobs * share))


def _backlog(stand: Stand, rates: Rates, sizes: Sizes) -> int:
    """Submit jobs, one a call and where the system can as a bulk; answers how many are there to be worked off."""
    n = jobs_of(stand, sizes.share)
    stand.ask("reset")
    if not stand.ask("can", what="submit_many"):
        rates.submit_one.append(n / stand.ask("singly", n=n))
        return n
    few = min(n, SINGLY)
    rates.submit_one.append(few / stand.ask("singly", n=few))
    stand.ask("reset")
    rates.submit_bulk.append(n / stand.ask("bulk", n=n))
    return n


def drain(stand: Stand, marks: Slots, n: int, processes: int) -> Drain:
    marks.clear()
    with stand.workers(processes) as workers:
        begun = _wait_for_starts(stand, workers, marks, n, want=1)
        cpu_s = workers.cpu_s()
        rest = _wait_for_starts(stand, workers, marks, n, want=n) - begun
        committed_ns = _wait_for_commits(stand, n)
        cpu_s = workers.cpu_s() - cpu_s
        rss_mb, pss_mb = workers.memory_mb()
    starts, pids = marks.started(0, n), marks.pids(0, n)
    window = together(starts, pids)
    # what was started since then is done by that time, the last of it included
    since = sum(at >= window[0] for at in starts)
    return Drain(
        jobs=n,
        started=start_rate(window),
        committed=since / ((committed_ns - window[0]) / 1e9) if committed_ns else None,
        lost=starts.count(0),
        repeated=marks.repeats,
        processes=len({pid for pid in pids if pid}),
        cpu_us=cpu_s / rest * 1e6 if rest else None,
        rss_mb=rss_mb,
        pss_mb=pss_mb,
    )


def _wait_for_starts(stand: Stand, workers: Workers, marks: Slots, n: int, *, want: int) -> int:
    """Until so many have started, or no more do; answers how many of the n."""
    done, since = 0, time.monotonic()
    while (now := n - marks.started(0, n).count(0)) < want:
        if now != done:
            done, since = now, time.monotonic()
        elif workers.died():
            raise stand.failed(f"a worker ended after {done} of {n} jobs")
        elif time.monotonic() - since > STALL_S:
            if not done:
                raise stand.failed(f"no job started within {STALL_S} s")
            break
        time.sleep(0.05)
    return now


def _wait_for_commits(stand: Stand, n: int) -> int | None:
    """When all were seen to be done; None if the system cannot say."""
    if not stand.ask("can", what="settled"):
        return None
    deadline = time.monotonic() + STALL_S
    while (settled := stand.ask("settled")) < n:
        if time.monotonic() > deadline:
            raise stand.failed(f"only {settled} of {n} jobs were done {STALL_S} s after the last start")
        time.sleep(0.005)
    return time.monotonic_ns()


def together(starts: list[int], pids: list[int]) -> list[int]:
    """The starts, in order, over the time in which every process was at work.

    Interpreters do not boot at the same moment, and a backlog may be gone before the second is there; so the time
    before and after is left out, unless that would leave out most of the jobs.
    """
    by_pid: dict[int, list[int]] = {}
    for at, pid in zip(starts, pids, strict=True):
        if at:
            by_pid.setdefault(pid, []).append(at)
    ran = sorted(at for times in by_pid.values() for at in times)
    begin = max((min(times) for times in by_pid.values()), default=0)
    end = min((max(times) for times in by_pid.values()), default=0)
    window = [at for at in ran if begin <= at <= end]
    return window if len(window) >= 0.3 * len(ran) else ran


def start_rate(window: list[int]) -> float:
    """Starts a second, from the first to the last of them."""
    return (len(window) - 1) / max((window[-1] - window[0]) / 1e9, 1e-9) if len(window) > 1 else 0.0


# -- latency ------------------------------------------------------------------------------------


def waiting(seats: list[Seat], marks: Slots, sizes: Sizes, tell: Tell) -> None:
    """Submit to idle workers, then to busy ones; the systems of one server together, so that few idle beside.

    Idle: every system's worker is up and one job is in flight in all, for each system in turn, in a new order every
    round. So a job meets its worker at a random phase of whatever it does when idle, a second or so after the last.
    Load: jobs arrive at random, `load_rate` a second, at one system while the others stay idle.
    """
    for server in dict.fromkeys(seat.found.store for seat in seats):
        _waiting([seat for seat in seats if seat.found.store == server], marks, sizes, tell)


def _waiting(seats: list[Seat], marks: Slots, sizes: Sizes, tell: Tell) -> None:
    rng = random.Random(7)
    marks.clear()
    numbers = iter(range(slots.CAPACITY))
    with contextlib.ExitStack() as up:
        ready = []
        for seat in seats:
            tell(f"waiting: starting {seat.found.title}")
            with trouble(seat):
                seat.stand.ask("reset")
                _warm_up(seat.stand, up.enter_context(seat.stand.workers(1)), marks, numbers)
                ready.append(seat)
        waits: dict[str, list[float | None]] = {seat.found.name: [] for seat in ready}
        for turn in range(sizes.idle):
            tell(f"waiting, idle, {seats[0].found.store}: round {turn + 1} of {sizes.idle}")
            for seat in rng.sample(ready, len(ready)):
                found = waits[seat.found.name]
                if found.count(None) < GIVE_UP:
                    time.sleep(rng.uniform(0.01, 0.05))
                    found.append(_one_pickup(seat.stand, marks, next(numbers)))
        for seat in ready:
            seat.found.idle = latency(waits[seat.found.name])
        for seat in ready:
            tell(f"waiting, under load: {seat.found.title}")
            with trouble(seat):
                seat.found.load = latency(_steady_pickups(seat.stand, marks, numbers, sizes))


def _warm_up(stand: Stand, workers: Workers, marks: Slots, numbers: Iterator[int]) -> None:
    """The first jobs wait for the interpreter, and are not counted."""
    for _ in range(WARM_UP):
        i = next(numbers)
        stand.ask("one", i=i)
        if not _until(lambda i=i: bool(marks.started(i, 1)[0]), BOOT_S, workers):  # type: ignore[misc]
            raise stand.failed("its worker does not pick up")


def _one_pickup(stand: Stand, marks: Slots, i: int) -> float | None:
    began_ns: int = stand.ask("one", i=i)
    while not (at := marks.started(i, 1)[0]):
        if time.monotonic_ns() - began_ns > LATENCY_LIMIT_S * 1e9:
            return None
        time.sleep(0.0005)
    return (at - began_ns) / 1e6


def _steady_pickups(stand: Stand, marks: Slots, numbers: Iterator[int], sizes: Sizes) -> list[float | None]:
    mine = [next(numbers) for _ in range(sizes.load)]
    began_ns = stand.ask("steadily", first=mine[0], n=len(mine), rate=sizes.load_rate)
    deadline = time.monotonic() + LATENCY_LIMIT_S
    while 0 in (starts := marks.started(mine[0], len(mine))) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [(at - began) / 1e6 if at else None for at, began in zip(starts, began_ns, strict=True)]


def latency(waits: list[float | None]) -> Latency:
    """Of jobs that were picked up; the others are counted as lost."""
    ordered = sorted(wait for wait in waits if wait is not None)
    if not ordered:
        return Latency(lost=len(waits))
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * at))] for at in (0.5, 0.99))
    return Latency(samples=len(ordered), p50=p50, p99=p99, worst=ordered[-1], lost=len(waits) - len(ordered))


# -- the killed worker --------------------------------------------------------------------------


def kill(seats: list[Seat], sizes: Sizes, tell: Tell) -> None:
    """Kill the whole worker in the middle of a job, start another a second later, watch.

    One system at a time is started, killed and restarted; the watching, which takes no time of the machine, overlaps.
    """
    busy = threading.Lock()
    with ThreadPoolExecutor(len(seats)) as pool:
        for done in [pool.submit(_killed, seat, busy, sizes, tell) for seat in seats]:
            done.result()


def _killed(seat: Seat, busy: threading.Lock, sizes: Sizes, tell: Tell) -> None:
    with trouble(seat), contextlib.ExitStack() as up:
        stand = seat.stand
        bystanders = [f"bystander-{k}" for k in range(BYSTANDERS)]

        def seen(tag: str, what: str = "start") -> list[int]:
            return slots.notes(stand.starts, tag, what)

        with busy:
            tell(f"kill: {seat.found.title}")
            stand.starts.unlink(missing_ok=True)
            stand.ask("reset")
            with stand.workers(1) as workers:
                stand.ask("sleeper", tag="victim", seconds=SLEEP_S)
                if not _until(lambda: bool(seen("victim")), BOOT_S, workers):
                    raise stand.failed("the job to be killed never started")
                for tag in bystanders:
                    stand.ask("sleeper", tag=tag, seconds=0)
                time.sleep(max(0.0, KILL_AFTER_S - (time.monotonic_ns() - seen("victim")[0]) / 1e9))
                killed_ns = time.monotonic_ns()
                workers.kill()
            time.sleep(RESTART_AFTER_S)
            up.enter_context(stand.workers(1, stand.system.restart_env))
            # until the new worker has booted; those that recover a job at start do so now
            _until(lambda: len(seen("victim")) > 1, min(sizes.watch_s, 3.0))
        left_s = sizes.watch_s - (time.monotonic_ns() - killed_ns) / 1e9
        _until(lambda: len(seen("victim")) > 1 and all(map(seen, bystanders)), left_s)

        def after_s(times: list[int]) -> float | None:
            return max(0.0, (times[0] - killed_ns) / 1e9) if times else None

        seat.found.kill = Kill(
            watched_s=sizes.watch_s,
            rerun_s=after_s(seen("victim")[1:]),
            bystanders_s=[after_s(seen(tag)) for tag in bystanders],
        )


def _until(happened: Callable[[], bool], limit_s: float, workers: Workers | None = None) -> bool:
    """Whether it happened in that time, and while the workers lived."""
    deadline = time.monotonic() + limit_s
    while not (yes := happened()) and time.monotonic() < deadline and not (workers and workers.died()):
        time.sleep(0.02)
    return yes


@contextlib.contextmanager
def trouble(seat: Seat) -> Iterator[None]:
    """One system's trouble is told in its row and stops no other."""
    try:
        yield
    except StandFailed as error:
        if str(error) not in seat.found.trouble:
            seat.found.trouble.append(str(error))

"""What statistics of many machines cost the process that merges them: our manager beside the master of Locust.

Both get the same statistics, of as many reporters, in the same interval, over their real connections: ours over a
nats-server. The reporters send no load and share one process, so it is their receiver that is measured, and not they.
What counts is the processor time of that receiver while all report, and how late its event loop is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

import servers
from mainstay.errors import MainstayError
from mainstay.load.fleet.together import buckets_together
from mainstay.load.stats.model import WINDOW_MS
from servers import ServerMissing
from servers.nats import NatsCore
from servers.server import free_port

from . import environments
from .environments import ROOT, InstallFailed
from .fan_in_leader import Led
from .load_nodes_sides import run_environment
from .load_runs import HERE, RunFailed
from .queues import Tell
from .runs import Run, begun
from .stands import cpu_s

SCENARIOS = ("fan_in_cpu", "fan_in_limit")
#: of the processor time for a reporter, beside Locust
GOAL = 0.1
#: of an event loop: other work of the same manager waits for as long
LAG_MS = 200.0

LOCUST = "locust"
STEPS = ("login", "browse", "order")
#: calls of each step in a window of 100 ms, of one reporter
REQUESTS = 5
_BUS = """
listen: "127.0.0.1:{port}"
max_payload: 1100000
authorization {{ users: [ {{ user: all, password: all }} ] }}
"""
_READY_S, _SETTLE_S, _PATIENCE_S = 60.0, 3.0, 60.0


class FanInSizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is done."""

    reporters: tuple[int, ...] = (200, 1_000)
    limit: tuple[int, ...] = (2_000, 4_000)
    """more of them, until the event loop is late"""
    seconds: int = 10
    rounds: int = 3


class OurFanIn(msgspec.Struct, frozen=True, kw_only=True):
    """A run of ours."""

    reporters: int
    per_reporter_ms: float
    """of processor time for a reporter in a second"""
    core: float
    """share of a core"""
    lag_ms: float
    lag_p99_ms: float
    windows: int
    late: int


class TheirFanIn(msgspec.Struct, frozen=True, kw_only=True):
    """A run of Locust."""

    reporters: int
    per_reporter_ms: float
    core: float


class FanInRound(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of both."""

    reporters: int
    interval_s: float
    mainstay: OurFanIn
    locust: TheirFanIn

    @property
    def ratio(self) -> float:
        return self.mainstay.per_reporter_ms / self.locust.per_reporter_ms


class FanInReport(Run, kw_only=True):
    """What a run found, as it is kept."""

    sizes: FanInSizes
    load_after: float = 0.0
    skipped: dict[str, str] = msgspec.field(default_factory=dict)
    trouble: list[str] = msgspec.field(default_factory=list)
    rounds: list[FanInRound] = msgspec.field(default_factory=list)
    limits: list[OurFanIn] = msgspec.field(default_factory=list)
    """with more and more reporters"""

    def of(self, reporters: int) -> list[FanInRound]:
        """The rounds with this number of reporters."""
        return [each for each in self.rounds if each.reporters == reporters]


def interval_s(reporters: int) -> float:
    """How often each of them reports: as our slices do, when there are as many."""
    return buckets_together(level=0, queue_share=0.0, slices=reporters) * WINDOW_MS / 1000


def measure(scenarios: Sequence[str], sizes: FanInSizes, tell: Tell) -> FanInReport:
    """Run the scenarios. What cannot be set up is skipped, with the reason; what fails is in `trouble`."""
    began_s = time.monotonic()
    with servers.folder("mainstay-bench-") as folder:
        report = FanInReport(**begun(folder), sizes=sizes)
        if "fan_in_cpu" in scenarios:
            _compare(report, folder, tell)
        if "fan_in_limit" in scenarios:
            _find_limit(report, folder, tell)
    report.took_s = round(time.monotonic() - began_s, 1)
    report.load_after = round(os.getloadavg()[0], 1)
    return report


def _compare(report: FanInReport, folder: Path, tell: Tell) -> None:
    sizes = report.sizes
    try:
        report.versions[LOCUST] = environments.version(environments.python_of(LOCUST), LOCUST)
    except InstallFailed as error:
        report.skipped["fan_in_cpu"] = str(error)
        return
    for number in range(sizes.rounds):
        for reporters in sizes.reporters:
            what = f"{reporters} reporters, round {number + 1} of {sizes.rounds}"
            place = folder / f"{reporters}-{number}"
            place.mkdir()
            turns = {
                "mainstay": lambda reporters=reporters, place=place: run_mainstay(place, reporters, sizes.seconds),
                LOCUST: lambda reporters=reporters, place=place: run_locust(place, reporters, sizes.seconds),
            }
            sides = {}
            try:
                for name in turns if number % 2 == 0 else reversed(turns):
                    tell(f"fan-in: {name}, {what}")
                    sides[name] = turns[name]()
            except (RunFailed, ServerMissing, MainstayError) as error:
                report.trouble.append(f"{what}: {error}")
            else:
                report.rounds.append(FanInRound(reporters=reporters, interval_s=interval_s(reporters), **sides))


def _find_limit(report: FanInReport, folder: Path, tell: Tell) -> None:
    sizes = report.sizes
    for reporters in (*sizes.reporters, *sizes.limit):
        tell(f"fan-in: limit, {reporters} reporters")
        place = folder / f"limit-{reporters}"
        place.mkdir()
        try:
            report.limits.append(run_mainstay(place, reporters, sizes.seconds))
        except (RunFailed, ServerMissing, MainstayError) as error:
            report.trouble.append(f"limit, {reporters} reporters: {error}")
            return
        if report.limits[-1].lag_ms > LAG_MS:
            return


def run_mainstay(folder: Path, reporters: int, seconds: int) -> OurFanIn:
    """A leader with as many slices."""
    place = folder / "mainstay"
    place.mkdir()
    with ExitStack() as up:
        server = up.enter_context(NatsCore(place, _BUS))
        url, job = server.url("all"), "job-1"
        slices = [sys.executable, "-m", "bench.fan_in_slices", url, job, str(reporters), ",".join(STEPS), str(REQUESTS)]
        up.enter_context(_running(slices, run_environment(), place / "slices"))
        _wait_for(place / "slices", "ready")
        leader = [sys.executable, "-m", "bench.fan_in_leader", url, job, str(reporters), str(seconds)]
        leading = up.enter_context(_running(leader, run_environment(), place / "leader"))
        try:
            leading.wait(seconds + 2 * _PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"the leader did not come to its end: {_end_of(place / 'leader')}") from None
    said = (place / "leader").read_text(errors="replace").splitlines()
    if leading.returncode or not said:
        raise RunFailed(f"the leader ended with {leading.returncode}: {_end_of(place / 'leader')}")
    led = msgspec.json.decode(said[-1], type=Led)
    if led.ended != "finished":
        raise RunFailed(f"the run did not come to its end: {_end_of(place / 'leader')}")
    return OurFanIn(
        reporters=reporters,
        per_reporter_ms=round(1000 * led.live_cpu_s / led.live_s / reporters, 4),
        core=round(led.live_cpu_s / led.live_s, 3),
        lag_ms=led.lag_ms,
        lag_p99_ms=led.lag_p99_ms,
        windows=led.taken,
        late=led.late,
    )


def run_locust(folder: Path, reporters: int, seconds: int) -> TheirFanIn:
    """A master with as many workers."""
    place = folder / LOCUST
    place.mkdir()
    port = free_port()
    python = environments.python_of(LOCUST)
    master = [
        *(str(python.parent / "locust"), "-f", str(HERE / "locust_load.py"), "--headless", "--only-summary"),
        *("--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", str(port)),
        *("--expect-workers", str(reporters), "-u", str(reporters), "-r", str(reporters)),
        *("-t", f"{seconds + 60}s", "--stop-timeout", "0"),
    ]
    workers = {
        **run_environment(),
        "BENCH_WORKERS": str(reporters),
        "BENCH_INTERVAL": str(interval_s(reporters)),
        "BENCH_REQUESTS": str(round(REQUESTS * interval_s(reporters) * 1000 / WINDOW_MS)),
        "BENCH_STEPS": ",".join(STEPS),
        "BENCH_MASTER": f"tcp://127.0.0.1:{port}",
    }
    environment = {**run_environment(), "BENCH_SCENARIO": "steps"}
    said, reported = place / "master", place / "workers"
    with (
        _running(master, environment, said) as receiver,
        _running([str(python), str(HERE / "locust_reporters.py")], workers, reported) as reporting,
    ):
        _wait_for(said, "All users spawned")
        time.sleep(_SETTLE_S)
        before, began_s = cpu_s(receiver.pid), time.monotonic()
        time.sleep(seconds)
        used_s, passed_s = cpu_s(receiver.pid) - before, time.monotonic() - began_s
        if receiver.poll() is not None or reporting.poll() is not None:
            raise RunFailed(f"it ended: {_end_of(said)}{_end_of(reported)}")
    return TheirFanIn(
        reporters=reporters,
        per_reporter_ms=round(1000 * used_s / passed_s / reporters, 4),
        core=round(used_s / passed_s, 3),
    )


@contextmanager
def _running(command: list[str], environment: dict[str, str], said: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that writes what it says into a file. It does not outlive this."""
    with said.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _wait_for(said: Path, word: str) -> None:
    ends_s = time.monotonic() + _READY_S
    while word not in said.read_text(errors="replace"):
        if time.monotonic() > ends_s:
            raise RunFailed(f"{word!r} was not said in {_READY_S:.0f} s: {_end_of(said)}")
        time.sleep(0.1)


def _end_of(said: Path) -> str:
    return said.read_text(errors="replace")[-2000:]


__all__ = ["FanInReport", "FanInRound", "FanInSizes", "OurFanIn", "TheirFanIn", "interval_s", "measure"]

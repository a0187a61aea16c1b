"""A load test on four nodes, beside Locust with a master and four workers: requests for a second of processor time.

Both load the same nginx, with as many processes that make requests, over as many connections, for as long, in turns;
who begins changes with each round. The cluster is up before its run, as it is where it is used, and down while Locust
runs. The processor time is that of all processes of a side: master and workers; bus, manager, nodes, generators and
the command.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

import servers
from mainstay.errors import MainstayError
from servers import Nginx, ServerMissing

from . import environments
from .environments import InstallFailed
from .first_requests import first_requests
from .load_nodes_sides import LOCUST, NodesJob, SideRun, run_locust, run_mainstay
from .load_nodes_start import NodesStart, start_once
from .load_runs import RunFailed
from .local_nodes import NodesNotReady, local_nodes
from .queues import Tell
from .runs import Run, begun

SCENARIOS = ("load_nodes_cpu", "load_nodes_start")
#: times as many requests for a second of processor time as Locust
GOAL = 8.0
#: between the first requests of two nodes
SKEW_MS = 20.0


class NodesSizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is done."""

    nodes: int = 4
    connections: tuple[int, ...] = (40, 200)
    """in all"""
    seconds: int = 15
    rounds: int = 3
    starts: int = 10


class NodesRound(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of both."""

    connections: int
    mainstay: SideRun
    locust: SideRun

    @property
    def ratio(self) -> float:
        return self.mainstay.per_cpu_s / self.locust.per_cpu_s

    @property
    def whole_ratio(self) -> float:
        """With the start of the command, which is that of the workers, too, on the side of Locust."""
        return self.mainstay.per_whole_cpu_s / self.locust.per_whole_cpu_s


class LoadNodesReport(Run, kw_only=True):
    """What a run found, as it is kept."""

    sizes: NodesSizes
    load_after: float = 0.0
    """the load average at the end; the processes that were measured are in it"""
    skipped: dict[str, str] = msgspec.field(default_factory=dict)
    trouble: list[str] = msgspec.field(default_factory=list)
    rounds: list[NodesRound] = msgspec.field(default_factory=list)
    starts: list[NodesStart] = msgspec.field(default_factory=list)

    def of(self, connections: int) -> list[NodesRound]:
        """The rounds with this number of connections."""
        return [each for each in self.rounds if each.connections == connections]

    def ratio(self, connections: int) -> float:
        """The median of the rounds."""
        return statistics.median(each.ratio for each in self.of(connections))

    @property
    def skew_ms(self) -> float:
        """The largest, as the target saw it."""
        return max((each.skew_ms for each in self.starts), default=0.0)


def measure(scenarios: Sequence[str], sizes: NodesSizes, tell: Tell) -> LoadNodesReport:
    """Run the scenarios. What cannot be set up is skipped, with the reason; what fails is in `trouble`."""
    began_s = time.monotonic()
    with servers.folder("mainstay-bench-") as folder:
        report = LoadNodesReport(**begun(folder), sizes=sizes)
        if "load_nodes_cpu" in scenarios:
            _compare(report, folder, tell)
        if "load_nodes_start" in scenarios:
            _start(report, folder, tell)
    report.took_s = round(time.monotonic() - began_s, 1)
    report.load_after = round(os.getloadavg()[0], 1)
    return report


def _compare(report: LoadNodesReport, folder: Path, tell: Tell) -> None:
    sizes = report.sizes
    try:
        report.versions[LOCUST] = environments.version(environments.python_of(LOCUST), LOCUST)
        target = Nginx(folder, connections=2 * max(sizes.connections) + 100)
    except (InstallFailed, ServerMissing) as error:
        report.skipped["load_nodes_cpu"] = str(error)
        return
    report.versions["nginx"] = target.version
    try:
        for number in range(sizes.rounds):
            for connections in sizes.connections:
                what = f"{connections} connections, round {number + 1} of {sizes.rounds}"
                job = NodesJob(nodes=sizes.nodes, connections=connections, seconds=sizes.seconds)
                place = folder / f"{connections}-{number}"
                try:
                    sides = _turns(
                        target, place, job, lambda side, what=what: tell(f"load-nodes: {side}, {what}"), number
                    )
                except (RunFailed, NodesNotReady, MainstayError) as error:
                    report.trouble.append(f"{what}: {error}")
                else:
                    report.rounds.append(NodesRound(connections=connections, **sides))
    finally:
        target.stop()


def _turns(target: Nginx, folder: Path, job: NodesJob, tell: Tell, number: int) -> dict[str, SideRun]:
    def ours() -> SideRun:
        tell("Mainstay")
        with local_nodes(folder / "cluster", job.nodes) as nodes:
            return run_mainstay(nodes, target, folder / "mainstay", job)

    def theirs() -> SideRun:
        tell("Locust")
        return run_locust(target, folder / LOCUST, job)

    turns: dict[str, Callable[[], SideRun]] = {"mainstay": ours, LOCUST: theirs}
    return {name: turns[name]() for name in (turns if number % 2 == 0 else reversed(turns))}


def _start(report: LoadNodesReport, folder: Path, tell: Tell) -> None:
    sizes = report.sizes
    try:
        with first_requests() as target, local_nodes(folder / "starts", sizes.nodes) as nodes:
            for number in range(sizes.starts):
                tell(f"load-nodes: start {number + 1} of {sizes.starts}")
                report.starts.append(start_once(nodes, target, folder / f"start{number}", sizes.nodes))
    except (RunFailed, NodesNotReady, MainstayError) as error:
        report.trouble.append(f"start: {error}")

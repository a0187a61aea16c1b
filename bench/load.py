"""Load generators beside each other: the same requests, to one nginx, over as many connections, for as long."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

import servers
from servers import Nginx, ServerMissing
from servers.programs import package_version, program

from . import environments, load_limits, load_runs
from .environments import InstallFailed
from .load_limits import Crowd
from .load_runs import Job, Ran, RunFailed
from .peers.load.catalog import LOAD_OURS, LOAD_PEERS, SCENARIOS as WORK, US, LoadSystem
from .queues import Tell
from .runs import Run, begun

COMPARED = tuple(f"load_{name}" for name in WORK)
SCENARIOS = (*COMPARED, "load_users")


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How long, and over how much."""

    seconds: int = 6
    connections: tuple[int, ...] = (10, 50)
    rounds: int = 3
    """In each, everyone has a turn."""
    users: int = 10_000
    """In one process, each with a connection of its own."""


class Case(msgspec.Struct, kw_only=True):
    """One generator at one kind of work."""

    scenario: str
    connections: int
    rounds: list[Ran] = []

    def median(self, read: Callable[[Ran], float]) -> float:
        return statistics.median(map(read, self.rounds))


class Found(msgspec.Struct, kw_only=True):
    """All that was measured of one generator."""

    name: str
    title: str
    version: str
    setting: str
    lacks: str = ""
    scriptable: bool
    cases: list[Case] = []
    trouble: list[str] = []

    @property
    def ours(self) -> bool:
        return self.name == US

    def case(self, scenario: str, connections: int) -> Case | None:
        """None if it did not get through a single round."""
        return next(
            (
                case
                for case in self.cases
                if (case.scenario, case.connections) == (scenario, connections) and case.rounds
            ),
            None,
        )


class Report(Run, kw_only=True):
    """What a run found, as it is kept."""

    sizes: Sizes
    skipped: dict[str, str] = msgspec.field(default_factory=dict)
    systems: list[Found] = msgspec.field(default_factory=list)
    crowd: Crowd | None = None

    @property
    def trouble(self) -> list[str]:
        found = [text for system in self.systems for text in system.trouble]
        return [*found, *(self.crowd.trouble if self.crowd else [])]


class _Ready(msgspec.Struct, frozen=True):
    """A generator that is installed."""

    system: LoadSystem
    programs: dict[str, str]
    found: Found


def systems() -> dict[str, LoadSystem]:
    return {system.name: system for system in (*LOAD_PEERS, *LOAD_OURS)}


def measure(chosen: Sequence[str], scenarios: Sequence[str], sizes: Sizes, tell: Tell) -> Report:
    """Run the scenarios. What cannot be set up is skipped, with the reason."""
    began = time.monotonic()
    with servers.folder("mainstay-bench-") as folder:
        report = Report(**begun(folder), sizes=sizes)
        ready = [made for name in chosen if (made := _set_up(systems()[name], report, tell))]
        report.systems = [each.found for each in ready]
        try:
            target = Nginx(folder, connections=2 * sizes.users + 100)
        except ServerMissing as error:
            report.skipped["nginx"] = str(error)
            return report
        try:
            report.versions["nginx"] = target.version
            for scenario in (name for name in WORK if f"load_{name}" in scenarios):
                for connections in sizes.connections:
                    _compare(
                        ready,
                        target,
                        folder,
                        Job(scenario=scenario, connections=connections, seconds=sizes.seconds),
                        sizes.rounds,
                        tell,
                    )
            if "load_users" in scenarios and (ours := next((each for each in ready if each.found.ours), None)):
                tell(f"load: {sizes.users:,} users in one process")
                report.crowd = load_limits.measure(ours.system, ours.programs, target, folder, sizes.users)
        finally:
            target.stop()
    report.took_s = round(time.monotonic() - began, 1)
    return report


def _compare(ready: list[_Ready], target: Nginx, folder: Path, job: Job, rounds: int, tell: Tell) -> None:
    able = [each for each in ready if job.scenario in each.system.scenarios]
    cases = {each.system.name: Case(scenario=job.scenario, connections=job.connections) for each in able}
    for each in able:
        each.found.cases.append(cases[each.system.name])
    for number in range(rounds):
        for each in able:
            what = f"{job.scenario}, {job.connections} connections, round {number + 1} of {rounds}"
            tell(f"load: {each.system.title}, {what}")
            try:
                ran = load_runs.run(each.system, each.programs, target, folder / each.system.name, job)
            except RunFailed as error:
                each.found.trouble.append(f"{what}: {error}")
            else:
                cases[each.system.name].rounds.append(ran)


def _set_up(system: LoadSystem, report: Report, tell: Tell) -> _Ready | None:
    tell(f"setting up {system.title}")
    try:
        python = environments.python_of(system.requirements)
        path = program(system.program, system.program) if system.program else ""
    except (InstallFailed, ServerMissing) as error:
        report.skipped[system.name] = str(error)
        return None
    found = Found(
        name=system.name,
        title=system.title,
        version=environments.version(python, system.package) if system.package else package_version(system.program),
        setting=system.setting,
        lacks=system.lacks,
        scriptable=system.scriptable,
    )
    return _Ready(system, {"bin": str(python.parent), "program": path}, found)

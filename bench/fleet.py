"""Set up every system of a run, measure them, take everything down again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

import servers
from servers import Postgres, Redis, Server, ServerMissing

from . import environments, queues
from .distance import Wire, distance
from .environments import InstallFailed
from .peers.catalog import OURS, PEERS, System
from .peers.slots import Slots
from .queues import Found, Seat, Sizes, Tell
from .runs import Run, begun
from .stands import Stand
from .verdicts import Verdict, verdicts

SCENARIOS = ("throughput", "distance", "waiting", "kill")

_SERVERS: dict[str, Callable[[Path], Server]] = {
    "redis": Redis,
    # its defaults but for this: many systems are connected at once, each with a pool
    "postgresql": lambda folder: Postgres(folder, max_connections="400"),
}


class Report(Run, kw_only=True):
    """What a run found, as it is kept."""

    sizes: Sizes
    skipped: dict[str, str]
    wires: dict[str, Wire] = msgspec.field(default_factory=dict)
    """Round trips to each server, as it was and further away."""
    systems: list[Found]
    verdicts: list[Verdict] = msgspec.field(default_factory=list)


def systems() -> dict[str, System]:
    """By name, ourselves last."""
    return {system.name: system for system in (*PEERS, *OURS)}


def measure(chosen: Sequence[System], scenarios: Sequence[str], sizes: Sizes, tell: Tell) -> Report:
    """Run the scenarios on the systems. Those that cannot be set up are skipped, with the reason."""
    began = time.monotonic()
    with servers.folder("mainstay-bench-") as folder:
        report = Report(
            **begun(folder),
            sizes=sizes,
            skipped={},
            systems=[],
        )
        with contextlib.ExitStack() as up:
            seats = _seats(chosen, scenarios, folder, report, up, tell)
            rated = [seat for seat in seats if seat.stand.system.jobs]
            marks = Slots(folder / "slots")
            if "throughput" in scenarios:
                queues.throughput(rated, marks, sizes, tell)
            if "distance" in scenarios:
                report.wires = distance(rated, marks, sizes, tell)
            if "waiting" in scenarios:
                queues.waiting(rated, marks, sizes, tell)
            if "kill" in scenarios:
                # of the same system run wider, the same becomes of its jobs
                queues.kill(
                    [seat for seat in seats if not (seat.stand.system.jobs and seat.found.variant_of)], sizes, tell
                )
    report.took_s = round(time.monotonic() - began, 1)
    report.verdicts = verdicts(report.systems)
    return report


def _seats(
    chosen: Sequence[System],
    scenarios: Sequence[str],
    folder: Path,
    report: Report,
    up: contextlib.ExitStack,
    tell: Tell,
) -> list[Seat]:
    servers: dict[str, Server] = {}
    seats = []
    for system in chosen:
        if not system.jobs and "kill" not in scenarios:
            continue
        tell(f"setting up {system.title}")
        try:
            python = environments.python_of(system.requirements)
            url = _url(system, folder, servers, up)
        except (InstallFailed, ServerMissing) as error:
            report.skipped[system.name] = str(error)
            continue
        own = folder / system.name
        own.mkdir()
        stand = Stand(system, python, url, own, folder / "slots")
        up.callback(stand.close)
        found = Found(
            name=system.name,
            title=system.title,
            version=environments.version(python, system.package),
            store=system.server or "sqlite",
            setting=system.setting,
            variant_of=system.variant_of,
        )
        report.systems.append(found)
        seats.append(Seat(stand, found))
    report.versions.update({kind: server.version for kind, server in servers.items()})
    return seats


def _url(system: System, folder: Path, servers: dict[str, Server], up: contextlib.ExitStack) -> str:
    """A database of its own on the server it needs, which is started for the first that needs it."""
    if system.server is None:
        return f"sqlite:///{folder / system.name / 'store' / 'jobs.db'}"
    if system.server not in servers:
        servers[system.server] = _SERVERS[system.server](folder)
        up.callback(servers[system.server].stop)
    url = servers[system.server].database(system.name.replace("-", "_"))
    return f"{url}?auto_migrate=on" if system in OURS else url

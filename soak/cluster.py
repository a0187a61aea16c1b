"""A cluster that starts and stops many times, and one that many nodes join at once: `python -m soak.cluster`.

After each cycle no process of it may be left, no file but those that the first cycles left, no listening port and no
descriptor of this process. Every second cycle ends while its node starts. A node is four processes of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from mainstay.cluster.address import parse_address
from mainstay.cluster.cluster_service import ClusterClient
from mainstay.cluster.local_cluster import LocalCluster, LocalClusterOptions
from mainstay.cluster.local_cluster_file import LocalClusterFile
from mainstay.errors import MainstayError

_MARK = "SOAK_OF_CLUSTERS"
_TARGET = "mainstay.cluster.hello:app"
_PATIENCE_S = 300.0
#: of these at the start, the files count as those that stay
_FIRST_CYCLES = 2


class CycleReport(msgspec.Struct, kw_only=True):
    """What the cycles left behind."""

    cycles: int
    took_s: float = 0.0
    left: list[str] = msgspec.field(default_factory=list)
    """processes, files, ports and descriptors that should be gone; empty: none"""


class JoinReport(msgspec.Struct, kw_only=True):
    """How many nodes joined at once, and what that cost."""

    nodes: int
    started_s: float = 0.0
    """until their processes were started"""
    active_s: float = 0.0
    """from then until the managers knew all of them as active, with all engines"""
    managers_cpu_s: float = 0.0
    """processor time of the managers in all"""
    left: list[str] = msgspec.field(default_factory=list)


async def cycles(number: int, folder: Path, tell: Callable[[str], None]) -> CycleReport:
    """Start and stop a cluster with one manager and one node."""
    report = CycleReport(cycles=number)
    begun_s = time.monotonic()
    kept: set[Path] = set()
    descriptors = 0
    for cycle in range(number):
        cluster = LocalCluster(LocalClusterOptions(folder=folder / "c", target=_TARGET, managers=1, grace_s=2.0))
        try:
            file = await cluster.start()
            port = cluster.bus.port
            if cycle % 2:
                await _active(file, 1)
        finally:
            await cluster.stop()
        report.left += [f"cycle {cycle}: {each}" for each in _left(port, folder / "temporary")]
        files, now = set(_files(folder / "c")), len(os.listdir("/proc/self/fd"))
        if cycle < _FIRST_CYCLES:
            kept, descriptors = kept | files, now
        else:
            report.left += [f"cycle {cycle}: file {path}" for path in sorted(files - kept)]
            if now > descriptors:
                report.left.append(f"cycle {cycle}: {now - descriptors} descriptors")
        tell(f"cycle {cycle + 1} of {number}, {len(report.left)} left behind")
    report.took_s = round(time.monotonic() - begun_s, 1)
    return report


async def join(number: int, folder: Path, tell: Callable[[str], None]) -> JoinReport:
    """Have nodes join three managers at once."""
    report = JoinReport(nodes=number)
    options = LocalClusterOptions(
        folder=folder / "c", target=_TARGET, managers=3, nodes=number, grace_s=2.0, log_level="error"
    )
    cluster = LocalCluster(options)
    begun_s = time.monotonic()
    try:
        file = await cluster.start()
        port = cluster.bus.port
        report.started_s = round(time.monotonic() - begun_s, 1)
        tell(f"{number} nodes started")
        started_s = time.monotonic()
        await _active(file, number)
        report.active_s = round(time.monotonic() - started_s, 1)
        managers = [process.pid for process in file.processes if process.role == "manager"]
        report.managers_cpu_s = round(sum(map(_cpu_s, managers)), 1)
        tell(f"{number} nodes active")
    finally:
        await cluster.stop()
    report.left = list(_left(port, folder / "temporary"))
    return report


async def _active(file: LocalClusterFile, nodes: int) -> None:
    """Return when this number of nodes is active, each with both of its engines."""
    bus = await parse_address(file.url).connect("operator", "soak", timeout_s=30)
    client = ClusterClient(bus, name="soak", cluster=file.cluster)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                with contextlib.suppress(MainstayError):
                    found = await client.status()
                    if sum(each.state == "active" and len(each.beat.sessions) > 1 for each in found.nodes) >= nodes:
                        return
                await asyncio.sleep(0.1)
    finally:
        await bus.close()


def _left(port: int, temporary: Path) -> Iterator[str]:
    """What should be gone."""
    mark = f"{_MARK}={os.environ[_MARK]}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(folder.name) != os.getpid() and mark in (folder / "environ").read_bytes().split(b"\0"):
                yield f"process {folder.name}: {(folder / 'cmdline').read_bytes().decode().replace(chr(0), ' ')}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
            yield f"port {port}"
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        if str(temporary.parent) in line:
            yield f"socket {line.split()[-1]}"
    yield from (f"file {path}" for path in _files(temporary))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if not path.is_dir())


def _cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.cluster", description=__doc__)
    parser.add_argument("--cycles", type=int, default=200, help="starts and stops; 0: none")
    parser.add_argument("--nodes", type=int, default=50, help="nodes that join at once; 0: none")
    parser.add_argument("--json", type=Path, help="where the reports go, too")
    given = parser.parse_args()
    os.environ[_MARK] = secrets.token_hex(8)

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    reports: list[CycleReport | JoinReport] = []
    with tempfile.TemporaryDirectory(prefix="soak-cluster-") as name:
        for work, number in ((cycles, given.cycles), (join, given.nodes)):
            if number:
                folder = Path(name) / work.__name__
                (folder / "temporary").mkdir(parents=True)
                os.environ["TMPDIR"] = str(folder / "temporary")
                reports.append(asyncio.run(work(number, folder, tell)))
    for report in reports:
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
    if given.json is not None:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(reports)) + b"\n")
    return 1 if any(report.left for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())

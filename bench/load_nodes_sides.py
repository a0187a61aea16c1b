"""One run of a distributed load test: what it says it did, what the target says it did, and what that cost. Linux only.

A side is a command that leads a run, and processes beside it: the workers of Locust, or a whole cluster. The processor
time is that of all of them. What counts is from soon after the first request to the end of the run, as in `load_runs`;
the whole run, from the start of the command, is measured beside it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import Popen

import msgspec

from mainstay.load.stats.model import SliceReport
from servers import Nginx
from servers.server import free_port

from . import environments
from .environments import ROOT
from .load_runs import HERE, AnswerCount, RunFailed, first_request, started, tail, wait_until
from .local_nodes import LocalNodes
from .peers.load.catalog import LOAD_OURS, LOAD_PEERS
from .process_trees import TreeUse, roles_of, use_of
from .stands import rss_mb

LOCUST, MAINSTAY = "locust", "mainstay"
GENERATORS = "generators"

_WARM, _RATED = 1 / 6, 9 / 10
"""Parts of the seconds of a run: it counts after the first; the rate and the shares of the roles are taken up to the
second, before anything ends."""
_END_S = 30.0
"""For the processes of a run to end once its command has."""
_UNTRUE = 0.02
_GENERATOR = "mainstay.load.engine.main"


class NodesJob(msgspec.Struct, frozen=True, kw_only=True):
    """What both sides are to do."""

    nodes: int
    """machines, or workers: each with one process that makes requests"""
    connections: int
    seconds: int


class SideRun(msgspec.Struct, kw_only=True):
    """What one side did in one run."""

    requests: int
    """as its report says"""
    failed: int
    served: int
    """as the target says"""
    connections: int
    """the most that were open at the target at once"""
    took_s: float
    start_s: float
    """from the start of its command to the first request that the target answered"""
    rate: float
    """requests a second, before the end"""
    cpu_s: float
    """of all processes, from the start of the command to the end of the run"""
    warm_served: int
    """from soon after the first request to the end"""
    warm_cpu_s: float
    """of all processes, in the same time"""
    memory_mb: float
    """resident, of all processes together; pages that they share are counted for each"""
    processes: int
    shares: dict[str, float]
    """of the processor time under load, by role"""
    slices: list[SliceReport] = []
    """of our side: the part of each node"""
    job: str = ""
    """of our side: its id"""

    @property
    def per_cpu_s(self) -> float:
        """Requests for a second of processor time of all processes, under load."""
        return self.warm_served / self.warm_cpu_s

    @property
    def per_whole_cpu_s(self) -> float:
        """The same over the whole run."""
        return self.served / self.cpu_s


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """The processes beside the command."""

    roots: Mapping[str, list[int]]
    """by role"""
    are_done: Callable[[], bool]
    """whether nothing of a run is left among them"""


def run_locust(target: Nginx, folder: Path, job: NodesJob) -> SideRun:
    """A master and its workers, which start and end with the run."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "counted.json"
    out.unlink(missing_ok=True)
    program = str(environments.python_of("locust").parent / "locust")
    script, port = str(HERE / "locust_load.py"), str(free_port())
    env = {**run_environment(), "BENCH_SCENARIO": "get", "BENCH_BASE": target.url("")}
    master = [
        *(program, "-f", script, "--headless", "--only-summary", "--exit-code-on-error", "0"),
        *("--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port),
        *("--expect-workers", str(job.nodes), "--json-file", str(out.with_suffix(""))),
        *("-u", str(job.connections), "-r", str(job.connections), "-t", f"{job.seconds}s"),
    ]
    worker = [program, "-f", script, "--worker", "--master-host", "127.0.0.1", "--master-port", port]
    with contextlib.ExitStack() as up:
        before = _Before(use_of([]), time.monotonic())
        workers = []
        for number in range(job.nodes):
            own = folder / f"worker{number}"
            own.mkdir(exist_ok=True)
            workers.append(up.enter_context(started(worker, env, own)))
        beside = Beside(
            roots={"workers": [process.pid for process in workers]},
            are_done=lambda: all(process.poll() is not None for process in workers),
        )
        (locust,) = (system for system in LOAD_PEERS if system.name == LOCUST)
        return _run(master, env, folder, before, beside, target, job, lambda said: locust.counted(said, out))


def run_mainstay(nodes: LocalNodes, target: Nginx, folder: Path, job: NodesJob) -> SideRun:
    """A run on the nodes of a cluster, which is up before and stays up."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "counted.json"
    out.unlink(missing_ok=True)
    roots = nodes.roots()
    beside = Beside(roots=roots, are_done=lambda: not generators(roots))
    before = _Before(use_of(pid for pids in roots.values() for pid in pids), time.monotonic())
    command = load_command(nodes.url, target.url(""), out, job)
    ran = _run(command, run_environment(), folder, before, beside, target, job, lambda said: _counted(said, out))
    ran.slices, ran.job = slices_in(out)
    return ran


def load_command(cluster: str, base: str, out: Path, job: NodesJob, *more: str) -> list[str]:
    """How a user runs a load test on the nodes of a cluster."""
    return [
        *(sys.executable, "-m", "mainstay", "load", "run", "--ui", "none", "--json", str(out)),
        *("--cluster", cluster, "--nodes", str(job.nodes), "--processes", str(job.nodes)),
        *("--base-url", base, "--vus", str(job.connections), "--duration", f"{job.seconds}s"),
        *(*more, str(HERE / "mainstay_load.py"), "Get"),
    ]


def run_environment() -> dict[str, str]:
    """Of the commands of both sides: their tests import a module of this folder."""
    # an interpreter that may not keep what it compiled would show in the start, of some and not of others
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(ROOT)}


def slices_in(out: Path) -> tuple[list[SliceReport], str]:
    """The part of each node, and the id of the job, from the report of a run."""
    told = msgspec.json.decode(out.read_bytes())
    return msgspec.convert(told.get("slices", []), list[SliceReport]), told["header"]["run"]


def generators(roots: Mapping[str, list[int]]) -> list[int]:
    """The processes of a cluster that make requests, or get ready to."""
    return [pid for pid, role in roles_of(roots, {_GENERATOR: GENERATORS}).items() if role == GENERATORS]


def _counted(said: str, out: Path) -> tuple[int, int]:
    return LOAD_OURS[0].counted(said, out)


class _Before(msgspec.Struct, frozen=True):
    use: TreeUse
    at_s: float


def _run(
    command: list[str],
    env: dict[str, str],
    folder: Path,
    before: _Before,
    beside: Beside,
    target: Nginx,
    job: NodesJob,
    counted: Callable[[str], tuple[int, int]],
) -> SideRun:
    count = AnswerCount(target)
    with started(command, env, folder) as process:
        roots = {**beside.roots, "command": [process.pid]}
        pids = [pid for each in roots.values() for pid in each]
        first_s = first_request(process, count)
        early = _mark(process, pids, count, first_s + job.seconds * _WARM)
        late = _mark(process, pids, count, first_s + job.seconds * _RATED)
        roles = roles_of(roots, {_GENERATOR: GENERATORS})
        memory_mb = sum(rss_mb(pid) or 0.0 for pid in roles)
        wait_until(process, lambda: False)
        ended = _in_time(beside.are_done)
        use, served, took_s = use_of(pids), count.served(), time.monotonic() - before.at_s
    said = (folder / "said").read_text(errors="replace")
    if process.returncode != 0 or early is None or late is None or not ended:
        how = f"ended with {process.returncode}" if process.returncode else "did not do it"
        raise RunFailed(
            f"{command[0]} {how} after {took_s:.0f} s, and {served:,} requests were answered:\n{tail(said)}"
        )
    if use.total_s < late.use.total_s:
        # a process that nothing waited for took its time with it
        raise RunFailed(f"{late.use.total_s - use.total_s:.1f} s of processor time were lost at the end of the run")
    try:
        requests, failed = counted(said)
    except (OSError, ValueError, KeyError) as error:
        raise RunFailed(f"{command[0]} left no counts ({error!r}):\n{tail(said)}") from error
    if abs(served - requests) > _UNTRUE * served + 2 * job.connections:
        raise RunFailed(f"{command[0]} says {requests:,} requests, and its target {served:,}")
    return SideRun(
        requests=requests,
        failed=failed,
        served=served,
        connections=count.connections,
        took_s=round(took_s, 2),
        start_s=round(first_s - before.at_s, 3),
        rate=round((late.served - early.served) / (late.use.at_s - early.use.at_s), 1),
        cpu_s=round(use.total_s - before.use.total_s, 2),
        warm_served=served - early.served,
        warm_cpu_s=round(use.total_s - early.use.total_s, 2),
        memory_mb=round(memory_mb, 1),
        processes=len(roles),
        shares=_shares(early.use, late.use, roles),
    )


class _Mark(msgspec.Struct, frozen=True):
    use: TreeUse
    served: int


def _mark(process: Popen[bytes], pids: list[int], count: AnswerCount, when_s: float) -> _Mark | None:
    """None if it ended before."""
    if wait_until(process, lambda: time.monotonic() >= when_s):
        return None
    return _Mark(use_of(pids), count.served())


def _in_time(reached: Callable[[], bool]) -> bool:
    ends_s = time.monotonic() + _END_S
    while not reached():
        if time.monotonic() > ends_s:
            return False
        time.sleep(0.05)
    return True


def _shares(early: TreeUse, late: TreeUse, roles: Mapping[int, str]) -> dict[str, float]:
    used: dict[str, float] = {}
    for pid, own_s in late.own_s.items():
        role = roles.get(pid, "other")
        used[role] = used.get(role, 0.0) + own_s - early.own_s.get(pid, 0.0)
    whole = sum(used.values()) or 1.0
    return {role: round(used[role] / whole, 4) for role in sorted(used)}

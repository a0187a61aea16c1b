"""How a run on nodes begins: how far apart its nodes start, and how long after its submit.

The start of each node is told twice: by the target, which notes the first request of each generator process, and by the
report of the run (`SliceReport`), by the clock of the node.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from .first_requests import FirstRequest, FirstRequests
from .load_nodes_sides import NodesJob, generators, load_command, run_environment, slices_in
from .load_runs import RunFailed, started, tail, wait_until
from .local_nodes import LocalNodes
from .process_trees import roles_of

#: between requests of a user: the target and the generators have nothing to do when all of them start
_THINK = "100ms"
_SECONDS = 2
#: after the first request, for the others
_LATER_S = 1.0


class NodesStart(msgspec.Struct, frozen=True, kw_only=True):
    """The start of one run."""

    skew_ms: float
    """between the first requests of the first node and of the last, as the target noted them"""
    reported_ms: float
    """the same as the nodes report it, by the agreed instant"""
    doubt_ms: float
    """how far the clock of a node may be off, at most"""
    submitted_s: float
    """from the insert of the job to the first request"""
    command_s: float
    """from the start of the command to the first request"""
    nodes: int


def start_once(nodes: LocalNodes, target: FirstRequests, folder: Path, count: int) -> NodesStart:
    """One short run with a user on each node."""
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "counted.json"
    out.unlink(missing_ok=True)
    target.clear()
    job = NodesJob(nodes=count, connections=count, seconds=_SECONDS)
    command = load_command(nodes.url, target.url, out, job, "--think", _THINK)
    begun_s = time.monotonic()
    with started(command, run_environment(), folder) as process:
        wait_until(process, lambda: target.has_begun)
        later_s = time.monotonic() + _LATER_S
        wait_until(process, lambda: time.monotonic() > later_s)
        first = _by_node(nodes, target.by_process())
        wait_until(process, lambda: False)
    if process.returncode != 0 or not out.exists():
        raise RunFailed(
            f"the run ended with {process.returncode}:\n{tail((folder / 'said').read_text(errors='replace'))}"
        )
    ends_s = time.monotonic() + _LATER_S * 10
    while generators(nodes.roots()) and time.monotonic() < ends_s:
        time.sleep(0.05)
    slices, job_id = slices_in(out)
    if len(first) != count or len(slices) != count:
        raise RunFailed(f"{len(first)} of {count} nodes made requests, and {len(slices)} slices are in the report")
    steady = [each.steady_s for each in first.values()]
    late = [each.start_late_s for each in slices]
    return NodesStart(
        skew_ms=round((max(steady) - min(steady)) * 1000, 2),
        reported_ms=round((max(late) - min(late)) * 1000, 2),
        doubt_ms=round(max(each.clock_doubt_s or 0.0 for each in slices) * 1000, 2),
        submitted_s=round((min(each.wall_ms for each in first.values()) - nodes.job(job_id).created_ms) / 1000, 3),
        command_s=round(min(steady) - begun_s, 3),
        nodes=len(first),
    )


def _by_node(nodes: LocalNodes, by_process: dict[int, FirstRequest]) -> dict[str, FirstRequest]:
    """The last of its processes to begin is the start of a node; what is of no node is left out."""
    owners = roles_of({name: [pid] for name, pid in nodes.node_pids().items()}, {})
    found: dict[str, FirstRequest] = {}
    for pid, first in by_process.items():
        node = owners.get(pid)
        if node is not None and (node not in found or first.steady_s > found[node].steady_s):
            found[node] = first
    return found

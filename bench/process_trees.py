"""Processor time of processes and of all that they start, also of what has ended since. Reads /proc, so Linux only.

A process that ends leaves its time to the one that waits for it. So the sum over a tree, with the times of ended
children, loses nothing while the tree lives; that of a whole tree that has ended is with this process.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from .load_runs import children_s


class TreeUse(msgspec.Struct, frozen=True):
    """The use of some trees at one moment. Only the difference of two means something."""

    at_s: float
    total_s: float
    """of all processes, those included that have ended"""
    own_s: dict[int, float]
    """by process that is alive, without its children"""


def use_of(roots: Iterable[int]) -> TreeUse:
    """Of these processes and all their descendants."""
    wanted = set(roots)
    while True:
        ended_s = children_s()
        table = _table()
        # else a child of ours was waited for in between, and would count twice or not at all
        if children_s() == ended_s:
            break
    found = {pid: table[pid] for pid in _family(table, wanted)}
    return TreeUse(
        time.monotonic(),
        ended_s + sum(entry.own_s + entry.ended_s for entry in found.values()),
        {pid: entry.own_s for pid, entry in found.items()},
    )


def roles_of(roots: Mapping[str, Iterable[int]], programs: Mapping[str, str]) -> dict[int, str]:
    """By process: the role of the root that it descends from, or that of its own program. `programs`: a word in the
    command line of a process, and its role."""
    table = _table()
    found = {pid: role for role, pids in roots.items() for pid in _family(table, set(pids))}
    for pid, role_of_root in found.items():
        line = _command_line(pid)
        found[pid] = next((role for word, role in programs.items() if word in line), role_of_root)
    return found


def owners_of_ports(ports: Iterable[int]) -> dict[int, int]:
    """By local TCP port over IPv4: the process that has a connection from there."""
    wanted = set(ports)
    by_inode = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        port = int(fields[1].rpartition(":")[2], 16)
        if port in wanted:
            by_inode[f"socket:[{fields[9]}]"] = port
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                for descriptor in (entry / "fd").iterdir():
                    with contextlib.suppress(OSError):
                        if (port_of := by_inode.get(os.readlink(descriptor))) is not None:
                            found[port_of] = int(entry.name)
    return found


class _Entry(NamedTuple):
    """A process; one that has ended and was not waited for is still in the table."""

    parent: int
    session: int
    own_s: float
    ended_s: float


def _table() -> dict[int, _Entry]:
    tick = os.sysconf("SC_CLK_TCK")
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # after the name, which stands in brackets and may hold anything
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                user, system, ended_user, ended_system = (int(field) / tick for field in fields[11:15])
                table[int(entry.name)] = _Entry(
                    int(fields[1]), int(fields[3]), user + system, ended_user + ended_system
                )
    return table


def _family(table: Mapping[int, _Entry], roots: set[int]) -> set[int]:
    """Those of the sessions that the roots lead, and their descendants."""
    found = {pid for pid, entry in table.items() if pid in roots or entry.session in roots}
    while True:
        more = {pid for pid, entry in table.items() if entry.parent in found} - found
        if not more:
            return found
        found |= more


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""

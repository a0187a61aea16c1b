"""How other commands find a cluster that `mainstay cluster up` started: its folder, which one command holds at a time,
and the file in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path

import msgspec

from ..errors import InvalidInput

#: where `cluster up` keeps its files, below the current folder
FOLDER = Path(".mainstay/cluster")
FILE = "cluster.json"
_TRIES, _PAUSE_S = 5, 0.02


class RunningProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a local cluster."""

    role: str
    """bus, manager or node"""
    name: str
    pid: int
    """0: it has ended, and is started again in a moment"""


class LocalClusterFile(msgspec.Struct, frozen=True, kw_only=True):
    """What other commands read to find the cluster. It contains a password."""

    cluster: str
    url: str
    """for operators"""
    node_url: str
    """for nodes that join on this machine"""
    store: str
    processes: list[RunningProcess]


class ClusterFolder:
    """The folder of a local cluster, held by the command that runs the cluster.

    The hold is a lock of the operating system: it ends with the command, also when that is killed. So a file that a
    killed command left is not taken for a running cluster, whatever process has got one of its process ids since.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def hold(self) -> None:
        """Take the folder; raises `InvalidInput` if another command holds it."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.path, os.O_RDONLY)
        for _ in range(_TRIES):  # a command that looks whether a cluster runs holds it for a moment
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._descriptor = descriptor
                return
            time.sleep(_PAUSE_S)
        os.close(descriptor)
        rule = f"a cluster is running already in {self.path}; stop it, or choose another --folder"
        raise InvalidInput("folder", rule)

    def write(self, content: LocalClusterFile) -> None:
        """Write the file: whole, and readable by its user only."""
        temporary = self.path / f"{FILE}.new"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(msgspec.json.encode(content))
        temporary.replace(self.path / FILE)

    def release(self) -> None:
        """Remove the file, and give the folder back. Safe to call twice."""
        if self._descriptor >= 0:
            (self.path / FILE).unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def read_cluster_file(folder: Path) -> LocalClusterFile:
    """The running cluster of a folder; raises `FileNotFoundError` if there is none."""
    content = (folder / FILE).read_bytes()
    if not _is_held(folder):
        raise FileNotFoundError(f"the cluster of {folder} has ended")
    return msgspec.json.decode(content, type=LocalClusterFile)


def kill_process(folder: Path, name: str) -> RunningProcess:
    """Kill one process of a local cluster without warning, to see what happens."""
    try:
        found = read_cluster_file(folder)
    except FileNotFoundError:
        raise InvalidInput("folder", f"no cluster runs in {folder}; start one: mainstay cluster up") from None
    for process in found.processes:
        if process.name == name:
            if not process.pid:
                raise InvalidInput("name", f"{name} has ended, and is started again in a moment")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return process
    known = ", ".join(process.name for process in found.processes)
    raise InvalidInput("name", f"{name!r} is not a process of this cluster (its processes: {known})")


def _is_held(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


__all__ = ["FOLDER", "ClusterFolder", "LocalClusterFile", "RunningProcess", "kill_process", "read_cluster_file"]

"""A system set up to be measured: its producer, its workers, and what they noted. Reads /proc, so Linux only."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .environments import ROOT
from .peers.catalog import System

_LOG_LINES = 12


class StandFailed(Exception):
    """A producer or worker of a system did not do its part."""


class Workers:
    """The worker processes of one system, their children included."""

    def __init__(self, commands: list[list[str]], env: dict[str, str], folder: Path) -> None:
        with (folder / "worker.log").open("ab") as log:
            self._processes = [
                subprocess.Popen(
                    command,
                    env=env,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                for command in commands
            ]

    def kill(self) -> None:
        """SIGKILL every process at once, as the loss of their machine would."""
        # twice: a child may have been born between the look and the blow
        for _ in range(2):
            for pid in self._pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def died(self) -> bool:
        return any(process.poll() is not None for process in self._processes)

    def cpu_s(self) -> float:
        """Processor time that those alive have used."""
        return sum(map(cpu_s, self._pids()))

    def memory_mb(self) -> tuple[float, float]:
        """Resident and proportional set size of all of them; pages shared by forks count once in the latter."""
        sums = {"Rss:": 0, "Pss:": 0}
        for pid in self._pids():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    field, *rest = line.split()
                    if field in sums:
                        sums[field] += int(rest[0])
        return sums["Rss:"] / 1024, sums["Pss:"] / 1024

    def peaks_mb(self) -> list[float]:
        """The most that each of those alive has been resident with."""
        return [peak for pid in self._pids() if (peak := peak_mb(pid)) is not None]

    def _pids(self) -> set[int]:
        """Descendants, and whoever is still in a session that we started."""
        mine = {process.pid for process in self._processes if process.returncode is None}
        return mine | family({process.pid for process in self._processes})


def family(roots: set[int]) -> set[int]:
    """Those alive of the sessions that these processes lead, and their descendants, in whatever session."""
    table = _process_table()
    found = {pid for pid, (_, session) in table.items() if session in roots}
    while True:
        more = {pid for pid, (parent, _) in table.items() if parent in found} - found
        if not more:
            return found
        found |= more


def cpu_s(pid: int) -> float:
    """Processor time that a process has used; 0 of one that is gone."""
    try:
        fields = _stat(Path(f"/proc/{pid}"))
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float | None:
    """The most that a process has been resident with; None of one that is gone."""
    return _memory_mb(pid, "VmHWM:")


def rss_mb(pid: int) -> float | None:
    """What a process is resident with; None of one that is gone."""
    return _memory_mb(pid, "VmRSS:")


def _memory_mb(pid: int, field: str) -> float | None:
    try:
        _, _, rest = Path(f"/proc/{pid}/status").read_text().partition(field)
        return int(rest.split()[0]) / 1024
    # of one that has ended and was not waited for, there is no memory any more
    except (OSError, IndexError):
        return None


def _process_table() -> dict[int, tuple[int, int]]:
    """Parent and session of every process."""
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = _stat(entry)
                if fields[0] != "Z":
                    table[int(entry.name)] = int(fields[1]), int(fields[3])
    return table


def _stat(process: Path) -> list[str]:
    """The fields after the name, which stands in brackets and may hold anything: state, parent, ..."""
    return (process / "stat").read_text().rpartition(")")[2].split()


class Stand:
    """One system with a database of its own."""

    def __init__(self, system: System, python: Path, url: str, folder: Path, slots: Path) -> None:
        self.system = system
        self.url = url
        self.starts = folder / "starts"
        self._python = python
        self._slots = slots
        self._bin = str(python.parent)
        self._folder = folder
        self._env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PATH": f"{self._bin}{os.pathsep}{os.environ.get('PATH', '')}",
            "BENCH_URL": url,
            "BENCH_SLOTS": str(slots),
            "BENCH_STARTS": str(self.starts),
            **system.env,
        }
        with (folder / "producer.log").open("ab") as log:
            self._producer = subprocess.Popen(
                [python, "-m", "bench.peers.producer", system.app],
                env=self._env,
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def over(self, url: str) -> Stand:
        """The same system, database and all, by another way to its server."""
        folder = self._folder / str(len(list(self._folder.iterdir())))
        folder.mkdir()
        return Stand(self.system, self._python, url, folder, self._slots)

    def ask(self, do: str, **given: object) -> Any:
        """Have the producer do something; see `bench.peers.producer`."""
        assert self._producer.stdin is not None
        assert self._producer.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._producer.stdin.write(json.dumps({"do": do, **given}) + "\n")
            self._producer.stdin.flush()
        if not (line := self._producer.stdout.readline()):
            raise StandFailed(f"the producer of {self.system.title} ended at `{do}`:\n{self._tail('producer.log')}")
        return json.loads(line)

    @contextlib.contextmanager
    def workers(self, n: int, extra_env: dict[str, str] | None = None) -> Iterator[Workers]:
        """n worker processes, killed at the end: the next run starts from an empty database."""
        env = {**self._env, **(self.system.crowd_env if n > 1 else {}), **(extra_env or {})}
        workers = Workers(self.system.commands(self._bin, n), env, self._folder)
        try:
            yield workers
        finally:
            workers.kill()

    def failed(self, what: str) -> StandFailed:
        return StandFailed(f"{self.system.title}: {what}; its worker said last:\n{self._tail('worker.log')}")

    def close(self) -> None:
        self._producer.kill()
        self._producer.communicate()

    def _tail(self, log: str) -> str:
        return "\n".join((self._folder / log).read_text(errors="replace").splitlines()[-_LOG_LINES:])

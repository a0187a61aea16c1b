"""One run of a suite: when, on what machine, with which versions."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec


class Run(msgspec.Struct, kw_only=True):
    """What every suite keeps of a run, beside what it found."""

    at: str
    took_s: float = 0.0
    load_before: float = 0.0
    """The load average when it began: what others did on the machine."""
    machine: dict[str, str]
    versions: dict[str, str]

    def told(self) -> list[str]:
        """In a sentence or two."""
        facts = ", ".join([*self.machine.values(), *(f"{name} {version}" for name, version in self.versions.items())])
        lines = [f"Measured on {self.at} in {self.took_s / 60:.0f} minutes: {facts}."]
        if self.load_before > 0.5:
            lines.append(f"The machine was busy with other work when it began (load average {self.load_before}).")
        return lines


def begun(folder: Path) -> dict[str, Any]:
    """The fields of a run that begins now, with its databases in a folder."""
    return {
        "at": time.strftime("%Y-%m-%d"),
        "load_before": round(os.getloadavg()[0], 1),
        "machine": _machine(folder),
        "versions": {"python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()},
    }


def _machine(folder: Path) -> dict[str, str]:
    """What the run is on, in a few words each."""
    memory = next(_fields("/proc/meminfo", "MemTotal"), "0 kB")
    return {
        "cpu": f"{os.cpu_count()} x {next(_fields('/proc/cpuinfo', 'model name'), platform.machine())}",
        "memory": f"{round(int(memory.split()[0]) / 1024**2)} GB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "disk": _filesystem(folder),
    }


def _filesystem(folder: Path) -> str:
    """The kind of file system the databases are on: in memory, syncing would cost nothing."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    holding = [(target, kind) for _, target, kind, *_ in mounts if folder.is_relative_to(target)]
    return max(holding, key=lambda mount: len(mount[0]))[1] if holding else "unknown"


def _fields(path: str, name: str) -> Iterator[str]:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            yield value.strip()

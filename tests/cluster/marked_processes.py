"""All processes that a test has started, also those whose parents are gone: each has a mark in its environment."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

import pytest

_VARIABLE = "PROCESSES_OF_TEST"


class MarkedProcesses:
    """Those that were started, by this process or its children, since the mark was set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._mark = f"{_VARIABLE}={secrets.token_hex(8)}"
        monkeypatch.setenv(*self._mark.split("="))

    def alive(self) -> dict[int, str]:
        """The command of each. One that has ended and was not reaped yet does not count."""
        wanted = self._mark.encode()
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            pid = int(folder.name)
            with contextlib.suppress(OSError):
                if pid != os.getpid() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found[pid] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return {pid: command for pid, command in found.items() if command}

    async def gone(self) -> bool | None:
        """For `until`: whether all have ended."""
        return not self.alive() or None


def descendants(pid: int) -> list[int]:
    """The processes below a process."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, path.read_text().split()):
                found += [child, *descendants(child)]
    return found


def family(pid: int) -> list[int]:
    """A process, and all below it."""
    return [pid, *descendants(pid)]


def waited_s(pid: int) -> float:
    """How long a process was ready to run and had no processor, since it began."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and was not reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

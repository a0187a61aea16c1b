"""The `mainstay worker` processes of the demo: started, killed, frozen and stopped from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

APP = "demo_tasks:app"
_PATIENCE_S = 10.0


class Workers:
    """The worker processes. Each leads a process group, so that a signal reaches its engines as well."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.states: dict[str, str] = {}
        """works, frozen or dead"""

    def start(self) -> str:
        name = f"worker-{len(self.states) + 1}"
        here = str(Path(__file__).parent)
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))}
        with (self._folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "mainstay", "worker", APP, "--name", name, "--grace", "2s"],
                cwd=self._folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.states[name] = "works"
        return name

    @property
    def alive(self) -> list[str]:
        return list(self._running)

    def kill(self, name: str) -> int:
        """Send SIGKILL to the supervisor and its engines; returns the process id."""
        process = self._running.pop(name)
        self.states[name] = "dead"
        _kill(process)
        return process.pid

    def freeze(self, name: str) -> None:
        """Send SIGSTOP, as if its machine were suspended."""
        self.states[name] = "frozen"
        os.killpg(self._running[name].pid, signal.SIGSTOP)

    def is_frozen(self, name: str) -> bool:
        """Whether every thread of it has stopped. On a busy machine one may still get a lock that it waited for."""
        return all(state in "TtZX" for state in _thread_states(self._running[name].pid))

    def thaw(self, name: str) -> None:
        os.killpg(self._running[name].pid, signal.SIGCONT)
        self.states[name] = "works"

    def stop(self) -> list[str]:
        """Send SIGTERM and wait until all have drained; returns the names of those that did not stop cleanly."""
        for process in self._running.values():
            process.terminate()
        bad = []
        for name, process in list(self._running.items()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                if process.wait(_PATIENCE_S) == 0:
                    self._running.pop(name, None)
                    continue
            bad.append(name)
        self.end()
        return bad

    def end(self) -> None:
        """Kill the workers that still run."""
        ended = list(self._running.values())
        for process in ended:
            _kill(process)
        self._running.clear()
        # engines are not our children: give the system a moment to reap them
        ends = time.monotonic() + 0.5
        while time.monotonic() < ends and any(map(_is_there, ended)):
            time.sleep(0.01)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _is_there(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process of its group exists."""
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _thread_states(group: int) -> Iterator[str]:
    """The states of all threads of a process group. Where there is no /proc, none."""
    for file in Path("/proc").glob("[0-9]*/task/[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            state, _parent, its_group = file.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group:
                yield state

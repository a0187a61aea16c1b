"""The demo's worker processes: started, killed and stopped from outside, as an operator would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

#: everything is quicker than in earnest, so that the story fits into a few seconds
SETTINGS = {
    "heartbeat": "400ms",
    "lease": "2s",
    "sweep": "200ms",
    "poll": "200ms",
    "grace": "1s",
    "concurrency": "8",
    "backoff_base": "300ms",
    "crash_budget": "5",
}


class Workers:
    """The worker processes."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.moods: dict[str, str] = {}
        # settings from outside would change the story; the key that seals the audit trail must be everybody's
        kept = {k: v for k, v in os.environ.items() if not k.startswith("MAINSTAY_") or k == "MAINSTAY_AUDIT_KEY"}
        self._environ = kept | {f"MAINSTAY_{name.upper()}": value for name, value in SETTINGS.items()}

    def start(self) -> str:
        name = f"worker-{len(self.moods) + 1}"
        program = Path(__file__).with_name("demo_runner.py")
        with (self._folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, program, self._url, name], env=self._environ, stdout=log, stderr=log
            )
        self.moods[name] = "works"
        return name

    def kill(self, name: str) -> int:
        """SIGKILL: no goodbye."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.moods[name] = "dead"
        return process.pid

    def stop(self) -> list[str]:
        """Let everybody finish; the names of those who ended badly."""
        for process in self._running.values():
            process.terminate()
        bad = []
        for name, process in self._running.items():
            try:
                if process.wait(10):
                    bad.append(name)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                bad.append(name)
        self._running.clear()
        return bad

"""A real server, real workers and a real store in one folder, for a real browser."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, cast

HERE = Path(__file__).parent


class House:
    """Whatever runs in it ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder}/jobs.db"
        self.log = folder / "log.txt"
        self._started: list[subprocess.Popen[str]] = []

    def serve(self, *words: str) -> str:
        """A server; its address once it is ready."""
        process = self._start("serve", "--port", "0", "--json", "--store", self.store, *words)
        line = cast("IO[str]", process.stdout).readline()
        assert line, self.log.read_text()
        return str(json.loads(line)["url"])

    def work(self) -> subprocess.Popen[str]:
        """A worker."""
        return self._start("worker", "plant:app", "--name", "plant")

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._started:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            cast("IO[str]", process.stdout).close()

    def _start(self, *words: str) -> subprocess.Popen[str]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "mainstay", *words],
                cwd=self.folder,
                env={**os.environ, "PLANT": str(self.folder), "PYTHONPATH": str(HERE)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._started.append(process)
        return process

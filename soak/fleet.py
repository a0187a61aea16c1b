"""Supervisors and their engines, and somebody who kills them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_PER_WORKER = 2


class Fleet:
    """Workers of one store, two engines each; one whose supervisor was killed is replaced."""

    def __init__(self, url: str, engines: int, log: Path) -> None:
        self._environment = {**os.environ, "MAINSTAY_STORE": url}
        self._log = log
        sizes = [_PER_WORKER] * (engines // _PER_WORKER) + [1] * (engines % _PER_WORKER)
        self._workers = [(size, self._started(size)) for size in sizes]
        self.kills: Counter[str] = Counter()

    def _started(self, engines: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "mainstay", "worker", "soak.tasks:app", "--processes", str(engines)]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def __len__(self) -> int:
        return len(self._workers)

    def strike(self, rng: random.Random) -> None:
        """SIGKILL to a supervisor, one time in four, or to an engine."""
        place = rng.randrange(len(self._workers))
        size, worker = self._workers[place]
        if rng.random() < 0.25:
            worker.kill()
            worker.wait()
            self._workers[place] = (size, self._started(size))
            self.kills["supervisor"] += 1
        elif engines := _children(worker.pid):
            try:
                os.kill(rng.choice(engines), signal.SIGKILL)
            except ProcessLookupError:
                return
            self.kills["engine"] += 1

    def told(self) -> str:
        """The last that the workers said, for the report of a failure."""
        return self._log.read_text()[-4000:]

    def drain(self) -> list[int]:
        """Ask all to end, and see them gone; what each of them answered."""
        for _, worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        return [worker.wait() for _, worker in self._workers]

    def close(self) -> None:
        for _, worker in self._workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()


def _children(pid: int) -> list[int]:
    try:
        texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it ended meanwhile
        return []
    return [int(word) for text in texts for word in text.split()]

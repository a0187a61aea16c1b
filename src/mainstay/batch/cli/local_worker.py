"""The worker that a command starts for itself: a `mainstay worker` that ends with the command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from typing import IO, NoReturn

from ...errors import MainstayError
from .target import StudyTarget

#: last lines of its log, for the error if it ends too early
_LOG_LINES = 8
_GRACE = "3s"
#: a worker that the kernel kills when its parent dies
_PROGRAM = """
import sys
from mainstay.cli import main
from mainstay.parent import die_with_parent
die_with_parent(int(sys.argv.pop(1)))
main()
"""


class LocalWorkerEnded(MainstayError):
    """The worker of this command ended before the batch."""

    code = "workers_ended"


class LocalWorker:
    """The worker of this command."""

    def __init__(self, process: asyncio.subprocess.Process, log: IO[bytes]) -> None:
        self._process = process
        self._log = log

    async def ended(self) -> NoReturn:
        """Wait for its unexpected end, and raise `LocalWorkerEnded`."""
        code = await self._process.wait()
        self._log.seek(0)
        log = self._log.read().decode(errors="replace").splitlines()[-_LOG_LINES:]
        raise LocalWorkerEnded("\n".join([f"the workers ended with {code} before the batch; their last lines:", *log]))

    async def stop(self) -> None:
        """Drain and end it."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            await self._process.wait()


@contextlib.asynccontextmanager
async def local_worker(target: StudyTarget, processes: int, *, queue: str | None = None) -> AsyncIterator[LocalWorker]:
    """Run a worker for an app while the context is open. Ctrl-C goes to the command, which drains it.

    `queue` is served besides the queues of the app.
    """
    queues = ",".join(dict.fromkeys([*target.app.queues, *([queue] if queue else [])]))
    paths = [path for path in (target.folder, os.environ.get("PYTHONPATH", "")) if path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)} if paths else None
    # a file without a name: nothing is left if this process is killed
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _PROGRAM, str(os.getpid()), "worker", target.target),
            *("--processes", str(processes), "--queues", queues, "--grace", _GRACE),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=env,
            start_new_session=True,
        )
        worker = LocalWorker(process, log)
        try:
            yield worker
        finally:
            await asyncio.shield(worker.stop())

"""The workers that a command runs itself: one `mainstay worker` beside it, ended with it."""

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
from .target import Meant

#: lines of its log that are told when it ends too early
_TOLD = 8
_GRACE = "3s"
#: a worker that is killed with whoever started it
_PROGRAM = """
import sys
from mainstay.cli import main
from mainstay.parent import die_with_parent
die_with_parent(int(sys.argv.pop(1)))
main()
"""


class CrewLost(MainstayError):
    """The workers ended before the batch did."""

    code = "workers_ended"


class Crew:
    """A worker that was started here."""

    def __init__(self, process: asyncio.subprocess.Process, log: IO[bytes]) -> None:
        self._process = process
        self._log = log

    async def ended(self) -> NoReturn:
        """Comes back never, or with an error: nobody but us ends them."""
        code = await self._process.wait()
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").splitlines()[-_TOLD:]
        raise CrewLost("\n".join([f"the workers ended with {code} before the batch did; they said last:", *said]))

    async def stop(self) -> None:
        """Give back what is at work, and end."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            await self._process.wait()


@contextlib.asynccontextmanager
async def crew(meant: Meant, processes: int, *, queue: str | None = None) -> AsyncIterator[Crew]:
    """Workers for an app while this is open. Ctrl-C is for the command, which ends them in good order.

    `queue`: one that the app does not know of, to be served as well.
    """
    queues = ",".join(dict.fromkeys([*meant.app.queues, *([queue] if queue else [])]))
    paths = [path for path in (meant.folder, os.environ.get("PYTHONPATH", "")) if path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)} if paths else None
    # without a name, so that nothing is left of it when this process is killed
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _PROGRAM, str(os.getpid()), "worker", meant.target),
            *("--processes", str(processes), "--queues", queues, "--grace", _GRACE),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=env,
            start_new_session=True,
        )
        made = Crew(process, log)
        try:
            yield made
        finally:
            await asyncio.shield(made.stop())

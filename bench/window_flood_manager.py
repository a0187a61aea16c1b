"""A manager with the reader of a run beside it: `python -m bench.window_flood_manager`.

It reads its configuration from standard input. The reader decodes windows and adds them up, as the leader of a run
does. Each tenth of a second it prints the time, how many windows it has taken, and how many its full queue has dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import msgspec

from mainstay.bus import BusMessage, Subscription
from mainstay.cluster.manager import Manager
from mainstay.cluster.manager_program import ManagerConfig, run_manager
from mainstay.event_loop import new_event_loop
from mainstay.load.fleet.messages import decode_windows, window_subject
from mainstay.load.stats.sums import WindowSum
from mainstay.parent import die_with_parent

from .window_flood_sender import JOB

#: as many as the leader of a run keeps
_WAITING = 500


class WindowReader:
    """Reads the windows of the run."""

    def __init__(self) -> None:
        self.taken = 0
        self.messages: Subscription[BusMessage] | None = None

    @contextlib.asynccontextmanager
    async def beside(self, manager: Manager) -> AsyncIterator[None]:
        self.messages = await manager.data_bus.subscribe(window_subject("*", JOB, "*"), limit=_WAITING)
        reading = asyncio.create_task(self._read(self.messages))
        telling = asyncio.create_task(self._tell(self.messages))
        try:
            yield
        finally:
            reading.cancel()
            telling.cancel()

    async def _read(self, messages: Subscription[BusMessage]) -> None:
        total = WindowSum()
        async for message in messages:
            for part in decode_windows(message.body):
                total.add(part.window)
                self.taken += 1

    async def _tell(self, messages: Subscription[BusMessage]) -> None:
        while True:
            now_s = asyncio.get_running_loop().time()
            print(now_s, self.taken, messages.dropped, flush=True)
            await asyncio.sleep(0.1)


def main() -> int:
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=ManagerConfig)
    die_with_parent(config.parent)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(run_manager(config, beside=WindowReader().beside))


if __name__ == "__main__":
    sys.exit(main())

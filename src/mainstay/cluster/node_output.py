"""The output of jobs at their node: answers managers with what is kept, and publishes it while an operator follows.

Nothing is read or sent while no operator asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path

import msgspec

from ..bus import Bus
from ..errors import BusError, InvalidInput
from ..worker import TAIL_BYTES, output_path, prune_output, read_output
from .output_messages import FOLLOW_S, AttemptQuery, OutputChunk, OutputReply

log = logging.getLogger("mainstay.cluster")

#: how often the files of followed attempts are read
EVERY_S = 0.2
#: bytes of one attempt in one message; of what is printed faster, the newest is sent
_CHUNK_BYTES = 32 * 1024
#: attempts that are followed at a time
_MOST_FOLLOWED = 32
_PRUNE_S = 60.0


class _Followed(msgspec.Struct, kw_only=True):
    query: AttemptQuery
    path: Path
    sent: int
    """position up to which it was sent"""
    until_s: float


class NodeOutput:
    """A service of a node: `run` until it is cancelled."""

    def __init__(self, bus: Bus, node: str, folder: str, *, every_s: float = EVERY_S) -> None:
        self._bus = bus
        self._node = node
        self._folder = Path(folder) if folder else None
        self._every_s = every_s
        self._followed: dict[tuple[str, int], _Followed] = {}
        self._asked = asyncio.Event()

    async def run(self) -> None:
        """Publish what is followed, and remove what is too old or too much."""
        tasks = [asyncio.create_task(self._publish_all()), asyncio.create_task(self._prune())]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def answer(self, body: bytes) -> OutputReply:
        """The answer to one request of a manager."""
        if self._folder is None:
            return OutputReply(error="this node does not keep the output of its jobs")
        try:
            query = msgspec.msgpack.decode(body, type=AttemptQuery)
            path = output_path(self._folder, query.job, query.token)
        except (msgspec.MsgspecError, UnicodeDecodeError, InvalidInput) as error:
            return OutputReply(error=f"the request cannot be read: {error}")
        found = await asyncio.to_thread(read_output, path, after=query.after)
        if query.follow:
            self._follow(query, path, 0 if found is None else found.end)
        if found is None:
            return OutputReply()
        return OutputReply(kept=True, start=found.start, end=found.end, data=found.data, dropped=found.dropped)

    def _follow(self, query: AttemptQuery, path: Path, end: int) -> None:
        until_s = asyncio.get_running_loop().time() + FOLLOW_S
        followed = self._followed.get((query.job, query.token))
        if followed is not None:
            followed.until_s = until_s
        elif len(self._followed) < _MOST_FOLLOWED:  # others read with their next question
            self._followed[query.job, query.token] = _Followed(query=query, path=path, sent=end, until_s=until_s)
            self._asked.set()

    async def _publish_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._asked.wait()
            for key, followed in list(self._followed.items()):
                if loop.time() > followed.until_s:
                    del self._followed[key]
                else:
                    await self._publish(followed)
            if not self._followed:
                self._asked.clear()
            await asyncio.sleep(self._every_s)

    async def _publish(self, followed: _Followed) -> None:
        found = await asyncio.to_thread(read_output, followed.path, after=followed.sent, most=_CHUNK_BYTES)
        if found is None or found.end <= followed.sent:
            return
        chunk = OutputChunk(
            job=followed.query.job, token=followed.query.token, start=found.start, data=found.data[:TAIL_BYTES]
        )
        followed.sent = found.end
        with contextlib.suppress(BusError):  # it is found with the next question
            await self._bus.publish(f"telemetry.output.{self._node}", msgspec.msgpack.encode(chunk))

    async def _prune(self) -> None:
        while self._folder is not None:
            # the times of files are those of the machine's clock
            removed = await asyncio.to_thread(prune_output, self._folder, now_s=time.time())
            if removed:
                log.info("removed the output of earlier jobs files=%d", removed)
            await asyncio.sleep(_PRUNE_S)


__all__ = ["NodeOutput"]

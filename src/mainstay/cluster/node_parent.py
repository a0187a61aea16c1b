"""The parent of a node's worker: starts it, reports how it ended, and starts it again.

It runs no user code and holds its own connection to the bus. A worker that was killed is proven dead by its report, so
that its work is taken back at once instead of after 25 s of silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator

import msgspec

from ..bus import Bus
from ..errors import BusError
from ..stores.remote import MAINSTAY_VERSION
from ..worker import FORCED, STOPPED, UNFIT, describe_exit
from .address import parse_address
from .member_messages import MemberEnvelope, NodeEnd, pack
from .node_worker import FORCED_END, NodeConfig

log = logging.getLogger("mainstay.cluster")

_WORKER = (sys.executable, "-m", "mainstay.cluster.node_worker")
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 15.0
#: a worker that lived for longer was not part of a crash loop
_LONG_LIFE_S = 30.0
_REPORT_S = 3.0


class NodeParent:
    """`await NodeParent(config).run()` keeps the worker of a node running until it is asked to stop; the exit code."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._address = parse_address(config.url)
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        connecting = asyncio.create_task(self._address.connect("node", f"{self._config.options.node}"))
        wait_s = _FIRST_WAIT_S
        try:
            with self._signals():
                while not self._stopping.is_set():
                    begun_s = asyncio.get_running_loop().time()
                    code, incarnation = await self._run_worker()
                    await self._report(connecting, incarnation, code)
                    if code == FORCED_END:
                        return FORCED
                    if self._stopping.is_set() or code in (STOPPED, UNFIT):
                        return code if code >= 0 else FORCED
                    if asyncio.get_running_loop().time() - begun_s > _LONG_LIFE_S:
                        wait_s = _FIRST_WAIT_S
                    log.error("node worker ended: it %s; again in %.1f s", describe_exit(code), wait_s)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(wait_s):
                            await self._stopping.wait()
                    wait_s = min(_LONGEST_WAIT_S, wait_s * 2)
                return STOPPED
        finally:
            connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError, BusError, OSError):
                await (await connecting).close()

    async def _run_worker(self) -> tuple[int, str]:
        incarnation = secrets.token_hex(8)
        config = msgspec.structs.replace(self._config, incarnation=incarnation, parent=os.getpid())
        process = self._process = await asyncio.create_subprocess_exec(
            *_WORKER,
            stdin=subprocess.PIPE,
            # a signal of the terminal reaches the parent, which passes it on: twice would be a second request to stop
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(config))
        process.stdin.close()
        if self._stopping.is_set():  # asked while the process was started
            process.terminate()
        return await process.wait(), incarnation

    async def _report(self, connecting: asyncio.Task[Bus], incarnation: str, code: int) -> None:
        """Tell the managers that this start has ended. Without an answer the silence of the node tells them."""
        node = self._config.options.node
        end = NodeEnd(incarnation=incarnation, how=f"its worker {describe_exit(code)}")
        report = MemberEnvelope(
            v=MAINSTAY_VERSION,
            c=self._address.cluster,
            e=self._address.environment,
            id=secrets.token_hex(12),
            a=msgspec.Raw(pack(end)),
        )
        with contextlib.suppress(BusError, TimeoutError, OSError):
            async with asyncio.timeout(_REPORT_S):
                bus = await asyncio.shield(connecting)
                await bus.request(f"control.ended.{node}", pack(report), _REPORT_S)

    def _stop(self, number: signal.Signals) -> None:
        if number != signal.SIGHUP:
            self._stopping.set()
        process = self._process
        if process is not None and process.returncode is None:
            process.send_signal(number)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self._stop, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


__all__ = ["NodeParent"]

"""The parent of a node's worker: starts it, reports how it ended, and starts it again.

It runs no user code and holds its own connection to the bus. A worker that was killed is proven dead by its report, so
that its work is taken back at once instead of after 25 s of silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

import msgspec

from ..bundles import BundleInUse
from ..bus import Bus
from ..errors import MainstayError, NoResponders, RequestTimeout
from ..stores.remote import MAINSTAY_VERSION
from ..worker import FORCED, STOPPED, UNFIT, describe_exit
from .address import parse_address
from .cluster_settings import ClusterSettings
from .member_messages import MemberEnvelope, NodeEnd, pack
from .node_bundle import NodeBundle
from .node_config import FORCED_END, NodeConfig

log = logging.getLogger("mainstay.cluster")

_WORKER = (sys.executable, "-m", "mainstay.cluster.node_worker")
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 15.0
#: a worker that lived for longer was not part of a crash loop
_LONG_LIFE_S = 30.0
#: how long the end of a worker is reported
_REPORT_S = 3.0
_REPORT_TRIES = 3
_REPORT_PAUSE_S = 0.1
#: signals that ask it to stop
_ASKED = (signal.SIGTERM, signal.SIGINT)


class WorkerProcess(Protocol):
    """The process of a worker. `asyncio.subprocess.Process` is one."""

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...

    def send_signal(self, signal: int) -> None: ...


class NodeParent:
    """`await NodeParent(config).run()` keeps the worker of a node running until it is asked to stop; the exit code.

    `start` starts the worker, by default as a process of this machine; `connect` is the way to the bus.
    """

    def __init__(
        self,
        config: NodeConfig,
        *,
        start: Callable[[NodeConfig], Awaitable[WorkerProcess]] | None = None,
        connect: Callable[[], Awaitable[Bus]] | None = None,
        rng: random.Random | None = None,
        pid: int | None = None,
    ) -> None:
        self._config = config
        self._address = address = parse_address(config.url)
        self._start = start or _start_process
        join = ClusterSettings.from_env(os.environ).join
        self._connect = connect or (lambda: address.connect("node", config.options.node, beside="parent", join=join))
        self._rng = rng or random.SystemRandom()
        self._pid = os.getpid() if pid is None else pid
        self._process: WorkerProcess | None = None
        self._stopping = asyncio.Event()
        bundle = config.bundle
        self._bundle = None if bundle is None else NodeBundle(bundle, self._address, config.options.node)

    async def run(self) -> int:
        connecting = asyncio.ensure_future(self._connect())
        wait_s = _FIRST_WAIT_S
        try:
            with self._signals():
                while not self._stopping.is_set():
                    if self._bundle is not None:
                        unready = await self._prepare(self._bundle, connecting)
                        if unready is not None:
                            return unready
                    begun_s = asyncio.get_running_loop().time()
                    code, incarnation = await self._run_worker()
                    asked = self._stopping.is_set()
                    if asked and -code in _ASKED:
                        code = STOPPED  # it was still waiting for the bus, and ran nothing
                    await self._report(connecting, incarnation, code)
                    if code == FORCED_END:
                        return FORCED
                    if asked or code in (STOPPED, UNFIT):
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
            with contextlib.suppress(asyncio.CancelledError, MainstayError, OSError):
                await (await connecting).close()

    async def _prepare(self, bundle: NodeBundle, connecting: asyncio.Future[Bus]) -> int | None:
        """Have the bundle that the worker runs. Returns an exit code if it cannot be had, or is not needed any more."""

        async def get() -> BundleInUse:
            return await bundle.ready(await asyncio.shield(connecting))

        getting, stopping = asyncio.create_task(get()), asyncio.create_task(self._stopping.wait())
        await asyncio.wait({getting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not getting.done():
            getting.cancel()
            await asyncio.wait({getting})
            return STOPPED
        try:
            used = getting.result()
        except (MainstayError, OSError) as error:
            log.error("node %s cannot start with bundle %s: %s", self._config.options.node, bundle.reference, error)
            return UNFIT
        digest = used.manifest.digest
        self._config = msgspec.structs.replace(
            self._config,
            options=msgspec.structs.replace(self._config.options, target=used.manifest.target, bundle=digest),
            digest=digest,
            code=str(used.folder),
        )
        return None

    async def _run_worker(self) -> tuple[int, str]:
        incarnation = f"{self._rng.getrandbits(64):016x}"
        process = self._process = await self._start(
            msgspec.structs.replace(self._config, incarnation=incarnation, parent=self._pid)
        )
        if self._stopping.is_set():  # a signal came while it was being started
            process.send_signal(signal.SIGTERM)
        return await process.wait(), incarnation

    async def _report(self, connecting: asyncio.Future[Bus], incarnation: str, code: int) -> None:
        """Report to the managers that this start has ended. If none answers, the silence of the node tells them."""
        node = self._config.options.node
        end = NodeEnd(incarnation=incarnation, how=f"its worker {describe_exit(code)}")
        report = MemberEnvelope(
            v=MAINSTAY_VERSION,
            c=self._address.cluster,
            e=self._address.environment,
            id=f"{self._rng.getrandbits(96):024x}",
            a=msgspec.Raw(pack(end)),
        )
        with contextlib.suppress(MainstayError, TimeoutError, OSError):
            async with asyncio.timeout(_REPORT_S):
                bus = await asyncio.shield(connecting)
                for _ in range(_REPORT_TRIES):
                    # a manager that does not answer has died, and another try reaches another one
                    with contextlib.suppress(NoResponders, RequestTimeout):
                        await bus.request(f"control.ended.{node}", pack(report), _REPORT_S / _REPORT_TRIES)
                        return
                    await asyncio.sleep(_REPORT_PAUSE_S)

    def stop(self, number: signal.Signals) -> None:
        """What a signal does: pass it on to the worker. After SIGTERM or SIGINT no other worker is started."""
        if number != signal.SIGHUP:
            self._stopping.set()
        process = self._process
        if process is not None and process.returncode is None:
            process.send_signal(number)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        set_up: list[signal.Signals] = []
        for number in numbers:
            with contextlib.suppress(RuntimeError):  # a loop without signals: a simulation
                loop.add_signal_handler(number, self.stop, number)
                set_up.append(number)
        try:
            yield
        finally:
            for number in set_up:
                loop.remove_signal_handler(number)


async def _start_process(config: NodeConfig) -> WorkerProcess:
    process = await asyncio.create_subprocess_exec(
        *_WORKER,
        stdin=subprocess.PIPE,
        # a signal of the terminal reaches the parent, which passes it on: twice would be a second request to stop
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(config))
    process.stdin.close()
    return process


__all__ = ["NodeParent"]

"""The heartbeat of a node, and what follows when no manager answers it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable

import msgspec

from ..bus import Bus
from ..errors import BusError
from ..stores.remote import MAINSTAY_VERSION
from ..worker import Supervisor, available
from .address import parse_address
from .isolation import Isolation
from .liveness_settings import LivenessSettings
from .machine_load import MachineLoad
from .member_messages import BeatAnswer, MemberAnswer, unpack
from .node_config import NodeConfig
from .status import NodeBeat

log = logging.getLogger("mainstay.cluster")

#: ids of running jobs in one beat
_RUNNING_SHOWN = 100


class NodeHeart:
    """Sends the beats of a node while its supervisor's loop runs: a frozen supervisor is silent. Stops the work of the
    node when they are not answered (see `isolation`). `load` reads the share of processors and memory in use; `host`
    and `pid` are those of this process by default."""

    def __init__(
        self,
        bus: Bus,
        config: NodeConfig,
        supervisor: Supervisor,
        *,
        settings: LivenessSettings | None = None,
        load: Callable[[], tuple[float, float]] | None = None,
        host: str | None = None,
        pid: int | None = None,
        version: str = MAINSTAY_VERSION,
    ) -> None:
        self._bus = bus
        self._config = config
        self._supervisor = supervisor
        self._settings = settings or LivenessSettings()
        self._address = parse_address(config.url)
        self._load = load or MachineLoad().read
        self._host = socket.gethostname() if host is None else host
        self._pid = os.getpid() if pid is None else pid
        self._version = version
        self._number = 0
        self._answered = True
        self._isolation: Isolation | None = None

    @property
    def is_isolated(self) -> bool:
        """Whether the work of the node is stopped because no manager has answered for too long."""
        return self._isolation is not None and self._isolation.isolated

    async def run(self) -> None:
        """Beat until cancelled."""
        loop = asyncio.get_running_loop()
        isolation = self._isolation = Isolation(
            self._settings,
            stop=lambda grace_s, kill_s: self._supervisor.isolate(grace_s=grace_s, kill_s=kill_s),
            resume=self._supervisor.rejoin,
        )
        try:
            while True:
                sent_s = loop.time()
                try:
                    if await self._send():
                        isolation.heard(sent_s)
                except Exception:  # without beats the node would be closed, and without the count it would work on
                    log.exception("the heartbeat failed; trying again")
                await asyncio.sleep(max(0.0, sent_s + self._settings.beat_s - loop.time()))
        finally:
            isolation.close()

    async def _send(self) -> bool:
        """Send a beat; whether a manager has answered it before the next one is due."""
        self._number += 1
        subject = f"control.beat.{self._config.options.node}"
        try:
            body = await self._bus.request(subject, msgspec.msgpack.encode(self.beat()), self._settings.beat_s)
        except BusError as error:
            if self._answered:
                log.warning("no manager answers the heartbeat: %s", error)
            self._answered = False
            return False
        self._answered = True
        closed = msgspec.convert(unpack(body, type=MemberAnswer).ok, BeatAnswer).closed
        if closed:
            log.warning("sessions were closed by the managers sessions=%s; their jobs are stopped", " ".join(closed))
            self._supervisor.lose(closed)
        return True

    def beat(self) -> NodeBeat:
        """What the node reports now."""
        options = self._config.options
        running = self._supervisor.running
        cpu, memory = self._load()
        return NodeBeat(
            node=options.node,
            number=self._number,
            incarnation=self._config.incarnation,
            sessions=tuple(self._supervisor.sessions),
            host=self._host,
            pid=self._pid,
            version=self._version,
            target=options.target,
            digest=self._config.digest,
            labels=options.labels,
            cores=self._config.cores or available(),
            running=tuple(running[:_RUNNING_SHOWN]),
            running_count=len(running),
            cpu=cpu,
            memory=memory,
            draining=self._supervisor.is_stopping,
            cluster=self._address.cluster,
            environment=self._address.environment,
        )


__all__ = ["NodeHeart"]

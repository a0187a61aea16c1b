"""The process of an engine, as a port: its link to the supervisor, the memory and the lock that they share, children.

`OsHostProcess` is a real process. In a simulation it is a part of the simulating process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from pathlib import Path
from typing import NoReturn, Protocol

from ..stores import adopt_loop
from .children import Children
from .messages import EngineConfig
from .recorder import Recorder
from .solo_turn import SoloLock, SoloTurn
from .worker_options import WorkerOptions

#: the longest message of the supervisor: a cancel of very many jobs
_LONGEST_LINE = 1 << 26


class LinkWriter(Protocol):
    """The sending end of the link to the supervisor. `asyncio.StreamWriter` is one."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class HostProcess(Protocol):
    """What an engine takes from its process."""

    @property
    def pid(self) -> int: ...

    @property
    def host(self) -> str | None:
        """The name of its machine; None: as the operating system says."""
        ...

    @property
    def state(self) -> Path | None:
        """Where it keeps changes that the store did not take; None: see `state_folder`."""
        ...

    async def connect(self) -> tuple[asyncio.StreamReader, LinkWriter]:
        """The link to the supervisor; called once."""
        ...

    def recorder(self) -> Recorder:
        """The flight recorder that the supervisor reads; called once."""
        ...

    def solo_turn(self) -> SoloLock | None:
        """The lock that the engines of its worker share; called once. None: there is one engine."""
        ...

    def children(self, options: WorkerOptions, *, most: int) -> Children | None:
        """Its child processes; None: it has none, and every job runs in this process."""
        ...

    async def leave(self) -> NoReturn:
        """End the process at once with code 0, without waiting for its threads."""
        ...


class OsHostProcess:
    """This process, which `spawn` started with this configuration."""

    host: str | None = None
    state: Path | None = None

    def __init__(self, config: EngineConfig) -> None:
        self._config = config

    @property
    def pid(self) -> int:
        return os.getpid()

    async def connect(self) -> tuple[asyncio.StreamReader, LinkWriter]:
        adopt_loop(asyncio.get_running_loop())
        link = socket.socket(fileno=self._config.link_fd)
        return await asyncio.open_connection(sock=link, limit=_LONGEST_LINE)

    def recorder(self) -> Recorder:
        return Recorder(self._config.recorder_fd)

    def solo_turn(self) -> SoloLock | None:
        return SoloTurn(self._config.solo_fd) if self._config.solo_fd >= 0 else None

    def children(self, options: WorkerOptions, *, most: int) -> Children | None:
        return Children(options, most=most)

    async def leave(self) -> NoReturn:
        logging.shutdown()
        os._exit(0)


__all__ = ["HostProcess", "LinkWriter", "OsHostProcess"]

"""The processes of a supervisor's engines, as a port: the supervisor starts them, sends to them and learns of their end
through it, and never asks the operating system itself.

`spawn.OsProcesses` starts real ones. A simulation has engines in its own process, in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from .messages import EngineConfig, FromEngine, ToEngine
from .recorder import Recorder


class ProcessHandle(Protocol):
    """One engine process, from its start until `close`."""

    @property
    def pid(self) -> int: ...

    @property
    def recorder(self) -> Recorder:
        """The marks of the jobs that it runs; readable until `close`, also after its end."""
        ...

    @property
    def ended(self) -> asyncio.Future[int]:
        """Its exit status once it has ended: a code, or minus the signal that killed it. All its messages have been
        received by then."""
        ...

    def send(self, message: ToEngine) -> None:
        """Send a message; never waits. A process that does not read may miss a `Pulsed`, because the next one says the
        same. After its end nothing is sent."""
        ...

    def kill(self) -> None:
        """End it at once, whatever it does. Safe to call again, and after its end."""
        ...

    def close(self) -> None:
        """Release its resources once it has ended."""
        ...


class Processes(Protocol):
    """Starts the engine processes of one supervisor."""

    @property
    def pid(self) -> int:
        """The process of the supervisor."""
        ...

    def spawn(self, config: EngineConfig, receive: Callable[[FromEngine], None]) -> ProcessHandle:
        """Start an engine, on the loop on which its messages are passed to `receive`. The file descriptors in the
        configuration are added here. Raises `OSError` if the system cannot start a process now."""
        ...

    def close(self) -> None:
        """Release what its engines shared, once all have ended."""
        ...


__all__ = ["ProcessHandle", "Processes"]

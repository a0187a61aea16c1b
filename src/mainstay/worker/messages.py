"""What a supervisor and its engines say to each other: JSON, a line each, over a socket pair."""

from __future__ import annotations

import msgspec

from ..model import Settings


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine is to run; its one command-line argument."""

    target: str
    """`module:app`"""
    name: str
    """the worker's name"""
    queues: tuple[str, ...] = ()
    """empty: those of the program"""
    concurrency: int | None = None
    """None: as the settings say"""
    log_level: str = "info"
    json_logs: bool = False
    supervisor_pid: int
    """the process it dies with"""
    link_fd: int
    recorder_fd: int
    solo_fd: int = -1
    """the lock that the engines of a worker share; -1: there is none"""


class Hello(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Engine: my program is loaded and this is my session. Said again when a session was lost and a new one opened.
    The engine claims nothing before it hears `StartClaiming`."""

    session: str
    store_url: str
    settings: Settings
    queues: tuple[str, ...]


class Retiring(msgspec.Struct, frozen=True, tag=True):
    """Engine: I take no more jobs and exit when those I have are done; replace me."""

    reason: str


class Unfit(msgspec.Struct, frozen=True, tag=True):
    """Engine: I cannot start (the program does not load, the store is refused). Trying again would not help."""

    reason: str


class StartClaiming(msgspec.Struct, frozen=True, tag=True):
    """Supervisor: your session is being kept alive, and what the dead left has been swept. Claim."""


class Pulsed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Supervisor: what the store said to your beat."""

    session: str
    known: bool
    cancelling: tuple[str, ...] = ()


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Supervisor: take no more jobs; give back what has not begun; finish the rest within the grace, give back
    what does not finish, exit. Zero: now. A later one replaces an earlier one."""

    grace_s: float


FromEngine = Hello | Retiring | Unfit
ToEngine = StartClaiming | Pulsed | Drain


def line(message: FromEngine | ToEngine) -> bytes:
    """A message as it is sent."""
    return msgspec.json.encode(message) + b"\n"

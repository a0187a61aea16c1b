"""The messages between a supervisor and its engines: JSON, one a line, over a socket pair."""

from __future__ import annotations

import msgspec

from ..model import Settings
from .worker_options import WorkerOptions


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine runs; its one command-line argument."""

    options: WorkerOptions
    supervisor_pid: int
    """the process it dies with"""
    link_fd: int = -1
    recorder_fd: int = -1
    node: bool = False
    """it is the node engine: it claims from no queue and runs the work that is placed on the node"""
    solo_fd: int = -1
    """the lock that the engines of a worker share; -1: none"""


class Hello(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Engine: my program is loaded and this is my session. Sent again when a session was lost and a new one opened.
    The engine claims nothing before it receives `StartClaiming`."""

    session: str
    store_url: str
    settings: Settings
    queues: tuple[str, ...]
    """the queues that the engines of its worker claim from; empty: the program has only placed work, and the node
    engine is the only one"""


class CoresHeld(msgspec.Struct, frozen=True, tag=True):
    """Engine: the slices of load tests that I run hold this number of cores of the node now."""

    cores: int


class Retiring(msgspec.Struct, frozen=True, tag=True):
    """Engine: I take no more jobs and exit when those I have are done; replace me."""

    reason: str


class Unfit(msgspec.Struct, frozen=True, tag=True):
    """Engine: I cannot start (the program does not load, the store is refused). Another try would not help."""

    reason: str


class StartClaiming(msgspec.Struct, frozen=True, tag=True):
    """Supervisor: your session has heartbeats, and the first sweep is done. Claim."""


class Pulsed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Supervisor: the answer of the store to your heartbeat."""

    session: str
    known: bool
    cancelling: tuple[str, ...] = ()
    assigned: tuple[str, ...] = ()
    """rows that were assigned to the session and wait to be confirmed"""


class CoresElsewhere(msgspec.Struct, frozen=True, tag=True):
    """Supervisor: your siblings hold this number of cores of the node for slices of load tests."""

    cores: int


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Supervisor: take no more jobs, give back jobs that have not begun, finish the others within the grace, give back
    those that did not finish, exit. Zero: now. A later drain replaces an earlier one."""

    grace_s: float


class Isolate(msgspec.Struct, frozen=True, tag=True):
    """Supervisor: your node hears no manager, so your jobs may begin elsewhere soon. Stop all of them within the grace,
    keep what the store has not taken, exit."""

    grace_s: float


FromEngine = Hello | Retiring | Unfit | CoresHeld
ToEngine = StartClaiming | Pulsed | Drain | Isolate | CoresElsewhere


def line(message: FromEngine | ToEngine) -> bytes:
    """A message as it is sent."""
    return msgspec.json.encode(message) + b"\n"

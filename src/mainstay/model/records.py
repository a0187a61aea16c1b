"""The other plain data a store keeps: sessions, schedules, queue settings, leadership."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


def route_of(kind: str, name: str) -> str:
    """What a session must offer to run a job: the name of its task, with the kind before it for other kinds.

    >>> route_of("task", "mail.send"), route_of("batch", "sweep")
    ('mail.send', 'batch:sweep')
    """
    return name if kind == "task" else f"{kind}:{name}"


class Offer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session serves: the queues that it claims from, and the tasks that its program has."""

    queues: tuple[str, ...] = ()
    tasks: Mapping[str, Mapping[str, Any]] = {}
    """by `route_of`: the options that a submit without its own takes from the task (plain data, `queue` among them)"""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One running engine process of a worker. The id is random per process, never reused."""

    id: str
    worker: str = ""
    host: str = ""
    pid: int = 0
    started_ms: int = 0
    beat_ms: int = 0
    """lease time of the last beat"""
    lease_s: float = 8.0
    dead: bool = False
    """found dead; its claims are being reaped and its beats are refused"""
    supervisor: int = 0
    """pid of the worker that it is an engine of; 0: it is a worker of its own"""
    draining_ms: int | None = None
    """since when it is asked to take no more jobs and to end, by wall time"""
    draining_by: str = ""
    """who asked"""
    offer: Offer | None = None
    """None: it does not say what it serves (an older version, say), and is given everything"""

    @property
    def is_draining(self) -> bool:
        """Whether it was asked to drain."""
        return self.draining_ms is not None

    def drained(self, at_ms: int, by: str) -> Session:
        """The session once it is asked to drain. The first who asked stays on record."""
        return self if self.is_draining else msgspec.structs.replace(self, draining_ms=at_ms, draining_by=by)

    def serves(self, queue: str) -> bool | None:
        """Whether it claims from a queue; None: it does not say."""
        return None if self.offer is None else queue in self.offer.queues

    def knows(self, kind: str, name: str) -> bool | None:
        """Whether its program has the task; None: it does not say."""
        return None if self.offer is None else route_of(kind, name) in self.offer.tasks


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator set for a queue."""

    name: str
    paused: bool = False
    reason: str | None = None
    set_by: str = ""
    """who paused or resumed it last; empty: that was before it was kept"""
    set_ms: int | None = None
    """when that was"""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A stored schedule. `spec` belongs to whoever made it; the store only keeps it."""

    name: str
    spec: bytes
    paused: bool = False
    last_tick_ms: int | None = None
    """ticks up to here are dealt with: turned into jobs, or passed over"""


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads. The epoch grows with every change of holder and fences the leader's writes."""

    name: str
    holder: str
    epoch: int
    until_ms: int
    """lease time"""

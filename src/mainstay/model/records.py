"""The other plain data a store keeps: sessions, schedules, queue settings, leadership."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


def route_of(kind: str, name: str) -> str:
    """The route of a job, which a session must offer to run it: the name of its task; for other kinds, after the kind.

    >>> route_of("task", "mail.send"), route_of("batch", "sweep")
    ('mail.send', 'batch:sweep')
    """
    return name if kind == "task" else f"{kind}:{name}"


class Offer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The offer of a session: the queues that it claims from, and the tasks that its program has."""

    queues: tuple[str, ...] = ()
    tasks: Mapping[str, Mapping[str, Any]] = {}
    """by `route_of`: the default options of the task (plain data, with `queue`)"""
    cores: int = 0
    """of its node, for the generator processes of load tests; 0: it runs none"""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One running engine process of a worker. The id is random, and never reused."""

    id: str
    worker: str = ""
    host: str = ""
    pid: int = 0
    started_ms: int = 0
    beat_ms: int = 0
    """lease time of the last beat"""
    lease_s: float = 8.0
    dead: bool = False
    """declared dead; its jobs are taken back and its beats are refused"""
    supervisor: int = 0
    """pid of its worker's supervisor; 0: it has none"""
    draining_ms: int | None = None
    """when it was asked to take no more jobs and to end, by wall time"""
    draining_by: str = ""
    """who asked it to drain"""
    node: str = ""
    """the node whose placed work it runs; empty: it runs none"""
    labels: Mapping[str, str] = {}
    """the labels of that node, by which jobs select nodes"""
    standing: bool = False
    """it has no lock and no lease: only `close_session` ends it"""
    offer: Offer | None = None
    """None: it has no offer (it is of an older version, for example), and gets all jobs"""
    degraded: bool = False
    """its node is stressed or overloaded, as managers hear it; never stored"""

    @property
    def is_draining(self) -> bool:
        """Whether it was asked to drain."""
        return self.draining_ms is not None

    def drained(self, at_ms: int, by: str) -> Session:
        """The session after a request to drain. The first request stays on record."""
        return self if self.is_draining else msgspec.structs.replace(self, draining_ms=at_ms, draining_by=by)

    def serves(self, queue: str) -> bool | None:
        """Whether it claims from a queue; None: unknown, without an offer."""
        return None if self.offer is None else queue in self.offer.queues

    def knows(self, kind: str, name: str) -> bool | None:
        """Whether its program has the task; None: unknown, without an offer."""
        return None if self.offer is None else route_of(kind, name) in self.offer.tasks


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a queue, by an operator."""

    name: str
    paused: bool = False
    reason: str | None = None
    set_by: str = ""
    """who paused or resumed it last; empty: unknown"""
    set_ms: int | None = None
    """when that was"""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A stored schedule. The store does not read `spec`."""

    name: str
    spec: bytes
    paused: bool = False
    last_tick_ms: int | None = None
    """ticks up to this one are done: submitted or skipped"""


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """The current leader. The epoch grows with every change of holder and fences the leader's writes."""

    name: str
    holder: str
    epoch: int
    until_ms: int
    """lease time"""

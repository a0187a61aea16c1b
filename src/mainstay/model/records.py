"""The other plain data a store keeps: sessions, schedules, queue settings, leadership."""

from __future__ import annotations

import msgspec


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

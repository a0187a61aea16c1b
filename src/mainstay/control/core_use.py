"""The cores of nodes that jobs hold and wait for, whatever their kind. A kind names its reader in `Kind.cores`."""

from __future__ import annotations

from typing import Protocol

import msgspec


class CoreHolding(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a job that holds cores of a node."""

    job: str
    name: str
    """of the job"""
    part: str
    """in words, such as `slice 0`"""
    session: str
    """of the node"""
    cores: int
    status: str
    """dispatched: its node has not confirmed it yet"""
    since_ms: int
    """when it was assigned"""


class CoreWaiter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that waits for cores, or a part of one that has others."""

    job: str
    name: str
    """of the job"""
    part: str = ""
    """the part that waits; empty: the whole job"""
    place: int = 0
    """among the jobs that wait, from 1; 0: a part goes before all jobs, and a job that gets its cores now has none"""
    of: int = 0
    """how many jobs wait"""
    cores: int = 0
    """it needs at least this many; 0: unknown"""
    since_ms: int = 0
    reason: str = ""
    """what it waits for, in sentences"""


class CoreUse(msgspec.Struct, frozen=True):
    """What the jobs of one kind hold and wait for at one time."""

    holdings: tuple[CoreHolding, ...] = ()
    waiters: tuple[CoreWaiter, ...] = ()
    """in the order in which they get cores"""


class CoreReader(Protocol):
    """Reads the jobs of one kind. It may remember what does not change."""

    async def read(self) -> CoreUse: ...


__all__ = ["CoreHolding", "CoreReader", "CoreUse", "CoreWaiter"]

"""What answers look like that are not about single jobs. Needs no server: the client reads them by the same types."""

from __future__ import annotations

from typing import Literal

import msgspec

from ...control.overview import LimitOverview
from ...stores import Violation


class StoreInfo(msgspec.Struct, kw_only=True):
    name: str
    """what `?store=` calls it"""
    url: str
    """without its secrets"""
    durability: str
    """what an answer survives, in words"""
    default: bool
    """meant when none is named"""
    silent_s: float
    """how long ago it last answered"""
    error: str
    """why it did not, since"""


class StoreList(msgspec.Struct, kw_only=True):
    """The stores that this server looks after."""

    stores: list[StoreInfo]


class QuickCheckResult(msgspec.Struct, kw_only=True):
    """What a quick check found."""

    store: str
    clean: bool
    checked: int
    """rows that were looked at; the next check looks at the next ones"""
    seconds: float
    violations: list[Violation]
    notices: list[Violation]


class LimitList(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that are set."""

    limits: list[LimitOverview]


class LastJob(msgspec.Struct, kw_only=True):
    id: str
    status: str


class ScheduleInfo(msgspec.Struct, kw_only=True):
    """A schedule. Times are milliseconds since 1970, UTC."""

    name: str
    when: str
    tz: str
    task: str
    paused: bool
    registered: bool
    catch_up: str
    overlap: str
    next_ticks_ms: list[int]
    """empty when paused, and when its times are known only to the program that declares it"""
    last_tick_ms: int | None
    counted_from_ms: int | None
    last_job: LastJob | None
    ticks_without_job: int
    problem: str | None
    """why it does not tick"""


class ScheduleList(msgspec.Struct, kw_only=True):
    """All schedules, by name."""

    schedules: list[ScheduleInfo]


class ScheduleRun(msgspec.Struct, kw_only=True):
    """The job of a schedule that was run now."""

    schedule: str
    id: str
    created: bool
    """False: with overlap "skip", the one that is not settled yet"""


class ScheduleDropped(msgspec.Struct, kw_only=True):
    name: str
    dropped: Literal[True]

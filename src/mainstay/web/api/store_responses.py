"""Responses of the API about stores, limits and schedules. The client uses the same types."""

from __future__ import annotations

from typing import Literal

import msgspec

from ...control.overview import LimitOverview
from ...stores import Violation


class StoreInfo(msgspec.Struct, kw_only=True):
    name: str
    """its name, for `?store=`"""
    url: str
    """without its secrets"""
    durability: str
    """the failures that an acknowledged write survives, in words"""
    default: bool
    """used when a request names no store"""
    silent_s: float
    """time since its last answer"""
    error: str
    """why the last call failed; empty: it did not"""


class StoreList(msgspec.Struct, kw_only=True):
    """The stores of this server."""

    stores: list[StoreInfo]


class QuickCheckResult(msgspec.Struct, kw_only=True):
    """The result of a quick check."""

    store: str
    clean: bool
    checked: int
    """the number of checked rows; the next check continues after them"""
    seconds: float
    violations: list[Violation]
    notices: list[Violation]


class LimitList(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of concurrency keys."""

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
    """empty if it is paused, or if only the app knows its times"""
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
    """The job of a schedule that was run."""

    schedule: str
    id: str
    created: bool
    """false: with overlap "skip", this is an earlier job that is not settled"""


class ScheduleDropped(msgspec.Struct, kw_only=True):
    name: str
    dropped: Literal[True]

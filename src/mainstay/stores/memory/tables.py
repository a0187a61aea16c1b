"""The data of a memory store, apart from its operations. The registry brings tables of its own, which record how they
were before each change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...model import QueueSettings, Session
from ..port import RefusedWrite
from .directory import LeadershipTable, ScheduleTable
from .insertion import Keys
from .rows import Rows


class Tables:
    """Jobs with their events in `rows`, and the small tables beside them. Their values are replaced, never changed in
    place. `make` creates the table of a name."""

    def __init__(self, make: Callable[[str], dict[Any, Any]] = lambda _: {}) -> None:
        self.rows = Rows()
        self.keys: Keys = make("keys")
        self.refusals: dict[str, dict[int, RefusedWrite]] = make("refusals")
        """job -> token -> the refused write"""
        self.sessions: dict[str, Session] = {}
        self.marks: dict[str, dict[str, tuple[tuple[str, int], ...]]] = make("marks")
        """session -> mark of a claim -> the rows that it took, each with its token"""
        self.leaders = LeadershipTable(make("leads"))
        self.queues: dict[str, QueueSettings] = make("queues")
        self.limits: dict[str, int] = make("limits")
        self.schedules = ScheduleTable(make("schedules"), make("ticks"))

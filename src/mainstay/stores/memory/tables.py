"""All that a memory store holds, apart from what is done with it: whoever keeps a copy of a store elsewhere brings
tables that note how they were before each change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...model import QueueSettings, Session
from ..port import RefusedWrite
from .directory import LeadershipTable, ScheduleTable
from .insertion import Keys
from .rows import Rows

#: makes the table of a name
Make = Callable[[str], dict[Any, Any]]


def _plain(_: str) -> dict[Any, Any]:
    return {}


class Tables:
    """Jobs with their events in `rows`, and the small tables beside them. What they hold is replaced, never changed in
    place."""

    def __init__(self, make: Make = _plain) -> None:
        self.rows = Rows()
        self.keys: Keys = make("keys")
        self.refusals: dict[str, dict[int, RefusedWrite]] = make("refusals")
        """job -> token -> what was refused"""
        self.sessions: dict[str, Session] = {}
        self.leaders = LeadershipTable(make("leads"))
        self.queues: dict[str, QueueSettings] = make("queues")
        self.limits: dict[str, int] = make("limits")
        self.schedules = ScheduleTable(make("schedules"), make("ticks"))

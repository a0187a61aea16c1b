"""Schedules: jobs at times. A tick is a UTC instant; each is a unique insert by schedule and time.

Layer: part of control. Start from `schedule(...)`, which describes one, `register`, which stores it, and `Ticker`, the
leader's duty that submits the jobs. `plan` decides which ticks are due, as a pure function.
"""

from .cron import Cron
from .every import Every
from .operations import ScheduleView, describe, drop, pause, register, resume, run_now
from .plan import TickPlan, due_ticks, upcoming
from .spec import CatchUp, Overlap, ScheduledJob, ScheduleSpec, read_spec, schedule, spec_bytes
from .ticker import Ticker
from .when import StoredWhen, When, next_tick, tick_ms, tick_time, when_of

__all__ = [
    "CatchUp",
    "Cron",
    "Every",
    "Overlap",
    "ScheduleSpec",
    "ScheduleView",
    "ScheduledJob",
    "StoredWhen",
    "TickPlan",
    "Ticker",
    "When",
    "describe",
    "drop",
    "due_ticks",
    "next_tick",
    "pause",
    "read_spec",
    "register",
    "resume",
    "run_now",
    "schedule",
    "spec_bytes",
    "tick_ms",
    "tick_time",
    "upcoming",
    "when_of",
]

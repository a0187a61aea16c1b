"""Plain data: jobs, sessions, schedules and settings. No rules, no I/O.

Layer: above errors and clock, below lifecycle. Start from `Job`, `Options` and `Settings`.
"""

from .ids import IdSource, check_id, driver_id, driver_ids, first_id_at, id_time_ms
from .job import (
    AWAITS_MS,
    BLANK,
    NO_DIGEST,
    PLACE_MS,
    ErrorInfo,
    Job,
    Lane,
    Options,
    Progress,
    RetryPolicy,
    expiry,
    rank_of,
)
from .queues import LEAD_QUEUE, PLACE_QUEUE, PRIVATE, is_claimable, is_private, is_reserved, private_queue
from .records import Leadership, Offer, QueueSettings, Schedule, Session, route_of
from .settings import Settings

__all__ = [
    "AWAITS_MS",
    "BLANK",
    "LEAD_QUEUE",
    "NO_DIGEST",
    "PLACE_MS",
    "PLACE_QUEUE",
    "PRIVATE",
    "ErrorInfo",
    "IdSource",
    "Job",
    "Lane",
    "Leadership",
    "Offer",
    "Options",
    "Progress",
    "QueueSettings",
    "RetryPolicy",
    "Schedule",
    "Session",
    "Settings",
    "check_id",
    "driver_id",
    "driver_ids",
    "expiry",
    "first_id_at",
    "id_time_ms",
    "is_claimable",
    "is_private",
    "is_reserved",
    "private_queue",
    "rank_of",
    "route_of",
]

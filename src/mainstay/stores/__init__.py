"""Stores: where jobs live. One port, `JobStore`; one adapter per engine; one conformance suite for all.

Layer: above lifecycle, below control. Start from `open_store` and `port`.
"""

from ..storage.urls import shown_url
from .durability import LEVELS, Durability
from .factory import open_store, usual_settings
from .port import (
    CALLS,
    Answer,
    Audited,
    Change,
    Deletion,
    Inserted,
    JobStore,
    Key,
    NewJob,
    Observer,
    Overdue,
    Page,
    Pulse,
    Query,
    QueueStats,
    Refusal,
    Report,
    Stats,
    Trimmed,
    TrimPolicy,
    Violation,
    Wake,
    Written,
)
from .proxy import StoreMethod, StoreProxy

__all__ = [
    "CALLS",
    "LEVELS",
    "Answer",
    "Audited",
    "Change",
    "Deletion",
    "Durability",
    "Inserted",
    "JobStore",
    "Key",
    "NewJob",
    "Observer",
    "Overdue",
    "Page",
    "Pulse",
    "Query",
    "QueueStats",
    "Refusal",
    "Report",
    "Stats",
    "StoreMethod",
    "StoreProxy",
    "TrimPolicy",
    "Trimmed",
    "Violation",
    "Wake",
    "Written",
    "open_store",
    "shown_url",
    "usual_settings",
]

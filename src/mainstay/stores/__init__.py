"""Stores: where jobs live. One port, `JobStore`; one adapter per engine; one conformance suite for all.

Layer: above lifecycle, below control. Start from `open_store` and `port`.
"""

from ..storage.urls import shown_url
from .durability import LEVELS, Durability
from .factory import open_store, usual_settings
from .port import (
    CALLS,
    Audited,
    Change,
    ChangeResult,
    ClaimReport,
    Deletion,
    InsertResult,
    JobStore,
    Key,
    NewJob,
    Observer,
    Overdue,
    Page,
    Pulse,
    Query,
    QueueStats,
    RefusedWrite,
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
    "Audited",
    "Change",
    "ChangeResult",
    "ClaimReport",
    "Deletion",
    "Durability",
    "InsertResult",
    "JobStore",
    "Key",
    "NewJob",
    "Observer",
    "Overdue",
    "Page",
    "Pulse",
    "Query",
    "QueueStats",
    "RefusedWrite",
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

"""Stores: where jobs live. One port, `JobStore`; one adapter per engine; one conformance suite for all.

Layer: above lifecycle, below control. Start from `open_store` and `port`.
"""

from ..storage import shown_url
from .change_check import PLACEMENT_TOPIC, is_left_to_its_units
from .durability import LEVELS, Durability, strongest
from .factory import REGISTRY_SCHEMES, chain_of, check_adapter, open_store, serves_nodes, usual_settings
from .omitted_values import OMITTED_FIELDS, size_left_out
from .pages import all_rows
from .port import (
    CALLS,
    MARKS_KEPT,
    AnyChange,
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
    SealedChange,
    Stats,
    Trimmed,
    TrimPolicy,
    Violation,
    Wake,
    Written,
    is_managed,
)
from .proxy import StoreMethod, StoreProxy
from .query_filter import query_matches
from .routes import Offers
from .sealed_changes import apply_sealed
from .store_loop import adopt_loop
from .urgent import urgent_reads

__all__ = [
    "CALLS",
    "LEVELS",
    "MARKS_KEPT",
    "OMITTED_FIELDS",
    "PLACEMENT_TOPIC",
    "REGISTRY_SCHEMES",
    "AnyChange",
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
    "Offers",
    "Overdue",
    "Page",
    "Pulse",
    "Query",
    "QueueStats",
    "RefusedWrite",
    "SealedChange",
    "Stats",
    "StoreMethod",
    "StoreProxy",
    "TrimPolicy",
    "Trimmed",
    "Violation",
    "Wake",
    "Written",
    "adopt_loop",
    "all_rows",
    "apply_sealed",
    "chain_of",
    "check_adapter",
    "is_left_to_its_units",
    "is_managed",
    "open_store",
    "query_matches",
    "serves_nodes",
    "shown_url",
    "size_left_out",
    "strongest",
    "urgent_reads",
    "usual_settings",
]

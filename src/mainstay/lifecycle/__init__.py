"""The lifecycle: states, allowed moves, the machine that applies them, and the audit trail.

Layer: above model, below stores. Pure: no clock, no I/O. Start from `JOB`, `UNIT` and `apply`.
"""

from .abandoned import ABANDONED
from .events import Chain, Event, details_text, story, time_text
from .machine import ChangeKind, CompletionMove, Move, Moved, apply, claim, completion, promote, submit, tombstone
from .seals import job_seal
from .states import JOB, UNIT, State, Table, is_stopping, table_of

__all__ = [
    "ABANDONED",
    "JOB",
    "UNIT",
    "Chain",
    "ChangeKind",
    "CompletionMove",
    "Event",
    "Move",
    "Moved",
    "State",
    "Table",
    "apply",
    "claim",
    "completion",
    "details_text",
    "is_stopping",
    "job_seal",
    "promote",
    "story",
    "submit",
    "table_of",
    "time_text",
    "tombstone",
]

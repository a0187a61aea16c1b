"""What users test with: the memory store, a virtual clock, and ready-made rows.

Layer: above the kinds of job, below cluster. Start from `VirtualClock` and `MemoryStore`.
"""

from .clock import VirtualClock
from .rows import a_job

__all__ = ["VirtualClock", "a_job"]

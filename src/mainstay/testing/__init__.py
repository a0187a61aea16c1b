"""What users test with: the memory store, a virtual clock, and ready-made rows.

Layer: above the kinds of job, below cluster. Start from `VirtualClock` and `MemoryStore`.

>>> import asyncio, random
>>> from mainstay.model import IdSource
>>> clock = VirtualClock()
>>> store = MemoryStore(clock)
>>> new = new_job(clock, IdSource(random.Random(1)), name="mail.send")
>>> [made] = asyncio.run(store.insert([new]))
>>> made.created
True
"""

from ..stores.memory import MemoryStore
from .clock import VirtualClock
from .rows import a_job, new_job

__all__ = ["MemoryStore", "VirtualClock", "a_job", "new_job"]

"""The memory store: the whole port in dictionaries, for tests and for jobs that may be lost.

Place: an adapter of `mainstay.stores`. Start from `MemoryStore`; `open_memory` opens `memory:`.
`rows` has the tables and their indexes, `store` the operations on them, `wake` the subscriptions.
"""

from .store import MemoryStore, open_memory

__all__ = ["MemoryStore", "open_memory"]

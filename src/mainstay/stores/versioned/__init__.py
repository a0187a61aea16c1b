"""Named values with versions, changed by compare-and-swap, on folders, buckets, tables and key-value stores.

Start from `open_versioned` and `port.py`; `update` reads, decides and writes again until no other writer was faster.
"""

from ...storage import check_key, check_prefix
from .factory import open_versioned, prepare_versioned
from .port import Versioned, VersionedStore, WriteUnsure
from .update_loop import UpdateCounts, update

__all__ = [
    "UpdateCounts",
    "Versioned",
    "VersionedStore",
    "WriteUnsure",
    "check_key",
    "check_prefix",
    "open_versioned",
    "prepare_versioned",
    "update",
]

"""The job registry: jobs in nothing but a bucket, a table or a folder. For low rates.

The truth is a log of commits in a versioned store (`mainstay.stores.versioned`); every process keeps a replica of it in
memory, on which the rules of the memory store decide.

- `store.py` the port; `opening.py` URLs; `base.py` the parts; `line.py` how operations become commits
- `log.py` what is where in the store; `files.py` bytes, `documents.py` lines
- `replica.py` the copy in memory, `journal.py` how it is undone; `following.py` how it keeps up
- `rolling.py` snapshots, chunks of events, and what is removed; `checking.py` whether log and replica agree
- `sessions.py` heartbeats; `polling.py` hearing of others
"""

from .base import About
from .opening import open_registry, prepare_registry
from .store import JobRegistry

__all__ = ["About", "JobRegistry", "open_registry", "prepare_registry"]

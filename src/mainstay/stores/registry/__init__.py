"""The job registry: jobs in nothing but a bucket, a table or a folder. For low rates.

The truth is a log of commits in a versioned store (`mainstay.stores.versioned`); every process keeps a replica of it in
memory, on which the rules of the memory store decide.

- `store.py` the port; `factory.py` URLs; `base.py` the parts; `commit_queue.py` how operations become commits
- `log.py` what is where in the store; `files.py` bytes, `documents.py` lines
- `replica.py` the copy in memory, `journal.py` how it is undone; `follower.py` how it keeps up
- `snapshots.py` snapshots, chunks of events, and what is removed; `check.py` whether log and replica agree
- `sessions.py` heartbeats; `poller.py` hearing of others
"""

from .base import RegistryInfo
from .factory import open_registry, prepare_registry
from .store import JobRegistry

__all__ = ["JobRegistry", "RegistryInfo", "open_registry", "prepare_registry"]

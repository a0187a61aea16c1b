"""The job registry: jobs in a bucket, a table or a folder, without a database. For low rates.

The truth is a log of commits in a versioned store (`mainstay.stores.versioned`); every process keeps a replica of it in
memory, on which the rules of the memory store decide.

- `store.py` the port; `factory.py` URLs; `base.py` the parts; `commit_queue.py` how operations become commits
- `log.py` the keys in the versioned store; `files.py` bytes, `documents.py` lines
- `replica.py` the copy in memory, `journal.py` how it is undone; `follower.py` how it follows the log
- `snapshots.py` snapshots, chunks of events, and removal; `check.py` compares log and replica
- `sessions.py` heartbeats; `poller.py` looks for commits of other processes
"""

from .base import RegistryInfo
from .factory import open_registry, prepare_registry
from .store import JobRegistry

__all__ = ["JobRegistry", "RegistryInfo", "open_registry", "prepare_registry"]

"""The API from another program: `Client` and `AsyncClient`. Needs the extra `mainstay[client]`, and no store.

`calls` and `core` say what is asked and how answers are read, `exchange` what is tried again, `following` how a broken
stream is taken up; none of them sends anything. `aio*` and `sync*` are the two faces, which do.
"""

from __future__ import annotations

from ..api.seen import BatchSeen, Resuming, Schedule, StoreSeen
from .aio import AsyncClient
from .aio_handle import AsyncGroup, AsyncHandle
from .answers import Done, Ended, Event, Job, JobPage, Listed, News, Reported, Stats, Trouble, Working
from .exchange import Tries
from .new import NewJob
from .sync import Client
from .sync_handle import Group, Handle

__all__ = [
    "AsyncClient",
    "AsyncGroup",
    "AsyncHandle",
    "BatchSeen",
    "Client",
    "Done",
    "Ended",
    "Event",
    "Group",
    "Handle",
    "Job",
    "JobPage",
    "Listed",
    "NewJob",
    "News",
    "Reported",
    "Resuming",
    "Schedule",
    "Stats",
    "StoreSeen",
    "Tries",
    "Trouble",
    "Working",
]

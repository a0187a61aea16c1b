"""The messages of the live streams: the server sends them, the client reads them."""

from __future__ import annotations

import msgspec

from ...control import EventView, JobView
from ...model import Progress


class ProgressMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A running job reported its progress."""

    id: str
    progress: Progress | None
    progress_ms: int | None


class EndMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A job is settled, or was deleted: its stream ends."""

    id: str
    status: str | None
    """None: it was deleted"""
    reason: str | None = None
    deleted: bool = False


class TroubleMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The server cannot read its store, and keeps trying."""

    detail: str


class ListMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A list of jobs has changed: the ids as they are now, and the jobs that are new or different."""

    at_ms: int
    ids: tuple[str, ...]
    jobs: tuple[JobView, ...]
    finished: bool = True
    """False: the search is not finished; more jobs may match"""


#: what the stream of one job carries
JobMessage = EventView | JobView | ProgressMessage | EndMessage | TroubleMessage

__all__ = ["EndMessage", "JobMessage", "ListMessage", "ProgressMessage", "TroubleMessage"]

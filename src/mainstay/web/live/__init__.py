"""What changes while one looks: snapshots of the stores, and streams of them and of jobs. Start at `hub`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .alerts import alert_rules as alert_rules
    from .followed import Followed as Followed, FollowedSet as FollowedSet
    from .history import Sample as Sample
    from .hub import LiveHub as LiveHub
    from .messages import (
        EndMessage as EndMessage,
        JobMessage as JobMessage,
        ListMessage as ListMessage,
        ProgressMessage as ProgressMessage,
        TroubleMessage as TroubleMessage,
    )
    from .routes import live_operations as live_operations
    from .snapshot import HeldJob as HeldJob, Snapshot as Snapshot
    from .sse import event as event, event_of as event_of
    from .streams import stream_operation as stream_operation, stream_response as stream_response

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".alerts": "alert_rules",
        ".followed": "Followed FollowedSet",
        ".history": "Sample",
        ".hub": "LiveHub",
        ".messages": "EndMessage JobMessage ListMessage ProgressMessage TroubleMessage",
        ".routes": "live_operations",
        ".snapshot": "HeldJob Snapshot",
        ".sse": "event event_of",
        ".streams": "stream_operation stream_response",
    },
)

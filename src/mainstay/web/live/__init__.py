"""What changes while one looks: snapshots of the stores, and streams of them and of jobs. Start at `hub`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .alerts import alert_rules as alert_rules
    from .history import Sample as Sample
    from .messages import (
        EndMessage as EndMessage,
        JobMessage as JobMessage,
        ListMessage as ListMessage,
        ProgressMessage as ProgressMessage,
        TroubleMessage as TroubleMessage,
    )
    from .snapshot import Snapshot as Snapshot

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".alerts": "alert_rules",
        ".history": "Sample",
        ".messages": "EndMessage JobMessage ListMessage ProgressMessage TroubleMessage",
        ".snapshot": "Snapshot",
    },
)

"""Mainstay: a distributed job system that can prove what happened to every job.

Programs import from here: `from mainstay import App, context`. Names are loaded on first use, so that a command that
needs none of them starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .app import App
    from .batch import Aggregate, Batch, BatchRun, grid
    from .client import AsyncClient as AsyncClient, Client as Client
    from .control import Quarantine, Stop, Wait
    from .control.schedules import Cron, Every
    from .errors import JobFailed, MainstayError, WaitTimeout
    from .node import LeaderRun, Node, NodeHandle, NodeJob, NodeJobResult, NodeResult
    from .outputs import Outputs
    from .task import Call, Codec, Draft, Handle, Task
    from .worker import Context, context

# without names that need an extra, so that `from mainstay import *` and `help(mainstay)` work without it
__all__ = [
    "Aggregate",
    "App",
    "Batch",
    "BatchRun",
    "Call",
    "Codec",
    "Context",
    "Cron",
    "Draft",
    "Every",
    "Handle",
    "JobFailed",
    "LeaderRun",
    "MainstayError",
    "Node",
    "NodeHandle",
    "NodeJob",
    "NodeJobResult",
    "NodeResult",
    "Outputs",
    "Quarantine",
    "Stop",
    "Task",
    "Wait",
    "WaitTimeout",
    "context",
    "grid",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".app": "App",
        ".batch": "Aggregate Batch BatchRun grid",
        ".client": "AsyncClient Client",
        ".control": "Quarantine Stop Wait",
        ".control.schedules": "Cron Every",
        ".errors": "JobFailed MainstayError WaitTimeout",
        ".node": "LeaderRun Node NodeHandle NodeJob NodeJobResult NodeResult",
        ".outputs": "Outputs",
        ".task": "Call Codec Draft Handle Task",
        ".worker": "Context context",
    },
)

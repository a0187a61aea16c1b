"""Mainstay: a distributed job system that can prove what happened to every job.

Programs import from here: `from mainstay import App, context`. Names are loaded on first use, so that a command that
needs none of them starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import App
    from .batch import Aggregate, Batch, BatchRun, grid
    from .client import AsyncClient as AsyncClient
    from .client import Client as Client
    from .control import Quarantine, Stop, Wait
    from .control.schedules import Cron, Every
    from .errors import JobFailed, MainstayError, WaitTimeout
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
    "MainstayError",
    "Outputs",
    "Quarantine",
    "Stop",
    "Task",
    "Wait",
    "WaitTimeout",
    "context",
    "grid",
]

_HOMES = {
    "Aggregate": "batch",
    "App": "app",
    "AsyncClient": "client",
    "Batch": "batch",
    "BatchRun": "batch",
    "Call": "task",
    "Client": "client",
    "Codec": "task",
    "Context": "worker",
    "Cron": "control.schedules",
    "Draft": "task",
    "Every": "control.schedules",
    "Handle": "task",
    "JobFailed": "errors",
    "MainstayError": "errors",
    "Outputs": "outputs",
    "Quarantine": "control",
    "Stop": "control",
    "Task": "task",
    "Wait": "control",
    "WaitTimeout": "errors",
    "context": "worker",
    "grid": "batch",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Tasks: functions that workers run, and how calls of them are submitted.

Layer: above worker, below app. Start from `Task` (what `@app.task` makes), `Handle` (a submitted job) and `AppClient`
(what all tasks of an app share). `signature.py` turns a call into stored data and back. `kind` declares the parts of
this kind of job. Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .app_methods import TaskMethods
    from .call import Call
    from .client import AppClient
    from .codec import Codec
    from .drafts import BeforeSubmit, Draft
    from .handle import Handle
    from .options import SubmitOptions, TaskOptions
    from .task import AsyncTask, PlainTask, Submits, Task

__all__ = [
    "AppClient",
    "AsyncTask",
    "BeforeSubmit",
    "Call",
    "Codec",
    "Draft",
    "Handle",
    "PlainTask",
    "SubmitOptions",
    "Submits",
    "Task",
    "TaskMethods",
    "TaskOptions",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".app_methods": ("TaskMethods",),
        ".call": ("Call",),
        ".client": ("AppClient",),
        ".drafts": ("BeforeSubmit", "Draft"),
        ".handle": ("Handle",),
        ".options": ("SubmitOptions", "TaskOptions"),
        ".codec": ("Codec",),
        ".task": ("AsyncTask", "PlainTask", "Submits", "Task"),
    },
)

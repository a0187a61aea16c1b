"""Tasks: functions that workers run, and how calls of them are submitted.

Layer: above worker, below app. Start from `Task` (what `@app.task` makes), `Handle` (a submitted job) and `Client`
(what all tasks of an app share). `signature.py` turns a call into stored data and back.
"""

from .call import Call
from .client import Client
from .codec import Codec
from .drafts import BeforeSubmit, Draft
from .handle import Handle
from .options import SubmitOptions, TaskOptions
from .task import AsyncTask, PlainTask, Submits, Task

__all__ = [
    "AsyncTask",
    "BeforeSubmit",
    "Call",
    "Client",
    "Codec",
    "Draft",
    "Handle",
    "PlainTask",
    "SubmitOptions",
    "Submits",
    "Task",
    "TaskOptions",
]

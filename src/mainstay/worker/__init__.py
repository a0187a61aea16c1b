"""Workers: a supervisor that runs no user code, engines that do, and the children of engines.

Layer: above control, below the kinds of job. Start from `Program` (what a worker runs), `Engine` (one process's loop:
claim, run, store the end) and `Supervisor` (starts engines, sends their heartbeats, reaps them).
"""

from .context import Context, Input, context
from .declarations import AppBase, Declarations, Host
from .program import Hook, Mode, Program, Work, load

__all__ = [
    "AppBase",
    "Context",
    "Declarations",
    "Hook",
    "Host",
    "Input",
    "Mode",
    "Program",
    "Work",
    "context",
    "load",
]

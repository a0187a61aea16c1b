"""Workers: a supervisor that runs no user code, engines that do, and the children of engines.

Layer: above control, below the kinds of job. Start from `Program` (what a worker runs), `Engine` (one process's loop:
claim, run, store the end) and `Supervisor` (starts engines, sends their heartbeats, reaps them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .app_import import (
        find_target as find_target,
        target_of as target_of,
    )
    from .children import Children as Children
    from .declarations import AppBase as AppBase, Declarations as Declarations, Host as Host, LeadHost as LeadHost
    from .engine import Engine as Engine, EngineProcess as EngineProcess
    from .exits import describe_exit as describe_exit
    from .job_context import (
        Context as Context,
        GiveBack as GiveBack,
        Input as Input,
        LetGo as LetGo,
        OutOfTime as OutOfTime,
        context as context,
    )
    from .leads import Leads as Leads
    from .messages import Hello as Hello
    from .outage import PASSING as PASSING, Outage as Outage
    from .outbox import OutboxResult as OutboxResult, kept_files as kept_files, write_kept as write_kept
    from .output_capture import prune_output as prune_output
    from .output_file import (
        TAIL_BYTES as TAIL_BYTES,
        OutputTail as OutputTail,
        output_path as output_path,
        read_output as read_output,
    )
    from .ports import port_errors as port_errors, raise_open_files as raise_open_files
    from .processes import Processes as Processes, ProcessHandle as ProcessHandle
    from .processors import available as available
    from .program import (
        Hook as Hook,
        Mode as Mode,
        Placing as Placing,
        Program as Program,
        Work as Work,
        load as load,
        offer_of as offer_of,
        placed_offer_of as placed_offer_of,
    )
    from .run import CANCELLED as CANCELLED, OVERRAN as OVERRAN, STALLED as STALLED
    from .state_files import state_folder as state_folder
    from .supervisor import (
        FORCED as FORCED,
        STOPPED as STOPPED,
        UNFIT as UNFIT,
        Supervisor as Supervisor,
    )
    from .worker_options import NODE_STORE as NODE_STORE, WorkerOptions as WorkerOptions


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".app_import": "find_target target_of",
        ".children": "Children",
        ".declarations": "AppBase Declarations Host LeadHost",
        ".engine": "Engine EngineProcess",
        ".exits": "describe_exit",
        ".job_context": "Context GiveBack Input LetGo OutOfTime context",
        ".leads": "Leads",
        ".messages": "Hello",
        ".outage": "PASSING Outage",
        ".outbox": "OutboxResult kept_files write_kept",
        ".output_capture": "prune_output",
        ".output_file": "OutputTail TAIL_BYTES output_path read_output",
        ".ports": "port_errors raise_open_files",
        ".processes": "ProcessHandle Processes",
        ".processors": "available",
        ".program": "Hook Mode Placing Program Work load offer_of placed_offer_of",
        ".run": "CANCELLED OVERRAN STALLED",
        ".state_files": "state_folder",
        ".supervisor": "FORCED STOPPED Supervisor UNFIT",
        ".worker_options": "NODE_STORE WorkerOptions",
    },
)

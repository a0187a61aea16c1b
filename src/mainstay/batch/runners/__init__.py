"""Outside runners: run the units of a batch outside the workers.

Layer: part of `batch`. Start from `Runner`, the port. `ProcessRunner` implements `exec:COMMAND`, `ExecRunner` uses the
commands of a batch scheduler. Other runners are objects with the same methods.
"""

from .port import OutsideStatus, Runner
from .process import ProcessRunner
from .registry import LOCAL, Runners, shown_runner
from .scheduler import ExecRunner

__all__ = ["LOCAL", "ExecRunner", "OutsideStatus", "ProcessRunner", "Runner", "Runners", "shown_runner"]

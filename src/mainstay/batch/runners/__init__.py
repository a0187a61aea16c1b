"""Outside runners: where the units of a batch run, if not on the workers that are there.

Layer: part of `batch`. Start from `Runner`, the port. `ProcessRunner` is what `exec:COMMAND` stands for, `ExecRunner` a
batch scheduler by its own commands. A third is an object with the same three methods.
"""

from .port import Outside, Runner
from .process import ProcessRunner
from .registry import LOCAL, Runners, shown_runner
from .scheduler import ExecRunner

__all__ = ["LOCAL", "ExecRunner", "Outside", "ProcessRunner", "Runner", "Runners", "shown_runner"]

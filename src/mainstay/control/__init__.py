"""Control: the only place with rules. It works on any store.

Layer: above stores, below worker. Start from `Control`. `rules/` contains the decisions as pure functions; the modules
beside it read and write.
"""

from ..stores import InsertResult
from .attempts import AttemptEnd, AttemptEnds, Completion, Failure
from .claims import Extension
from .control import Control
from .duties import Duties, Duty
from .failure import error_info
from .group import SubmittedGroup
from .job_factory import JobRequest
from .operations import Operations
from .options import OPTION_NAMES, Plan
from .payload import decoded
from .rules.retry import Decide, Quarantine, Stop, Verdict, Wait
from .sweep import Swept
from .writer import Outcome

__all__ = [
    "OPTION_NAMES",
    "AttemptEnd",
    "AttemptEnds",
    "Completion",
    "Control",
    "Decide",
    "Duties",
    "Duty",
    "Extension",
    "Failure",
    "InsertResult",
    "JobRequest",
    "Operations",
    "Outcome",
    "Plan",
    "Quarantine",
    "Stop",
    "SubmittedGroup",
    "Swept",
    "Verdict",
    "Wait",
    "decoded",
    "error_info",
]

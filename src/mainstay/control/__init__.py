"""Control: the only place with rules. It works on any store.

Layer: above stores, below worker. Start from `Control`. `rules/` contains the decisions as pure functions; the modules
beside it read and write.
"""

from ..stores import InsertResult
from .actions import WAITING_STATES, Action, cancelling, deleting, retrying, withdrawing
from .assignments import PastAssignment, UnitAssignment, assignments_of, past_assignments
from .attempts import AttemptEnd, AttemptEnds, Completion, Failure
from .chunks import move_index, note_stored
from .claims import Extension, check_labels, check_short_name
from .control import Control
from .core_use import CoreHolding, CoreReader, CoreUse, CoreWaiter
from .drivers import AWAITS_CORES, driver_id
from .duties import LEADER, PLACEMENT, PLACEMENT_LEASE_S, Duties, Duty
from .ended_log import log_end
from .failure import error_info, one_line, storable_text
from .group import SubmittedGroup
from .job_factory import JobFactory, JobRequest
from .job_filter import by_age, check_states, state_meant
from .json_view import (
    PRIVATE_FIELDS,
    EventView,
    ExtensionValue,
    JobView,
    SessionView,
    StatsView,
    event_view,
    job_view,
    read_stats,
    readable_value,
    schedule_data,
    session_view,
    stored_value,
    value_of,
)
from .member_sessions import MemberSessions
from .operations import Operations
from .options import LARGEST_NUMBER, OPTION_NAMES, OptionReader, Plan, check_count, check_name, check_text
from .payload import SEALED, decoded, encoded, is_sealed, unique_of
from .placement_rounds import (
    AGAIN_S,
    CLEAN_UP_S,
    OPEN_UNITS,
    PLACEMENT_IDLE_S,
    PLACEMENT_POLL_S,
    SETTLED_JOBS,
    UNSETTLED_JOBS,
    PlacementRounds,
    read_given_back,
)
from .progress import checked_progress
from .routes import JobRoutes, UnitRoute, read_routes, unit_route
from .rules.attempts import error_line
from .rules.blame import is_suspect, runs_alone
from .rules.overdue import has_stalled
from .rules.placement import (
    ACK_WINDOW_MS,
    MOST_REFUSALS,
    OUT_MS,
    RETRIED,
    ask_again,
    assign_unit,
    budget_spent,
    give_unit_up,
    given_back_by,
    is_due_to_ask,
    is_present,
    lose_unit,
    may_assign,
    may_be_given_back,
    open_nodes,
    refusals,
    retry_unit,
    take_unit_back,
    window_is_over,
)
from .rules.retry import Decide, Quarantine, Stop, Verdict, Wait
from .sweep import Swept
from .task_defaults import TaskDefaults, with_task_defaults
from .time_input import read_deadline, read_time
from .trail import read_story
from .transactional import Enqueuer
from .unit_actions import (
    Ask,
    Assign,
    Assignment,
    CancelUnits,
    FailUnit,
    RowChange,
    TakeBack,
    UnitAction,
    cancel_unit,
    in_epoch,
    node_names,
    unit_changes,
)
from .unserved_jobs import unserved
from .wait_polls import is_over
from .worker_drain import crew_of, worker_of
from .writer import Outcome

__all__ = [
    "ACK_WINDOW_MS",
    "AGAIN_S",
    "AWAITS_CORES",
    "CLEAN_UP_S",
    "LARGEST_NUMBER",
    "LEADER",
    "MOST_REFUSALS",
    "OPEN_UNITS",
    "OPTION_NAMES",
    "OUT_MS",
    "PLACEMENT",
    "PLACEMENT_IDLE_S",
    "PLACEMENT_LEASE_S",
    "PLACEMENT_POLL_S",
    "PRIVATE_FIELDS",
    "RETRIED",
    "SEALED",
    "SETTLED_JOBS",
    "UNSETTLED_JOBS",
    "WAITING_STATES",
    "Action",
    "Ask",
    "Assign",
    "Assignment",
    "AttemptEnd",
    "AttemptEnds",
    "CancelUnits",
    "Completion",
    "Control",
    "CoreHolding",
    "CoreReader",
    "CoreUse",
    "CoreWaiter",
    "Decide",
    "Duties",
    "Duty",
    "Enqueuer",
    "EventView",
    "Extension",
    "ExtensionValue",
    "FailUnit",
    "Failure",
    "InsertResult",
    "JobFactory",
    "JobRequest",
    "JobRoutes",
    "JobView",
    "MemberSessions",
    "Operations",
    "OptionReader",
    "Outcome",
    "PastAssignment",
    "PlacementRounds",
    "Plan",
    "Quarantine",
    "RowChange",
    "SessionView",
    "StatsView",
    "Stop",
    "SubmittedGroup",
    "Swept",
    "TakeBack",
    "TaskDefaults",
    "UnitAction",
    "UnitAssignment",
    "UnitRoute",
    "Verdict",
    "Wait",
    "ask_again",
    "assign_unit",
    "assignments_of",
    "budget_spent",
    "by_age",
    "cancel_unit",
    "cancelling",
    "check_count",
    "check_labels",
    "check_name",
    "check_short_name",
    "check_states",
    "check_text",
    "checked_progress",
    "crew_of",
    "decoded",
    "deleting",
    "driver_id",
    "encoded",
    "error_info",
    "error_line",
    "event_view",
    "give_unit_up",
    "given_back_by",
    "has_stalled",
    "in_epoch",
    "is_due_to_ask",
    "is_over",
    "is_present",
    "is_sealed",
    "is_suspect",
    "job_view",
    "log_end",
    "lose_unit",
    "may_assign",
    "may_be_given_back",
    "move_index",
    "node_names",
    "note_stored",
    "one_line",
    "open_nodes",
    "past_assignments",
    "read_deadline",
    "read_given_back",
    "read_routes",
    "read_stats",
    "read_story",
    "read_time",
    "readable_value",
    "refusals",
    "retry_unit",
    "retrying",
    "runs_alone",
    "schedule_data",
    "session_view",
    "state_meant",
    "storable_text",
    "stored_value",
    "take_unit_back",
    "unique_of",
    "unit_changes",
    "unit_route",
    "unserved",
    "value_of",
    "window_is_over",
    "with_task_defaults",
    "withdrawing",
    "worker_of",
]

"""What a fleet is made of, and its times."""

from __future__ import annotations

import msgspec

#: for all slices to end their processes, once they are released
RELEASE_S = 10.0


class FleetMember(msgspec.Struct, frozen=True, kw_only=True):
    """A slice and the machine that runs it."""

    node: str
    processes: int
    token: int = 1
    """which assignment of the slice; it grows when the slice goes to another machine"""


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The times of a fleet, in seconds."""

    ready_s: float = 300.0
    """for all slices to be prepared; a slice that hears nothing for this long after its start ends"""
    ahead_s: float = 0.5
    """between the order to go and the start; four round trips to the slowest slice, if that is more"""
    confirm_s: float = 2.0
    """after the start, for a slice to confirm the order to go"""
    isolation_s: float = 20.0
    """without contact to the leader, after which a slice stops its load"""
    lost_s: float = 25.0
    """without an answer, after which the leader counts a slice as lost: its load has stopped by then"""
    unconfirmed_s: float = 15.0
    """the same once the run was stopped: three requests of 5 s. The slice counts as unconfirmed then"""
    let_go_s: float = 5.0
    """the same once the run was given up"""
    stall_s: float = 120.0
    """without a new window of a slice under load that answers: it is stuck, and counts as lost"""
    kept_s: float = 300.0
    """how long a slice that has stopped its load keeps its result for the leader or its successor"""
    ping_s: float = 1.0
    """how often the leader asks each slice"""
    poll_s: float = 1.0
    """how long a slice works on a command before it answers that it is not done"""
    answer_s: float = 1.0
    """how long an answer may travel; then the request is sent again"""
    hold_s: float = 0.25
    """how long a window waits for the parts of other slices"""
    doubt_s: float = 0.05
    """a clock that is less certain than this is reported"""
    skew_s: float = 0.1
    """starts that are further apart than this are reported"""

    @property
    def alone_s(self) -> float:
        """Without contact to the leader, after which the generators of a slice send nothing: the slice would have
        stopped them before, and the leader replaces it later.

        >>> FleetSettings().alone_s
        22.0
        """
        return self.isolation_s + 0.4 * (self.lost_s - self.isolation_s)

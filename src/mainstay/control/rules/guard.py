"""When a sweeper may trust its own sense of time.

After a pause of the machine (suspend, a frozen container) every session looks dead to the first sweeper that wakes.
So a sweeper that notices a gap in its own heartbeats gives the other sessions a full lease to be heard first. While its
own heartbeats fail (the store is locked, or unreachable), those of others may fail as well, so it does not sweep.
"""

from __future__ import annotations


class SweepGuard:
    """Decides from the times of the sweeper's own heartbeats.

    >>> guard = SweepGuard(lease_ms=8000, heartbeat_ms=2000)
    >>> guard.heard(0); guard.may_sweep(1000)
    True
    >>> guard.may_sweep(60_000), guard.may_sweep(67_999), guard.may_sweep(68_000)
    (False, False, True)
    >>> guard.trying(68_000); guard.may_sweep(600_000)
    False
    >>> guard.heard(600_000); guard.may_sweep(607_999), guard.may_sweep(608_000)
    (False, True)
    """

    def __init__(self, *, lease_ms: int, heartbeat_ms: int) -> None:
        self._lease_ms = lease_ms
        # Other sessions beat as often as we do, so their last beat may be older than ours by one interval, and by a
        # little more on a busy machine: that is the second interval. After a longer gap they may look dead although
        # they are alive.
        self._gap_ms = max(lease_ms - 2 * heartbeat_ms, heartbeat_ms)
        self._seen_ms: int | None = None
        self._not_before_ms: int | None = None
        self._trying = False

    @property
    def watching(self) -> bool:
        """Whether this process sends heartbeats."""
        return self._seen_ms is not None

    def trying(self, now_ms: int) -> None:
        """A heartbeat is being sent, or a failed one is being repeated. The first one begins the watch: the state of
        the store before it is unknown."""
        self._trying = True
        if self._seen_ms is None:
            self._seen_ms = now_ms

    def heard(self, now_ms: int) -> None:
        """A heartbeat of ours was processed, whatever the answer was."""
        self._sense(now_ms, self._gap_ms)
        self._seen_ms = now_ms
        self._trying = False

    def may_sweep(self, now_ms: int) -> bool:
        """Whether to sweep now. A sweeper without heartbeats (a command, a test) may always sweep."""
        if self._seen_ms is None:
            return True
        if self._trying and now_ms - self._seen_ms > self._gap_ms:
            return False  # the beat that gets through will sense the gap, and start the wait
        # while it waits its looks stand in for beats, so that a sweeper whose sessions ended goes on sweeping
        waiting = self._not_before_ms is not None
        if self._sense(now_ms, self._lease_ms if waiting else self._gap_ms) or (waiting and not self._trying):
            self._seen_ms = now_ms
        if self._not_before_ms is not None and now_ms >= self._not_before_ms:
            self._not_before_ms = None
        return self._not_before_ms is None

    def forget(self) -> None:
        """Our sessions were closed; there are no more heartbeats."""
        self._seen_ms = self._not_before_ms = None
        self._trying = False

    def _sense(self, now_ms: int, gap_ms: int) -> bool:
        gap = self._seen_ms is not None and now_ms - self._seen_ms > gap_ms
        if gap:
            self._not_before_ms = now_ms + self._lease_ms
        return gap

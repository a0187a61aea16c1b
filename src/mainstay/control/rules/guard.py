"""When a sweeper may trust its own sense of time.

A paused machine (suspend, a frozen container) makes every session look dead to the first sweeper that wakes. One
that notices a gap in its own beats therefore gives the others a full lease to be heard first. While its own beats do
not get through (the store is locked, or away) nobody else's may either, so it judges nobody until one does.
"""

from __future__ import annotations


class SweepGuard:
    """Fed with the lease time of one's own beats.

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
        # Others beat as often as we do, so their last beat may be older than ours by as much as that, and by a little
        # more on a busy machine: one more beat is the room for it. After a longer gap they may look dead for no fault
        # of theirs.
        self._gap_ms = max(lease_ms - 2 * heartbeat_ms, heartbeat_ms)
        self._seen_ms: int | None = None
        self._not_before_ms: int | None = None
        self._trying = False

    @property
    def watching(self) -> bool:
        """Whether there are beats to miss."""
        return self._seen_ms is not None

    def trying(self, now_ms: int) -> None:
        """A beat is on its way; if it fails, the next one is. The first one begins the watch over ourselves: nobody
        knows what the store was like before."""
        self._trying = True
        if self._seen_ms is None:
            self._seen_ms = now_ms

    def heard(self, now_ms: int) -> None:
        """A beat of ours got through, whatever the answer was."""
        self._sense(now_ms, self._gap_ms)
        self._seen_ms = now_ms
        self._trying = False

    def may_sweep(self, now_ms: int) -> bool:
        """A sweeper that never beats (a command, a test) has nothing to miss and may always sweep."""
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
        """Our sessions ended in good order; there are no beats to miss any more."""
        self._seen_ms = self._not_before_ms = None
        self._trying = False

    def _sense(self, now_ms: int, gap_ms: int) -> bool:
        gap = self._seen_ms is not None and now_ms - self._seen_ms > gap_ms
        if gap:
            self._not_before_ms = now_ms + self._lease_ms
        return gap

"""The pace of commits beside other writers.

A commit is lost if another process commits while it is under way. The winner is ready for its next commit while the
others still read the last one, and would win again and again, until they give up. So a process that sees other writers
leaves them time between two commits of its own, in proportion to their number and to the duration of a commit.
Operations that arrive in that time share a commit.

The time adapts: it doubles after a lost commit, and shrinks a little after each that succeeded. So about one attempt in
twenty is lost, whatever the number of processes, and five in a row once in millions.

A process that commits without a pause and sees no other writer may block one that has not won yet. So it pauses for a
moment now and then, and a process that has lost waits for such a moment.
"""

from __future__ import annotations

import random

#: other writers count for this time after their last commit
_ACTIVE_S = 5.0
#: the gap for each other writer, in durations of a commit
_LEAST, _MOST = 3.0, 60.0
_AFTER_LOST, _AFTER_MADE = 2.0, 0.97
_LONGEST_S = 2.0
#: commits in a row without a pause; the duration of a pause, and of the pause after them, in durations of a commit
_MOST_IN_A_ROW, _BREATHS, _ASIDE = 24, 3.0, 8.0
#: weight of the last commit in the mean duration
_NEW = 0.2


class CommitPace:
    """Learns from commits: their writers and durations. Times are seconds of any monotonic clock.

    >>> pace = CommitPace(random.Random(1))
    >>> pace.made(10.0, took_s=0.05); pace.wait_s(10.0)
    0.0
    >>> pace.saw("another", 10.0); 0.05 < pace.wait_s(10.0) < 0.25
    True
    >>> pace.lost(); 0.1 < pace.wait_s(10.0) < 0.5
    True
    >>> pace.wait_s(11.0)
    0.0
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._others: dict[str, float] = {}
        self._took_s = 0.0
        self._share = _LEAST
        self._last_s: float | None = None
        self._in_a_row = 0

    def saw(self, writer: str, now_s: float) -> None:
        """Another process has made a commit."""
        self._others[writer] = now_s

    def lost(self) -> None:
        """A commit of this process came too late."""
        self._share = min(_MOST, self._share * _AFTER_LOST)

    def made(self, now_s: float, *, took_s: float) -> None:
        """This process has made a commit."""
        idle_s = now_s - took_s - (self._last_s or 0.0)
        self._in_a_row = self._in_a_row + 1 if idle_s < _BREATHS * took_s else 0
        self._share = max(_LEAST, self._share * _AFTER_MADE)
        self._took_s = took_s if self._last_s is None else (1 - _NEW) * self._took_s + _NEW * took_s
        self._last_s = now_s

    @property
    def breath_s(self) -> float:
        """The time without commits that counts as quiet."""
        return min(0.2, max(0.002, 2 * self._took_s))

    @property
    def others(self) -> bool:
        """Whether others committed recently."""
        return bool(self._others)

    def wait_s(self, now_s: float) -> float:
        """How long to wait before the next commit."""
        for writer in [writer for writer, seen_s in self._others.items() if now_s - seen_s > _ACTIVE_S]:
            del self._others[writer]
        if self._last_s is None:
            return 0.0
        if not self._others:
            if self._in_a_row < _MOST_IN_A_ROW:
                return 0.0
            self._in_a_row = 0
            return min(_LONGEST_S, _ASIDE * self._took_s)
        gap_s = min(_LONGEST_S, self._share * len(self._others) * self._took_s) * self._rng.uniform(0.5, 1.5)
        return max(0.0, self._last_s + gap_s - now_s)

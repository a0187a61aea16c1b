"""How soon to commit again when others commit as well.

A commit is lost if another one comes while it is on its way. Whoever has just won is ready for the next while the
others still read what he did, and would win again and again, until they give up. So a process that sees others at work
leaves them time between two commits of its own, in proportion to how many they are and how long a commit takes; what is
asked for meanwhile goes together.

How much time is found out: twice as much after a commit that was lost, a little less after each that was made. So about
one try in twenty is lost, whatever the number of processes, and five in a row once in millions.

One who commits without a pause and sees nobody may be in the way of somebody who has not won yet. So he stands aside
for a moment now and then, and whoever has lost waits for such a moment.
"""

from __future__ import annotations

import random

#: others count for so long after their last commit
_ACTIVE_S = 5.0
#: times the length of a commit, for each of the others
_LEAST, _MOST = 3.0, 60.0
_AFTER_LOST, _AFTER_MADE = 2.0, 0.97
_LONGEST_S = 2.0
#: so many commits with no pause between them, of the length of so many commits, then one of this length
_MOST_IN_A_ROW, _BREATHS, _ASIDE = 24, 3.0, 8.0
#: how much the last commit counts in the mean
_NEW = 0.2


class CommitPace:
    """Fed with what is committed, by whom, and how long it took; times in seconds of any steady clock.

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
        """Somebody else has made a commit."""
        self._others[writer] = now_s

    def lost(self) -> None:
        """One of ours came too late."""
        self._share = min(_MOST, self._share * _AFTER_LOST)

    def made(self, now_s: float, *, took_s: float) -> None:
        """We have made one."""
        idle_s = now_s - took_s - (self._last_s or 0.0)
        self._in_a_row = self._in_a_row + 1 if idle_s < _BREATHS * took_s else 0
        self._share = max(_LEAST, self._share * _AFTER_MADE)
        self._took_s = took_s if self._last_s is None else (1 - _NEW) * self._took_s + _NEW * took_s
        self._last_s = now_s

    @property
    def breath_s(self) -> float:
        """How long nobody must have committed for it to be quiet."""
        return min(0.2, max(0.002, 2 * self._took_s))

    @property
    def others(self) -> bool:
        """Whether others were at work lately."""
        return bool(self._others)

    def wait_s(self, now_s: float) -> float:
        """How long to wait before the next."""
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

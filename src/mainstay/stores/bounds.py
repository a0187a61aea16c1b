"""Limits and names that all adapters share."""

from __future__ import annotations

#: how long ticks are stored one by one; older ones are judged by the last tick of their schedule
TICKS_KEPT_MS = 86_400_000
#: the name of the leadership over schedules, retention and checks
LEADER = "leader"
#: No store grants a leadership for longer: it is renewed every few seconds.
LONGEST_LEAD_MS = 86_400_000
#: how many rows one page reads if no index serves its filters
WINDOW = 20_000
#: the most stretches of an index (jobs of one queue, status and name) that a page merges; with more, it filters rows
MOST_STRETCHES = 2_000
#: the number of minutes that rates cover
RATE_MINUTES = 5
#: counts new rows, beside the states that count moves
SUBMITTED = "submitted"
#: the index of long histories has those with more events
LONG = 3

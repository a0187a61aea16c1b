"""How far the adapters go, alike."""

from __future__ import annotations

#: ticks further than this behind the last one are no longer remembered one by one
TICKS_KEPT_MS = 86_400_000
#: what leads by default: the session that runs schedules, retention and checks
LEADER = "leader"
#: A lead is asked for again and again, for seconds. One that ends later than this was not given by any store.
LONGEST_LEAD_MS = 86_400_000
#: rows that one page of a listing looks at, where no index serves its filters
WINDOW = 20_000
#: stretches of an index (jobs of one queue, status and name) that a page is merged of; of more, it looks row by row
MOST_STRETCHES = 2_000
#: minutes that rates are taken over
RATE_MINUTES = 5
#: beside the states that moves led to, what counts rows that are new
SUBMITTED = "submitted"
#: histories up to this length are not in the index of long ones
LONG = 3

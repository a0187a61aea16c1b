"""Timeouts, and how they depend on each other.

A worker beats every `heartbeat` (2 s), and is dead after a `lease` (8 s) of silence. So no process may delay the beats
of another for that long:

- a beat waits for no other call of its process: it has connections of its own (`PostgresEngine.call(vital=True)`);
- a statement waits for a lock at most `lock_timeout`, and `heartbeat + lock_timeout < lease`: a beat that waited in
vain
  can be sent again in time;
- the server ends a transaction of ours whose process has stopped after `IDLE_S`, before a lease is over;
- a call after a subscription waits at most `GATE_S` for its registration, and beats do not wait at all;
- a lost permanent connection is retried at least every `QUICK_S` for `SOON_S`: after `GONE_S` without it, and without
  that of its supervisor, a process counts as dead (`is_gone` in `sql/sessions.sql`);
- a sweeper that has found a free lock looks again every `AGAIN_S`, instead of at its next sweep.

The lease and the heartbeat are settings (`model/settings.py`), and `lock_timeout` is an option of the URL. To raise
`lock_timeout`, raise the lease, too.
"""

from __future__ import annotations

#: the default of `lock_timeout`
LOCK_S = 4.0
#: a transaction that is idle for this long has lost its process
IDLE_S = 5.0
#: the longest time that a read waits for the registration of a subscription
GATE_S = 1.0
#: a lock that has been free for this long proves a death
GONE_S = 1.0
#: how soon to look again after a free lock was found
AGAIN_S = 0.2
#: the longest pause between tries to reopen a lost connection, at first
QUICK_S = 0.2
#: how long it is retried so quickly
SOON_S = 5.0
#: how long a single try may take in that time
TRY_S = 0.7

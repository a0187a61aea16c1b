"""How long things wait for each other: the one place that says how these times belong together.

A worker says every `heartbeat` (2 s) that it lives, and is dead after a `lease` (8 s) of silence. So nothing that one
process does may keep another's heartbeats waiting for that long:

- a heartbeat waits for no other call of its process: it has connections of its own (`Engine.call(vital=True)`);
- what a statement waits for, it waits for `lock_timeout` at most, and `heartbeat + lock_timeout < lease`: one that
  waited in vain can be sent again in time;
- a transaction of ours whose process stands still is ended by the server after `IDLE_S`, before a lease is over;
- a call that follows a subscription waits for it to be known for `GATE_S` at most, and heartbeats do not wait at all;
- a line that was lost is tried again at least every `QUICK_S` for as long as `SOON_S`: after `GONE_S` without it, and
  without the line of its supervisor, a process counts as dead (`is_gone` in `sql/sessions.sql`);
- a sweeper that has found a free lock looks again every `AGAIN_S`, instead of at its next sweep.

The lease and the heartbeat are settings (`model/settings.py`), and `lock_timeout` is an option of the URL. Whoever
raises the one raises the other.
"""

from __future__ import annotations

#: the default of `lock_timeout`
LOCK_S = 4.0
#: a transaction that does nothing for so long has lost its process
IDLE_S = 5.0
#: most that a read waits until a subscription is known to the server
GATE_S = 1.0
#: a free lock means death after so long
GONE_S = 1.0
#: how soon to look again at a lock that was found free
AGAIN_S = 0.2
#: the longest pause between two tries to get a lost line back, in the first moments
QUICK_S = 0.2
#: how long it is tried so quickly
SOON_S = 5.0
#: how long a single try may take in these moments
TRY_S = 0.7

"""Which columns of a job are written when: the same for every adapter that keeps a job in columns."""

from __future__ import annotations

#: What a change writes. Left out: what is fixed at submit, what the holder reports, what trimming keeps.
CHANGED = (
    "priority",
    "status",
    "reason",
    "version",
    "token",
    "session",
    "starts",
    "failures",
    "crashes",
    "releases",
    "losses",
    "changed_ms",
    "due_ms",
    "claimed_ms",
    "started_ms",
    "settled_ms",
    "expires_ms",
    "extra_ms",
    "error",
    "result",
    "head",
    "lane",
    "rank",
)

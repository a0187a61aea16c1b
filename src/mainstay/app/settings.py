"""The settings as keyword arguments of `App`, so that editors complete them. What each means: docs/settings.md."""

from __future__ import annotations

from datetime import timedelta
from typing import TypedDict

Duration = str | timedelta
#: None and "off" switch it off
Limit = str | timedelta | None


class AppSettings(TypedDict, total=False):
    """Every setting, as people write it."""

    heartbeat: Duration
    lease: Duration
    sweep: Duration
    poll: Duration
    retries: int
    backoff_base: Duration
    backoff_cap: Duration
    jitter: bool
    crash_budget: int
    run_timeout: Limit
    stall_timeout: Limit
    grace: Duration
    key_ttl: Duration
    payload_limit: int
    priority_boost: Duration
    concurrency: int
    children: int
    unstored: int
    claim_batch: int
    check: Duration
    recheck: Limit
    keep_succeeded: Limit
    keep_other: Limit
    keep_events: int | str | None

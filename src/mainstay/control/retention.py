"""Retention: settled jobs are trimmed by age and count, in batches."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import InvalidInput
from ..lifecycle import JOB
from ..model import Leadership, Settings
from ..stores import JobStore, Trimmed, TrimPolicy
from .options import check_count

_MOST_BATCHES = 1000


def trim_policy(
    settings: Settings, *, now_ms: int, keep_count: Mapping[str, int] | None = None, batch: int = 1000
) -> TrimPolicy:
    """What the settings allow to trim now."""
    settled = JOB.named("settled")
    for status, count in (keep_count or {}).items():
        if status not in settled:
            raise InvalidInput("keep_count", f"{status!r} is not a settled state; settled states: {', '.join(settled)}")
        check_count(count, field=f"keep_count.{status}")
    check_count(batch, field="batch", least=1)
    before = {}
    for status in settled:
        keep_s = settings.keep_succeeded_s if status == "succeeded" else settings.keep_other_s
        if keep_s is not None:
            before[status] = now_ms - round(keep_s * 1000)
    return TrimPolicy(
        settled_before_ms=before, keep_count=dict(keep_count or {}), keep_events=settings.keep_events, batch=batch
    )


async def retain(
    store: JobStore,
    settings: Settings,
    *,
    keep_count: Mapping[str, int] | None = None,
    lead: Leadership | None = None,
    batch: int = 1000,
) -> Trimmed:
    """Trim until nothing is left, in a bounded number of batches. Each batch is a transaction, so that other writers
    get their turn."""
    policy = trim_policy(settings, now_ms=store.clock.now_ms(), keep_count=keep_count, batch=batch)
    jobs = events = keys = 0
    for _ in range(_MOST_BATCHES):
        done = await store.trim(policy, lead=lead)
        jobs, events, keys = jobs + done.jobs, events + done.events, keys + done.keys
        if not done.more:
            return Trimmed(jobs, events, keys, False)
    return Trimmed(jobs, events, keys, True)

"""Retention: removing settled jobs and old events."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...model import Job
from ..change_check import is_settled
from ..port import TrimPolicy
from .rows import Rows


def trim_jobs(rows: Rows, policy: TrimPolicy, now_ms: int) -> tuple[int, bool]:
    """Remove settled jobs with their units. Returns the number of jobs, and whether the batch was full."""
    removed = 0
    for job in list(_removable(rows, policy, now_ms)):
        if removed == policy.batch:
            return removed, True
        for row in rows.family(job):
            rows.remove(row)
        removed += 1
    return removed, False


def trim_events(rows: Rows, policy: TrimPolicy, now_ms: int) -> tuple[int, bool]:
    """Remove the oldest events of long histories. The row records where the rest begins, so that its chain can still be
    checked."""
    if policy.keep_events is None:
        return 0, False
    # the newest event always stays: the row is checked against it
    keep = max(policy.keep_events, 1)
    removed = shortened = 0
    for job_id in list(rows.ids):
        events = rows.events[job_id]
        if len(events) <= keep:
            continue
        if shortened == policy.batch:
            return removed, True
        rows.touch(job_id)
        last = events[-keep - 1]
        removed += len(events) - keep
        shortened += 1
        del events[:-keep]
        row = rows.jobs[job_id]
        if last.seq > row.trimmed_seq:
            rows.write(msgspec.structs.replace(row, trimmed_seq=last.seq, trimmed_digest=last.digest), (), now_ms)
    return removed, False


def _removable(rows: Rows, policy: TrimPolicy, now_ms: int) -> Iterator[Job]:
    """Settled jobs, oldest first, that are too old or too many."""
    excess = _excess(rows, policy)
    for job_id in rows.ids:
        job = rows.jobs[job_id]
        if job.parent is not None or not is_settled(job) or rows.open_units.get(job_id):
            continue
        if _too_old(job, policy, now_ms) or job_id in excess:
            yield job


def _too_old(job: Job, policy: TrimPolicy, now_ms: int) -> bool:
    if job.settled_ms is None:
        return False
    if job.options.keep_s is not None:
        return job.expires_ms is not None and job.expires_ms <= now_ms
    before_ms = policy.settled_before_ms.get(job.status)
    return before_ms is not None and job.settled_ms < before_ms


def _excess(rows: Rows, policy: TrimPolicy) -> set[str]:
    """Jobs beyond the number that the policy keeps of each status, the newest first."""
    left = dict(policy.keep_count)
    excess: set[str] = set()
    if not left:
        return excess
    for job_id in reversed(rows.ids):
        job = rows.jobs[job_id]
        if job.parent is not None or job.status not in left:
            continue
        if left[job.status] > 0:
            left[job.status] -= 1
        else:
            excess.add(job_id)
    return excess

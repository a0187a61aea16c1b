"""The check of the indexes against the rows."""

from __future__ import annotations

from collections import Counter

from ...lifecycle import Chain
from ..change_check import GONE, is_settled, is_waiting, stranded_move
from ..port import Violation
from .rows import Rows


def check(rows: Rows, limits: dict[str, int], chain: Chain, now_ms: int, *, repair: bool) -> list[Violation]:
    return [
        *_stray_events(rows, repair),
        *_uniqueness(rows),
        *_counts(rows, repair),
        *_stranded(rows, limits, repair),
        *_missed_ends(rows, repair),
        *_stranded_waits(rows, chain, now_ms, repair),
    ]


def _stray_events(rows: Rows, repair: bool) -> list[Violation]:
    violations = []
    for job_id, events in list(rows.events.items()):
        if job_id in rows.jobs or any(event.flag == "tombstone" for event in events):
            continue
        violations.append(
            Violation(
                code="stray_events",
                message=f"there are {len(events)} events but no such job, and no tombstone",
                job_id=job_id,
                repaired="the events were removed" if repair else None,
            )
        )
        if repair:
            rows.touch(job_id)
            del rows.events[job_id]
    return violations


def _uniqueness(rows: Rows) -> list[Violation]:
    holders: dict[str, str] = {}
    violations = []
    for job in rows.jobs.values():
        if job.unique_key is None or is_settled(job):
            continue
        first = holders.setdefault(job.unique_key, job.id)
        if first != job.id:
            message = f"unique key {job.unique_key!r} is held by job {first} as well; cancel one of them"
            violations.append(Violation(code="duplicate_unique", message=message, job_id=job.id))
    return violations


def _counts(rows: Rows, repair: bool) -> list[Violation]:
    counted: dict[str, Counter[str]] = {}
    for job in rows.jobs.values():
        if job.parent is None:
            counted.setdefault(job.queue, Counter())[job.status] += 1
    violations = []
    for queue in sorted({*counted, *rows.counts}):
        truth = counted.get(queue, Counter())
        if rows.counts[queue] == truth:
            continue
        message = f"queue {queue!r} counts {dict(rows.counts[queue])} but has {dict(truth)}"
        violations.append(Violation(code="tally_wrong", message=message, repaired="recounted" if repair else None))
        if repair:
            rows.counts[queue] = truth
    return violations


def _stranded(rows: Rows, limits: dict[str, int], repair: bool) -> list[Violation]:
    violations = []
    for key, queue in list(rows.stranded(limits)):
        message = f"jobs of queue {queue!r} wait for the concurrency key {key!r}, which has a free slot"
        done = "the best of them is ready again" if repair else None
        violations.append(Violation(code="key_stranded", message=message, repaired=done))
        if repair:
            free = rows.free_slots(key, limits)
            rows.freed[key] = len(rows.jobs) if free is None else free
    return violations


def _missed_ends(rows: Rows, repair: bool) -> list[Violation]:
    """Jobs that wait for a job that has settled or is gone. A repair moves them on when this operation ends."""
    violations = []
    for on, waiters in list(rows.waits.open.items()):
        row = rows.jobs.get(on)
        if row is not None and not is_settled(row):
            continue
        status = GONE if row is None else row.status
        done = "they moved on" if repair else None
        message = f"{len(waiters)} jobs wait for it, and it {'was' if row is None else 'is'} {status}"
        violations.append(Violation(code="wait_missed", message=message, job_id=on, repaired=done))
        if repair:
            rows.waits.settled(on, status)
    return violations


def _stranded_waits(rows: Rows, chain: Chain, now_ms: int, repair: bool) -> list[Violation]:
    violations = []
    for job in list(rows.jobs.values()):
        if not is_waiting(job) or rows.waits.left.get(job.id):
            continue
        done = None
        if repair:
            dependencies = (rows.jobs.get(on) for on in rows.waits.on.get(job.id, ()))
            awaited = [(each.id, each.status) for each in dependencies if each is not None and is_settled(each)]
            moved = stranded_move(job, awaited, now_ms=now_ms, chain=chain)
            if moved is not None:
                rows.write(moved.job, moved.events, now_ms)
                done = f"it is {moved.job.status} now"
        message = "it waits for other jobs, and there is none left to wait for"
        violations.append(Violation(code="wait_stranded", message=message, job_id=job.id, repaired=done))
    return violations

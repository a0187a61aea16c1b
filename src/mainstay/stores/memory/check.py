"""What only the store itself can see: indexes that disagree with the rows."""

from __future__ import annotations

from collections import Counter

from ..judge import is_settled
from ..port import Violation
from .rows import Rows


def check(rows: Rows, limits: dict[str, int], *, repair: bool) -> list[Violation]:
    return [*_stray_events(rows, repair), *_uniqueness(rows), *_counts(rows, repair), *_stranded(rows, limits, repair)]


def _stray_events(rows: Rows, repair: bool) -> list[Violation]:
    found = []
    for job_id, events in list(rows.events.items()):
        if job_id in rows.jobs or any(event.flag == "tombstone" for event in events):
            continue
        found.append(
            Violation(
                code="stray_events",
                message=f"{len(events)} events of a job that is not there, and no tombstone",
                job_id=job_id,
                repaired="removed them" if repair else None,
            )
        )
        if repair:
            del rows.events[job_id]
    return found


def _uniqueness(rows: Rows) -> list[Violation]:
    holders: dict[str, str] = {}
    found = []
    for job in rows.jobs.values():
        if job.unique_key is None or is_settled(job):
            continue
        first = holders.setdefault(job.unique_key, job.id)
        if first != job.id:
            message = f"unique key {job.unique_key!r} is held by job {first} as well; cancel one of them"
            found.append(Violation(code="duplicate_unique", message=message, job_id=job.id))
    return found


def _counts(rows: Rows, repair: bool) -> list[Violation]:
    counted: dict[str, Counter[str]] = {}
    for job in rows.jobs.values():
        if job.parent is None:
            counted.setdefault(job.queue, Counter())[job.status] += 1
    found = []
    for queue in sorted({*counted, *rows.counts}):
        truth = counted.get(queue, Counter())
        if rows.counts[queue] == truth:
            continue
        message = f"queue {queue!r} counts {dict(rows.counts[queue])}, but holds {dict(truth)}"
        found.append(Violation(code="tally_wrong", message=message, repaired="counted anew" if repair else None))
        if repair:
            rows.counts[queue] = truth
    return found


def _stranded(rows: Rows, limits: dict[str, int], repair: bool) -> list[Violation]:
    found = []
    for key, queue in list(rows.stranded(limits)):
        message = f"concurrency key {key!r} has a free slot, but no blocked job of queue {queue!r} was let through"
        found.append(
            Violation(code="key_stranded", message=message, repaired="let the next one through" if repair else None)
        )
        if repair:
            free = rows.free_slots(key, limits)
            rows.freed[key] = len(rows.jobs) if free is None else free
    return found

"""The findings of the check that several adapters report, in the same words; and the moves that repair some of them.

`repaired` says whether a repair was made in the same call.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..lifecycle import Chain, Event, Move, Moved, apply
from ..model import Job
from .port import Violation


def bad_lead(name: str, holder: str, until_ms: int | str, *, repaired: bool) -> Violation:
    """A leadership that ends later than any store grants."""
    return Violation(
        code="bad_leader",
        message=f"{holder!r} leads {name!r} until {until_ms}, longer than any session was given; the next session that "
        "asks takes over",
        repaired="its time was ended" if repaired else None,
    )


def stray_refusal(job_id: str, *, repaired: bool) -> Violation:
    return Violation(
        code="stray_refusal",
        job_id=job_id,
        message="a refused write is on record for it, but the job does not exist",
        repaired="it was removed" if repaired else None,
    )


def stray_events(job_id: str, last: int, *, repaired: bool) -> Violation:
    return Violation(
        code="stray_events",
        job_id=job_id,
        message=f"it has up to {last} events, but the job does not exist",
        repaired="the events were kept and closed with a tombstone" if repaired else None,
    )


def wrong_tally(queue: str, status: str, counted: int, present: int, *, repaired: bool) -> Violation:
    return Violation(
        code="tally_wrong",
        message=f"queue {queue!r} counts {counted} {status} jobs but has {present}",
        repaired="recounted" if repaired else None,
    )


def stranded_key(key: str, queue: str, n: int, *, repaired: bool) -> Violation:
    """Blocked jobs that no later event would free."""
    return Violation(
        code="key_stranded",
        message=f"{n} jobs of queue {queue!r} wait for the concurrency key {key!r}, which has a free slot",
        repaired="the best of them is ready again" if repaired else None,
    )


def stray_wait(job_id: str, n: int, *, repaired: bool) -> Violation:
    return Violation(
        code="stray_wait",
        job_id=job_id,
        message=f"it waits for {n} jobs, but does not exist itself",
        repaired="its waits were removed" if repaired else None,
    )


def missed_end(job_id: str, n: int, status: str | None, *, repaired: bool) -> Violation:
    """Jobs wait for one that has settled; `status` None: for one that is deleted."""
    return Violation(
        code="wait_missed",
        job_id=job_id,
        message=f"{n} jobs wait for it, but it {'was deleted' if status is None else f'is {status}'}",
        repaired="they moved on" if repaired else None,
    )


def stranded_wait(job_id: str, moved_to: str | None) -> Violation:
    """`moved_to` is its status after a repair."""
    return Violation(
        code="wait_stranded",
        job_id=job_id,
        message="it waits for other jobs, but none of them is open",
        repaired=None if moved_to is None else f"it is {moved_to} now",
    )


def duplicate_id(job_id: str, rows: int, new_ids: Sequence[str]) -> Violation:
    """`new_ids` are those that a repair gave to the other rows."""
    kept = f"the row with the longest history was kept; the others are now {', '.join(new_ids)}, quarantined"
    return Violation(
        code="duplicate_id",
        job_id=job_id,
        message=f"{rows} rows have this id",
        repaired=kept if new_ids else None,
    )


def duplicate_key(scope: str, name: str, n: int, *, repaired: bool) -> Violation:
    return Violation(
        code="duplicate_key",
        message=f"the idempotency key {name!r} of {scope} is stored {n} times",
        repaired="the first use of the key was kept" if repaired else None,
    )


def quick_finding(what: str, n: int, status: str | None = None) -> str:
    """A finding of the quick check when a store is opened, as a sentence."""
    return f"{n} {_QUICK_FINDINGS[what].format(status=status)}"


_QUICK_FINDINGS = {
    "unknown": "jobs are {status!r}, a status this version does not know",
    "aside": "jobs could not be read and were set aside",
    "settled": "settled jobs still hold a claim",
    "strange": "jobs are held by unknown sessions; the next sweep releases them",
}


# repairs --------------------------------------------------------------------------------------------


def stray_tombstone(last: Event, now_ms: int, chain: Chain) -> Event:
    """Closes the trail of a job whose row is gone."""
    why = "the job's row was gone"
    body = (last.job_id, last.seq + 1, now_ms, last.to, last.to, "check", why, last.token, "tombstone", None)
    return Event(*body, chain.digest(last.digest, body))


def second_row_move(job: Job, new_id: str, *, now_ms: int, chain: Chain) -> Moved:
    """Gives the second row with one id an id of its own, and quarantines it (a unit is cancelled)."""
    copy = msgspec.structs.replace(job, id=new_id, trimmed_seq=job.version, trimmed_digest=job.head, unique_key=None)
    # the history of the copy is unknown: its chain begins here
    start = msgspec.structs.replace(copy, status="pending", settled_ms=None, session=None)
    why = f"a second row had the id {job.id}; it was {job.status}"
    return shelved(start, why, now_ms=now_ms, chain=chain)


def shelved(job: Job, why: str, *, now_ms: int, chain: Chain) -> Moved:
    """Quarantines a job for an operator; a unit is cancelled."""
    move = Move(to="cancelled" if job.is_unit else "quarantined", reason=why, flag="repair")
    return apply(job, move, now_ms=now_ms, actor="check", chain=chain)

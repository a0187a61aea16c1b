"""Selection: which rows are claimed. The script decides (`lua/claim.lua`), from stored columns only.

What it cannot do is to seal the event of a row whose time has come: it hands such rows out, and takes them back
promoted in the next call, which then claims.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ...errors import InvalidTransition, SessionLost
from ...lifecycle import Move, apply, promote, table_of
from ...model import Job
from ..port import Change, Written
from .base import Base
from .rows import Raw, claim_event, job_from, stored_head, unclaimed
from .writing import apply_changes, change_arg

log = logging.getLogger("mainstay.stores.redis")

#: how often due rows are promoted for one claim; the next one goes on
_MOST_ROUNDS = 20


async def claim_jobs(base: Base, queues: Sequence[str], session: str, n: int) -> list[Job]:
    """Take up to n rows for a session that is known and alive."""
    names = list(dict.fromkeys(queues))
    promoted: list[Change] = []
    unusable: list[str] = []
    left: list[str] = []
    for _ in range(_MOST_ROUNDS):
        nonce = base.rng.randbytes(8)
        args = [names, session, n, nonce, [change_arg(change) for change in promoted], unusable, left]
        what, *found = await base.scripts.run("claim", args)
        base.tell([(change.before, change.after, change.events) for change in promoted])
        if what == b"lost":
            raise SessionLost(session)
        if what == b"taken":
            return await _taken(base, session, found)
        promoted, unusable, more_left = _promotions(base, found)
        left += more_left
    return []


async def give_back(base: Base, claimed: Sequence[Job]) -> None:
    """Release what nobody heard of: its session lives on and beats, so no sweep would ever find it."""
    changes = []
    for job in claimed:
        move = Move(to="pending", reason="its claimer was cancelled", fields={"releases": job.releases + 1})
        moved = apply(job, move, now_ms=base.clock.now_ms(), actor="store", chain=base.chain)
        changes.append(Change(before=job, after=moved.job, events=moved.events))
    await apply_changes(base, changes, None)


async def _taken(base: Base, session: str, found: Sequence[Any]) -> list[Job]:
    jobs: list[Job] = []
    unusable: list[str] = []
    told: list[Written] = []
    for job_id, raw in _rows(found):
        try:
            job = job_from(raw, base.chain)
        except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
            _say_unusable(job_id, error)
            unusable.append(job_id)
            continue
        jobs.append(job)
        if base.observer is not None:
            told.append((unclaimed(job, stored_head(raw)), job, (claim_event(job),)))
    if unusable:
        await base.scripts.run("unclaim", [unusable, session])
    base.tell(told)
    return jobs


def _promotions(base: Base, found: Sequence[Any]) -> tuple[list[Change], list[str], list[str]]:
    """Due rows moved on; those that cannot be used; and those of a newer version, which its workers see to."""
    changes: list[Change] = []
    unusable: list[str] = []
    left: list[str] = []
    now_ms = base.clock.now_ms()
    for job_id, raw in _rows(found):
        try:
            job = job_from(raw, base.chain)
            moved = promote(job, now_ms=max(now_ms, job.due_ms), chain=base.chain)
        except InvalidTransition as error:
            if table_of(None).get(error.current) is None:
                left.append(job_id)
            else:
                _say_unusable(job_id, error)
                unusable.append(job_id)
        except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
            _say_unusable(job_id, error)
            unusable.append(job_id)
        else:
            changes.append(Change(before=job, after=moved.job, events=moved.events))
    return changes, unusable, left


def _rows(found: Sequence[Any]) -> Iterator[tuple[str, Raw]]:
    for at in range(0, len(found), 4):
        job_id, row, fixed, beside = found[at : at + 4]
        yield job_id.decode(), Raw(row, fixed, beside)


def _say_unusable(job_id: str, why: object) -> None:
    log.error("a stored job cannot be used and was set aside job_id=%s: %s; run: mainstay check", job_id, why)

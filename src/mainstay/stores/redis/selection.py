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
from ...lifecycle import promote, table_of
from ...model import Job
from ..judge import given_back
from ..open_claim import claim_event
from ..port import Change, Written
from .base import Base
from .rows import Raw, is_open, job_from, stored_head, unclaimed
from .writing import apply_changes, change_arg

log = logging.getLogger("mainstay.stores.redis")

_APPLIED = ord("0")


class _Promotion(msgspec.Struct):
    """Due rows moved on, and the ids of those that cannot be used."""

    changes: list[Change] = []
    unusable: list[str] = []


async def claim_jobs(base: Base, queues: Sequence[str], session: str, n: int) -> list[Job]:
    """Take up to n rows for a session that is known and alive."""
    names = list(dict.fromkeys(queues))
    found = await _claim(base, names, session, n, _Promotion(), at_once=False)
    if found[0] == b"due":
        # one batch: what else is due, the next claims see to
        promotion = _promote(base, found[2:])
        found = await _claim(base, names, session, n, promotion, at_once=True)
    if found[0] == b"lost":
        raise SessionLost(session)
    return await _taken(base, session, found[2:])


async def _claim(
    base: Base, queues: list[str], session: str, n: int, promotion: _Promotion, *, at_once: bool
) -> list[Any]:
    changes = promotion.changes
    nonce = base.rng.randbytes(8)
    args = [queues, session, n, nonce, [change_arg(change) for change in changes], promotion.unusable, at_once]
    found = await base.scripts.run("claim", args)
    if found[0] != b"lost":
        made = [change for change, outcome in zip(changes, found[1], strict=True) if outcome == _APPLIED]
        base.tell([(change.before, change.after, change.events) for change in made])
    return found


async def give_back(base: Base, claimed: Sequence[Job]) -> None:
    """Release what nobody heard of."""
    now_ms = base.clock.now_ms()
    await apply_changes(base, [given_back(job, now_ms=now_ms, chain=base.chain) for job in claimed], None)


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
        if base.observer is not None and is_open(raw):
            told.append((unclaimed(job, stored_head(raw)), job, (claim_event(job),)))
    if unusable:
        await base.scripts.run("unclaim", [unusable, session])
    base.tell(told)
    return jobs


def _promote(base: Base, found: Sequence[Any]) -> _Promotion:
    promotion = _Promotion()
    now_ms = base.clock.now_ms()
    for job_id, raw in _rows(found):
        try:
            job = job_from(raw, base.chain)
            moved = promote(job, now_ms=max(now_ms, job.due_ms), chain=base.chain)
        except InvalidTransition as error:
            # one of a newer version is left where it is: its workers see to it
            if table_of(None).get(error.current) is not None:
                _say_unusable(job_id, error)
                promotion.unusable.append(job_id)
        except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
            _say_unusable(job_id, error)
            promotion.unusable.append(job_id)
        else:
            promotion.changes.append(Change(before=job, after=moved.job, events=moved.events))
    return promotion


def _rows(found: Sequence[Any]) -> Iterator[tuple[str, Raw]]:
    for at in range(0, len(found), 4):
        job_id, row, fixed, beside = found[at : at + 4]
        yield job_id.decode(), Raw(row, fixed, beside)


def _say_unusable(job_id: str, why: object) -> None:
    log.error("a stored job cannot be used and was set aside job_id=%s: %s; run: mainstay check", job_id, why)

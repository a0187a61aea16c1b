"""Selection: which rows are claimed. The script decides (`lua/claim.lua`), from stored columns only.

It cannot seal the event of a row that is due: it returns such rows, and gets them promoted with the next call, which
then claims.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ...errors import InvalidTransition, SessionLost
from ...lifecycle import promote, table_of
from ...model import Job, route_of
from ..change_check import given_back
from ..open_claim import claim_event
from ..port import MARKS_KEPT, SealedChange, Written
from ..routes import MOST_CLAIMS
from .base import RedisBase
from .changes import apply_changes, change_arg
from .rows import RawRow, is_open, job_from, stored_head, unclaimed

log = logging.getLogger("mainstay.stores.redis")

_APPLIED = ord("0")


class _Promotion(msgspec.Struct):
    """Due rows that were promoted, and the ids of unusable ones."""

    changes: list[SealedChange] = []
    unusable: list[str] = []


class _ClaimRequest(msgspec.Struct, frozen=True):
    queues: list[str]
    session: str
    n: int
    mark: str | None


async def claim_jobs(base: RedisBase, queues: Sequence[str], session: str, n: int, mark: str | None) -> list[Job]:
    """Claim up to n rows for a live session; with a mark that is known, those of the earlier claim."""
    request = _ClaimRequest(list(dict.fromkeys(queues)), session, n, mark)
    for at in range(MOST_CLAIMS):
        jobs, routed = await _claimed(base, request, more=at > 0)
        if jobs or not routed:
            return jobs
    return []


async def _claimed(base: RedisBase, request: _ClaimRequest, *, more: bool) -> tuple[list[Job], int]:
    """The jobs of one claim, and the number of others whose task the session does not have. `more`: all jobs that were
    claimed before under the mark were such."""
    reply = await _claim(base, request, _Promotion(), at_once=False, more=more)
    if reply[0] == b"due":
        # one batch: the next claims promote the others
        promotion = _promote(base, reply[2:])
        reply = await _claim(base, request, promotion, at_once=True, more=more)
    if reply[0] == b"lost":
        raise SessionLost(request.session)
    return await _taken(base, request.session, reply[2:], observed=reply[0] == b"taken")


async def _without_strangers(base: RedisBase, jobs: list[Job], session: str) -> list[Job]:
    """The claimed jobs whose task the session has; the others are routed to sessions that have it."""
    tasks = base.offers.tasks_of(session)
    strangers = [] if tasks is None else [job for job in jobs if route_of(job.kind, job.name) not in tasks]
    if not strangers:
        return jobs
    args = [
        [
            job.id,
            f"{job.queue}\0{route_of(job.kind, job.name)}",
            (job.options.start_by_ms if job.starts == 0 else None) or False,
        ]
        for job in strangers
    ]
    [ids] = await base.scripts.run("route", [args, session])
    routed = {job_id.decode() for job_id in ids}
    for job in strangers:
        if job.id in routed:
            base.offers.warn(job)
    return [job for job in jobs if job.id not in routed]


async def _claim(
    base: RedisBase, request: _ClaimRequest, promotion: _Promotion, *, at_once: bool, more: bool
) -> list[Any]:
    changes = promotion.changes
    args = [
        request.queues,
        request.session,
        request.n,
        base.rng.randbytes(8),  # to repeat the reply if it is lost
        [change_arg(change) for change in changes],
        promotion.unusable,
        at_once,
        False if request.mark is None else request.mark,
        MARKS_KEPT,
        more,
    ]
    reply = await base.scripts.run("claim", args)
    if reply[0] != b"lost":
        applied = [change for change, outcome in zip(changes, reply[1], strict=True) if outcome == _APPLIED]
        base.observe([(change.before, change.after, change.events) for change in applied])
    return reply


async def give_back(base: RedisBase, claimed: Sequence[Job]) -> None:
    """Release jobs whose claimer was cancelled."""
    now_ms = base.clock.now_ms()
    await apply_changes(base, [given_back(job, now_ms=now_ms, chain=base.chain) for job in claimed], None)


async def _taken(base: RedisBase, session: str, found: Sequence[Any], *, observed: bool) -> tuple[list[Job], int]:
    jobs: list[Job] = []
    unusable: list[str] = []
    written: list[Written] = []
    for job_id, raw in _rows(found):
        try:
            job = job_from(raw, base.chain)
        except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
            _log_unusable(job_id, error)
            unusable.append(job_id)
            continue
        jobs.append(job)
        if observed and base.observer is not None and is_open(raw):
            written.append((unclaimed(job, stored_head(raw)), job, (claim_event(job),)))
    if unusable:
        await base.scripts.run("unclaim", [unusable, session])
    mine = await _without_strangers(base, jobs, session)
    if len(mine) < len(jobs):
        taken = {job.id for job in mine}
        written = [each for each in written if each[1].id in taken]
    base.observe(written)
    return mine, len(jobs) - len(mine)


def _promote(base: RedisBase, found: Sequence[Any]) -> _Promotion:
    promotion = _Promotion()
    now_ms = base.clock.now_ms()
    for job_id, raw in _rows(found):
        try:
            job = job_from(raw, base.chain)
            moved = promote(job, now_ms=max(now_ms, job.due_ms), chain=base.chain)
        except InvalidTransition as error:
            # a status of a newer version is left to the newer workers
            if table_of(None).get(error.current) is not None:
                _log_unusable(job_id, error)
                promotion.unusable.append(job_id)
        except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
            _log_unusable(job_id, error)
            promotion.unusable.append(job_id)
        else:
            promotion.changes.append(SealedChange.of(job, moved))
    return promotion


def _rows(found: Sequence[Any]) -> Iterator[tuple[str, RawRow]]:
    for at in range(0, len(found), 4):
        job_id, row, fixed, beside = found[at : at + 4]
        yield job_id.decode(), RawRow(row, fixed, beside)


def _log_unusable(job_id: str, why: object) -> None:
    log.error("a stored job cannot be used and was set aside job_id=%s: %s; run: mainstay check", job_id, why)

"""Who waits for whom.

An edge is there until the job it points to settles or goes. Most ends of a wait change nothing for the waiter but the
number of jobs it still waits for: the script that settles a row sees to those (`lua/change.lua`). Where a waiter must
move on, that is decided here, in a transaction that fails if anybody else ended one of its waits meanwhile. So the last
of several jobs is never missed and never counted twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence

from ...model import Job
from .. import change_check
from ..port import Violation
from .base import RedisBase
from .scripts import blob
from .transaction import RedisTx, transact

#: (job, status it settled in)
Over = tuple[str, str]

#: rows of one step of the check: the server does nothing else meanwhile
_STEP = 250


async def settle(tx: RedisTx, rows: Iterable[Job]) -> None:
    """Move on whoever waited for these rows, as far as they are settled."""
    await follow(tx, [(row.id, row.status) for row in rows if change_check.is_settled(row)])


async def follow(tx: RedisTx, over: Iterable[Over]) -> None:
    """Move on whoever waited for what settled or went, and whoever waited for those."""
    level = list(over)
    while level:
        # one round trip for all of a level
        await tx.look(level, parents=False)
        level = await _follow(tx, level)


async def _follow(tx: RedisTx, over: Iterable[Over]) -> list[Over]:
    """Move on those who waited; which of them settled by that."""
    settled: list[Over] = []
    for on, status in over:
        waiters = await tx.watchers(on)
        if not waiters:
            continue
        tx.done(on, waiters)
        for job_id in waiters:
            more = await tx.waits_for_more(job_id)
            if change_check.keeps_waiting(status, more=more):
                continue
            row = await tx.whole(job_id)
            moved = change_check.dependant_move(row, on, status, more=more, now_ms=tx.now_ms, chain=tx.chain)
            if row is not None and moved is not None:
                tx.put(row, moved.job, moved.events)
                if change_check.is_settled(moved.job):
                    settled.append((moved.job.id, moved.job.status))
    return settled


async def awaited(base: RedisBase, job_id: str) -> list[str]:
    found = await base.call("LRANGE", f"on:{job_id}", 0, -1)
    return [each.decode() for each in found]


# -- the check ----------------------------------------------------------------------------------


async def check(base: RedisBase, *, repair: bool, rest_s: float = 0.0) -> list[Violation]:
    """Who waits for nobody, and who was not told; with a rest between two steps."""
    strays: Counter[str] = Counter()
    missed: dict[str, tuple[str, set[str]]] = {}
    unlisted: list[tuple[str, str]] = []
    stranded: list[str] = []
    async for ids in _pages(base):
        [lines] = await base.scripts.run("waits", [[blob(each) for each in ids], repair])
        if len(ids) == _STEP:
            await asyncio.sleep(rest_s)
        for what, job_id, *rest in lines:
            name = job_id.decode(errors="replace")
            if what == b"stray":
                strays[name] += 1
            elif what == b"stranded":
                stranded.append(name)
            elif what == b"unlisted":
                unlisted.append((name, rest[0].decode()))
            else:
                missed.setdefault(name, (rest[1].decode(), set()))[1].add(rest[0].decode())
    return [
        *[_stray(job_id, n, repair=repair) for job_id, n in strays.items()],
        *[await _unlisted(base, waiter, on, repair=repair) for waiter, on in unlisted],
        *[await _missed(base, on, status, len(who), repair=repair) for on, (status, who) in missed.items()],
        *[found for job_id in stranded if (found := await _stranded(base, job_id, repair=repair))],
    ]


async def _pages(base: RedisBase) -> AsyncIterator[Sequence[bytes]]:
    low: bytes = b"-"
    while page := await base.call("ZRANGE", "all", low, "+", "BYLEX", "LIMIT", 0, _STEP):
        yield page
        low = b"(" + page[-1]


def _stray(job_id: str, n: int, *, repair: bool) -> Violation:
    message = f"it waits for {n} jobs, and there is no such job"
    done = "its waits were removed" if repair else None
    return Violation(code="stray_wait", job_id=job_id, message=message, repaired=done)


async def _unlisted(base: RedisBase, waiter: str, on: str, *, repair: bool) -> Violation:
    if repair:
        await base.call("ZADD", f"watch:{on}", 0, waiter)
    message = f"it waits for job {on}, which would not tell it"
    done = "it is released now" if repair else None
    return Violation(code="index_damaged", job_id=waiter, message=message, repaired=done)


async def _missed(base: RedisBase, on: str, status: str, n: int, *, repair: bool) -> Violation:
    """Somebody waits for a job that has settled or is gone."""

    async def decide(tx: RedisTx) -> None:
        row = await tx.job(on)
        if row is None:
            await follow(tx, [(on, change_check.GONE)])
        else:
            await settle(tx, [row])

    if repair:
        await transact(base, decide)
    said = "was deleted" if status == change_check.GONE else f"is {status}"
    done = "they moved on" if repair else None
    return Violation(code="wait_missed", job_id=on, message=f"{n} jobs wait for it, and it {said}", repaired=done)


async def _stranded(base: RedisBase, job_id: str, *, repair: bool) -> Violation | None:
    """A row that waits for other jobs though none is left to wait for."""

    async def decide(tx: RedisTx) -> tuple[bool, str | None]:
        row = await tx.whole(job_id)
        if row is None or not change_check.is_waiting(row) or await tx.waits_for_more(job_id):
            return False, None  # what is wrong with the row itself is found and mended elsewhere
        if not repair:
            return True, None
        there = [each.decode() for each in await tx.ask("LRANGE", f"on:{job_id}", 0, -1)]
        await tx.load(there)
        found = [each for on in there if (each := await tx.job(on)) is not None and change_check.is_settled(each)]
        ended = [(each.id, each.status) for each in found]
        moved = change_check.stranded_move(row, ended, now_ms=tx.now_ms, chain=tx.chain)
        if moved is None:
            return True, None
        tx.put(row, moved.job, moved.events)
        await settle(tx, [moved.job])
        return True, f"it is {moved.job.status} now"

    (is_so, done), _ = await transact(base, decide)
    if not is_so:
        return None
    message = "it waits for other jobs, and there is none left to wait for"
    return Violation(code="wait_stranded", job_id=job_id, message=message, repaired=done)

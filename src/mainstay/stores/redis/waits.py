"""Which jobs wait for which.

An edge exists until the job it points to settles or is removed. The end of a wait usually changes only the number of
jobs that the waiter still waits for: the script that settles a row does this (`lua/change.lua`). If a waiter must move
on, that is decided here, in a transaction that fails if another process has ended one of its waits since. So the last
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

#: rows of one step of the check: the server is blocked for as long
_STEP = 250


async def settle(tx: RedisTx, rows: Iterable[Job]) -> None:
    """Move on the jobs that wait for these rows, as far as they are settled."""
    await follow(tx, [(row.id, row.status) for row in rows if change_check.is_settled(row)])


async def follow(tx: RedisTx, over: Iterable[Over]) -> None:
    """Move on the jobs that wait for settled or removed jobs, and those that wait for them."""
    level = list(over)
    while level:
        # one round trip for all of a level
        await tx.look(level, parents=False)
        level = await _follow(tx, level)


async def _follow(tx: RedisTx, over: Iterable[Over]) -> list[Over]:
    """Move on the waiters. Returns those that settled by it."""
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
    return [each.decode() for each in await base.call("LRANGE", f"on:{job_id}", 0, -1)]


# -- the check ----------------------------------------------------------------------------------


async def check(base: RedisBase, *, repair: bool, rest_s: float = 0.0) -> list[Violation]:
    """Find broken waits, with a pause between two steps."""
    strays: Counter[str] = Counter()
    missed: dict[str, tuple[str, set[str]]] = {}
    unlisted: list[tuple[str, str]] = []
    stranded: list[str] = []
    async for ids in _pages(base):
        [findings] = await base.scripts.run("waits", [[blob(each) for each in ids], repair])
        if len(ids) == _STEP:
            await asyncio.sleep(rest_s)
        for what, job_id, *rest in findings:
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
        *[await _missed(base, on, status, len(waiters), repair=repair) for on, (status, waiters) in missed.items()],
        *[violation for job_id in stranded if (violation := await _stranded(base, job_id, repair=repair))],
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
    message = f"it waits for job {on}, whose end would not move it on"
    done = "it was listed again" if repair else None
    return Violation(code="index_damaged", job_id=waiter, message=message, repaired=done)


async def _missed(base: RedisBase, on: str, status: str, n: int, *, repair: bool) -> Violation:
    """Jobs wait for a job that has settled or is gone."""

    async def decide(tx: RedisTx) -> None:
        row = await tx.job(on)
        if row is None:
            await follow(tx, [(on, change_check.GONE)])
        else:
            await settle(tx, [row])

    if repair:
        await transact(base, decide)
    state = "was deleted" if status == change_check.GONE else f"is {status}"
    done = "they moved on" if repair else None
    return Violation(code="wait_missed", job_id=on, message=f"{n} jobs wait for it, and it {state}", repaired=done)


async def _stranded(base: RedisBase, job_id: str, *, repair: bool) -> Violation | None:
    """A row that waits for other jobs although none of them is left."""

    async def decide(tx: RedisTx) -> tuple[bool, str | None]:
        row = await tx.whole(job_id)
        if row is None or not change_check.is_waiting(row) or await tx.waits_for_more(job_id):
            return False, None  # a damaged row is found and repaired elsewhere
        if not repair:
            return True, None
        dependencies = [each.decode() for each in await tx.ask("LRANGE", f"on:{job_id}", 0, -1)]
        await tx.load(dependencies)
        rows = [row for on in dependencies if (row := await tx.job(on)) is not None]
        ended = [(each.id, each.status) for each in rows if change_check.is_settled(each)]
        moved = change_check.stranded_move(row, ended, now_ms=tx.now_ms, chain=tx.chain)
        if moved is None:
            return True, None
        tx.put(row, moved.job, moved.events)
        await settle(tx, [moved.job])
        return True, f"it is {moved.job.status} now"

    (is_stranded, done), _ = await transact(base, decide)
    if not is_stranded:
        return None
    message = "it waits for other jobs, and there is none left to wait for"
    return Violation(code="wait_stranded", job_id=job_id, message=message, repaired=done)

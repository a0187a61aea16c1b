"""Jobs that wait for other jobs, inside a transaction.

An edge is open until the job it points to settles or is deleted. Code that writes a settled row calls `settle` in the
same transaction. The last of several jobs is never missed because of the locks and the order of statements, each of
which sees what was committed before it began:

- a transaction that adds an edge first locks the awaited row (FOR SHARE). So it waits for a settle in flight, and then
  sees it;
- a transaction that settles a row has locked it by the update, and looks for open edges afterwards;
- a transaction that closes edges first locks the rows of the waiting jobs, and only then looks for other open edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....lifecycle import Chain
from ....model import AWAITS_MS, Job
from ... import change_check
from ...port import SealedChange, Violation
from ...violations import missed_end, stranded_wait, stray_wait
from ..connection.engine import PostgresEngine, PostgresTx
from ..rows.codec import SELECT_JOB, is_id, readable_job
from .statements import write_moves

#: (job, status it settled in)
Over = tuple[str, str]

_CROSS_OFF = "SELECT job_id, ons, more FROM mainstay.cross_off($1)"


async def settle(tx: PostgresTx, rows: Iterable[Job], chain: Chain) -> None:
    """Move the jobs on that waited for those of these rows that are settled."""
    await follow(tx, [(row.id, row.status) for row in rows if change_check.is_settled(row)], chain)


async def follow(tx: PostgresTx, over: Iterable[Over], chain: Chain) -> None:
    """Move the jobs on that waited for jobs that settled or were deleted, and in turn those that waited for them."""
    ended = dict(over)
    while ended:
        place = {job_id: at for at, job_id in enumerate(ended)}
        waiting: dict[str, tuple[list[Over], bool]] = {}
        for job_id, ons, more in await tx.db.fetch(_CROSS_OFF, list(ended)):
            in_order = [(on, ended[on]) for on in sorted(ons, key=place.__getitem__)]
            if not all(change_check.keeps_waiting(status, more=more) for _, status in in_order):
                waiting[job_id] = (in_order, more)
        rows = await _whole(tx, list(waiting), chain) if waiting else {}
        moved = [
            change
            for job_id, (in_order, more) in waiting.items()
            if (change := _judged(tx, rows.get(job_id), in_order, chain, more=more)) is not None
        ]
        await write_moves(tx, moved)
        ended = {change.after.id: change.after.status for change in moved if change_check.is_settled(change.after)}


async def over_by_now(tx: PostgresTx, ids: Sequence[str]) -> list[Over]:
    """Those of these jobs that are settled or deleted."""
    rows = await tx.db.fetch(
        "SELECT g.id, j.status FROM unnest($1::text[]) AS g (id) LEFT JOIN mainstay.jobs j ON j.id = g.id::uuid "
        "WHERE j.id IS NULL OR j.settled_ms IS NOT NULL",
        list(ids),
    )
    return [(row[0], change_check.GONE if row[1] is None else row[1]) for row in rows]


async def forget(tx: PostgresTx, job_id: str) -> None:
    """Remove the edges of a deleted job. `follow` moves the jobs on that wait for it."""
    await tx.db.execute("DELETE FROM mainstay.waits WHERE job_id = $1::text::uuid", job_id)


async def awaited(engine: PostgresEngine, job_id: str) -> list[str]:
    if not is_id(job_id):
        return []
    rows = await engine.call(
        "SELECT on_id::text FROM mainstay.waits WHERE job_id = $1::text::uuid ORDER BY place", job_id
    )
    return [row[0] for row in rows]


def _judged(tx: PostgresTx, row: Job | None, over: Sequence[Over], chain: Chain, *, more: bool) -> SealedChange | None:
    """The change of a job that waited for these, judged one after the other."""
    for place, (on, status) in enumerate(over):
        others = more or place < len(over) - 1
        moved = change_check.dependant_move(row, on, status, more=others, now_ms=tx.now_ms, chain=chain)
        if row is not None and moved is not None:
            return SealedChange.of(row, moved)
    return None


async def _whole(tx: PostgresTx, ids: Sequence[str], chain: Chain) -> dict[str, Job]:
    """Rows that can be read in full. A damaged one may hide what its job has to wait for."""
    found = {}
    for row in await tx.db.fetch(f"{SELECT_JOB} WHERE id = ANY ($1::text[]::uuid[])", list(ids)):
        job, damaged = readable_job(row, chain)
        if not damaged:
            found[job.id] = job
    return found


# -- the check ----------------------------------------------------------------------------------


async def check(tx: PostgresTx, chain: Chain, *, repair: bool) -> list[Violation]:
    return [
        *await _stray(tx, repair=repair),
        *await _missed_ends(tx, chain, repair=repair),
        *await _stranded(tx, chain, repair=repair),
    ]


async def _stray(tx: PostgresTx, *, repair: bool) -> list[Violation]:
    rows = await tx.db.fetch(
        "SELECT w.job_id::text, count(*) FROM mainstay.waits w "
        "WHERE NOT EXISTS (SELECT FROM mainstay.jobs j WHERE j.id = w.job_id) GROUP BY w.job_id ORDER BY w.job_id"
    )
    if repair:
        for job_id, _ in rows:
            await forget(tx, job_id)
    return [stray_wait(job_id, n, repaired=repair) for job_id, n in rows]


async def _missed_ends(tx: PostgresTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """Open edges to jobs that have settled or are deleted."""
    rows = await tx.db.fetch(
        "SELECT w.on_id::text, count(*), j.status FROM mainstay.waits w LEFT JOIN mainstay.jobs j ON j.id = w.on_id "
        "WHERE NOT w.done AND (j.id IS NULL OR j.settled_ms IS NOT NULL) GROUP BY w.on_id, j.status ORDER BY w.on_id"
    )
    if repair:
        for on, _, status in rows:
            await follow(tx, [(on, change_check.GONE if status is None else status)], chain)
    return [missed_end(on, n, status, repaired=repair) for on, n, status in rows]


async def _stranded(tx: PostgresTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """Rows that wait for other jobs and have no open edge."""
    lock = "FOR UPDATE" if repair else ""
    ids = await tx.db.fetch(
        "SELECT id::text FROM mainstay.jobs j WHERE lane = 2 AND due_ms = $1 AND settled_ms IS NULL "
        f"AND NOT EXISTS (SELECT FROM mainstay.waits w WHERE w.job_id = j.id AND NOT w.done) ORDER BY id {lock}",
        AWAITS_MS,
    )
    found = []
    for job_id, row in (await _whole(tx, [each[0] for each in ids], chain)).items():
        if change_check.is_waiting(row):  # damage of the row itself is found and repaired elsewhere
            found.append(stranded_wait(job_id, await _unstrand(tx, row, chain) if repair else None))
    return found


async def _unstrand(tx: PostgresTx, row: Job, chain: Chain) -> str | None:
    """Move it on; returns its new status."""
    awaited = await tx.db.fetch(
        "SELECT on_id::text, status FROM mainstay.waits w JOIN mainstay.jobs j ON j.id = w.on_id "
        "WHERE w.job_id = $1::text::uuid AND j.settled_ms IS NOT NULL ORDER BY place",
        row.id,
    )
    moved = change_check.stranded_move(row, [(on, status) for on, status in awaited], now_ms=tx.now_ms, chain=chain)
    if moved is None:
        return None
    await write_moves(tx, [SealedChange.of(row, moved)])
    await settle(tx, [moved.job], chain)
    return moved.job.status

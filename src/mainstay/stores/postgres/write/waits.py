"""Who waits for whom, inside a transaction.

An edge is open until the job it points to settles or goes. Whoever writes a row that is settled calls `settle` in the
same transaction. That the last of several jobs is never missed rests on locks and on the order of statements, each of
which sees what was committed before it began:

- who adds an edge locks the awaited row first (FOR SHARE), so it waits for a settle in flight, and then sees it;
- who settles a row has it locked by its update, and looks for open edges afterwards;
- who crosses edges off locks the waiters' rows first, and only then looks whether others are open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....lifecycle import Chain
from ....model import AWAITS_MS, Job
from ... import change_check
from ...port import Change, Violation
from ..connection.engine import PostgresEngine, PostgresTx
from ..rows.codec import SELECT_JOB, is_id, readable_job
from .statements import write_moves

#: (job, status it settled in)
Over = tuple[str, str]

_CROSS_OFF = "SELECT job_id, ons, more FROM mainstay.cross_off($1)"


async def settle(tx: PostgresTx, rows: Iterable[Job], chain: Chain) -> None:
    """Move on whoever waited for these rows, as far as they are settled."""
    await follow(tx, [(row.id, row.status) for row in rows if change_check.is_settled(row)], chain)


async def follow(tx: PostgresTx, over: Iterable[Over], chain: Chain) -> None:
    """Move on whoever waited for what settled or went, and whoever waited for those."""
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
    """Those of these jobs that are settled or gone."""
    rows = await tx.db.fetch(
        "SELECT g.id, j.status FROM unnest($1::text[]) AS g (id) LEFT JOIN mainstay.jobs j ON j.id = g.id::uuid "
        "WHERE j.id IS NULL OR j.settled_ms IS NOT NULL",
        list(ids),
    )
    return [(row[0], change_check.GONE if row[1] is None else row[1]) for row in rows]


async def forget(tx: PostgresTx, job_id: str) -> None:
    """A job goes: it waits for nothing any more. What waits for it is `follow`'s business."""
    await tx.db.execute("DELETE FROM mainstay.waits WHERE job_id = $1::text::uuid", job_id)


async def awaited(engine: PostgresEngine, job_id: str) -> list[str]:
    if not is_id(job_id):
        return []
    rows = await engine.call(
        "SELECT on_id::text FROM mainstay.waits WHERE job_id = $1::text::uuid ORDER BY place", job_id
    )
    return [row[0] for row in rows]


def _judged(tx: PostgresTx, row: Job | None, over: Sequence[Over], chain: Chain, *, more: bool) -> Change | None:
    """What becomes of one that waited for these, taken one after the other."""
    for place, (on, status) in enumerate(over):
        others = more or place < len(over) - 1
        moved = change_check.dependant_move(row, on, status, more=others, now_ms=tx.now_ms, chain=chain)
        if row is not None and moved is not None:
            return Change.of(row, moved)
    return None


async def _whole(tx: PostgresTx, ids: Sequence[str], chain: Chain) -> dict[str, Job]:
    """Rows that can be read in full: of a damaged one nobody knows what it was told to do."""
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
    found = []
    rows = await tx.db.fetch(
        "SELECT w.job_id::text, count(*) FROM mainstay.waits w "
        "WHERE NOT EXISTS (SELECT FROM mainstay.jobs j WHERE j.id = w.job_id) GROUP BY w.job_id ORDER BY w.job_id"
    )
    for job_id, n in rows:
        if repair:
            await forget(tx, job_id)
        message = f"it waits for {n} jobs, and there is no such job"
        done = "its waits were removed" if repair else None
        found.append(Violation(code="stray_wait", job_id=job_id, message=message, repaired=done))
    return found


async def _missed_ends(tx: PostgresTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """Somebody waits for a job that has settled or is gone."""
    rows = await tx.db.fetch(
        "SELECT w.on_id::text, count(*), j.status FROM mainstay.waits w LEFT JOIN mainstay.jobs j ON j.id = w.on_id "
        "WHERE NOT w.done AND (j.id IS NULL OR j.settled_ms IS NOT NULL) GROUP BY w.on_id, j.status ORDER BY w.on_id"
    )
    found = []
    for on, n, status in rows:
        if repair:
            await follow(tx, [(on, change_check.GONE if status is None else status)], chain)
        said = "was deleted" if status is None else f"is {status}"
        done = "they moved on" if repair else None
        found.append(
            Violation(code="wait_missed", job_id=on, message=f"{n} jobs wait for it, and it {said}", repaired=done)
        )
    return found


async def _stranded(tx: PostgresTx, chain: Chain, *, repair: bool) -> list[Violation]:
    """A row that waits for other jobs though none is left to wait for."""
    lock = "FOR UPDATE" if repair else ""
    ids = await tx.db.fetch(
        "SELECT id::text FROM mainstay.jobs j WHERE lane = 2 AND due_ms = $1 AND settled_ms IS NULL "
        f"AND NOT EXISTS (SELECT FROM mainstay.waits w WHERE w.job_id = j.id AND NOT w.done) ORDER BY id {lock}",
        AWAITS_MS,
    )
    found = []
    for job_id, row in (await _whole(tx, [each[0] for each in ids], chain)).items():
        if not change_check.is_waiting(row):
            continue  # what is wrong with the row itself is found and mended elsewhere
        done = await _unstrand(tx, row, chain) if repair else None
        message = "it waits for other jobs, and there is none left to wait for"
        found.append(Violation(code="wait_stranded", job_id=job_id, message=message, repaired=done))
    return found


async def _unstrand(tx: PostgresTx, row: Job, chain: Chain) -> str | None:
    there = await tx.db.fetch(
        "SELECT on_id::text, status FROM mainstay.waits w JOIN mainstay.jobs j ON j.id = w.on_id "
        "WHERE w.job_id = $1::text::uuid AND j.settled_ms IS NOT NULL ORDER BY place",
        row.id,
    )
    moved = change_check.stranded_move(row, [(on, status) for on, status in there], now_ms=tx.now_ms, chain=chain)
    if moved is None:
        return None
    await write_moves(tx, [Change.of(row, moved)])
    await settle(tx, [moved.job], chain)
    return f"it is {moved.job.status} now"

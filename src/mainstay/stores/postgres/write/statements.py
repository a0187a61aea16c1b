"""The statements that write changed rows, for whoever has decided what is to be written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from ....errors import Conflict
from ...columns import CHANGED
from ...port import Change
from ..connection.engine import PostgresTx
from ..connection.pool import Db
from ..rows.codec import EVENT_FIELDS, SEEN, Columns, change_arrays, event_arrays, spare
from .steps import Steps

T = TypeVar("T")

#: how many values follow those of the rows and events: what settles, the lead, the counts and the time
_MORE = 12
#: what a row must still be like, what it becomes, and the events that say so
_ARGUMENTS = SEEN + len(CHANGED) + len(EVENT_FIELDS) + _MORE
#: Writes changes of different rows, all or none, and answers '' if it did; see `sql/apply_plain.sql`.
APPLY = f"SELECT mainstay.apply_plain({', '.join(f'${n}' for n in range(1, _ARGUMENTS + 1))})"


def change_arguments(changes: Sequence[Change]) -> Columns:
    """The first arguments of `APPLY`: the rows and their events, in the order of the ids."""
    in_order = sorted(changes, key=_id) if len(changes) > 1 else changes
    return [
        *spare(change_arrays(in_order)),
        *spare(event_arrays(event for change in in_order for event in change.events)),
    ]


async def write_changes(tx: PostgresTx, changes: Sequence[Change]) -> bool:
    """Whether every row still was what its caller saw, no unique key has a new holder, and all are written. If not,
    none is. Counts, and what follows for other rows, are the caller's."""
    verdict = await tx.db.fetchval(
        APPLY, *change_arguments(changes), [], True, None, None, None, [], [], [], [], [], tx.now_ms, tx.lease_ms
    )
    return bool(verdict == "")


async def write_moves(tx: PostgresTx, changes: Sequence[Change]) -> None:
    """Changes of rows that are locked, so nothing can come in between."""
    if not changes:
        return
    if not await write_changes(tx, changes):
        raise Conflict(
            f"job {changes[0].after.id}, or one of {len(changes) - 1} others, changed while it was locked; "
            "nothing was written. Run: mainstay check"
        )
    tx.wrote([(change.before, change.after, change.events) for change in changes])


def _id(change: Change) -> str:
    return change.after.id


async def take_steps(db: Db, steps: Steps[T]) -> T:
    """Take steps on a connection of ours; what they come to."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(await db.fetch(asked.sql, *asked.args))
    except StopIteration as done:
        value: T = done.value
        return value


@asynccontextmanager
async def savepoint(db: Db) -> AsyncIterator[None]:
    """Part of a transaction: what is written inside is undone if it raises."""
    await db.raw.execute("SAVEPOINT part")
    try:
        yield
    except Exception:
        if not db.raw.is_closed():
            await db.raw.execute("ROLLBACK TO part; RELEASE part")
        raise
    await db.raw.execute("RELEASE part")

"""The statements that write changed rows, for whoever has decided what is to be written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from ...errors import Conflict
from ..columns import CHANGED
from ..port import Change
from ..within import Steps
from .engine import Tx
from .pool import Db
from .rows import EVENT_FIELDS, SEEN, change_arrays, event_arrays, spare

T = TypeVar("T")

#: what a row must still be like, what it becomes, and the events that say so
CHANGE_ARGUMENTS = SEEN + len(CHANGED) + len(EVENT_FIELDS)
_WRITE_CHANGES = f"SELECT mainstay.write_changes({', '.join(f'${n}' for n in range(1, CHANGE_ARGUMENTS + 1))})"


async def write_changes(tx: Tx, changes: Sequence[Change]) -> bool:
    """True if every row was still what its caller saw, and is written. If not, some may be: undo it."""
    events = event_arrays(event for change in changes for event in change.events)
    written = await tx.db.fetchval(_WRITE_CHANGES, *spare(change_arrays(changes)), *spare(events))
    return bool(written == len(changes))


async def write_moves(tx: Tx, changes: Sequence[Change]) -> None:
    """Changes of rows that are locked, so nothing can come in between."""
    if not changes:
        return
    if not await write_changes(tx, changes):
        raise Conflict(
            f"job {changes[0].after.id}, or one of {len(changes) - 1} others, changed while it was locked; "
            "nothing was written. Run: mainstay check"
        )
    tx.wrote([(change.before, change.after, change.events) for change in changes])


async def take(db: Db, steps: Steps[T]) -> T:
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

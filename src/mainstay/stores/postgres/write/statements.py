"""The statements that write changed rows, once it is decided what to write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ....errors import Conflict
from ....model import Leadership
from ...change_check import not_leader
from ...port import SealedChange
from ...row_codec import CHANGED, EVENT_FIELDS
from ..connection.engine import PostgresTx
from ..connection.pool import Db
from ..rows.codec import EXPECTED, Columns, change_arrays, event_arrays, spare, stored_text
from .steps import Steps

T = TypeVar("T")

#: the number of values after those of the rows and events: the settled ids, the leadership, the counts and the time
_MORE = 12
#: what a row must still have, its new values, and its events
_ARGUMENTS = EXPECTED + len(CHANGED) + len(EVENT_FIELDS) + _MORE
#: Writes changes of different rows, all or none; returns '' if they were written. See `sql/apply_plain.sql`.
APPLY = f"SELECT mainstay.apply_plain({', '.join(f'${n}' for n in range(1, _ARGUMENTS + 1))})"


def change_arguments(changes: Sequence[SealedChange]) -> Columns:
    """The first arguments of `APPLY`: the rows and their events, in the order of the ids."""
    in_order = sorted(changes, key=_id) if len(changes) > 1 else changes
    return [
        *spare(change_arrays(in_order)),
        *spare(event_arrays(event for change in in_order for event in change.events)),
    ]


async def write_changes(tx: PostgresTx, changes: Sequence[SealedChange]) -> bool:
    """Write changes of different rows, all or none. False if a row is not as its caller saw it, or another job has
    taken a unique key. The caller updates the counts and moves other rows on."""
    verdict = await tx.db.fetchval(
        APPLY, *change_arguments(changes), [], True, None, None, None, [], [], [], [], [], tx.now_ms, tx.lease_ms
    )
    return bool(verdict == "")


async def write_moves(tx: PostgresTx, changes: Sequence[SealedChange]) -> None:
    """Write changes of rows that this transaction has locked, so that they must succeed."""
    if not changes:
        return
    if not await write_changes(tx, changes):
        raise Conflict(
            f"job {changes[0].after.id}, or one of {len(changes) - 1} others, changed while it was locked; "
            "nothing was written. Run: mainstay check"
        )
    tx.wrote([(change.before, change.after, change.events) for change in changes])


def _id(change: SealedChange) -> str:
    return change.after.id


async def take_steps(db: Db, steps: Steps[T]) -> T:
    """Run steps on a connection of ours; returns their result."""
    try:
        statement = next(steps)
        while True:
            statement = steps.send(await db.fetch(statement.sql, *statement.args))
    except StopIteration as done:
        value: T = done.value
        return value


#: the leadership as it is stored
LEADERSHIP = "SELECT holder, epoch, until_ms FROM mainstay.leaders WHERE name = $1"


def leadership_from(lead: Leadership, rows: Sequence[Any], lease_ms: int) -> Leadership | None:
    """The current leadership, from `LEADERSHIP`. It has no holder if its time is over."""
    if not rows:
        return None
    [(holder, epoch, until_ms)] = rows
    return Leadership(name=lead.name, holder=holder if until_ms > lease_ms else "", epoch=epoch, until_ms=until_ms)


async def fence(tx: PostgresTx, lead: Leadership | None) -> None:
    """Refuse the writes of a leader whose epoch is over. The row stays locked, so that no other session begins to lead
    before this transaction ends."""
    if lead is None:
        return
    leads = await tx.db.fetchval(
        "SELECT mainstay.leads($1, $2, $3, $4)", stored_text(lead.name), lead.holder, lead.epoch, tx.lease_ms
    )
    if not leads:
        raise not_leader(
            lead, leadership_from(lead, await tx.db.fetch(LEADERSHIP, stored_text(lead.name)), tx.lease_ms)
        )


@asynccontextmanager
async def savepoint(db: Db) -> AsyncIterator[None]:
    """A part of a transaction that is undone if it raises."""
    await db.raw.execute("SAVEPOINT part")
    try:
        yield
    except Exception:
        if not db.raw.is_closed():
            await db.raw.execute("ROLLBACK TO part; RELEASE part")
        raise
    await db.raw.execute("RELEASE part")

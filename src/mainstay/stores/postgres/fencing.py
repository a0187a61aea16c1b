"""A leader's writes end with its epoch."""

from __future__ import annotations

from ...errors import NotLeader
from ...model import Leadership
from .engine import Tx


async def fence(tx: Tx, held: Leadership | None) -> None:
    """Refuse a leader's write after its epoch. Its row stays locked, so that nobody else begins to lead before this
    transaction ends."""
    if held is None:
        return
    row = await tx.db.fetchrow(
        "SELECT 1 FROM mainstay.leaders WHERE name = $1 AND holder = $2 AND epoch = $3 AND until_ms > $4 FOR SHARE",
        held.name,
        held.holder,
        held.epoch,
        tx.lease_ms,
    )
    if row is None:
        raise not_leader(held)


def not_leader(held: Leadership) -> NotLeader:
    return NotLeader(
        f"session {held.holder} no longer leads {held.name!r} (epoch {held.epoch} is over); nothing was written"
    )

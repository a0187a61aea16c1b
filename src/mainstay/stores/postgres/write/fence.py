"""A leader's writes end with its epoch."""

from __future__ import annotations

from ....errors import NotLeader
from ....model import Leadership
from ..connection.engine import PostgresTx
from ..rows.codec import stored_text


async def fence(tx: PostgresTx, held: Leadership | None) -> None:
    """Refuse a leader's write after its epoch. Its row stays locked, so that nobody else begins to lead before this
    transaction ends."""
    if held is None:
        return
    leads = await tx.db.fetchval(
        "SELECT mainstay.leads($1, $2, $3, $4)", stored_text(held.name), held.holder, held.epoch, tx.lease_ms
    )
    if not leads:
        raise not_leader(held)


def not_leader(held: Leadership) -> NotLeader:
    return NotLeader(
        f"session {held.holder} no longer leads {held.name!r} (epoch {held.epoch} is over); nothing was written"
    )

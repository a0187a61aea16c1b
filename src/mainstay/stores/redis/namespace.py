"""What a namespace remembers of itself: the version of its layout, and which audit key its trail is sealed with."""

from __future__ import annotations

from ...errors import SchemaTooNew
from ..audit_key import admit_fingerprint
from .base import Base

#: of the keys and rows, as `lua/prelude.lua` lays them out
VERSION = 1


async def admit(base: Base) -> None:
    """Mark a new namespace as ours; refuse one of a newer version or with another audit key."""
    shown = base.server.address.shown
    # a script, because a server whose memory is full refuses plain writes, and its jobs must be within reach
    version, audit = await base.scripts.run("registry", ["admit", VERSION, base.chain.fingerprint])
    if int(version) > VERSION:
        raise SchemaTooNew(
            f"{shown} (prefix {base.server.address.prefix}) has layout version {int(version)}, this Mainstay knows up "
            f"to {VERSION}: upgrade Mainstay in this environment; nothing was changed"
        )
    admit_fingerprint(audit.decode(), base.chain.fingerprint, shown)

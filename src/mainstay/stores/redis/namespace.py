"""What a namespace remembers of itself: the version of its layout, and which audit key its trail is sealed with."""

from __future__ import annotations

from ..audit_key import admit_fingerprint
from ..compatibility import refuse_newer
from .base import RedisBase

#: of the keys and rows, as `lua/prelude.lua` lays them out
VERSION = 1
#: the oldest version of programs that can work with it: raised when a key or a field that they use is gone or means
#: something else, and then not above VERSION - 1
COMPATIBLE_FROM = 1


async def admit(base: RedisBase) -> None:
    """Mark a new namespace as ours; refuse one of a version that is too new, or with another audit key."""
    shown = base.server.address.shown
    # a script, because a server whose memory is full refuses plain writes, and its jobs must be within reach
    answer = await base.scripts.run("directory", ["admit", VERSION, base.chain.fingerprint, COMPATIBLE_FROM])
    version, audit, compatible = answer
    place = f"{shown} (prefix {base.server.address.prefix})"
    refuse_newer(place, version=int(version), compatible=int(compatible), known=VERSION)
    admit_fingerprint(audit.decode(), base.chain.fingerprint, shown)

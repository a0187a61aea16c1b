"""Whether the servers of the bus fit a cluster: what a manager refuses when it joins, and what `cluster check` reports.

A server with the configuration of `mainstay cluster certs config` has nothing to report.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..bus import MAX_BODY_BYTES
from ..bus.nats import BusEngine
from ..clock import duration_text
from ..errors import BusError

#: bytes of a message beside its body: subject, reply and headers
_ENVELOPE = 1024
#: the first version that begins with TLS as our clients do
OLDEST = (2, 10, 4)
_FIX = "write its configuration with: mainstay cluster certs config"


def check_joined(*, version: tuple[int, int, int], max_payload: int) -> None:
    """Refuse a server that cannot carry the messages of a cluster."""
    if version < OLDEST and version != (0, 0, 0):
        raise BusError(f"nats-server {_text(version)} is too old: {_text(OLDEST)} or later is needed")
    if max_payload < MAX_BODY_BYTES + _ENVELOPE:
        raise BusError(
            f"the bus carries messages of {max_payload} bytes, and the largest of a cluster have "
            f"{MAX_BODY_BYTES + _ENVELOPE}: set max_payload to 1100000, or {_FIX}"
        )


def findings(engines: Sequence[BusEngine], *, presence: bool, denied: Sequence[str], away_s: float) -> list[str]:
    """What an operator should change about the servers of the bus."""
    found = [f"the bus refuses something that a manager needs ({each}); {_FIX}, and reload it" for each in denied]
    if not presence:
        found.append(
            "the bus does not report connections to managers, so a node that ended is noticed by its silence only: "
            f"the system account has to export them; {_FIX}"
        )
    for engine in engines:
        if engine.notices_s > away_s:
            found.append(
                f"server {engine.name} of the bus notices a frozen client after {duration_text(engine.notices_s)}, "
                f'and a node is away after {duration_text(away_s)}: set ping_interval "2s" and ping_max 2, or {_FIX}'
            )
        if engine.max_payload < MAX_BODY_BYTES + _ENVELOPE:
            found.append(
                f"server {engine.name} of the bus has a max_payload of {engine.max_payload}; set it to 1100000"
            )
    if len({engine.version for engine in engines}) > 1:
        versions = ", ".join(f"{engine.name} {engine.version}" for engine in engines)
        found.append(f"the servers of the bus have different versions: {versions}")
    return found


def _text(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


__all__ = ["OLDEST", "check_joined", "findings"]

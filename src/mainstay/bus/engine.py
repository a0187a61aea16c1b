"""How a server of the bus is configured, as it says itself."""

from __future__ import annotations

import msgspec

#: asks every server; its configuration imports this service from the system account
PING_VARZ = "$SYS.REQ.SERVER.PING.VARZ"
_NANOSECONDS = 1e9


class BusEngine(msgspec.Struct, frozen=True, kw_only=True):
    """One server."""

    name: str
    version: str
    max_payload: int
    """bytes of the largest message that it carries"""
    ping_interval_s: float
    ping_max: int
    """pings without an answer, after which it closes a connection"""

    @property
    def notices_s(self) -> float:
        """After how many seconds it notices that a client is frozen."""
        return self.ping_interval_s * (self.ping_max + 1)


class _Varz(msgspec.Struct):
    server_name: str = ""
    version: str = ""
    max_payload: int = 0
    ping_interval: int = 0
    ping_max: int = 0


class _VarzAnswer(msgspec.Struct):
    data: _Varz


def read_varz(body: bytes) -> BusEngine:
    """The answer of one server; raises `msgspec.MsgspecError`."""
    found = msgspec.json.decode(body, type=_VarzAnswer).data
    return BusEngine(
        name=found.server_name,
        version=found.version,
        max_payload=found.max_payload,
        ping_interval_s=found.ping_interval / _NANOSECONDS,
        ping_max=found.ping_max,
    )


__all__ = ["PING_VARZ", "BusEngine", "read_varz"]

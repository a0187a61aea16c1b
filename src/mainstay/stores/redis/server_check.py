"""The requirements on a server, checked when a store is opened; and the durability of a call."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from redis import exceptions as driver

from ...errors import StoreError, StoreReadOnly, UnsafeEngine
from ..durability import Durability, refused
from .address import RedisAddress
from .wire import RedisWire

OLDEST = (7, 0)
_KEEPS = "noeviction"
#: the first that knows WAITAOF; Valkey began with it
_WAITS_FOR_DISK = (7, 2)


class RedisServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a server, as it reports it."""

    product: str
    version: str
    cluster: bool = False
    replica: bool = False
    policy: str | None = None
    """maxmemory-policy"""
    appendonly: bool | None = None
    appendfsync: str | None = None
    """None: the server does not report it"""

    @property
    def forces(self) -> bool:
        """Whether every acknowledged call is on the disk anyway."""
        return self._forcing == "always"

    def check_forced(self, level: Durability) -> None:
        """Refuse a level that this server cannot give."""
        if level != "local":
            raise refused(level, "a Redis server does not wait for its replicas", can=["local"])
        if self._forcing == "off":
            raise refused(level, "the server keeps no append-only file (appendonly no): set appendonly yes there")
        if not self.forces and _numbers(self.version) < _WAITS_FOR_DISK:
            raise refused(
                level,
                f"waiting for its disk (WAITAOF) needs Redis 7.2 or Valkey, and this is {self.product} {self.version}: "
                "upgrade it, or set appendfsync always there",
            )

    def durability_at(self, level: Durability | None) -> str:
        """What an acknowledged call survives at a level, as a sentence."""
        if level is None or self.forces:
            return self.durability
        return _FORCED

    @property
    def durability(self) -> str:
        """What an acknowledged call survives, as a sentence."""
        text = _SURVIVES[self._forcing]
        if self.policy not in (_KEEPS, None):
            text += f". When its memory is full the server evicts jobs (maxmemory-policy {self.policy})"
        return text

    @property
    def _forcing(self) -> str:
        if not self.appendonly:
            return "unknown" if self.appendonly is None else "off"
        return self.appendfsync if self.appendfsync in ("always", "everysec", "no") else "unknown"


_SURVIVES: Mapping[str, str] = {
    "always": (
        "an answer survives the death of this process, of the server and of its machine (appendfsync always); a "
        "failover to a replica may lose what was not copied yet"
    ),
    "everysec": (
        "an answer survives the death of this process; the death of the server's machine may take the last second or "
        "two of answered calls (appendfsync everysec), and so may the death of the server, which keeps in its memory "
        "what it answers while it syncs"
    ),
    "no": (
        "an answer survives the death of this process; the death of the server's machine may take the last half minute "
        "of answered calls or more (appendfsync no)"
    ),
    "off": (
        "an answer survives the death of this process, but not of the server: it keeps no append-only file "
        "(appendonly no), so a restart takes all that came after its last snapshot, if it makes any"
    ),
    "unknown": (
        "an answer survives the death of this process; what the death of the server takes is not known, because it "
        "does not let this user ask (CONFIG GET appendonly, appendfsync)"
    ),
}

_FORCED = (
    "an answer to a submit, and to the end of a job, survives the death of this process, of the server and of its "
    "machine: it waits for the disk (WAITAOF); a failover to a replica may lose what was not copied yet"
)


async def facts(wire: RedisWire) -> RedisServerFacts:
    """Ask the server. CONFIG may be forbidden (as on hosted servers), INFO may not."""
    info = await _info(wire)
    settings = await _settings(wire)
    aof = settings.get("appendonly") or {"0": "no", "1": "yes"}.get(info.get("aof_enabled", ""))
    return RedisServerFacts(
        product="Valkey" if "valkey_version" in info else "Redis",
        version=info.get("valkey_version") or info.get("redis_version", "0"),
        cluster=info.get("cluster_enabled") == "1",
        replica=info.get("role") == "slave",
        policy=settings.get("maxmemory-policy") or info.get("maxmemory_policy"),
        appendonly=None if aof is None else aof == "yes",
        appendfsync=settings.get("appendfsync"),
    )


def admit(found: RedisServerFacts, address: RedisAddress) -> None:
    """Refuse a server that would not keep jobs safe."""
    shown = address.shown
    if _numbers(found.version) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise StoreError(f"{shown} is {found.product} {found.version}; Mainstay needs {oldest} or newer: upgrade it")
    if found.replica:
        raise StoreReadOnly(f"{shown} is a read-only replica; name the primary in the store's URL")
    if found.cluster and address.db:
        raise StoreError(f"{shown}: a cluster has one database, number 0; use prefix=NAME to keep applications apart")
    if found.policy not in (_KEEPS, None) and not address.allow_eviction:
        raise UnsafeEngine(
            f"{shown} evicts keys when its memory is full (maxmemory-policy {found.policy}), including jobs. Set it to "
            f"{_KEEPS} (redis-cli CONFIG SET maxmemory-policy {_KEEPS}, and in its configuration), or use a separate "
            "server; to accept the loss, add allow_eviction=on to the store's URL"
        )


async def _info(wire: RedisWire) -> dict[str, str]:
    lines = (await wire.ask("INFO")).decode(errors="replace").splitlines()
    return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}


async def _settings(wire: RedisWire) -> dict[str, str]:
    try:
        reply = await wire.ask("CONFIG", "GET", "appendonly", "appendfsync", "maxmemory-policy")
    except driver.ResponseError:  # renamed, or forbidden to this user
        return {}
    return {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])

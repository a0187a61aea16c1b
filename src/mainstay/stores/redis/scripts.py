"""The scripts: assembled from `lua/`, loaded once, called by name.

Each is one atomic step on the server. A script is the prelude, the parts it uses and its own file, in this order;
`lua/prelude.lua` has the key layout. Arguments are sent as one msgpack value. In it False stands for none, because
Lua's lists end at a nil; and bytes are sent as text (`blob`), because Redis cannot unpack bytes. Arguments that are
bytes themselves are converted.

    reply = await scripts.run("claim", [queues, session, 10, nonce, [], [], False, False, 0, False])
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from redis import exceptions as driver

from ...clock import Clock
from ...errors import InvalidInput, StoreLocked, StoreUnavailable
from ...lifecycle import JOB, UNIT
from ...model import AWAITS_MS, LEAD_QUEUE, PLACE_MS, PLACE_QUEUE
from ..bounds import LONG
from ..change_check import GONE, PLACEMENT_TOPIC, TAKEN_BACK
from ..server_clock import ServerClock
from .connection import RedisServer
from .wire import RedisWire

_WRITES = ("writes", "slots", "wakes")

#: the parts between the prelude and each script
PARTS: dict[str, tuple[str, ...]] = {
    "insert": (*_WRITES, "entry"),
    "claim": (*_WRITES, "change"),
    "unclaim": _WRITES,
    "route": _WRITES,
    "apply": (*_WRITES, "change"),
    "report": (*_WRITES, "reports"),
    "beat": (*_WRITES, "reports"),
    "look": (),
    "commit": (*_WRITES, "change", "entry"),
    "turn": (),
    "wake": _WRITES,
    "directory": _WRITES,
    "queries": (),
    "retention": (*_WRITES, "change"),
    "audit": (*_WRITES, "change"),
    "waits": (),
    "force": (),
}

#: scripts that write nothing
_READS = ("look", "queries")

#: how long a call waits for decisions that have the turn
_MOST_PATIENCE_S = 30.0
_LONGEST_PAUSE_S = 0.02
#: how long a call waits for the server's disk; less than a connection waits for a reply
FORCED_WITHIN_S = 10.0

_encode = msgspec.msgpack.Encoder().encode


class Scripts:
    """The scripts of one namespace on one server. Use it on the store's own loop only."""

    def __init__(self, server: RedisServer, clock: Clock, rng: random.Random) -> None:
        self._server = server
        self._clock = clock
        self._rng = rng
        self.tag = server.address.tag

    def key(self, name: str) -> str:
        """A key of this namespace; `lua/prelude.lua` lists them."""
        return self.tag + name

    async def run(self, name: str, args: Sequence[Any], *, forced: bool = False) -> list[Any]:
        """Run a script. Returns its reply without the time. Waits while another decision about the same jobs has the
        turn (`transaction.py`). `forced`: return when what it wrote, or found written, is on the server's disk."""
        text, sha = script(name)
        packed = _encode([blob(arg) if isinstance(arg, bytes) else arg for arg in args])
        sent_before = False
        clock = self._clock
        ours = isinstance(clock, ServerClock)

        async def work(wire: RedisWire) -> list[Any] | None:
            nonlocal sent_before
            before, sent_before = sent_before, True
            again = "1" if before else "0"
            now_ms, lease_ms = ("", "") if ours else (clock.now_ms(), clock.lease_ms())
            sent = clock.steady() if isinstance(clock, ServerClock) else 0.0
            rest = (1, self.tag, now_ms, lease_ms, again, packed)
            try:
                try:
                    reply = await wire.ask("EVALSHA", sha, *rest)
                except driver.NoScriptError:
                    reply = await wire.ask("EVAL", text, *rest)
                if forced:
                    await self._force(wire)
            except driver.ResponseError as error:
                if not str(error).startswith("TURN "):
                    raise
                sent_before = before  # this attempt wrote nothing
                return None
            if isinstance(clock, ServerClock):
                clock.heard(reply[0], sent=sent, received=clock.steady())
            return list(reply)

        loop = asyncio.get_running_loop()
        until = loop.time() + _MOST_PATIENCE_S
        while (reply := await self._server.call(work)) is None:
            if loop.time() > until:
                raise StoreLocked(
                    f"{self._server.address.shown}: other decisions about the same jobs had precedence for "
                    f"{_MOST_PATIENCE_S:.0f} s; nothing was written. Try again"
                )
            await asyncio.sleep(self._rng.uniform(0, _LONGEST_PAUSE_S))
        return reply[1:]

    async def _force(self, wire: RedisWire) -> None:
        """Wait until the server's file is on its disk up to here. The server waits for the writes of this connection,
        so there is one first: the script may have found what another connection has just written."""
        mark, _ = script("force")
        place = self._server.address.shown
        try:
            _, forced = await asyncio.gather(
                wire.ask("EVAL", mark, 1, self.tag, "", "", "0", _encode([])),
                wire.ask("WAITAOF", 1, 0, round(FORCED_WITHIN_S * 1000)),
            )
        except driver.ResponseError as error:
            raise InvalidInput(
                "durability",
                f"{place} cannot wait for its disk ({error}). The call succeeded, but is not forced to the disk; leave "
                "the durability out, or set appendonly yes on the server",
            ) from error
        if forced[0] < 1:
            raise StoreUnavailable(
                f"{place} did not force its file to the disk within {FORCED_WITHIN_S:g} s. The call succeeded, but may "
                "be lost if the server dies now; repeating it is safe, with an idempotency key for a submit"
            )


def blob(value: bytes) -> msgspec.Raw:
    """Bytes as part of the arguments of a script."""
    n = len(value)
    if n < 32:
        return msgspec.Raw(bytes((0xA0 | n,)) + value)
    if n < 0x100:
        return msgspec.Raw(bytes((0xD9, n)) + value)
    if n < 0x10000:
        return msgspec.Raw(b"\xda" + n.to_bytes(2, "big") + value)
    return msgspec.Raw(b"\xdb" + n.to_bytes(4, "big") + value)


@cache
def script(name: str) -> tuple[str, str]:
    """A script and the digest that the server knows it by."""
    # a full server accepts no new jobs, but must let existing jobs end: heartbeats, completions, trims
    head = "#!lua" if name == "insert" else "#!lua flags=allow-oom"
    if name in _READS:
        head += ",no-writes"  # a replica runs them, too
    text = "\n".join([head, _constants(), *(_text(part) for part in ("prelude", *PARTS[name], name))])
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _text(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def _constants() -> str:
    """Constants from the tables of the lifecycle: no script lists states."""
    [claimable] = {*JOB.named("claimable"), *UNIT.named("claimable")}
    lines = (
        f"local CLAIMABLE, GONE, AWAITS = '{claimable}', '{GONE}', {AWAITS_MS}",
        f"local NEVER = {PLACE_MS}  -- due times from here on never come",
        f"local LONG = {LONG}",
        f"local PLACED = {{QUEUE = '{PLACE_QUEUE}', ASSIGNED = 'dispatched', CANCELLED = 'cancelled'}}",
        f"PLACED.LED, PLACED.TOPIC = '{LEAD_QUEUE}', '{PLACEMENT_TOPIC}'",
        f"PLACED.TAKEN_BACK = {_set(TAKEN_BACK)}",
        f"local STOPPING = {_set({*JOB.named('stopping'), *UNIT.named('stopping')})}",
        f"local KNOWN = {_set({*JOB.states, *UNIT.states})}",
    )
    return "\n".join(lines)


def _set(names: Iterable[str]) -> str:
    return "{" + ", ".join(f"[{name!r}] = true" for name in sorted(names)) + "}"

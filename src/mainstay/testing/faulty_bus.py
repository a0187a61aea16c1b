"""A bus that misbehaves on demand: slow links, lost, repeated and reordered messages, one-way cuts, slow hosts."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import Counter, deque
from collections.abc import Callable

import msgspec

from ..bus import MemoryBusNetwork
from ..errors import InvalidInput

_PARTS = ("lost", "duplicated", "reordered", "no_responders")
_TIMES = ("latency_s", "jitter_s", "late_s", "slow_s")


class BusFaults(msgspec.Struct, frozen=True, kw_only=True):
    """How a link of a `FaultyBusNetwork` misbehaves. The default is a link without faults."""

    latency_s: float = 0.0
    """each message takes this long"""
    jitter_s: float = 0.0
    """and a random time up to this; messages of one link stay in order"""
    lost: float = 0.0
    """part of the messages that never arrive: 0.1 is one in ten"""
    duplicated: float = 0.0
    """part of the messages that arrive a second time, up to `late_s` later"""
    reordered: float = 0.0
    """part of the messages that arrive up to `late_s` late, so that later ones overtake them"""
    late_s: float = 1.0
    """how late a second copy or a reordered message is, at most"""
    no_responders: float = 0.0
    """part of the requests that do not find the subscriptions of the host, as after its reconnect. If no other host
    subscribes, they raise `NoResponders`"""
    slow_s: float = 0.0
    """the host at the end of the link needs this long for each message, and the others wait"""
    backlog: int = 500
    """how many messages wait for a slow host; more are lost"""

    def __post_init__(self) -> None:
        for field in _PARTS:
            value = getattr(self, field)
            if not 0 <= value <= 1:
                raise InvalidInput(field, f"{value} is not between 0 and 1")
        for field in _TIMES:
            value = getattr(self, field)
            if not value >= 0:
                raise InvalidInput(field, f"{value} is negative")
        if self.backlog < 1:
            raise InvalidInput("backlog", f"{self.backlog} is not at least 1")


class _Link:
    """The way from one host to another. Messages that keep their order leave its queue one by one."""

    def __init__(self) -> None:
        self.queue: deque[Callable[[], None]] = deque()
        #: when the last of them arrives
        self.last_s = 0.0

    def deliver_next(self) -> None:
        self.queue.popleft()()


class FaultyBusNetwork(MemoryBusNetwork):
    """A memory bus whose messages travel over unreliable links between hosts. `rng` decides every fault.

    Assign `faults` to change the weather on all links, and `links["a", "b"]` for the messages from host a to host b;
    `BusFaults()` heals. `cut("a", "b")` loses every message from a to b, but none from b to a, until `join("a", "b")`.
    What is already on its way arrives in spite of both. `counts` says what has happened: sent, lost, duplicated,
    reordered.

    >>> from mainstay.errors import RequestTimeout
    >>> from mainstay.testing import run_virtual
    >>> async def main():
    ...     network = FaultyBusNetwork(rng=random.Random(1), faults=BusFaults(latency_s=0.05))
    ...     manager, node = network.client("manager"), network.client("node")
    ...     async with await node.subscribe("control.status") as asked:
    ...         network.cut("node", "manager")
    ...         try:
    ...             await manager.request("control.status", b"", 2)
    ...         except RequestTimeout as error:
    ...             print(error)
    ...         return asked.waiting
    >>> run_virtual(main())
    a request to control.status was not answered within 2 s; it may have been processed. Send it again if it can be \
repeated, or check what it did
    1
    """

    def __init__(self, *, rng: random.Random, faults: BusFaults | None = None) -> None:
        super().__init__()
        self.faults = faults or BusFaults()
        self.links: dict[tuple[str, str], BusFaults] = {}
        self.counts: Counter[str] = Counter()
        self._rng = rng
        self._cuts: dict[tuple[str, str], None] = {}
        self._ways: dict[tuple[str, str], _Link] = {}
        #: for each slow host: when it has read what was sent to it, and how many messages that is
        self._busy_until_s: dict[str, float] = {}
        self._backlog: Counter[str] = Counter()

    def cut(self, source: str, destination: str) -> None:
        """Lose every message from one host to another. The other direction still works."""
        self._cuts[source, destination] = None

    def join(self, source: str, destination: str) -> None:
        """End a cut."""
        self._cuts.pop((source, destination), None)

    def join_all(self) -> None:
        """End all cuts."""
        self._cuts.clear()

    def is_known(self, source: str, destination: str) -> bool:
        return not self._happens(self._faults_of(source, destination).no_responders)

    def carry(self, source: str, destination: str, deliver: Callable[[], None]) -> None:
        # in a context of its own: on its way a message belongs to no host, so that it does not crash or freeze with its
        # sender, and does not arrive by the clock of its sender
        contextvars.Context().run(self._send_off, source, destination, deliver)

    def _send_off(self, source: str, destination: str, deliver: Callable[[], None]) -> None:
        faults = self._faults_of(source, destination)
        self.counts["sent"] += 1
        if (source, destination) in self._cuts or self._happens(faults.lost):
            self.counts["lost"] += 1
            return
        self._carry_once(source, destination, faults, deliver)
        if self._happens(faults.duplicated):
            self.counts["duplicated"] += 1
            self._at(self._arrival_s(faults) + self._late_s(faults), deliver)

    def _carry_once(self, source: str, destination: str, faults: BusFaults, deliver: Callable[[], None]) -> None:
        if self._happens(faults.reordered):
            self.counts["reordered"] += 1
            self._at(self._arrival_s(faults) + self._late_s(faults), deliver)
            return
        way = self._ways.setdefault((source, destination), _Link())
        arrival_s = max(way.last_s, self._arrival_s(faults))
        if faults.slow_s:
            if self._backlog[destination] >= faults.backlog:
                self.counts["lost"] += 1
                return
            arrival_s = max(arrival_s, self._busy_until_s.get(destination, 0.0)) + faults.slow_s
            self._busy_until_s[destination] = arrival_s
            deliver = self._read_slowly(destination, deliver)
        way.last_s = arrival_s
        # the queue keeps the order: asyncio does not promise one for timers of the same moment
        way.queue.append(deliver)
        self._at(arrival_s, way.deliver_next)

    def _read_slowly(self, destination: str, deliver: Callable[[], None]) -> Callable[[], None]:
        def read() -> None:
            self._backlog[destination] -= 1
            deliver()

        self._backlog[destination] += 1
        return read

    def _arrival_s(self, faults: BusFaults) -> float:
        jitter_s = faults.jitter_s * self._rng.random() if faults.jitter_s else 0.0
        return asyncio.get_running_loop().time() + faults.latency_s + jitter_s

    def _late_s(self, faults: BusFaults) -> float:
        return faults.late_s * self._rng.random()

    def _at(self, when_s: float, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_at(when_s, call)

    def _happens(self, part: float) -> bool:
        return part > 0 and self._rng.random() < part

    def _faults_of(self, source: str, destination: str) -> BusFaults:
        return self.links.get((source, destination), self.faults)


__all__ = ["BusFaults", "FaultyBusNetwork"]

"""Faults of a bus that overlap: each begins and ends by itself, and the network shows all that are on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product

from mainstay.testing import BusFaults, FaultyBusNetwork

#: a network that loses, repeats and reorders
_LOSSY = {"lost": 0.3, "duplicated": 0.2, "reordered": 0.2}


class BusWeather:
    """The faults of the links between hosts. `client_of` names the clients of a host on the bus."""

    def __init__(self, network: FaultyBusNetwork, hosts: Sequence[str], calm: BusFaults) -> None:
        self._network = network
        self._hosts = tuple(hosts)
        self._calm = network.faults = calm
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._lossy: Counter[str] = Counter()
        self._unplugged: Counter[str] = Counter()

    def pairs(self, kind: str, host: str) -> list[tuple[str, str]]:
        """The ways that a fault of this kind cuts."""
        match kind:
            case "deaf":
                return [(other, host) for other in self._hosts]
            case "mute":
                return [(host, other) for other in self._hosts]
            case "one_way":
                source, _, destination = host.partition(">")
                return [(source, destination)]
            case "split":
                here = host.split("+")
                there = [name for name in self._hosts if name not in here]
                return [*product(here, there), *product(there, here)]
            case _:
                return list(product(self._hosts, self._hosts))

    def cut(self, pairs: Sequence[tuple[str, str]]) -> None:
        for pair in pairs:
            self._cuts[pair] += 1
            self._network.cut(*pair)

    def join(self, pairs: Sequence[tuple[str, str]]) -> None:
        for pair in pairs:
            self._cuts[pair] -= 1
            if not self._cuts[pair]:
                self._network.join(*pair)

    def spoil(self, host: str, times: int) -> None:
        """Begin (1) or end (-1) a loss of messages from and to a host; empty: everywhere."""
        self._lossy[host] += times
        bad = BusFaults(latency_s=self._calm.latency_s, jitter_s=self._calm.jitter_s, late_s=2.0, **_LOSSY)
        self._network.faults = bad if self._lossy[""] else self._calm
        lossy = {name for name in self._hosts if self._lossy[name]}
        self._network.links = {
            pair: bad for pair in product(self._hosts, self._hosts) if pair[0] in lossy or pair[1] in lossy
        }

    def unplug(self, client: str, times: int) -> None:
        """Begin (1) or end (-1) a loss of the connection of a client."""
        before = self._unplugged[client]
        self._unplugged[client] += times
        if not before:
            self._network.disconnect(client)
        elif not self._unplugged[client]:
            self._network.reconnect(client)

    def is_heard(self, source: str, destination: str) -> bool:
        """Whether messages arrive that one host sends to another."""
        cut = self._cuts[source, destination] > 0
        return not cut and not any(self._lossy[name] for name in ("", source, destination))

    def is_unplugged(self, client: str) -> bool:
        return self._unplugged[client] > 0

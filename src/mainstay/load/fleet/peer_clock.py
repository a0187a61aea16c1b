"""How far the steady clock of another machine is from ours, measured over the bus."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

#: old ones are forgotten, because two clocks drift
_SAMPLES = 16


class RoundTrip(NamedTuple):
    """One question and its answer."""

    took_s: float
    offset_s: float


class PeerClock:
    """The clock of a peer, from the fastest of the last round trips.

    >>> clock = PeerClock()
    >>> clock.add(sent_s=10.0, peer_s=110.3, received_s=10.5)
    >>> clock.add(sent_s=11.0, peer_s=111.05, received_s=11.1)
    >>> round(clock.offset_s, 6), round(clock.doubt_s, 6)
    (100.0, 0.05)
    """

    def __init__(self) -> None:
        self._trips: deque[RoundTrip] = deque(maxlen=_SAMPLES)

    def __len__(self) -> int:
        return len(self._trips)

    def add(self, *, sent_s: float, peer_s: float, received_s: float) -> None:
        """The peer's clock was at `peer_s` between two moments of ours."""
        self._trips.append(RoundTrip(received_s - sent_s, peer_s - (sent_s + received_s) / 2))

    @property
    def round_trip_s(self) -> float:
        return min((trip.took_s for trip in self._trips), default=math.inf)

    @property
    def offset_s(self) -> float:
        """Their clock minus ours."""
        return min(self._trips).offset_s if self._trips else 0.0

    @property
    def doubt_s(self) -> float:
        """How far the offset may be off: the answer may have been given at any moment of the round trip."""
        return self.round_trip_s / 2
